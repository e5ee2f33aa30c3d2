// The plans of one delegate as plain data, as in executorch_webgpu/portable/plans.fbs,
// which says what everything means.

#pragma once

#include "player/convert.h"
#include "player/dtype.h"

#include <cstdint>
#include <string>
#include <vector>

namespace etwgpu {

using Register = uint32_t;

enum class Operator : uint8_t {
  Add,
  Subtract,
  Multiply,
  Divide,
  Modulo,
  CeilDivide,
  Less,
  Equal
};

// With the layout of the file, from which it is copied.
struct Instruction {
  Operator op;
  uint8_t padding[3];
  Register left;
  Register right;
};
static_assert(sizeof(Instruction) == 12, "must be as flatbuffers lays it out");

struct PlanSymbol {
  std::string name;
  int64_t low;
  int64_t high;
  uint32_t input;
  int32_t dim;
  int64_t divisor;
  int64_t offset;
};

enum class Access : uint8_t { Read, ReadWrite, Uniform };

struct PlanKernel {
  std::string label;
  std::vector<uint32_t> lines;
  std::vector<Access> access;
  bool subgroups;
};

enum class Role : uint8_t { Constant, State, Input, Output, Scratch, Status };

struct PlanBuffer {
  Role role;
  uint64_t size;
  std::string key;
};

struct PlanConstant {
  uint32_t buffer;
  std::string data_key;
  DType dtype;
  Storage storage;
  std::vector<uint64_t> shape;
};

struct PlanLimit {
  std::string label;
  Register add;
  Register count;
  Register length;
};

struct PlanPort {
  std::string name;
  bool is_int;
  int32_t buffer;
  DType dtype;
  Storage storage;
  std::vector<Register> shape;
  Register value;
  std::vector<PlanLimit> limits;
  std::string wanted;
};

struct PlanDispatch {
  uint32_t kernel;
  std::vector<uint32_t> buffers;
  std::vector<Register> ranges;
  std::vector<Register> params;
  std::vector<Register> groups;
  std::string label;
  uint32_t call;
};

// With the layout of the file.
struct Guard {
  Register reg;
  uint32_t padding;
  int64_t low;
  int64_t high;
};
static_assert(sizeof(Guard) == 24, "must be as flatbuffers lays it out");

struct PlanVariant {
  std::vector<Guard> guards;
  std::vector<uint32_t> dispatches;
  std::vector<uint32_t> inputs;
  std::vector<uint32_t> outputs;
  int32_t status;
};

struct PlanProfile {
  std::string name;
  bool f16;
  bool subgroups;
  uint32_t max_storage_buffers;
  uint64_t max_binding;
  uint64_t max_buffer;
  uint32_t max_workgroups;
  uint32_t max_invocations;
  uint32_t workgroup_memory;
  uint32_t offset_align;
  std::vector<PlanVariant> variants;
  bool is_cpu;
};

struct Plans {
  uint32_t format;
  std::string writer;
  std::vector<PlanSymbol> symbols;
  std::vector<int64_t> literals;
  std::vector<Instruction> code;
  std::vector<std::string> lines;
  std::vector<PlanKernel> kernels;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanConstant> constants;
  std::vector<PlanPort> ports;
  std::vector<PlanDispatch> dispatches;
  std::vector<PlanProfile> profiles;
};

// What a dispatch's parameters take up among those of all: each starts at a multiple of
// 256 bytes, the largest alignment that WebGPU allows an adapter to ask for.
inline uint64_t params_bytes(const PlanDispatch& dispatch) {
  return (4 * uint64_t{dispatch.params.size()} + 255) / 256 * 256;
}

// The text of a kernel, but for what a compiler needs before it.
std::string text_of(const Plans& plans, const PlanKernel& kernel);

}  // namespace etwgpu
