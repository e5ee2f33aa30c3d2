#include "python/delegate.h"

#include "delegate/arguments.h"
#include "delegate/codes.h"
#include "delegate/event_tracer.h"
#include "player/convert.h"
#include "player/failure.h"
#include "player/replay.h"
#include "python/python.h"

#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/result.h>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace etwgpu {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::Result;

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(Code::InvalidArgument, text);
}

}  // namespace

std::unique_ptr<Lent> NamedData::get(const std::string& key) const {
  if (map_ == nullptr) {
    return nullptr;
  }
  Result<FreeableBuffer> found = map_->get_data(key);
  if (!found.ok()) {
    return nullptr;
  }
  return std::make_unique<Lent>(std::move(found.get()));
}

py::object option_value(const BackendOption& option) {
  if (const bool* flag = std::get_if<bool>(&option.value)) {
    return py::bool_(*flag);
  }
  if (const int* number = std::get_if<int>(&option.value)) {
    return py::int_(*number);
  }
  const auto& text =
      std::get<std::array<char, executorch::runtime::kMaxOptionValueLength>>(
          option.value);
  const auto end = std::find(text.begin(), text.end(), '\0');
  return py::str(text.data(), static_cast<size_t>(end - text.begin()));
}

void store_text(const std::string& what, const std::string& text, char* to,
                size_t size) {
  if (text.size() >= size) {
    refuse(what + " must have fewer than " + std::to_string(size) + " bytes, got " +
           std::to_string(text.size()));
  }
  std::memcpy(to, text.c_str(), text.size() + 1);
}

void store_option(BackendOption& option, const py::object& value) {
  if (py::isinstance<py::bool_>(value)) {
    option.value = value.cast<bool>();
  } else if (py::isinstance<py::int_>(value)) {
    option.value = value.cast<int>();
  } else {
    std::array<char, executorch::runtime::kMaxOptionValueLength> text{};
    store_text(std::string(option.key) + ": an option's value",
               value.cast<std::string>(), text.data(), text.size());
    option.value = text;
  }
}

void ValueLog::value(const std::string& name, int dtype, std::vector<int32_t> shape,
                     const py::buffer& data) {
  const size_t rank = shape.size();
  std::vector<executorch::aten::DimOrderType> order(rank);
  std::vector<executorch::aten::StridesType> strides(rank);
  executorch::aten::StridesType stride = 1;
  for (size_t axis = rank; axis-- > 0;) {
    order[axis] = static_cast<executorch::aten::DimOrderType>(axis);
    strides[axis] = stride;
    stride *= shape[axis];
  }
  const py::buffer_info bytes = data.request();
  executorch::aten::TensorImpl tensor(static_cast<ScalarType>(dtype),
                                      static_cast<ssize_t>(rank), shape.data(),
                                      bytes.ptr, order.data(), strides.data());
  if (static_cast<size_t>(bytes.size * bytes.itemsize) != tensor.nbytes()) {
    refuse(name + ": a value must have " + std::to_string(tensor.nbytes()) +
           " bytes, got " + std::to_string(bytes.size * bytes.itemsize));
  }
  const Result<bool> logged = tracer_.log_intermediate_output_delegate(
      name.c_str(), executorch::runtime::kUnsetDelegateDebugIntId, Tensor(&tensor));
  if (!logged.ok()) {
    throw Failure(code_of(logged.error()),
                  name + ": the event tracer must take a value of " +
                      std::to_string(tensor.nbytes()) + " bytes, got " +
                      executorch::runtime::to_string(logged.error()));
  }
}

Delegate::Delegate(Origin origin, const std::string& method, FreeableBuffer&& blob,
                   ArrayRef<CompileSpec> specs, Span<const BackendOption> options,
                   const NamedDataMap* data)
    : origin_(origin), method_(method), data_(data) {
  py::dict spec_values;
  for (const CompileSpec& spec : specs) {
    spec_values[spec.key] =
        py::bytes(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
  }
  py::dict option_values;
  for (const BackendOption& option : options) {
    option_values[option.key] = option_value(option);
  }
  const char* init = origin == Origin::Vulkan ? "init_vulkan" : "init";
  runtime_ =
      runtime_module().attr(init)(method, std::make_shared<Lent>(std::move(blob)),
                                  spec_values, option_values, data_.get());
  try {
    read_attributes();
  } catch (...) {
    runtime_.attr("close")();
    throw;
  }
}

void Delegate::read_attributes() {
  mutex_ = runtime_.attr("lock").cast<std::shared_ptr<DeviceMutex>>();
  arguments_ = Arguments(runtime_.attr("int_is_key").cast<std::vector<bool>>(),
                         runtime_.attr("output_count").cast<size_t>());
  release_gil_ = runtime_.attr("release_gil").cast<bool>();
  capacity_ = runtime_.attr("plan_cache").cast<size_t>();
}

void Delegate::close() {
  programs_.clear();
  logged_.reset();
  runtime_.attr("close")();
}

void Delegate::execute(Span<EValue*> args, EventTracer* tracer) {
  DeviceGuard guard(*mutex_);
  arguments_.read(args);
  const bool is_logged = wants_values(tracer) && build_logged(args);
  Program& program = is_logged ? *logged_ : find(args);
  arguments_.check_inputs(*program.ports, args);
  arguments_.bind_outputs(*program.ports, args);
  play(program, tracer);
  arguments_.store_ints(*program.ports, args);
}

Delegate::Program& Delegate::find(Span<EValue*> args) {
  for (auto at = programs_.begin(); at != programs_.end(); ++at) {
    if (at->key == arguments_.key()) {
      programs_.splice(programs_.begin(), programs_, at);
      return programs_.front();
    }
  }
  with_python([&] { build(args); });
  return programs_.front();
}

py::object Delegate::prepare(const char* method, Span<EValue*> args) const {
  py::list live;
  for (size_t i = 0; i < arguments_.inputs(); ++i) {
    if (args[i]->isInt()) {
      live.append(arguments_.ints()[i]);
      continue;
    }
    const Tensor& tensor = args[i]->toTensor();
    py::tuple shape(tensor.dim());
    for (ssize_t axis = 0; axis < tensor.dim(); ++axis) {
      shape[axis] = static_cast<int64_t>(tensor.size(axis));
    }
    live.append(shape);
  }
  if (origin_ == Origin::Vulkan) {
    return runtime_.attr(method)(live, arguments_.types(args));
  }
  return runtime_.attr(method)(live);
}

bool Delegate::build_logged(Span<EValue*> args) {
  return with_python([&] {
    logged_.reset();
    py::object program = prepare("prepare_logged", args);
    if (!program.is_none()) {
      auto ports = program.attr("ports").cast<std::shared_ptr<const Ports>>();
      logged_ = Program{{}, std::move(program), std::move(ports), nullptr, true};
    }
    return logged_.has_value();
  });
}

void Delegate::build(Span<EValue*> args) {
  py::object program = prepare("prepare", args);
  Program made{arguments_.key(), program,
               program.attr("ports").cast<std::shared_ptr<const Ports>>(),
               program.attr("replay").cast<std::shared_ptr<Replay>>()};
  while (programs_.size() >= capacity_) {
    programs_.pop_back();
  }
  programs_.push_front(std::move(made));
}

void Delegate::play(Program& program, EventTracer* tracer) {
  if (program.replay == nullptr) {
    play_in_python(program, tracer);
    return;
  }
  try {
    std::optional<DelegateTracer> traced;
    if (tracer != nullptr) {
      traced.emplace(*tracer);
    }
    const GilRelease released(release_gil_);
    program.replay->run(arguments_.feeds(), arguments_.fetches(),
                        traced ? &*traced : nullptr);
  } catch (const GpuFailure& failure) {
    // Python knows the dispatches by name: it finds the bad one and raises.
    with_python([&] { program.program.attr("diagnose")(failure.what()); });
    throw;
  }
}

void Delegate::play_in_python(Program& program, EventTracer* tracer) {
  const Ports& ports = *program.ports;
  const size_t input_count = arguments_.inputs();
  const size_t output_count = arguments_.outputs();
  std::vector<std::vector<uint8_t>> buffers(input_count + output_count);
  py::gil_scoped_acquire gil;
  py::list inputs;
  py::list outputs;
  for (size_t i = 0; i < input_count; ++i) {
    const Port& port = ports.inputs[i];
    const bool is_copied = port.buffer != nullptr && port.numel > 0;
    const void* data =
        is_copied ? stage_input(port, arguments_.feeds()[i], buffers[i]) : nullptr;
    inputs.append(py::memoryview::from_memory(data, is_copied ? port.bytes() : 0));
  }
  for (size_t i = 0; i < output_count; ++i) {
    buffers[input_count + i].resize(ports.outputs[i].bytes());
    outputs.append(py::memoryview::from_memory(buffers[input_count + i].data(),
                                               buffers[input_count + i].size()));
  }
  with_python([&] {
    if (program.is_logged) {
      program.program.attr("play")(inputs, outputs, ValueLog(*tracer));
    } else {
      program.program.attr("play")(inputs, outputs);
    }
  });
  for (size_t i = 0; i < output_count; ++i) {
    const Port& port = ports.outputs[i];
    if (port.buffer != nullptr) {
      from_storage(port.dtype, port.storage, buffers[input_count + i].data(),
                   arguments_.fetches()[i], port.numel);
    }
  }
}

}  // namespace etwgpu
