// Runs programs through ExecuTorch's Module, as an app does, for tests (driver.h):
//
//   set <option> <bool|int|text> <value>
//   get <option> <bool|int|text>
//   with <option> <bool|int|text> <value>      for the next program alone
//   load <program> [<file of weights>]
//   method <name>   loads it; calls are of it
//   call <prefix of files for outputs> [t<type>:<shape>:<order>:<file> | i<int> ...]
//   forked <prefix> ...   the same in a fork; answers with the code of the error
//   time <count> <prefix> ...   the same; answers with microseconds of a call
//   maps   answers with the libraries of the process
//
// A type is ExecuTorch's number of it; an order is that of the dimensions in memory.
// Outputs go to <prefix>0, <prefix>1, and answers have them as arguments are written.

#include "driver.h"
#include "executorch_webgpu/backend.h"

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/backend/backend_options_map.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/platform/platform.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <variant>
#include <vector>

namespace {

using driver::numbers;
using driver::written;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::make_tensor_ptr;
using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::BackendOption;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::LoadBackendOptionsMap;

using Text = std::array<char, executorch::runtime::kMaxOptionValueLength>;

constexpr char kBackend[] = "WebGPUBackend";

// Whether the backend has logged anything since a command began: what it said last may
// be of an earlier one, if ExecuTorch refuses a call by itself.
bool g_has_logged = false;

void notice_line(et_timestamp_t, et_pal_log_level_t, const char*, const char*, size_t,
                 const char* message, size_t length) {
  g_has_logged |= std::string(message, length).rfind(kBackend, 0) == 0;
}

void check(Error error) {
  if (error != Error::Ok) {
    throw driver::Refusal(static_cast<int>(error),
                          g_has_logged ? executorch_webgpu_last_error() : "");
  }
}

BackendOption read_option(std::istream& words) {
  std::string name;
  std::string kind;
  std::string value;
  words >> name >> kind >> value;
  BackendOption option{};
  name.copy(option.key, sizeof(option.key) - 1);
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

// Arguments of a call, and the memory that they are in.
struct Arguments {
  std::vector<driver::Content> contents;
  std::vector<TensorPtr> tensors;
  std::vector<EValue> values;

  explicit Arguments(std::istream& words) {
    for (std::string word; words >> word;) {
      add(word);
    }
  }

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
    contents.push_back(driver::read(file).value());
    tensors.push_back(make_tensor_ptr(numbers<executorch::aten::SizesType>(shape),
                                      contents.back().data(),
                                      numbers<executorch::aten::DimOrderType>(order),
                                      {}, static_cast<ScalarType>(std::stoi(type))));
    values.emplace_back(tensors.back());
  }
};

std::string result(const EValue& value, const std::string& path) {
  if (value.isInt()) {
    return " i" + std::to_string(value.toInt());
  }
  if (!value.isTensor()) {
    return " ?";
  }
  const Tensor& tensor = value.toTensor();
  driver::write(path, tensor.const_data_ptr(), tensor.nbytes());
  return " t" + std::to_string(static_cast<int>(tensor.scalar_type())) + ":" +
         written(tensor.sizes()) + ":" + written(tensor.dim_order());
}

class App {
 public:
  std::string run(const std::string& command, std::istream& words) {
    g_has_logged = false;
    if (command == "set") {
      BackendOption option = read_option(words);
      check(executorch::runtime::set_option(kBackend, {&option, 1}));
      return "";
    }
    if (command == "get") {
      BackendOption option = read_option(words);
      check(executorch::runtime::get_option(kBackend, {&option, 1}));
      return shown(option);
    }
    if (command == "with") {
      given_.push_back(read_option(words));
      return "";
    }
    if (command == "maps") {
      return maps();
    }
    if (command == "load") {
      load(words);
      return "";
    }
    return of_program(command, words);
  }

 private:
  void load(std::istream& words) {
    std::string program;
    std::string weights;
    words >> program >> weights;
    method_ = "forward";
    module_.reset();
    module_ = weights.empty() ? std::make_unique<Module>(program)
                              : std::make_unique<Module>(program, weights);
    LoadBackendOptionsMap options;
    check(options.set_options(kBackend, {given_.data(), given_.size()}));
    given_.clear();
    check(module_->load(options));
  }

  std::string of_program(const std::string& command, std::istream& words) {
    if (module_ == nullptr) {
      throw driver::Refusal(0, "nothing is loaded");
    }
    if (command == "method") {
      words >> method_;
      check(module_->load_method(method_));
      return "";
    }
    size_t count = 0;
    if (command == "time") {
      words >> count;
    }
    std::string prefix;
    words >> prefix;
    const Arguments arguments(words);
    if (command == "call") {
      return call(prefix, arguments);
    }
    if (command == "forked") {
      return forked(prefix, arguments);
    }
    if (command == "time") {
      return timed(arguments, count);
    }
    throw driver::Refusal(0, "unknown command " + command);
  }

  std::string call(const std::string& prefix, const Arguments& arguments) {
    const auto results = module_->execute(method_, arguments.values);
    check(results.error());
    std::string answer;
    for (size_t i = 0; i < results->size(); ++i) {
      answer += result(results->at(i), prefix + std::to_string(i));
    }
    return answer;
  }

  std::string forked(const std::string& prefix, const Arguments& arguments) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 0;
      try {
        (void)call(prefix, arguments);
      } catch (const driver::Refusal& refusal) {
        code = refusal.code();
      }
      std::exit(code);  // by way of the exit handlers of drivers
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    return " " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }

  // Of `count` calls, as the median.
  std::string timed(const Arguments& arguments, size_t count) {
    std::vector<double> times;
    for (size_t i = 0; i < count; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      check(module_->execute(method_, arguments.values).error());
      const std::chrono::duration<double, std::micro> taken =
          std::chrono::steady_clock::now() - begin;
      times.push_back(taken.count());
    }
    std::sort(times.begin(), times.end());
    return " " + std::to_string(times.at(count / 2));
  }

  static std::string maps() {
    std::set<std::string> files;
    std::ifstream lines("/proc/self/maps");
    for (std::string line; std::getline(lines, line);) {
      const size_t path = line.find('/');
      if (path != std::string::npos) {
        files.insert(line.substr(path));
      }
    }
    std::string answer;
    for (const std::string& file : files) {
      answer += " " + file;
    }
    return answer;
  }

  std::unique_ptr<Module> module_;
  std::string method_ = "forward";
  std::vector<BackendOption> given_;
};

}  // namespace

int main() {
  (void)executorch::runtime::register_pal(
      executorch::runtime::PalImpl::create(notice_line, __FILE__));
  App app;
  return driver::serve([&](const std::string& command, std::istream& words) {
    return app.run(command, words);
  });
}
