// One loaded delegate: finds the plan for the live shapes and plays it.
//
// Shapes that were met before run without Python. For new ones, runtime.Delegate makes
// a runtime.Program, which is kept.

#pragma once

#include "delegate/arguments.h"
#include "delegate/event_tracer.h"
#include "player/replay.h"
#include "python/python.h"

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/core/span.h>

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace etwgpu {

using executorch::runtime::ArrayRef;
using executorch::runtime::BackendOption;
using executorch::runtime::CompileSpec;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::NamedDataMap;

// Bytes that ExecuTorch lends. Python sees them as a read-only buffer; they are
// given back when the last view of them is gone.
class Lent {
 public:
  explicit Lent(FreeableBuffer&& buffer) : buffer_(std::move(buffer)) {}
  const void* data() const { return buffer_.data(); }
  size_t size() const { return buffer_.size(); }

 private:
  FreeableBuffer buffer_;
};

// The program's named data, as Python holds it. The map is ExecuTorch's and may go with
// the delegate, so the delegate closes this when it goes, whoever still refers to it.
class NamedData {
 public:
  explicit NamedData(const NamedDataMap* map) : map_(map) {}
  // Null if there is no such data, or the delegate is gone.
  std::unique_ptr<Lent> get(const std::string& key) const;
  void close() { map_ = nullptr; }

 private:
  const NamedDataMap* map_;
};

// An option's value as a Python object, and back.
py::object option_value(const BackendOption& option);
void store_option(BackendOption& option, const py::object& value);

// Copies a text into the `size` bytes at `to`; Failure, which names it as `what`, if it
// does not fit with the byte that ends it.
void store_text(const std::string& what, const std::string& text, char* to,
                size_t size);

// An event tracer, as Python tells it of what is played there.
class ValueLog {
 public:
  explicit ValueLog(EventTracer& tracer) : tracer_(tracer), times_(tracer) {}
  void begin(const std::string& name) { times_.begin(name.c_str()); }
  void end() { times_.end(); }
  // `data` are the elements, in row-major order.
  void value(const std::string& name, int dtype, std::vector<int32_t> shape,
             const py::buffer& data);

 private:
  EventTracer& tracer_;
  DelegateTracer times_;
};

// Which backend a delegate's bytes were written for.
enum class Origin { WebGPU, Vulkan };

class Delegate {
 public:
  // Called with the GIL; throws what Python throws, with nothing left on the GPU.
  Delegate(Origin origin, const std::string& method, FreeableBuffer&& blob,
           ArrayRef<CompileSpec> specs, Span<const BackendOption> options,
           const NamedDataMap* data);

  // Called with or without the GIL; the tracer may be null. Throws Failure.
  void execute(Span<EValue*> args, EventTracer* tracer);

  // Frees the GPU's memory; called with the GIL.
  void close();

  const std::string& method() const { return method_; }

 private:
  // runtime.Program, which owns every handle of the replay, and what is read from it.
  // Without a replay, wgpu-py plays.
  struct Program {
    std::vector<int64_t> key;  // Arguments::key()
    py::object program;
    std::shared_ptr<const Ports> ports;
    std::shared_ptr<Replay> replay;
    bool is_logged = false;  // whether it can log the results of op calls
  };

  void read_attributes();
  Program& find(Span<EValue*> args);
  void build(Span<EValue*> args);
  // False if there is no program that can log, which has been said then.
  bool build_logged(Span<EValue*> args);
  // A program for the live shapes, by this method of the Python side.
  py::object prepare(const char* method, Span<EValue*> args) const;
  void play(Program& program, EventTracer* tracer);
  void play_in_python(Program& program, EventTracer* tracer);

  // Closes the named data also when the constructor throws.
  class DataOwner {
   public:
    explicit DataOwner(const NamedDataMap* map)
        : data_(std::make_shared<NamedData>(map)) {}
    ~DataOwner() { data_->close(); }
    DataOwner(const DataOwner&) = delete;
    DataOwner& operator=(const DataOwner&) = delete;
    const std::shared_ptr<NamedData>& get() const { return data_; }

   private:
    std::shared_ptr<NamedData> data_;
  };

  Origin origin_;
  std::string method_;
  DataOwner data_;
  py::object runtime_;  // runtime.Delegate
  std::shared_ptr<DeviceMutex> mutex_;
  Arguments arguments_;
  bool release_gil_ = false;
  size_t capacity_ = 0;  // of `programs_`

  // The most recently played first.
  std::list<Program> programs_;
  // Of the last call that logged the results of op calls.
  std::optional<Program> logged_;
};

}  // namespace etwgpu
