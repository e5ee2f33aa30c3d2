// What the player makes of plans that anybody may have written, without a GPU: reads
// delegates' bytes and live shapes, and answers each by a line. Built with
// AddressSanitizer and UndefinedBehaviorSanitizer, which end it at their first report.
//
// Standard input is a row of items, each two blocks of a uint32 with its length and as
// many bytes. The first is the delegate's bytes. The second is of int64: for each
// device its limits (in the order of `caps_of`), of which there are as many as the
// first number says, then sets of live inputs to its end. A set is the number of its
// inputs, and for each -1 and a value, or a rank and as many extents.
//
// An answer is "refused <code> <text>", or "ok", and for each device the number of its
// profile ("-": none fits) and, for each set, that of its variant and a checksum of all
// registers ("-": refused).

#include "player/check_plans.h"
#include "player/device.h"
#include "player/failure.h"
#include "player/hashes.h"
#include "player/plan_file.h"
#include "player/plans.h"
#include "player/profile.h"
#include "player/size_code.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace etwgpu;

using Numbers = std::vector<int64_t>;

bool read_block(std::string& block) {
  uint32_t length = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&length), sizeof(length))) {
    return false;
  }
  block.resize(length);
  return static_cast<bool>(std::cin.read(block.data(), length));
}

class Words {
 public:
  explicit Words(const std::string& block) : numbers_(block.size() / sizeof(int64_t)) {
    std::memcpy(numbers_.data(), block.data(), numbers_.size() * sizeof(int64_t));
  }
  bool is_over() const { return at_ >= numbers_.size(); }
  int64_t next() { return numbers_.at(at_++); }

 private:
  Numbers numbers_;
  size_t at_ = 0;
};

DeviceCaps caps_of(Words& words) {
  DeviceCaps caps;
  caps.is_cpu = words.next() != 0;
  caps.f16 = words.next() != 0;
  caps.subgroups = words.next() != 0;
  caps.max_storage_buffers = static_cast<uint32_t>(words.next());
  caps.max_binding = static_cast<uint64_t>(words.next());
  caps.max_buffer = static_cast<uint64_t>(words.next());
  caps.max_workgroups = static_cast<uint32_t>(words.next());
  caps.max_invocations = static_cast<uint32_t>(words.next());
  caps.workgroup_memory = static_cast<uint32_t>(words.next());
  caps.offset_align = static_cast<uint32_t>(words.next());
  return caps;
}

std::vector<LiveInput> live_of(Words& words) {
  std::vector<LiveInput> inputs(static_cast<size_t>(words.next()));
  for (LiveInput& input : inputs) {
    const int64_t rank = words.next();
    input.is_int = rank < 0;
    if (input.is_int) {
      input.value = words.next();
    }
    for (int64_t i = 0; i < rank; ++i) {
      input.shape.push_back(words.next());
    }
  }
  return inputs;
}

// "-" for what is refused; whatever is thrown beside Failure ends the process.
template <typename Answer>
std::string answered(Answer answer) {
  try {
    return " " + answer();
  } catch (const Failure& failure) {
    return std::strlen(failure.what()) > 8 ? " -" : " nothing said";
  }
}

std::string play(const Plans& plans, const std::string& numbers) {
  std::vector<DeviceCaps> devices;
  std::vector<std::vector<LiveInput>> sets;
  Words words(numbers);
  for (int64_t left = words.next(); left > 0; --left) {
    devices.push_back(caps_of(words));
  }
  while (!words.is_over()) {
    sets.push_back(live_of(words));
  }
  std::string line = "ok";
  for (const DeviceCaps& caps : devices) {
    const PlanProfile* profile = nullptr;
    line += answered([&] {
      profile = &choose_profile(plans, caps, "device", {});
      return std::to_string(profile - plans.profiles.data());
    });
    for (const auto& inputs : sets) {
      if (profile == nullptr) {
        break;
      }
      line += answered([&] {
        const Numbers registers =
            live_registers(plans, profile->variants.front(), inputs);
        const PlanVariant& variant = choose_variant(plans, *profile, registers);
        const uint32_t sum = crc32(reinterpret_cast<const uint8_t*>(registers.data()),
                                   registers.size() * sizeof(int64_t));
        return std::to_string(&variant - profile->variants.data()) + ":" +
               std::to_string(sum);
      });
    }
  }
  return line;
}

}  // namespace

int main() {
  std::string blob;
  std::string numbers;
  while (read_block(blob) && read_block(numbers)) {
    std::string line;
    try {
      // Of its own size, so that a byte beyond the end is one beyond an allocation.
      const std::vector<char> bytes(blob.begin(), blob.end());
      const Plans plans = read_plans(bytes.data(), bytes.size());
      for (const PlanKernel& kernel : plans.kernels) {
        (void)text_of(plans, kernel);
      }
      line = play(plans, numbers);
    } catch (const Failure& failure) {
      line = "refused " + std::to_string(static_cast<int>(failure.code())) + " " +
             failure.what();
    }
    std::replace(line.begin(), line.end(), '\n', ' ');
    std::cout << line << "\n";
  }
  return 0;
}
