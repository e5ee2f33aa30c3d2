// Runs programs through ExecuTorch's Module, for tests: reads commands, one a line.
//
//   load <program> [<file of weights>]
//   method <name>
//   call <prefix of files for outputs> [t<type>:<shape>:<order>:<file> | i<int> ...]
//   set <bool option of the backend> <0 or 1>
//   maps
//
// A shape is written as 2x3 and a scalar's as "-"; an order, that of the dimensions in
// memory, likewise. Outputs go to <prefix>0, <prefix>1. Each command is answered by a
// line: "ok ...", with the outputs as arguments are written, or
// "error <code> <the backend's last line in the log>". `maps` answers with the
// libraries of the process.

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/platform/platform.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::BackendOption;
using executorch::runtime::Error;
using executorch::runtime::EValue;

using Content = std::vector<char>;

constexpr const char* kBackend = "WebGPUBackend";

// The backend's last line since a command began.
std::string g_logged;

void keep_line(et_timestamp_t, et_pal_log_level_t, const char*, const char*, size_t,
               const char* message, size_t length) {
  const std::string line(message, length);
  if (line.rfind(kBackend, 0) == 0) {
    g_logged = line;
  }
}

Content read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Content(std::istreambuf_iterator<char>(file), {});
}

template <typename Number>
std::vector<Number> numbers(const std::string& text) {
  std::vector<Number> found;
  std::istringstream parts(text == "-" ? "" : text);
  for (std::string part; std::getline(parts, part, 'x');) {
    found.push_back(static_cast<Number>(std::stoll(part)));
  }
  return found;
}

template <typename Numbers>
std::string written(const Numbers& numbers) {
  std::string text;
  for (const auto number : numbers) {
    text += (text.empty() ? "" : "x") + std::to_string(static_cast<int>(number));
  }
  return text.empty() ? "-" : text;
}

std::string failed(Error error) {
  return "error " + std::to_string(static_cast<int>(error)) + " " + g_logged;
}

// Arguments of a call, and the memory that they are in.
struct Arguments {
  std::vector<Content> contents;
  std::vector<TensorPtr> tensors;
  std::vector<EValue> values;

  void add(const std::string& word) {
    if (word[0] == 'i') {
      values.emplace_back(static_cast<int64_t>(std::stoll(word.substr(1))));
      return;
    }
    std::istringstream parts(word.substr(1));
    std::string type;
    std::string shape;
    std::string order;
    std::string file;
    std::getline(parts, type, ':');
    std::getline(parts, shape, ':');
    std::getline(parts, order, ':');
    std::getline(parts, file);
    contents.push_back(read(file));
    tensors.push_back(make_tensor_ptr(numbers<executorch::aten::SizesType>(shape),
                                      contents.back().data(),
                                      numbers<executorch::aten::DimOrderType>(order),
                                      {}, static_cast<ScalarType>(std::stoi(type))));
    values.emplace_back(tensors.back());
  }
};

std::string result(const EValue& value, const std::string& path) {
  if (value.isInt()) {
    return "i" + std::to_string(value.toInt());
  }
  if (!value.isTensor()) {
    return "?";
  }
  const Tensor& tensor = value.toTensor();
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(tensor.const_data_ptr()),
             static_cast<std::streamsize>(tensor.nbytes()));
  return "t" + std::to_string(static_cast<int>(tensor.scalar_type())) + ":" +
         written(tensor.sizes()) + ":" + written(tensor.dim_order());
}

std::string call(Module& module, const std::string& method, std::istream& words) {
  std::string prefix;
  words >> prefix;
  Arguments arguments;
  for (std::string word; words >> word;) {
    arguments.add(word);
  }
  const auto results = module.execute(method, arguments.values);
  if (!results.ok()) {
    return failed(results.error());
  }
  std::string answer = "ok";
  for (size_t i = 0; i < results->size(); ++i) {
    answer += " " + result(results->at(i), prefix + std::to_string(i));
  }
  return answer;
}

std::string set(std::istream& words) {
  std::string name;
  bool value = false;
  words >> name >> value;
  BackendOption option{};
  name.copy(option.key, sizeof(option.key) - 1);
  option.value = value;
  const Error error = executorch::runtime::set_option(kBackend, {&option, 1});
  return error == Error::Ok ? "ok" : failed(error);
}

std::string maps() {
  std::set<std::string> files;
  std::ifstream lines("/proc/self/maps");
  for (std::string line; std::getline(lines, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos) {
      files.insert(line.substr(path));
    }
  }
  std::string answer = "ok";
  for (const std::string& file : files) {
    answer += " " + file;
  }
  return answer;
}

}  // namespace

int main() {
  (void)executorch::runtime::register_pal(
      executorch::runtime::PalImpl::create(keep_line, __FILE__));
  std::unique_ptr<Module> module;
  std::string method = "forward";
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    g_logged.clear();
    std::string answer = "error 0 unknown command";
    if (command == "load") {
      std::string program;
      std::string weights;
      words >> program >> weights;
      method = "forward";
      module.reset();
      module = weights.empty() ? std::make_unique<Module>(program)
                               : std::make_unique<Module>(program, weights);
      const Error error = module->load();
      answer = error == Error::Ok ? "ok" : failed(error);
    } else if (command == "set") {
      answer = set(words);
    } else if (command == "maps") {
      answer = maps();
    } else if (module == nullptr) {
      answer = "error 0 nothing is loaded";
    } else if (command == "method") {
      words >> method;
      const Error error = module->load_method(method);
      answer = error == Error::Ok ? "ok" : failed(error);
    } else if (command == "call") {
      answer = call(*module, method, words);
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
