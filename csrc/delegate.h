// One loaded delegate: finds the plan for the live shapes and plays it.
//
// A set of shapes that was seen before runs without Python. For a new one,
// runtime.Delegate plans and builds; its result is kept.

#pragma once

#include <executorch/runtime/backend/interface.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "python.h"
#include "replay.h"

namespace etwgpu {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendOption;
using executorch::runtime::CompileSpec;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::NamedDataMap;
using executorch::runtime::Span;

// Bytes that ExecuTorch lent. Python sees them as a read-only buffer; they are
// given back when the last view of them is gone.
class Lent {
 public:
  explicit Lent(FreeableBuffer&& buffer) : buffer_(std::move(buffer)) {}
  const void* data() const { return buffer_.data(); }
  size_t size() const { return buffer_.size(); }

 private:
  FreeableBuffer buffer_;
};

// The program's named data, for as long as the delegate lives.
class NamedData {
 public:
  explicit NamedData(const NamedDataMap* map) : map_(map) {}
  // Null if there is no such data.
  std::unique_ptr<Lent> get(const std::string& key) const;
  void close() { map_ = nullptr; }

 private:
  const NamedDataMap* map_;
};

// What an option's value is to Python.
py::object option_value(const BackendOption& option);

// The other way round.
void store_option(BackendOption& option, const py::object& value);

class Delegate {
 public:
  // Called with the GIL; throws what Python throws, having freed everything.
  Delegate(const std::string& method, FreeableBuffer&& blob,
           ArrayRef<CompileSpec> specs, Span<const BackendOption> options,
           const NamedDataMap* data);

  // Called with or without the GIL; the tracer may be null. Throws Failure.
  void execute(Span<EValue*> args, EventTracer* tracer);

  // Frees the GPU's memory; called with the GIL.
  void close();

  const std::string& method() const { return method_; }

 private:
  // A plan with all that plays it. Without a replay, wgpu-py does.
  struct Program {
    std::vector<int64_t> key;
    py::object program;
    std::shared_ptr<const Ports> ports;
    std::shared_ptr<Replay> replay;
  };

  void read_attributes();
  void read_inputs(Span<EValue*> args);
  Program& find(Span<EValue*> args);
  void build(Span<EValue*> args);
  void check_inputs(const Ports& ports, Span<EValue*> args) const;
  void bind_outputs(const Ports& ports, Span<EValue*> args);
  void play(Program& program, EventTracer* tracer);
  void play_in_python(Program& program);
  void store_ints(const Ports& ports, Span<EValue*> args) const;

  std::string method_;
  py::object runtime_;
  std::shared_ptr<NamedData> data_;
  std::shared_ptr<DeviceMutex> mutex_;
  size_t inputs_ = 0;
  size_t outputs_ = 0;
  std::vector<bool> is_key_;  // whether an int input decides the plan
  bool release_gil_ = false;
  size_t capacity_ = 0;

  // The most recently played first.
  std::list<Program> programs_;

  // Of the call in progress; kept to be allocated once.
  std::vector<int64_t> key_;
  std::vector<int64_t> input_ints_;
  Feeds feeds_;
  Fetches fetches_;
};

}  // namespace etwgpu
