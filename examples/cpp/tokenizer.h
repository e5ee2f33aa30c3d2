// The tokenizer of llama2.c: pairs of pieces are joined, those of the best score first.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

class Tokenizer {
 public:
  // Reads a tokenizer.bin, as ExecuTorch's runners take it. Throws std::runtime_error
  // if it is none.
  explicit Tokenizer(const std::string& path);

  size_t size() const { return pieces_.size(); }

  // The tokens of a text, with the one that begins every story before them.
  std::vector<int64_t> encode(const std::string& text) const;

  // A token's bytes: a character may be spread over several tokens.
  const std::string& piece(int64_t token) const {
    return pieces_.at(static_cast<size_t>(token));
  }

 private:
  // The token of two that follow each other; -1 if there is none.
  int64_t joined(int64_t left, int64_t right) const;

  int64_t bos_ = 0;
  std::vector<std::string> pieces_;
  std::vector<float> scores_;
  std::unordered_map<std::string, int64_t> tokens_;
};
