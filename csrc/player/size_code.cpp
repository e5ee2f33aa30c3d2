#include "player/size_code.h"

#include "player/check_plans.h"
#include "player/cut.h"
#include "player/failure.h"
#include "player/plans.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace etwgpu {
namespace {

[[noreturn]] void refuse_sizes(const std::string& text) {
  throw Failure(Code::InvalidArgument, text);
}

std::string joined(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) {
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  }
  return text;
}

std::string shown(const std::vector<int64_t>& shape) {
  return "[" + joined(shape) + "]";
}

// As Python prints a list of tuples and ints.
std::string listed(const std::vector<LiveInput>& inputs) {
  std::string text;
  for (const LiveInput& input : inputs) {
    text += text.empty() ? "" : ", ";
    if (input.is_int) {
      text += std::to_string(input.value);
    } else {
      text += "(" + joined(input.shape) + (input.shape.size() == 1 ? ",)" : ")");
    }
  }
  return "[" + text + "]";
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) {
    return 0;
  }
  const int64_t quotient = a / b;
  return quotient - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

bool is_small(int64_t number) { return number >= -kMaxNumber && number <= kMaxNumber; }

// Operands have at most 53 bits, so that all but a product fit 64.
int64_t compute(Operator op, int64_t a, int64_t b) {
  switch (op) {
    case Operator::Add:
      return a + b;
    case Operator::Subtract:
      return a - b;
    case Operator::Multiply: {
      const int64_t left = a < 0 ? -a : a;
      const int64_t right = b < 0 ? -b : b;
      return left != 0 && right > kMaxNumber / left ? kMaxNumber + 1 : a * b;
    }
    case Operator::Divide:
      return floor_divide(a, b);
    case Operator::Modulo:
      return b == 0 ? a : a - floor_divide(a, b) * b;
    case Operator::CeilDivide:
      return -floor_divide(-a, b);
    case Operator::Less:
      return static_cast<int64_t>(a < b);
    case Operator::Equal:
      return static_cast<int64_t>(a == b);
  }
  return 0;
}

void check_ranks(const Plans& plans, const PlanVariant& variant,
                 const std::vector<LiveInput>& inputs) {
  if (inputs.size() != variant.inputs.size()) {
    refuse_sizes("inputs must be " + std::to_string(variant.inputs.size()) + ", got " +
                 std::to_string(inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanPort& port = plans.ports[variant.inputs[i]];
    if (inputs[i].is_int != port.is_int) {
      refuse_sizes(port.name + ": input must be " +
                   (port.is_int ? "an int" : "a tensor") + ", got " +
                   (port.is_int ? "a tensor" : "an int"));
    }
    if (inputs[i].shape.size() != port.shape.size()) {
      refuse_sizes("input " + port.name + " must have " +
                   std::to_string(port.shape.size()) + " dimensions, got " +
                   shown(inputs[i].shape));
    }
  }
}

[[noreturn]] void refuse_shape(const PlanPort& port, const LiveInput& input) {
  refuse_sizes("input " + port.name + " must have shape " + cut(port.wanted, 500) +
               ", got " + shown(input.shape));
}

int64_t symbol_value(const PlanSymbol& symbol, const PlanPort& port,
                     const std::vector<LiveInput>& inputs) {
  const LiveInput& input = inputs[symbol.input];
  const int64_t live =
      input.is_int ? input.value : input.shape[static_cast<size_t>(symbol.dim)];
  if (!is_small(live)) {
    refuse_sizes("size " + symbol.name + " must fit 53 bits, got " +
                 std::to_string(live));
  }
  const int64_t rest = live - symbol.offset;
  if (rest % symbol.divisor != 0) {
    if (!input.is_int) {
      refuse_shape(port, input);
    }
    refuse_sizes("size " + symbol.name + " must be a whole number, got (" +
                 std::to_string(live) + " - " + std::to_string(symbol.offset) + ") / " +
                 std::to_string(symbol.divisor));
  }
  const int64_t value = rest / symbol.divisor;
  if (value < symbol.low || value > symbol.high) {
    refuse_sizes("size " + symbol.name + " must be in [" + std::to_string(symbol.low) +
                 ", " + std::to_string(symbol.high) + "], got " +
                 std::to_string(value) + " (inputs " + listed(inputs) + ")");
  }
  return value;
}

void check_shapes(const Plans& plans, const PlanVariant& variant,
                  const std::vector<LiveInput>& inputs,
                  const std::vector<int64_t>& registers) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanPort& port = plans.ports[variant.inputs[i]];
    for (size_t dim = 0; dim < port.shape.size(); ++dim) {
      if (inputs[i].shape[dim] != registers[port.shape[dim]]) {
        refuse_shape(port, inputs[i]);
      }
    }
  }
}

bool holds(const PlanVariant& variant, const std::vector<int64_t>& registers) {
  for (const Guard& guard : variant.guards) {
    const int64_t value = registers[guard.reg];
    if (value < guard.low || value > guard.high) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<int64_t> live_registers(const Plans& plans, const PlanVariant& variant,
                                    const std::vector<LiveInput>& inputs) {
  check_ranks(plans, variant, inputs);
  std::vector<int64_t> registers;
  registers.reserve(plans.symbols.size() + plans.literals.size() + plans.code.size());
  for (const PlanSymbol& symbol : plans.symbols) {
    const PlanPort& port = plans.ports[variant.inputs[symbol.input]];
    registers.push_back(symbol_value(symbol, port, inputs));
  }
  registers.insert(registers.end(), plans.literals.begin(), plans.literals.end());
  for (const Instruction& instruction : plans.code) {
    const int64_t value = compute(instruction.op, registers[instruction.left],
                                  registers[instruction.right]);
    if (!is_small(value)) {
      refuse_sizes("sizes must make numbers of at most 53 bits, got more (inputs " +
                   listed(inputs) + ")");
    }
    registers.push_back(value);
  }
  check_shapes(plans, variant, inputs, registers);
  return registers;
}

const PlanVariant& choose_variant(const Plans& plans, const PlanProfile& profile,
                                  const std::vector<int64_t>& registers) {
  for (const PlanVariant& variant : profile.variants) {
    if (holds(variant, registers)) {
      return variant;
    }
  }
  std::string got;
  std::string exported;
  for (size_t i = 0; i < plans.symbols.size(); ++i) {
    const PlanSymbol& symbol = plans.symbols[i];
    const std::string comma = i == 0 ? "" : ", ";
    got += comma + symbol.name + "=" + std::to_string(registers[i]);
    exported += comma + symbol.name + " in [" + std::to_string(symbol.low) + ", " +
                std::to_string(symbol.high) + "]";
  }
  refuse_sizes("no plan for sizes " + got + ": exported were " + exported);
}

}  // namespace etwgpu
