#include "player/check_plans.h"

#include "player/convert.h"
#include "player/failure.h"
#include "player/plans.h"
#include "player/replay.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace etwgpu {
namespace {

constexpr size_t kMaxRank = 16;
constexpr size_t kMaxSymbols = 256;
constexpr size_t kMaxKernels = 4096;
constexpr size_t kMaxKernelText = size_t{1} << 20;
constexpr size_t kMaxText = size_t{1} << 26;  // of all: lines may be the same ones
constexpr size_t kMaxBindings = 64;
constexpr size_t kMaxBuffers = 1 << 16;
constexpr size_t kMaxProfiles = 64;
constexpr size_t kMaxVariants = 1024;
constexpr size_t kMaxPorts = 4096;  // inputs of a variant, and outputs
constexpr size_t kMaxLimits = 64;   // of a port
constexpr size_t kMaxDispatches = 32768;
constexpr size_t kMaxParams = 4096;  // words: 16 KiB, which any adapter binds
constexpr uint64_t kMaxAllParams = uint64_t{1} << 24;  // bytes of a variant's
constexpr int64_t kMaxLength = int64_t{1} << 31;
constexpr uint64_t kMaxLimit = uint64_t{1} << 40;  // of a profile
constexpr size_t kMaxName = 1000;
constexpr size_t kMaxWanted = 1 << 16;
// Of a constant, which all that have the same one share.
constexpr uint64_t kConstantAlign = 16;

[[noreturn]] void refuse(const std::string& what, const std::string& requirement,
                         const std::string& got) {
  throw Failure(Code::DelegateInvalidCompatibility,
                "plans: " + what + " must " + requirement + ", got " + got);
}

void require_index(const char* what, uint64_t index, size_t count) {
  if (index >= count) {
    refuse(what, "be less than " + std::to_string(count), std::to_string(index));
  }
}

void require_count(const char* what, size_t count, size_t least, size_t most) {
  if (count < least || count > most) {
    refuse(what, "be from " + std::to_string(least) + " to " + std::to_string(most),
           std::to_string(count));
  }
}

void require_number(const char* what, int64_t number) {
  if (number < -kMaxNumber || number > kMaxNumber) {
    refuse(what, "fit 53 bits", std::to_string(number));
  }
}

// Names come up in logs: no control character may. In UTF-8 those above 0x7f follow a
// byte 0xc2.
void require_name(const std::string& text, size_t most = kMaxName) {
  bool is_plain = true;
  uint8_t before = 0;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    const bool is_high = before == 0xc2 && byte < 0xa0;
    is_plain = is_plain && byte >= 0x20 && byte != 0x7f && !is_high;
    before = byte;
  }
  if (!is_plain || text.size() > most) {
    refuse("a name",
           "have at most " + std::to_string(most) + " bytes and no control characters",
           std::to_string(text.size()) + " bytes");
  }
}

template <typename Enum>
void require_member(const char* what, Enum value, Enum last) {
  require_index(what, static_cast<uint64_t>(value), static_cast<size_t>(last) + 1);
}

void require_type(const std::string& what, DType dtype, Storage storage) {
  require_member("a storage", storage, Storage::I32);
  if (!is_convertible(dtype, storage)) {
    refuse(what, "have a type with a GPU form",
           "scalar type " + std::to_string(static_cast<int>(dtype)));
  }
}

// Bytes of elements on the GPU; too many are an error.
uint64_t bytes_of(const PlanConstant& constant) {
  require_count("a constant's rank", constant.shape.size(), 0, kMaxRank);
  uint64_t count = 1;
  for (const uint64_t extent : constant.shape) {
    if (count != 0 && extent > (kMaxLength - 1) / count) {
      refuse("constant " + constant.data_key, "fit a buffer", "more elements");
    }
    count *= extent;
  }
  return count * storage_size(constant.storage);
}

class Checker {
 public:
  explicit Checker(const Plans& plans)
      : plans_(plans),
        registers_(plans.symbols.size() + plans.literals.size() + plans.code.size()) {}

  void check() const {
    check_numbers();
    check_kernels();
    check_buffers();
    check_constants();
    std::for_each(plans_.ports.begin(), plans_.ports.end(),
                  [this](const PlanPort& port) { check_port(port); });
    std::for_each(plans_.dispatches.begin(), plans_.dispatches.end(),
                  [this](const PlanDispatch& each) { check_dispatch(each); });
    require_count("profiles", plans_.profiles.size(), 1, kMaxProfiles);
    for (const PlanProfile& profile : plans_.profiles) {
      check_profile(profile);
    }
  }

 private:
  void require_register(Register index) const {
    require_index("a register", index, registers_);
  }

  void require_registers(const std::vector<Register>& indices) const {
    for (const Register index : indices) {
      require_register(index);
    }
  }

  void check_numbers() const {
    require_count("symbols", plans_.symbols.size(), 0, kMaxSymbols);
    for (const PlanSymbol& symbol : plans_.symbols) {
      require_name(symbol.name);
      if (symbol.low < -kMaxLength || symbol.low > symbol.high ||
          symbol.high >= kMaxLength) {
        refuse("size " + symbol.name, "have a range within int32",
               "[" + std::to_string(symbol.low) + ", " + std::to_string(symbol.high) +
                   "]");
      }
      if (symbol.divisor < 1 || symbol.divisor >= kMaxLength ||
          symbol.offset <= -kMaxLength || symbol.offset >= kMaxLength) {
        refuse(
            "size " + symbol.name, "be found by a divisor and an offset",
            std::to_string(symbol.divisor) + " and " + std::to_string(symbol.offset));
      }
    }
    for (const int64_t literal : plans_.literals) {
      require_number("a literal", literal);
    }
    size_t made = plans_.symbols.size() + plans_.literals.size();
    for (const Instruction& instruction : plans_.code) {
      require_member("an operator", instruction.op, Operator::Equal);
      require_index("an operand", instruction.left, made);
      require_index("an operand", instruction.right, made);
      ++made;
    }
  }

  void check_kernels() const {
    require_count("kernels", plans_.kernels.size(), 0, kMaxKernels);
    size_t total = 0;
    for (const PlanKernel& kernel : plans_.kernels) {
      require_name(kernel.label);
      size_t length = 0;
      for (const uint32_t line : kernel.lines) {
        require_index("a line", line, plans_.lines.size());
        length += plans_.lines[line].size() + 1;
        require_count("bytes of a kernel", length, 0, kMaxKernelText);
      }
      total += length;
      require_count("bytes of all kernels", total, 0, kMaxText);
      require_count("bindings", kernel.access.size(), 0, kMaxBindings);
      for (size_t i = 0; i < kernel.access.size(); ++i) {
        require_member("an access", kernel.access[i], Access::Uniform);
        if (kernel.access[i] == Access::Uniform && i + 1 < kernel.access.size()) {
          refuse("kernel " + kernel.label, "have its uniform binding last",
                 "binding " + std::to_string(i));
        }
      }
    }
  }

  void check_buffers() const {
    require_count("buffers", plans_.buffers.size(), 0, kMaxBuffers);
    for (const PlanBuffer& buffer : plans_.buffers) {
      require_member("a role", buffer.role, Role::Status);
      require_name(buffer.key);
      if (buffer.size == 0 || buffer.size % 4 != 0 ||
          buffer.size >= static_cast<uint64_t>(kMaxLength)) {
        refuse("buffer " + buffer.key, "have a size that is a multiple of 4",
               std::to_string(buffer.size));
      }
      if (buffer.role == Role::Status && buffer.size < kStatusBytes) {
        refuse("buffer " + buffer.key,
               "have " + std::to_string(kStatusBytes) + " bytes",
               std::to_string(buffer.size));
      }
    }
  }

  void check_constants() const {
    std::set<uint32_t> filled;
    for (const PlanConstant& constant : plans_.constants) {
      require_name(constant.data_key);
      require_index("a constant's buffer", constant.buffer, plans_.buffers.size());
      const PlanBuffer& buffer = plans_.buffers[constant.buffer];
      if (buffer.role != Role::Constant && buffer.role != Role::State) {
        refuse("constant " + constant.data_key,
               "be in a constant's or a state's buffer", buffer.key);
      }
      if (!filled.insert(constant.buffer).second) {
        refuse("buffer " + buffer.key, "have one content", "two");
      }
      require_type("constant " + constant.data_key, constant.dtype, constant.storage);
      const uint64_t bytes = bytes_of(constant);
      // Neither more nor less: all that have the same constant are given one buffer.
      const uint64_t wanted =
          std::max((bytes + kConstantAlign - 1) / kConstantAlign, uint64_t{1}) *
          kConstantAlign;
      if (bytes > buffer.size ||
          (buffer.role == Role::Constant && buffer.size != wanted)) {
        refuse("constant " + constant.data_key,
               "fill its buffer of " + std::to_string(buffer.size) + " bytes",
               std::to_string(bytes));
      }
    }
    for (uint32_t i = 0; i < plans_.buffers.size(); ++i) {
      if (plans_.buffers[i].role == Role::Constant && filled.count(i) == 0) {
        refuse("buffer " + plans_.buffers[i].key, "have a content", "none");
      }
    }
  }

  void check_port(const PlanPort& port) const {
    require_name(port.name);
    require_name(port.wanted, kMaxWanted);
    require_registers(port.shape);
    require_count("limits", port.limits.size(), 0, kMaxLimits);
    for (const PlanLimit& limit : port.limits) {
      require_name(limit.label);
      require_registers({limit.add, limit.count, limit.length});
    }
    require_count("a port's rank", port.shape.size(), 0, port.is_int ? 0 : kMaxRank);
    if (port.buffer < -1) {
      refuse(port.name, "have a buffer", std::to_string(port.buffer));
    }
    if (port.buffer >= 0) {
      require_index("a port's buffer", static_cast<uint64_t>(port.buffer),
                    plans_.buffers.size());
    }
    require_type(port.name, port.dtype, port.storage);
    // What is not an int has no value, and its number means nothing.
    if (port.is_int) {
      require_register(port.value);
      if (port.dtype != DType::Long) {
        refuse(port.name, "be an int64",
               "scalar type " + std::to_string(static_cast<int>(port.dtype)));
      }
    }
  }

  void check_dispatch(const PlanDispatch& dispatch) const {
    require_name(dispatch.label);
    require_index("a call's number", dispatch.call, kMaxLength);
    require_index("a dispatch's kernel", dispatch.kernel, plans_.kernels.size());
    const PlanKernel& kernel = plans_.kernels[dispatch.kernel];
    const size_t count = dispatch.buffers.size();
    const bool has_params = !dispatch.params.empty();
    const bool is_uniform =
        !kernel.access.empty() && kernel.access.back() == Access::Uniform;
    if (kernel.access.size() != count + has_params || is_uniform != has_params) {
      refuse(dispatch.label,
             "bind what kernel " + kernel.label + " has, " +
                 std::to_string(kernel.access.size()) + " buffers",
             std::to_string(count + has_params));
    }
    for (size_t i = 0; i < count; ++i) {
      require_index("a dispatch's buffer", dispatch.buffers[i], plans_.buffers.size());
      // Constants may be those of other delegates, too.
      const PlanBuffer& buffer = plans_.buffers[dispatch.buffers[i]];
      if (kernel.access[i] == Access::ReadWrite &&
          (buffer.role == Role::Constant || buffer.role == Role::Input)) {
        refuse(dispatch.label, "write to no constant or input", buffer.key);
      }
    }
    if (!dispatch.ranges.empty() && dispatch.ranges.size() != 2 * count) {
      refuse(dispatch.label, "have two numbers for each buffer's range",
             std::to_string(dispatch.ranges.size()));
    }
    require_registers(dispatch.ranges);
    require_count("parameters", dispatch.params.size(), 0, kMaxParams);
    require_registers(dispatch.params);
    require_count("numbers of a grid", dispatch.groups.size(), 3, 3);
    require_registers(dispatch.groups);
  }

  void check_profile(const PlanProfile& profile) const {
    const std::string& name = profile.name;
    require_name(name);
    if (profile.max_buffer > kMaxLimit || profile.max_binding > profile.max_buffer ||
        profile.max_binding == 0 || profile.max_workgroups == 0 ||
        profile.max_workgroups >= kMaxLength) {
      refuse("profile " + name, "have plausible limits",
             std::to_string(profile.max_buffer) + ", " +
                 std::to_string(profile.max_binding) + " and " +
                 std::to_string(profile.max_workgroups));
    }
    const uint32_t align = profile.offset_align;
    if (align < 4 || (align & (align - 1)) != 0) {
      refuse("profile " + name, "align offsets to a power of 2 from 4 on",
             std::to_string(align));
    }
    require_count("variants", profile.variants.size(), 1, kMaxVariants);
    std::set<uint32_t> used;
    for (const PlanVariant& variant : profile.variants) {
      check_variant(profile, variant, used);
      check_alike(profile.variants.front(), variant);
    }
    check_used(profile, used);
    check_symbols(profile.variants.front());
  }

  // Those of a profile, which are told apart by their roles and keys.
  void check_used(const PlanProfile& profile, const std::set<uint32_t>& used) const {
    std::set<std::pair<Role, std::string>> named;
    for (const uint32_t index : used) {
      const PlanBuffer& buffer = plans_.buffers[index];
      if (buffer.size > profile.max_buffer) {
        refuse("buffer " + buffer.key,
               "have at most the " + std::to_string(profile.max_buffer) +
                   " bytes of profile " + profile.name,
               std::to_string(buffer.size));
      }
      if (buffer.role != Role::Constant &&
          !named.insert({buffer.role, buffer.key}).second) {
        refuse("buffer " + buffer.key, "have a key of its own", "another's");
      }
    }
  }

  void check_variant(const PlanProfile& profile, const PlanVariant& variant,
                     std::set<uint32_t>& used) const {
    for (const Guard& guard : variant.guards) {
      require_register(guard.reg);
    }
    require_count("dispatches", variant.dispatches.size(), 0, kMaxDispatches);
    require_count("inputs", variant.inputs.size(), 0, kMaxPorts);
    require_count("outputs", variant.outputs.size(), 0, kMaxPorts);
    uint64_t params = 0;
    for (const uint32_t index : variant.dispatches) {
      require_index("a variant's dispatch", index, plans_.dispatches.size());
      const PlanDispatch& dispatch = plans_.dispatches[index];
      require_count("storage buffers", dispatch.buffers.size(), 0,
                    profile.max_storage_buffers);
      if (plans_.kernels[dispatch.kernel].subgroups && !profile.subgroups) {
        refuse(dispatch.label, "use subgroups only where the profile has them",
               profile.name);
      }
      used.insert(dispatch.buffers.begin(), dispatch.buffers.end());
      params += params_bytes(dispatch);
      require_count("bytes of parameters", params, 0, kMaxAllParams);
    }
    check_ports(variant.inputs, Role::Input, used);
    check_ports(variant.outputs, Role::Output, used);
    if (variant.status < -1) {
      refuse("a status", "be a buffer", std::to_string(variant.status));
    }
    if (variant.status >= 0) {
      const auto index = static_cast<uint64_t>(variant.status);
      require_index("a status", index, plans_.buffers.size());
      require_role(plans_.buffers[index], Role::Status);
      used.insert(static_cast<uint32_t>(index));
    }
  }

  void check_ports(const std::vector<uint32_t>& ports, Role role,
                   std::set<uint32_t>& used) const {
    std::set<int32_t> copied;
    for (const uint32_t index : ports) {
      require_index("a port", index, plans_.ports.size());
      const PlanPort& port = plans_.ports[index];
      if (port.buffer >= 0) {
        const PlanBuffer& buffer = plans_.buffers[static_cast<size_t>(port.buffer)];
        require_role(buffer, role);
        used.insert(static_cast<uint32_t>(port.buffer));
        if (role == Role::Input && !copied.insert(port.buffer).second) {
          refuse(port.name, "have a buffer of its own", buffer.key);
        }
      } else if (role == Role::Output && !port.is_int) {
        refuse(port.name, "have a buffer", "none");
      }
    }
  }

  void require_role(const PlanBuffer& buffer, Role role) const {
    if (buffer.role != role) {
      refuse("buffer " + buffer.key,
             "have the role " + std::to_string(static_cast<int>(role)),
             std::to_string(static_cast<int>(buffer.role)));
    }
  }

  // The arguments of a call are the same whatever variant is taken.
  void check_alike(const PlanVariant& first, const PlanVariant& other) const {
    if (first.outputs.size() != other.outputs.size() ||
        first.inputs.size() != other.inputs.size()) {
      refuse("variants", "have the same arguments",
             std::to_string(other.inputs.size()) + " inputs and " +
                 std::to_string(other.outputs.size()) + " outputs");
    }
    for (size_t i = 0; i < first.inputs.size(); ++i) {
      const PlanPort& a = plans_.ports[first.inputs[i]];
      const PlanPort& b = plans_.ports[other.inputs[i]];
      if (a.is_int != b.is_int || a.shape.size() != b.shape.size()) {
        refuse("input " + a.name, "be alike in all variants", b.name);
      }
    }
  }

  void check_symbols(const PlanVariant& variant) const {
    for (const PlanSymbol& symbol : plans_.symbols) {
      require_index("a symbol's input", symbol.input, variant.inputs.size());
      const PlanPort& port = plans_.ports[variant.inputs[symbol.input]];
      const int32_t rank = static_cast<int32_t>(port.shape.size());
      const bool is_found =
          port.is_int ? symbol.dim == -1 : symbol.dim >= 0 && symbol.dim < rank;
      if (!is_found) {
        refuse("symbol " + symbol.name, "be found in input " + port.name,
               "dimension " + std::to_string(symbol.dim));
      }
    }
  }

  const Plans& plans_;
  const size_t registers_;
};

}  // namespace

void check_plans(const Plans& plans) { Checker(plans).check(); }

}  // namespace etwgpu
