// Exceptions of the C++ code, until a delegate makes them an Error of ExecuTorch's.

#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace etwgpu {

// What kind of failure it is; the values are those of ExecuTorch's Error, which
// delegate/codes.h holds them to.
enum class Code : uint32_t {
  Ok = 0x00,
  Internal = 0x01,
  InvalidState = 0x02,
  NotSupported = 0x10,
  NotImplemented = 0x11,
  InvalidArgument = 0x12,
  InvalidType = 0x13,
  RegistrationAlreadyRegistered = 0x16,
  NotFound = 0x20,
  MemoryAllocationFailed = 0x21,
  AccessFailed = 0x22,
  InvalidProgram = 0x23,
  InvalidExternalData = 0x24,
  OutOfResources = 0x25,
  DelegateInvalidCompatibility = 0x30,
  DelegateMemoryAllocationFailed = 0x31,
  DelegateInvalidHandle = 0x32,
};

// A failure with the code that ExecuTorch gets.
class Failure : public std::runtime_error {
 public:
  Failure(Code code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

// wgpu reported an error; which dispatch caused it is not known yet.
class GpuFailure : public Failure {
 public:
  explicit GpuFailure(const std::string& text, bool is_memory = false)
      : Failure(Code::DelegateInvalidHandle, text), is_memory_(is_memory) {}
  bool is_memory() const { return is_memory_; }  // out of the GPU's memory

 private:
  bool is_memory_;
};

}  // namespace etwgpu
