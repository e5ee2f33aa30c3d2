#include "delegate/options.h"

#include "executorch_webgpu/backend.h"
#include "player/failure.h"
#include "player/player.h"

#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/span.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <variant>

namespace etwgpu {
namespace {

using Text = std::array<char, executorch::runtime::kMaxOptionValueLength>;
using Value = std::variant<bool, int, std::string>;

constexpr const char* kNames[] = {
    EXECUTORCH_WEBGPU_ADAPTER,     EXECUTORCH_WEBGPU_F16,
    EXECUTORCH_WEBGPU_SUBGROUPS,   EXECUTORCH_WEBGPU_CPU_KERNELS,
    EXECUTORCH_WEBGPU_COMPILE,     EXECUTORCH_WEBGPU_VERIFY_WEIGHTS,
    EXECUTORCH_WEBGPU_TRUST_PLANS, EXECUTORCH_WEBGPU_TIMEOUT};

constexpr std::pair<const char*, Compile> kCompile[] = {
    {"auto", Compile::Auto},
    {"load", Compile::Load},
    {"background", Compile::Background},
    {"call", Compile::Call},
};

// The options that are flags, by name.
constexpr std::pair<const char*, bool PlayerOptions::*> kFlags[] = {
    {EXECUTORCH_WEBGPU_F16, &PlayerOptions::f16},
    {EXECUTORCH_WEBGPU_SUBGROUPS, &PlayerOptions::subgroups},
    {EXECUTORCH_WEBGPU_CPU_KERNELS, &PlayerOptions::cpu_kernels},
    {EXECUTORCH_WEBGPU_VERIFY_WEIGHTS, &PlayerOptions::verify_weights},
    {EXECUTORCH_WEBGPU_TRUST_PLANS, &PlayerOptions::trust_plans},
};

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(Code::InvalidArgument, text);
}

// What set_options() was given. Never destroyed: threads may use it while the process
// ends.
struct Overrides {
  std::mutex mutex;
  std::map<std::string, Value> values;
};

Overrides& overrides() {
  static auto* instance = new Overrides();
  return *instance;
}

Value value_of(const BackendOption& option) {
  if (const bool* flag = std::get_if<bool>(&option.value)) {
    return *flag;
  }
  if (const int* number = std::get_if<int>(&option.value)) {
    return *number;
  }
  const Text& text = std::get<Text>(option.value);
  return std::string(text.begin(), std::find(text.begin(), text.end(), '\0'));
}

Value read(const PlayerOptions& options, const std::string& name) {
  if (name == EXECUTORCH_WEBGPU_ADAPTER) {
    return options.adapter;
  }
  for (const auto& [flag, member] : kFlags) {
    if (name == flag) {
      return options.*member;
    }
  }
  if (name == EXECUTORCH_WEBGPU_COMPILE) {
    const auto* found =
        std::find_if(std::begin(kCompile), std::end(kCompile),
                     [&](const auto& each) { return each.second == options.compile; });
    return std::string(found->first);
  }
  if (name == EXECUTORCH_WEBGPU_TIMEOUT) {
    return static_cast<int>(options.timeout.count());
  }
  std::string names;
  for (const char* known : kNames) {
    names += std::string(names.empty() ? "" : ", ") + known;
  }
  refuse("option must be one of " + names + ", got '" + name + "'");
}

template <typename T>
const T& typed(const std::string& name, const Value& value, const char* wanted) {
  const T* found = std::get_if<T>(&value);
  if (found == nullptr) {
    constexpr const char* kTypes[] = {"a bool", "an int", "a text"};
    refuse(name + ": must be of type " + wanted + ", got " + kTypes[value.index()]);
  }
  return *found;
}

void write(PlayerOptions& options, const std::string& name, const Value& value) {
  (void)read(options, name);  // refuses what is unknown
  if (name == EXECUTORCH_WEBGPU_ADAPTER) {
    options.adapter = typed<std::string>(name, value, "str");
  } else if (name == EXECUTORCH_WEBGPU_TIMEOUT) {
    const int seconds = typed<int>(name, value, "int");
    if (seconds < 1) {
      refuse("timeout: must be at least 1, got " + std::to_string(seconds));
    }
    options.timeout = std::chrono::seconds(seconds);
  } else if (name == EXECUTORCH_WEBGPU_COMPILE) {
    const std::string& when = typed<std::string>(name, value, "str");
    const auto* found =
        std::find_if(std::begin(kCompile), std::end(kCompile),
                     [&](const auto& each) { return each.first == when; });
    if (found == std::end(kCompile)) {
      refuse("compile: must be 'auto', 'load', 'background' or 'call', got '" + when +
             "'");
    }
    options.compile = found->second;
  } else {
    for (const auto& [flag, member] : kFlags) {
      if (name == flag) {
        options.*member = typed<bool>(name, value, "bool");
      }
    }
  }
}

Value parsed(const std::string& variable, const std::string& text, const Value& like) {
  if (std::holds_alternative<std::string>(like)) {
    return text;
  }
  if (std::holds_alternative<bool>(like)) {
    if (text != "0" && text != "1") {
      refuse(variable + ": must be 0 or 1, got '" + text + "'");
    }
    return text == "1";
  }
  const bool is_number =
      !text.empty() && text.size() < 10 &&
      std::all_of(
          text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) {
    refuse(variable + ": must be a number, got '" + text + "'");
  }
  return std::stoi(text);
}

void read_environment(PlayerOptions& options) {
  for (const char* name : kNames) {
    std::string variable = std::string("ET_WEBGPU_") + name;
    std::transform(variable.begin(), variable.end(), variable.begin(), [](char c) {
      return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    });
    const char* text = std::getenv(variable.c_str());
    if (text != nullptr) {
      write(options, name, parsed(variable, text, read(options, name)));
    }
  }
}

}  // namespace

PlayerOptions current_options(Span<const BackendOption> given) {
  PlayerOptions options;
  read_environment(options);
  {
    const std::lock_guard<std::mutex> lock(overrides().mutex);
    for (const auto& [name, value] : overrides().values) {
      write(options, name, value);
    }
  }
  for (const BackendOption& option : given) {
    write(options, option.key, value_of(option));
  }
  return options;
}

bool set_options(Span<const BackendOption> given) {
  PlayerOptions trial;
  std::map<std::string, Value> values;
  bool is_reset = false;
  for (const BackendOption& option : given) {
    const std::string name = option.key;
    if (name == EXECUTORCH_WEBGPU_RESET_STATE) {
      is_reset = typed<bool>(name, value_of(option), "bool");
      continue;
    }
    values[name] = value_of(option);
    write(trial, name, values[name]);
  }
  const std::lock_guard<std::mutex> lock(overrides().mutex);
  for (const auto& [name, value] : values) {
    overrides().values[name] = value;
  }
  return is_reset;
}

void get_option(BackendOption& option) {
  const Value value = read(current_options({}), option.key);
  if (const std::string* text = std::get_if<std::string>(&value)) {
    Text stored{};
    if (text->size() >= stored.size()) {
      refuse(std::string(option.key) + ": an option's value must have fewer than " +
             std::to_string(stored.size()) + " bytes, got " +
             std::to_string(text->size()));
    }
    std::copy(text->begin(), text->end(), stored.begin());
    option.value = stored;
  } else if (const bool* flag = std::get_if<bool>(&value)) {
    option.value = *flag;
  } else {
    option.value = std::get<int>(value);
  }
}

}  // namespace etwgpu
