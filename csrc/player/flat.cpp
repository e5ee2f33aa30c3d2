#include "player/flat.h"

#include "player/failure.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace etwgpu {
namespace {

[[noreturn]] void refuse_bytes(const std::string& text) {
  throw Failure(Code::DelegateInvalidCompatibility,
                "the delegate's plans must follow their schema, got " + text);
}

// Whether all is UTF-8, with no character that has a shorter form or is half of one.
bool is_utf8(const uint8_t* at, const uint8_t* end) {
  while (at < end) {
    const uint8_t first = *at++;
    if (first < 0x80) {
      continue;
    }
    const int rest = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < rest) {
      return false;
    }
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[0] < low || at[0] > high) {
      return false;
    }
    for (int i = 1; i < rest; ++i) {
      if ((at[i] & 0xC0) != 0x80) {
        return false;
      }
    }
    at += rest;
  }
  return true;
}

}  // namespace

void FlatBytes::require(uint64_t at, uint64_t count) const {
  if (at > size_ || count > size_ - at) {
    refuse_bytes(std::to_string(count) + " bytes at " + std::to_string(at) + " of " +
                 std::to_string(size_));
  }
}

const uint8_t* FlatBytes::take(uint64_t at, uint64_t count, uint64_t items) {
  require(at, count);
  if (items > left_) {
    refuse_bytes("more items than its " + std::to_string(size_) + " bytes");
  }
  left_ -= items;
  return data_ + at;
}

FlatTable::FlatTable(FlatBytes& bytes, uint64_t at) : bytes_(&bytes), at_(at) {
  const int64_t back = bytes.read<int32_t>(at);
  // An offset before the first byte becomes a huge one, which is out of range.
  vtable_ = static_cast<uint64_t>(static_cast<int64_t>(at) - back);
  vtable_size_ = bytes.read<uint16_t>(vtable_);
  (void)bytes.take(vtable_, vtable_size_, 1);
}

FlatTable FlatTable::root(FlatBytes& bytes, const char* identifier) {
  if (std::memcmp(bytes.take(4, 4, 0), identifier, 4) != 0) {
    refuse_bytes(std::string("no ") + identifier);
  }
  return FlatTable(bytes, bytes.follow(0));
}

uint64_t FlatTable::find(unsigned field) const {
  const unsigned entry = 4 + 2 * field;
  if (entry + 2 > vtable_size_) {
    return 0;
  }
  const uint16_t offset = bytes_->read<uint16_t>(vtable_ + entry);
  return offset == 0 ? 0 : at_ + offset;
}

FlatTable::Span FlatTable::vector(unsigned field, size_t size) const {
  const uint64_t found = find(field);
  if (found == 0) {
    return {0, 0};
  }
  const uint64_t at = bytes_->follow(found);
  const uint32_t count = bytes_->read<uint32_t>(at);
  (void)bytes_->take(at + 4, uint64_t{count} * size, 0);
  return {at + 4, count};
}

std::string FlatTable::text_at(uint64_t at) const {
  const uint32_t length = bytes_->read<uint32_t>(at);
  const uint8_t* data = bytes_->take(at + 4, length, length);
  if (!is_utf8(data, data + length)) {
    refuse_bytes("a text that is not UTF-8 at " + std::to_string(at));
  }
  return std::string(reinterpret_cast<const char*>(data), length);
}

std::string FlatTable::text(unsigned field) const {
  const uint64_t found = find(field);
  return found == 0 ? "" : text_at(bytes_->follow(found));
}

std::vector<std::string> FlatTable::texts(unsigned field) const {
  const Span span = vector(field, 4);
  (void)bytes_->take(span.at, 0, span.count);
  std::vector<std::string> found;
  found.reserve(span.count);
  for (size_t i = 0; i < span.count; ++i) {
    found.push_back(text_at(bytes_->follow(span.at + 4 * i)));
  }
  return found;
}

std::vector<FlatTable> FlatTable::tables(unsigned field) const {
  const Span span = vector(field, 4);
  std::vector<FlatTable> found;
  found.reserve(span.count);
  for (size_t i = 0; i < span.count; ++i) {
    found.push_back(FlatTable(*bytes_, bytes_->follow(span.at + 4 * i)));
  }
  return found;
}

}  // namespace etwgpu
