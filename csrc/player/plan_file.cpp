#include "player/plan_file.h"

#include "player/check_plans.h"
#include "player/failure.h"
#include "player/flat.h"
#include "player/hashes.h"
#include "player/plans.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

constexpr size_t kHeader = 16;
constexpr size_t kAlign = 16;
constexpr uint32_t kFormat = 1;
constexpr size_t kMaxBytes = size_t{1} << 28;

[[noreturn]] void refuse_file(const std::string& text) {
  throw Failure(Code::DelegateInvalidCompatibility, text);
}

std::string hex(uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof(text), "0x%08x", number);
  return text;
}

// Some bytes of the delegate, from a header on.
struct Section {
  const uint8_t* body;
  size_t length;
  uint32_t format;
  uint32_t checksum;
};

Section read_section(const uint8_t* data, size_t size, const char* magic) {
  uint32_t numbers[3];
  if (size < kHeader || std::memcmp(data, magic, 4) != 0) {
    refuse_file(std::string("delegate blob must have a section ") + magic +
                ", got none in " + std::to_string(size) + " bytes");
  }
  std::memcpy(numbers, data + 4, sizeof(numbers));
  const auto [format, length, checksum] = numbers;
  if (length > kMaxBytes) {
    refuse_file("delegate blob must have at most " + std::to_string(kMaxBytes) +
                " bytes, got " + std::to_string(length));
  }
  if (length > size - kHeader) {
    refuse_file("delegate blob must have " + std::to_string(length) + " bytes, got " +
                std::to_string(size - kHeader));
  }
  return {data + kHeader, length, format, checksum};
}

void check_section(const Section& section) {
  if (section.format < 1 || section.format > kFormat) {
    refuse_file("delegate's plans must have format " + std::to_string(kFormat) +
                " or older, got " + std::to_string(section.format) +
                "; upgrade executorch-webgpu or export again");
  }
  const uint32_t found = crc32(section.body, section.length);
  if (found != section.checksum) {
    refuse_file("delegate's plans must have checksum " + hex(section.checksum) +
                ", got " + hex(found) + "; the file is damaged");
  }
}

PlanSymbol read_symbol(const FlatTable& table) {
  return {table.text(0),
          table.scalar<int64_t>(1, 0),
          table.scalar<int64_t>(2, 0),
          table.scalar<uint32_t>(3, 0),
          table.scalar<int32_t>(4, 0),
          table.scalar<int64_t>(5, 1),
          table.scalar<int64_t>(6, 0)};
}

PlanKernel read_kernel(const FlatTable& table) {
  return {table.text(0), table.elements<uint32_t>(1), table.elements<Access>(2),
          table.flag(3)};
}

PlanBuffer read_buffer(const FlatTable& table) {
  return {table.scalar<Role>(0, Role::Constant), table.scalar<uint64_t>(1, 0),
          table.text(2)};
}

PlanConstant read_constant(const FlatTable& table) {
  return {table.scalar<uint32_t>(0, 0), table.text(1),
          table.scalar<DType>(2, DType::Byte), table.scalar<Storage>(3, Storage::F32),
          table.elements<uint64_t>(4)};
}

PlanLimit read_limit(const FlatTable& table) {
  return {table.text(0), table.scalar<uint32_t>(1, 0), table.scalar<uint32_t>(2, 0),
          table.scalar<uint32_t>(3, 0)};
}

template <typename Read>
auto read_all(const std::vector<FlatTable>& tables, Read read) {
  std::vector<decltype(read(tables[0]))> found;
  found.reserve(tables.size());
  for (const FlatTable& table : tables) {
    found.push_back(read(table));
  }
  return found;
}

PlanPort read_port(const FlatTable& table) {
  PlanPort port;
  port.name = table.text(0);
  port.is_int = table.flag(1);
  port.buffer = table.scalar<int32_t>(2, -1);
  port.dtype = table.scalar<DType>(3, DType::Byte);
  port.storage = table.scalar<Storage>(4, Storage::F32);
  port.shape = table.elements<Register>(5);
  port.value = table.scalar<Register>(6, 0);
  port.limits = read_all(table.tables(7), read_limit);
  port.wanted = table.text(8);
  return port;
}

PlanDispatch read_dispatch(const FlatTable& table) {
  PlanDispatch dispatch;
  dispatch.kernel = table.scalar<uint32_t>(0, 0);
  dispatch.buffers = table.elements<uint32_t>(1);
  dispatch.ranges = table.elements<Register>(2);
  dispatch.params = table.elements<Register>(3);
  dispatch.groups = table.elements<Register>(4);
  dispatch.label = table.text(5);
  dispatch.call = table.scalar<uint32_t>(6, 0);
  return dispatch;
}

PlanVariant read_variant(const FlatTable& table) {
  PlanVariant variant;
  variant.guards = table.elements<Guard>(0);
  variant.dispatches = table.elements<uint32_t>(1);
  variant.inputs = table.elements<uint32_t>(2);
  variant.outputs = table.elements<uint32_t>(3);
  variant.status = table.scalar<int32_t>(4, -1);
  return variant;
}

PlanProfile read_profile(const FlatTable& table) {
  PlanProfile profile;
  profile.name = table.text(0);
  profile.f16 = table.flag(1);
  profile.subgroups = table.flag(2);
  profile.max_storage_buffers = table.scalar<uint32_t>(3, 0);
  profile.max_binding = table.scalar<uint64_t>(4, 0);
  profile.max_buffer = table.scalar<uint64_t>(5, 0);
  profile.max_workgroups = table.scalar<uint32_t>(6, 0);
  profile.max_invocations = table.scalar<uint32_t>(7, 0);
  profile.workgroup_memory = table.scalar<uint32_t>(8, 0);
  profile.offset_align = table.scalar<uint32_t>(9, 0);
  profile.variants = read_all(table.tables(10), read_variant);
  profile.is_cpu = table.flag(11);
  return profile;
}

Plans read_root(const FlatTable& table) {
  Plans plans;
  plans.format = table.scalar<uint32_t>(0, 0);
  plans.writer = table.text(1);
  plans.symbols = read_all(table.tables(2), read_symbol);
  plans.literals = table.elements<int64_t>(3);
  plans.code = table.elements<Instruction>(4);
  plans.lines = table.texts(5);
  plans.kernels = read_all(table.tables(6), read_kernel);
  plans.buffers = read_all(table.tables(7), read_buffer);
  plans.constants = read_all(table.tables(8), read_constant);
  plans.ports = read_all(table.tables(9), read_port);
  plans.dispatches = read_all(table.tables(10), read_dispatch);
  plans.profiles = read_all(table.tables(11), read_profile);
  return plans;
}

}  // namespace

Plans read_plans(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  const Section graph = read_section(bytes, size, "EWGB");
  const size_t end = kHeader + graph.length;
  const size_t start = (end + kAlign - 1) / kAlign * kAlign;
  if (start >= size) {
    refuse_file(
        "delegate must carry plans, got none; export with"
        " WebGPUPartitioner(portable=True)");
  }
  const Section section = read_section(bytes + start, size - start, "EWGP");
  check_section(section);
  FlatBytes flat(section.body, section.length);
  Plans plans = read_root(FlatTable::root(flat, "EWP1"));
  check_plans(plans);
  return plans;
}

std::string text_of(const Plans& plans, const PlanKernel& kernel) {
  std::string text;
  for (const uint32_t line : kernel.lines) {
    text += (text.empty() ? "" : "\n") + plans.lines[line];
  }
  return text;
}

}  // namespace etwgpu
