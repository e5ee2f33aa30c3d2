// A reader of flatbuffers from files that may be anybody's.
//
// Every access is compared with the bytes, and no more items are visited than there are
// bytes: offsets may point at one subtree from many places, and would make a small file
// a large one. What is wrong throws Failure. Fields are numbered as in the schema.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace etwgpu {

// The bytes, and how many items of them may still be visited.
class FlatBytes {
 public:
  FlatBytes(const uint8_t* data, size_t size) : data_(data), size_(size), left_(size) {}

  template <typename T>
  T read(uint64_t at) const {
    require(at, sizeof(T));
    T value;
    std::memcpy(&value, data_ + at, sizeof(T));
    return value;
  }

  // Where the object is that an offset at `at` refers to.
  uint64_t follow(uint64_t at) const { return at + read<uint32_t>(at); }

  // The `count` bytes at `at`, which count as so many items.
  const uint8_t* take(uint64_t at, uint64_t count, uint64_t items);

 private:
  void require(uint64_t at, uint64_t count) const;

  const uint8_t* data_;
  uint64_t size_;
  uint64_t left_;
};

// A table at a place in the bytes, which outlive it.
class FlatTable {
 public:
  // The root; Failure unless the file has the four characters of `identifier`.
  static FlatTable root(FlatBytes& bytes, const char* identifier);

  template <typename T>
  T scalar(unsigned field, T fallback) const {
    const uint64_t at = find(field);
    return at == 0 ? fallback : bytes_->read<T>(at);
  }
  bool flag(unsigned field) const { return scalar<uint8_t>(field, 0) != 0; }

  // "" if there is none. Texts are UTF-8: libraries that get them rely on it.
  std::string text(unsigned field) const;
  std::vector<std::string> texts(unsigned field) const;
  std::vector<FlatTable> tables(unsigned field) const;

  // Elements of a plain type, or structs with the layout of the schema.
  template <typename T>
  std::vector<T> elements(unsigned field) const {
    const Span span = vector(field, sizeof(T));
    std::vector<T> found(span.count);
    if (span.count > 0) {
      std::memcpy(found.data(),
                  bytes_->take(span.at, span.count * sizeof(T), span.count),
                  span.count * sizeof(T));
    }
    return found;
  }

 private:
  struct Span {
    uint64_t at;
    size_t count;
  };

  FlatTable(FlatBytes& bytes, uint64_t at);

  uint64_t find(unsigned field) const;  // 0 if it is absent
  Span vector(unsigned field, size_t size) const;
  std::string text_at(uint64_t at) const;

  FlatBytes* bytes_;
  uint64_t at_;
  uint64_t vtable_;
  uint16_t vtable_size_;
};

}  // namespace etwgpu
