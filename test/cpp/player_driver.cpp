// Plays a delegate's bytes without ExecuTorch, for tests (driver.h):
//
//   load <blob> <folder with a file per key of named data> [option=value ...]
//   call <prefix of files for outputs> [<shape>:<file> | <int> ...]
//   reset
//   lose      the device, as an app or a driver may do
//   pipelines      how many kernels were compiled, and whether a thread goes on
//   linger <file>      has a thread add a letter to it, again and again, slowly
//   exit      at once, while the player is there and its threads run
//   key <file of f32>      the key of such a constant
//   race <threads> <rounds> <prefix> [arguments as above]
//
// `race` calls from many threads, each of which loads the delegate for itself, and
// compares all outputs. With --standard, wgpu-native's own functions are left out.
// Outputs go to <prefix>0, <prefix>1.

#include "driver.h"
#include "player/background.h"
#include "player/convert.h"
#include "player/device.h"
#include "player/dtype.h"
#include "player/failure.h"
#include "player/named_data.h"
#include "player/player.h"
#include "player/wgpu_api.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace etwgpu;

using driver::Content;
using driver::read;

// The words of the last `load`, for those who load the same.
std::string g_loaded;

std::unique_ptr<Player> load(std::istream& words) {
  std::string blob;
  std::string folder;
  words >> blob >> folder;
  PlayerOptions options;
  for (std::string word; words >> word;) {
    const std::string value = word.substr(word.find('=') + 1);
    const std::string name = word.substr(0, word.find('='));
    if (name == "adapter") {
      options.adapter = value;
    } else if (name == "f16") {
      options.f16 = value == "1";
    } else if (name == "subgroups") {
      options.subgroups = value == "1";
    } else if (name == "cpu_kernels") {
      options.cpu_kernels = value == "1";
    } else if (name == "compile") {
      options.compile = value == "auto"         ? Compile::Auto
                        : value == "load"       ? Compile::Load
                        : value == "background" ? Compile::Background
                                                : Compile::Call;
    } else if (name == "verify_weights") {
      options.verify_weights = value == "1";
    } else if (name == "trust_plans") {
      options.trust_plans = value == "1";
    } else if (name == "plan_cache") {
      options.plan_cache = std::stoul(value);
    } else {
      throw Failure(Code::InvalidArgument, "unknown option " + name);
    }
  }
  const Content bytes = read(blob).value();
  return std::make_unique<Player>(
      "forward", bytes.data(), bytes.size(), options,
      [folder](const std::string& key) -> std::optional<Bytes> {
        const std::optional<Content> found = read(folder + "/" + key);
        if (!found) {
          return std::nullopt;
        }
        const auto owner = std::make_shared<Content>(*found);
        return Bytes{owner->data(), owner->size(), owner};
      });
}

std::string call(Player& player, std::istream& words,
                 std::vector<Content>* found = nullptr) {
  std::string prefix;
  words >> prefix;
  std::vector<LiveInput> inputs;
  std::vector<Content> contents;
  for (std::string word; words >> word;) {
    LiveInput input;
    const size_t colon = word.find(':');
    if (colon == std::string::npos) {
      input.is_int = true;
      input.value = std::stoll(word);
      const auto* bytes = reinterpret_cast<const char*>(&input.value);
      contents.emplace_back(bytes, bytes + sizeof(input.value));
    } else {
      input.shape = driver::numbers<int64_t>(word.substr(0, colon));
      contents.push_back(read(word.substr(colon + 1)).value());
    }
    inputs.push_back(input);
  }
  const std::vector<bool> is_key = player.key_ints();
  std::vector<int64_t> key;
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    key.insert(key.end(), inputs[i].shape.begin(), inputs[i].shape.end());
    if (inputs[i].is_int && i < is_key.size() && is_key[i]) {
      key.push_back(inputs[i].value);
    }
    feeds.push_back(contents[i].data());
  }
  const DeviceLock lock(player.device());
  const Ports& ports = player.prepare(key, [&] { return inputs; });
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Port& port = ports.inputs[i];
    if (contents[i].size() != port.numel * scalar_size(port.dtype)) {
      throw Failure(Code::InvalidArgument, port.name + ": wrong number of bytes");
    }
  }
  std::vector<Content> results;
  Fetches fetches;
  for (const Port& port : ports.outputs) {
    results.emplace_back(port.is_int ? 0 : port.numel * scalar_size(port.dtype));
  }
  for (Content& result : results) {
    fetches.push_back(result.data());
  }
  player.play(feeds, fetches, nullptr);
  if (found != nullptr) {
    *found = results;
    return "";
  }
  std::string shown;
  for (size_t i = 0; i < results.size(); ++i) {
    const Port& port = ports.outputs[i];
    shown += " ";
    if (port.is_int) {
      shown += std::to_string(port.value);
      continue;
    }
    driver::write(prefix + std::to_string(i), results[i].data(), results[i].size());
    shown += driver::written(port.shape);
  }
  return shown;
}

void linger(std::istream& words) {
  std::string path;
  words >> path;
  // To the end of the process.
  static auto* lingering = new Background("test", [path](const Background&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::ofstream(path, std::ios::app) << "x";
    return true;
  });
  (void)lingering;
}

std::string race(std::istream& words) {
  size_t threads = 0;
  size_t rounds = 0;
  std::string arguments;
  words >> threads >> rounds;
  std::getline(words, arguments);
  std::vector<std::vector<Content>> results(threads);
  std::atomic<size_t> different{0};
  std::atomic<size_t> failed{0};
  const auto run = [&](size_t index) {
    try {
      std::istringstream loading(g_loaded);
      const std::unique_ptr<Player> player = load(loading);
      for (size_t round = 0; round < rounds; ++round) {
        std::istringstream calling(arguments);
        std::vector<Content> found;
        (void)call(*player, calling, &found);
        if (round > 0 && found != results[index]) {
          ++different;
        }
        results[index] = found;
      }
    } catch (const std::exception&) {
      ++failed;
    }
  };
  std::vector<std::thread> running;
  for (size_t i = 0; i < threads; ++i) {
    running.emplace_back(run, i);
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  for (const auto& result : results) {
    different += result != results[0] ? 1 : 0;
  }
  return " " + std::to_string(different) + " different " + std::to_string(failed) +
         " failed";
}

std::string run(std::unique_ptr<Player>& player, const std::string& command,
                std::istream& words) {
  if (command == "load") {
    player.reset();
    std::getline(words, g_loaded);
    std::istringstream loading(g_loaded);
    player = load(loading);
    return " " + player->profile() + " on " + player->device().name();
  }
  if (command == "key") {
    std::string path;
    words >> path;
    const Content bytes = read(path).value();
    return " " + content_key(DType::Float, {bytes.size() / 4},
                             {bytes.data(), bytes.size(), nullptr});
  }
  if (command == "linger") {
    linger(words);
    return "";
  }
  if (command == "exit") {
    std::exit(0);  // with what is loaded
  }
  if (player == nullptr) {
    throw Failure(Code::InvalidState, "nothing is loaded");
  }
  if (command == "call") {
    return call(*player, words);
  }
  if (command == "race") {
    return race(words);
  }
  if (command == "pipelines") {
    return " " + std::to_string(player->device().pipelines_made()) +
           (player->is_compiled() ? " done" : " going on");
  }
  if (command == "lose") {
    wgpu().wgpuDeviceDestroy(player->device().events().device);
  } else if (command == "reset") {
    player->reset_state();
  }
  return "";
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::string(arguments[1]) == "--standard") {
    open_wgpu();
    leave_native_out();
  }
  std::unique_ptr<Player> player;
  return driver::serve([&](const std::string& command, std::istream& words) {
    try {
      return run(player, command, words);
    } catch (const Failure& failure) {
      throw driver::Refusal(static_cast<int>(failure.code()), failure.what());
    }
  });
}
