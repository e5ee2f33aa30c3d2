#include "tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// Tokens of single bytes come first, behind <unk>, <s> and </s>.
constexpr size_t kFirstByte = 3;
constexpr size_t kBytes = 256;

template <typename Number>
Number read(std::istream& file) {
  Number number = 0;
  file.read(reinterpret_cast<char*>(&number), sizeof(number));
  return number;
}

// The file has names of bytes, <0x0A>, where the vocabulary has bytes.
std::string byte_name(size_t byte) {
  char name[] = "<0x00>";
  std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(byte));
  return name;
}

// How many bytes the character at `at` has.
size_t character_size(const std::string& text, size_t at) {
  size_t size = 1;
  while (at + size < text.size() && (text[at + size] & 0xc0) == 0x80) {
    ++size;
  }
  return size;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error(path + ": must be a file that can be read, got none");
  }
  const std::runtime_error wrong(path +
                                 ": must be a tokenizer.bin, got something else");
  constexpr int32_t kMost = 1 << 20;
  const auto count = read<int32_t>(file);
  bos_ = read<int32_t>(file);
  (void)read<int32_t>(file);  // the end of a story, which the program names, too
  const auto longest = read<int32_t>(file);
  if (!file || count < static_cast<int32_t>(kFirstByte + kBytes) || count > kMost ||
      bos_ < 0 || bos_ >= count || longest < 0 || longest > kMost) {
    throw wrong;
  }
  for (int32_t token = 0; token < count; ++token) {
    scores_.push_back(read<float>(file));
    const auto length = read<int32_t>(file);
    if (!file || length < 0 || length > longest) {
      throw wrong;
    }
    std::string piece(static_cast<size_t>(length), '\0');
    file.read(piece.data(), length);
    pieces_.push_back(piece);
  }
  if (!file || file.peek() != std::ifstream::traits_type::eof()) {
    throw wrong;
  }
  for (size_t byte = 0; byte < kBytes; ++byte) {
    if (pieces_[kFirstByte + byte] != byte_name(byte)) {
      throw wrong;
    }
    pieces_[kFirstByte + byte] = static_cast<char>(byte);
  }
  // A piece of one byte is also a byte's token: the later one is the piece's.
  for (size_t token = 0; token < pieces_.size(); ++token) {
    tokens_[pieces_[token]] = static_cast<int64_t>(token);
  }
}

int64_t Tokenizer::joined(int64_t left, int64_t right) const {
  const auto found = tokens_.find(piece(left) + piece(right));
  return found == tokens_.end() ? -1 : found->second;
}

std::vector<int64_t> Tokenizer::encode(const std::string& text) const {
  std::vector<int64_t> tokens;
  const std::string whole = " " + text;
  for (size_t at = 0; at < whole.size();) {
    const std::string character = whole.substr(at, character_size(whole, at));
    at += character.size();
    const auto known = tokens_.find(character);
    if (known != tokens_.end()) {
      tokens.push_back(known->second);
      continue;
    }
    for (const char byte : character) {
      const auto number = static_cast<unsigned char>(byte);
      tokens.push_back(static_cast<int64_t>(kFirstByte + number));
    }
  }
  for (;;) {
    int64_t best = -1;
    size_t place = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const int64_t token = joined(tokens[i], tokens[i + 1]);
      if (token >= 0 && (best < 0 || scores_[static_cast<size_t>(token)] >
                                         scores_[static_cast<size_t>(best)])) {
        best = token;
        place = i;
      }
    }
    if (best < 0) {
      break;
    }
    tokens[place] = best;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  tokens.insert(tokens.begin(), bos_);
  return tokens;
}
