// Runs programs through ExecuTorch's Module, as an app does, for tests: reads commands,
// one a line.
//
//   set <option> <bool|int|text> <value>
//   get <option> <bool|int|text>
//   with <option> <bool|int|text> <value>      for the next program alone
//   load <program.pte> [<data.ptd>]
//   call <method> <prefix of files for outputs> [<type>:<shape>:<file> | <int> ...]
//   forked <method> <prefix> ...   the same in a fork; answers with its exit status:
//   the
//                                  code of the error, 0 if there is none
//   time <count> <method> <prefix> ...   the same; answers with microseconds of a call
//
// A type is ExecuTorch's number of it; a shape is written as 2x3, a scalar's as "-".
// Outputs go to <prefix>0, <prefix>1. Each command is answered by a line: "ok ..." or
// "error <code> <text>".

#include "executorch_webgpu/backend.h"

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <variant>
#include <vector>

namespace {

using executorch::aten::ScalarType;
using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::BackendOption;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::LoadBackendOptionsMap;

using Text = std::array<char, executorch::runtime::kMaxOptionValueLength>;

constexpr char kBackend[] = "WebGPUBackend";

[[noreturn]] void fail(Error error) {
  std::string text = executorch_webgpu_last_error();
  std::replace(text.begin(), text.end(), '\n', '|');
  throw std::runtime_error(std::to_string(static_cast<int>(error)) + " " + text);
}

void check(Error error) {
  if (error != Error::Ok) {
    fail(error);
  }
}

BackendOption read_option(std::istream& words) {
  std::string name;
  std::string kind;
  std::string value;
  words >> name >> kind >> value;
  BackendOption option{};
  std::strncpy(option.key, name.c_str(), sizeof(option.key) - 1);
  if (kind == "bool") {
    option.value = value == "1";
  } else if (kind == "int") {
    option.value = value.empty() ? 0 : std::stoi(value);
  } else {
    Text text{};
    std::copy(value.begin(), value.end(), text.begin());
    option.value = text;
  }
  return option;
}

std::string shown(const BackendOption& option) {
  if (const bool* flag = std::get_if<bool>(&option.value)) {
    return *flag ? " 1" : " 0";
  }
  if (const int* number = std::get_if<int>(&option.value)) {
    return " " + std::to_string(*number);
  }
  return std::string(" ") + std::get<Text>(option.value).data();
}

// Microseconds of `count` calls, each, as the median.
std::string timed(Module& module, const std::string& method,
                  const std::vector<EValue>& inputs, size_t count) {
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    check(module.execute(method, inputs).error());
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  return " " + std::to_string(times[count / 2]);
}

std::string call(Module& module, std::istream& words, size_t count) {
  std::string method;
  std::string prefix;
  words >> method >> prefix;
  std::vector<EValue> inputs;
  std::vector<TensorPtr> tensors;
  std::vector<std::vector<char>> contents;
  contents.reserve(64);
  for (std::string word; words >> word;) {
    const size_t first = word.find(':');
    if (first == std::string::npos) {
      inputs.emplace_back(static_cast<int64_t>(std::stoll(word)));
      continue;
    }
    const size_t second = word.find(':', first + 1);
    const std::string shape = word.substr(first + 1, second - first - 1);
    std::istringstream extents(shape == "-" ? "" : shape);
    std::vector<executorch::aten::SizesType> sizes;
    for (std::string extent; std::getline(extents, extent, 'x');) {
      sizes.push_back(static_cast<int32_t>(std::stol(extent)));
    }
    std::ifstream file(word.substr(second + 1), std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file),
                          std::istreambuf_iterator<char>());
    tensors.push_back(from_blob(contents.back().data(), sizes,
                                static_cast<ScalarType>(std::stoi(word))));
    inputs.emplace_back(tensors.back());
  }
  if (count > 0) {
    return timed(module, method, inputs, count);
  }
  const auto outputs = module.execute(method, inputs);
  if (!outputs.ok()) {
    fail(outputs.error());
  }
  std::string answer;
  for (size_t i = 0; i < outputs->size(); ++i) {
    const EValue& value = outputs->at(i);
    if (value.isInt()) {
      answer += " " + std::to_string(value.toInt());
      continue;
    }
    const auto& tensor = value.toTensor();
    std::ofstream(prefix + std::to_string(i), std::ios::binary)
        .write(static_cast<const char*>(tensor.const_data_ptr()),
               static_cast<std::streamsize>(tensor.nbytes()));
    std::string extents;
    for (const auto extent : tensor.sizes()) {
      extents += (extents.empty() ? "" : "x") + std::to_string(extent);
    }
    answer += " " + std::to_string(static_cast<int>(tensor.scalar_type())) + ":" +
              (extents.empty() ? "-" : extents);
  }
  return answer;
}

std::string forked(Module& module, std::istream& words) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    try {
      (void)call(module, words, 0);
    } catch (const std::exception& exception) {
      code = std::atoi(exception.what());
    }
    std::exit(code);  // by way of the exit handlers of drivers
  }
  int status = 0;
  (void)waitpid(child, &status, 0);
  return " " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

}  // namespace

int main() {
  std::unique_ptr<Module> module;
  std::vector<BackendOption> given;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    std::string answer;
    try {
      if (command == "set") {
        BackendOption option = read_option(words);
        check(executorch::runtime::set_option(kBackend, {&option, 1}));
      } else if (command == "get") {
        BackendOption option = read_option(words);
        check(executorch::runtime::get_option(kBackend, {&option, 1}));
        answer = shown(option);
      } else if (command == "load") {
        std::string program;
        std::string data;
        words >> program >> data;
        module = data.empty() ? std::make_unique<Module>(program)
                              : std::make_unique<Module>(program, data);
        LoadBackendOptionsMap options;
        check(options.set_options(kBackend, {given.data(), given.size()}));
        given.clear();
        check(module->load(options));
      } else if (command == "with") {
        given.push_back(read_option(words));
      } else if (command == "call") {
        answer = call(*module, words, 0);
      } else if (command == "forked") {
        answer = forked(*module, words);
      } else if (command == "time") {
        size_t count = 0;
        words >> count;
        answer = call(*module, words, count);
      }
      std::cout << "ok" << answer << std::endl;
    } catch (const std::exception& exception) {
      std::cout << "error " << exception.what() << std::endl;
    }
  }
  return 0;
}
