#include "delegate/arguments.h"

#include "delegate/codes.h"
#include "player/failure.h"
#include "player/replay.h"

#include <executorch/runtime/core/array_ref.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

using executorch::aten::Tensor;
using executorch::runtime::ArrayRef;

const char* kind_of(const EValue& value) {
  return value.isTensor() ? "a tensor" : value.isInt() ? "an int" : "neither";
}

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(Code::InvalidArgument, text);
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

void check_type(const Port& port, const char* kind, const Tensor& tensor) {
  if (dtype_of(tensor.scalar_type()) != port.dtype) {
    refuse(port.name + ": " + kind + " must have scalar type " +
           std::to_string(static_cast<int>(port.dtype)) + ", got " +
           std::to_string(static_cast<int>(tensor.scalar_type())));
  }
}

}  // namespace

Arguments::Arguments(std::vector<bool> is_key, size_t outputs)
    : inputs_(is_key.size()),
      outputs_(outputs),
      is_key_(std::move(is_key)),
      ints_(inputs_),
      feeds_(inputs_),
      fetches_(outputs_) {}

void Arguments::read(Span<EValue*> args) {
  if (args.size() != inputs_ + outputs_) {
    refuse("delegate must have " + std::to_string(inputs_) + " inputs and " +
           std::to_string(outputs_) + " outputs, got " + std::to_string(args.size()) +
           " arguments");
  }
  key_.clear();
  for (size_t i = 0; i < inputs_; ++i) {
    const EValue& value = *args[i];
    if (value.isTensor()) {
      const Tensor& tensor = value.toTensor();
      feeds_[i] = tensor.const_data_ptr();
      key_.insert(key_.end(), tensor.sizes().begin(), tensor.sizes().end());
    } else if (value.isInt()) {
      ints_[i] = value.toInt();
      feeds_[i] = &ints_[i];
      if (is_key_[i]) {
        key_.push_back(ints_[i]);
      }
    } else {
      refuse("input " + std::to_string(i) + " must be a tensor or an int");
    }
  }
}

void Arguments::check_inputs(const Ports& ports, Span<EValue*> args) const {
  for (size_t i = 0; i < inputs_; ++i) {
    const Port& port = ports.inputs[i];
    const EValue& value = *args[i];
    if (port.is_int != value.isInt()) {
      refuse(port.name + ": input must be " + (port.is_int ? "an int" : "a tensor") +
             ", got " + kind_of(value));
    }
    if (value.isInt()) {
      check_limits(port, ints_[i]);
      continue;
    }
    const Tensor& tensor = value.toTensor();
    check_type(port, "input", tensor);
    if (static_cast<size_t>(tensor.numel()) != port.numel) {
      refuse(port.name + ": input must have " + std::to_string(port.numel) +
             " elements, got " + std::to_string(tensor.numel()));
    }
    if (port.numel > 0 && port.buffer != nullptr && feeds_[i] == nullptr) {
      refuse(port.name + ": input must have data, got a null pointer");
    }
  }
}

void Arguments::bind_outputs(const Ports& ports, Span<EValue*> args) {
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
    check_type(port, "output", tensor);
    const Error resized = executorch::runtime::resize_tensor(
        tensor, ArrayRef<Tensor::SizesType>(port.shape.data(), port.shape.size()));
    if (resized != Error::Ok) {
      throw Failure(code_of(resized),
                    port.name + ": output cannot take its live shape");
    }
    fetches_[i] = tensor.mutable_data_ptr();
    if (port.numel > 0 && fetches_[i] == nullptr) {
      refuse(port.name + ": output must have memory, got a null pointer");
    }
  }
}

void Arguments::store_ints(const Ports& ports, Span<EValue*> args) const {
  for (size_t i = 0; i < outputs_; ++i) {
    if (ports.outputs[i].is_int) {
      *args[inputs_ + i] = EValue(ports.outputs[i].value);
    }
  }
}

std::vector<int> Arguments::types(Span<EValue*> args) const {
  std::vector<int> types;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i]->isTensor()) {
      types.push_back(-1);
      continue;
    }
    const Tensor& tensor = args[i]->toTensor();
    const auto order = tensor.dim_order();
    if (!std::is_sorted(order.begin(), order.end())) {
      refuse("argument " + std::to_string(i) +
             " of the delegate must be row-major, got another order of dimensions");
    }
    types.push_back(static_cast<int>(tensor.scalar_type()));
  }
  return types;
}

}  // namespace etwgpu
