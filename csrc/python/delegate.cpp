#include "delegate.h"

#include "convert.h"
#include "failure.h"
#include "python.h"
#include "replay.h"

#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/core/result.h>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace etwgpu {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::Result;

const char* kind_of(const EValue& value) {
  return value.isTensor() ? "a tensor" : value.isInt() ? "an int" : "neither";
}

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(Error::InvalidArgument, text);
}

void check_limits(const Port& port, int64_t value) {
  if (value != static_cast<int32_t>(value)) {
    return;  // refused where it is converted
  }
  for (const Limit& limit : port.limits) {
    const int64_t first = value + limit.add;
    if (first < 0 || first > limit.length - limit.count) {
      const int64_t bad = first < 0 ? first : std::max(first, limit.length);
      refuse(limit.label + ": index must be in [0, " + std::to_string(limit.length) +
             "), got " + std::to_string(bad));
    }
  }
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

Delegate::Delegate(const std::string& method, FreeableBuffer&& blob,
                   ArrayRef<CompileSpec> specs, Span<const BackendOption> options,
                   const NamedDataMap* data)
    : method_(method), data_(data) {
  py::dict spec_values;
  for (const CompileSpec& spec : specs) {
    spec_values[spec.key] =
        py::bytes(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
  }
  py::dict option_values;
  for (const BackendOption& option : options) {
    option_values[option.key] = option_value(option);
  }
  runtime_ =
      runtime_module().attr("init")(method, std::make_shared<Lent>(std::move(blob)),
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
  is_key_ = runtime_.attr("int_is_key").cast<std::vector<bool>>();
  outputs_ = runtime_.attr("output_count").cast<size_t>();
  release_gil_ = runtime_.attr("release_gil").cast<bool>();
  capacity_ = runtime_.attr("plan_cache").cast<size_t>();
  inputs_ = is_key_.size();
  input_ints_.resize(inputs_);
  feeds_.resize(inputs_);
  fetches_.resize(outputs_);
}

void Delegate::close() {
  programs_.clear();
  runtime_.attr("close")();
}

void Delegate::execute(Span<EValue*> args, EventTracer* tracer) {
  if (args.size() != inputs_ + outputs_) {
    refuse("delegate must have " + std::to_string(inputs_) + " inputs and " +
           std::to_string(outputs_) + " outputs, got " + std::to_string(args.size()) +
           " arguments");
  }
  DeviceGuard guard(*mutex_);
  read_inputs(args);
  Program& program = find(args);
  check_inputs(*program.ports, args);
  bind_outputs(*program.ports, args);
  play(program, tracer);
  store_ints(*program.ports, args);
}

void Delegate::read_inputs(Span<EValue*> args) {
  key_.clear();
  for (size_t i = 0; i < inputs_; ++i) {
    const EValue& value = *args[i];
    if (value.isTensor()) {
      const Tensor& tensor = value.toTensor();
      feeds_[i] = tensor.const_data_ptr();
      key_.insert(key_.end(), tensor.sizes().begin(), tensor.sizes().end());
    } else if (value.isInt()) {
      input_ints_[i] = value.toInt();
      feeds_[i] = &input_ints_[i];
      if (is_key_[i]) {
        key_.push_back(input_ints_[i]);
      }
    } else {
      refuse("input " + std::to_string(i) + " must be a tensor or an int");
    }
  }
}

Delegate::Program& Delegate::find(Span<EValue*> args) {
  for (auto at = programs_.begin(); at != programs_.end(); ++at) {
    if (at->key == key_) {
      programs_.splice(programs_.begin(), programs_, at);
      return programs_.front();
    }
  }
  with_python([&] { build(args); });
  return programs_.front();
}

void Delegate::build(Span<EValue*> args) {
  py::list live;
  for (size_t i = 0; i < inputs_; ++i) {
    if (args[i]->isInt()) {
      live.append(input_ints_[i]);
      continue;
    }
    const Tensor& tensor = args[i]->toTensor();
    py::tuple shape(tensor.dim());
    for (ssize_t axis = 0; axis < tensor.dim(); ++axis) {
      shape[axis] = static_cast<int64_t>(tensor.size(axis));
    }
    live.append(shape);
  }
  py::object program = runtime_.attr("prepare")(live);
  Program made{key_, program,
               program.attr("ports").cast<std::shared_ptr<const Ports>>(),
               program.attr("replay").cast<std::shared_ptr<Replay>>()};
  while (programs_.size() >= capacity_) {
    programs_.pop_back();
  }
  programs_.push_front(std::move(made));
}

void Delegate::check_inputs(const Ports& ports, Span<EValue*> args) const {
  for (size_t i = 0; i < inputs_; ++i) {
    const Port& port = ports.inputs[i];
    const EValue& value = *args[i];
    if (port.is_int != value.isInt()) {
      refuse(port.name + ": input must be " + (port.is_int ? "an int" : "a tensor") +
             ", got " + kind_of(value));
    }
    if (value.isInt()) {
      check_limits(port, input_ints_[i]);
      continue;
    }
    const Tensor& tensor = value.toTensor();
    if (tensor.scalar_type() != port.dtype) {
      refuse(port.name + ": input must have scalar type " +
             std::to_string(static_cast<int>(port.dtype)) + ", got " +
             std::to_string(static_cast<int>(tensor.scalar_type())));
    }
    if (static_cast<size_t>(tensor.numel()) != port.numel) {
      refuse(port.name + ": input must have " + std::to_string(port.numel) +
             " elements, got " + std::to_string(tensor.numel()));
    }
    if (port.numel > 0 && port.buffer != nullptr && feeds_[i] == nullptr) {
      refuse(port.name + ": input must have data, got a null pointer");
    }
  }
}

void Delegate::bind_outputs(const Ports& ports, Span<EValue*> args) {
  for (size_t i = 0; i < outputs_; ++i) {
    const Port& port = ports.outputs[i];
    EValue& value = *args[inputs_ + i];
    if (port.is_int ? !value.isInt() : !value.isTensor()) {
      refuse(port.name + ": output must be " + (port.is_int ? "an int" : "a tensor") +
             ", got " + kind_of(value));
    }
    if (port.is_int) {
      fetches_[i] = nullptr;  // nothing is copied: its port has the value
      continue;
    }
    Tensor& tensor = value.toTensor();
    if (tensor.scalar_type() != port.dtype) {
      refuse(port.name + ": output must have scalar type " +
             std::to_string(static_cast<int>(port.dtype)) + ", got " +
             std::to_string(static_cast<int>(tensor.scalar_type())));
    }
    const Error resized = executorch::runtime::resize_tensor(
        tensor, ArrayRef<Tensor::SizesType>(port.shape.data(), port.shape.size()));
    if (resized != Error::Ok) {
      throw Failure(resized, port.name + ": output cannot take its live shape");
    }
    fetches_[i] = tensor.mutable_data_ptr();
    if (port.numel > 0 && fetches_[i] == nullptr) {
      refuse(port.name + ": output must have memory, got a null pointer");
    }
  }
}

void Delegate::play(Program& program, EventTracer* tracer) {
  if (program.replay == nullptr) {
    play_in_python(program);
    return;
  }
  try {
    const GilRelease released(release_gil_);
    program.replay->run(feeds_, fetches_, tracer);
  } catch (const GpuFailure& failure) {
    // Python knows the dispatches by name: it finds the bad one and raises.
    with_python([&] { program.program.attr("diagnose")(failure.what()); });
    throw;
  }
}

void Delegate::play_in_python(Program& program) {
  const Ports& ports = *program.ports;
  std::vector<std::vector<uint8_t>> buffers(inputs_ + outputs_);
  py::gil_scoped_acquire gil;
  py::list inputs;
  py::list outputs;
  for (size_t i = 0; i < inputs_; ++i) {
    const Port& port = ports.inputs[i];
    const bool is_copied = port.buffer != nullptr && port.numel > 0;
    const void* data = is_copied ? stage_input(port, feeds_[i], buffers[i]) : nullptr;
    inputs.append(py::memoryview::from_memory(data, is_copied ? port.bytes() : 0));
  }
  for (size_t i = 0; i < outputs_; ++i) {
    buffers[inputs_ + i].resize(ports.outputs[i].bytes());
    outputs.append(py::memoryview::from_memory(buffers[inputs_ + i].data(),
                                               buffers[inputs_ + i].size()));
  }
  with_python([&] { program.program.attr("play")(inputs, outputs); });
  for (size_t i = 0; i < outputs_; ++i) {
    const Port& port = ports.outputs[i];
    if (port.buffer != nullptr) {
      from_storage(port.dtype, port.storage, buffers[inputs_ + i].data(), fetches_[i],
                   port.numel);
    }
  }
}

void Delegate::store_ints(const Ports& ports, Span<EValue*> args) const {
  for (size_t i = 0; i < outputs_; ++i) {
    if (ports.outputs[i].is_int) {
      *args[inputs_ + i] = EValue(ports.outputs[i].value);
    }
  }
}

}  // namespace etwgpu
