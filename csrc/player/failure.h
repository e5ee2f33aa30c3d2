// Exceptions of the C++ code, until backend.cpp makes them an Error.

#pragma once

#include <executorch/runtime/core/error.h>

#include <stdexcept>
#include <string>

namespace etwgpu {

using executorch::runtime::Error;

// A failure with the Error that ExecuTorch gets.
class Failure : public std::runtime_error {
 public:
  Failure(Error code, const std::string& text)
      : std::runtime_error(text), code_(code) {}
  Error code() const { return code_; }

 private:
  Error code_;
};

// wgpu reported an error; which dispatch caused it is not known yet.
class GpuFailure : public Failure {
 public:
  explicit GpuFailure(const std::string& text)
      : Failure(Error::DelegateInvalidHandle, text) {}
};

}  // namespace etwgpu
