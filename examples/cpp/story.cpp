// Tells a story, token by token:   story model.pte tokenizer.bin [--prompt TEXT]
//     [--max-tokens N] [--temperature T] [--seed N] [--ids]
//
// The program is a Llama whose keys and values stay on the GPU from token to token: it
// runs through ExecuTorch's own Module, and nothing below knows of WebGPU but the text
// of an error. It takes tokens [1, S] and their positions [S], and gives the logits of
// the next token, [1, 1, V]; methods beside it tell how many it takes.

#include "executorch_webgpu/backend.h"
#include "tokenizer.h"

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/evalue.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using executorch::extension::from_blob;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::EValue;

constexpr char kUsage[] =
    "usage: story model.pte tokenizer.bin [--prompt TEXT] [--max-tokens N]\n"
    "    [--temperature T] [--seed N] [--ids]\n"
    "\n"
    "  --prompt       how the story begins (Once upon a time)\n"
    "  --max-tokens   how many tokens it has beyond that, at most (128)\n"
    "  --temperature  0 takes the most probable token; 1 draws one as probable as the\n"
    "                 model thinks it is (0)\n"
    "  --seed         of what is drawn (0)\n"
    "  --ids          prints the numbers of tokens, without the prompt's\n";

struct Options {
  std::string program;
  std::string tokenizer;
  std::string prompt = "Once upon a time";
  size_t max_tokens = 128;
  double temperature = 0;
  uint64_t seed = 0;
  bool ids = false;
};

// A whole number from 0 on, or any number that is not negative.
template <typename Number, typename Parse>
Number parsed(const std::string& name, const std::string& text, const Parse& parse) {
  try {
    size_t used = 0;
    const auto number = static_cast<Number>(parse(text, &used));
    if (used == text.size() && text[0] >= '0' && text[0] <= '9') {
      return number;
    }
  } catch (const std::logic_error&) {  // what std::sto... throws
  }
  throw std::invalid_argument(name + ": must be a number from 0 on, got '" + text +
                              "'");
}

Options read_options(const std::vector<std::string>& words) {
  Options options;
  std::vector<std::string> files;
  const auto whole = [](const std::string& text, size_t* used) {
    return std::stoull(text, used);
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--ids") {
      options.ids = true;
      continue;
    }
    if (word.rfind("--", 0) != 0) {
      files.push_back(word);
      continue;
    }
    if (i + 1 == words.size()) {
      throw std::invalid_argument(word + ": must have a value, got none");
    }
    const std::string& value = words[++i];
    if (word == "--prompt") {
      options.prompt = value;
    } else if (word == "--max-tokens") {
      options.max_tokens = parsed<size_t>(word, value, whole);
    } else if (word == "--seed") {
      options.seed = parsed<uint64_t>(word, value, whole);
    } else if (word == "--temperature") {
      options.temperature = parsed<double>(
          word, value,
          [](const std::string& text, size_t* used) { return std::stod(text, used); });
    } else {
      throw std::invalid_argument(word + ": must be a known option");
    }
  }
  if (files.size() != 2) {
    throw std::invalid_argument("files must be 2, got " + std::to_string(files.size()));
  }
  options.program = files[0];
  options.tokenizer = files[1];
  return options;
}

// The model: a program with its caches, which are as long as its context.
class Model {
 public:
  explicit Model(const std::string& path) : path_(path), module_(path) {
    if (!std::ifstream(path)) {
      throw std::runtime_error(path + ": must be a file that can be read, got none");
    }
    check("load", module_.load());
    vocabulary = size("get_vocab_size");
    context = size("get_max_context_len");
    longest_ = size("get_max_seq_len");
    for (const int64_t end : numbers("get_eos_ids")) {
      ends_.insert(end);
    }
  }

  // Uploads weights and compiles kernels.
  void load() { check("load of forward", module_.load_method("forward")); }

  // The logits of what follows the tokens, which follow those of former calls.
  std::vector<float> next(std::vector<int64_t> tokens) {
    std::vector<float> logits;
    for (size_t first = 0; first < tokens.size(); first += longest_) {
      const size_t count = std::min(longest_, tokens.size() - first);
      std::vector<int64_t> positions(count);
      for (int64_t& position : positions) {
        position = position_++;
      }
      const auto extent = static_cast<executorch::aten::SizesType>(count);
      constexpr auto kLong = executorch::aten::ScalarType::Long;
      const auto outputs =
          module_.forward({from_blob(tokens.data() + first, {1, extent}, kLong),
                           from_blob(positions.data(), {extent}, kLong)});
      check("forward", outputs.error());
      logits = logits_of(outputs->at(0));
    }
    return logits;
  }

  bool ends_with(int64_t token) const { return ends_.count(token) != 0; }

  size_t vocabulary = 0;
  size_t context = 0;  // tokens that the caches hold

 private:
  void check(const std::string& what, Error error) const {
    if (error == Error::Ok) {
      return;
    }
    const std::string reason = executorch_webgpu_last_error();
    throw std::runtime_error(
        path_ + ": " + what + " must succeed, got error " +
        std::to_string(static_cast<int>(error)) +
        (reason.empty() ? "; ExecuTorch's log says why" : ": " + reason));
  }

  // What a method gives that only tells of the program.
  std::vector<int64_t> numbers(const std::string& method) {
    const auto results = module_.execute(method);
    check(method, results.error());
    std::vector<int64_t> found;
    for (const EValue& result : *results) {
      if (!result.isInt()) {
        throw std::runtime_error(path_ + ": " + method + " must give integers");
      }
      found.push_back(result.toInt());
    }
    return found;
  }

  std::vector<float> logits_of(const EValue& output) const {
    if (!output.isTensor() ||
        output.toTensor().scalar_type() != executorch::aten::ScalarType::Float ||
        static_cast<size_t>(output.toTensor().numel()) != vocabulary) {
      throw std::runtime_error(path_ + ": forward must give a float for each of " +
                               std::to_string(vocabulary) + " tokens");
    }
    const auto* values = output.toTensor().const_data_ptr<float>();
    return {values, values + vocabulary};
  }

  size_t size(const std::string& method) {
    const std::vector<int64_t> found = numbers(method);
    if (found.size() != 1 || found[0] < 1) {
      throw std::runtime_error(path_ + ": " + method + " must give a size");
    }
    return static_cast<size_t>(found[0]);
  }

  std::string path_;
  Module module_;
  std::set<int64_t> ends_;
  size_t longest_ = 0;  // tokens of one call
  int64_t position_ = 0;
};

// The most probable token, or with a temperature one that is drawn.
class Sampler {
 public:
  Sampler(double temperature, uint64_t seed)
      : temperature_(temperature), engine_(seed) {}

  int64_t operator()(const std::vector<float>& logits) {
    const auto best = std::max_element(logits.begin(), logits.end());
    if (temperature_ == 0) {
      return best - logits.begin();
    }
    std::vector<double> sums;
    double sum = 0;
    for (const float logit : logits) {
      sum += std::exp((static_cast<double>(logit) - *best) / temperature_);
      sums.push_back(sum);
    }
    // Not std::uniform_real_distribution, which differs between standard libraries.
    const double drawn = static_cast<double>(engine_() >> 11) * 0x1p-53 * sum;
    return std::upper_bound(sums.begin(), sums.end() - 1, drawn) - sums.begin();
  }

 private:
  double temperature_;
  std::mt19937_64 engine_;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

void tell(const Options& options) {
  const Tokenizer tokenizer(options.tokenizer);
  Model model(options.program);
  if (tokenizer.size() != model.vocabulary) {
    throw std::runtime_error(
        options.tokenizer + ": tokens must be " + std::to_string(model.vocabulary) +
        " as in " + options.program + ", got " + std::to_string(tokenizer.size()));
  }
  std::vector<int64_t> tokens = tokenizer.encode(options.prompt);
  if (tokens.size() >= model.context) {
    throw std::runtime_error(
        "prompt: must be shorter than the " + std::to_string(model.context) +
        " tokens of the model's context, got " + std::to_string(tokens.size()));
  }
  auto begin = std::chrono::steady_clock::now();
  model.load();
  std::fprintf(stderr, "load: %.2f s\n", seconds_since(begin));

  begin = std::chrono::steady_clock::now();
  Sampler sample(options.temperature, options.seed);
  const size_t room = model.context - tokens.size();
  const size_t most = std::min(options.max_tokens, room);
  std::vector<float> logits = model.next(tokens);
  std::fprintf(stderr, "prompt: %zu tokens in %.2f s\n", tokens.size(),
               seconds_since(begin));
  if (!options.ids) {
    std::printf("%s", options.prompt.c_str());
  }
  begin = std::chrono::steady_clock::now();
  size_t told = 0;
  while (told < most) {
    const int64_t token = sample(logits);
    if (model.ends_with(token)) {
      break;
    }
    if (options.ids) {
      std::printf("%lld\n", static_cast<long long>(token));
    } else {
      const std::string& piece = tokenizer.piece(token);
      std::fwrite(piece.data(), 1, piece.size(), stdout);
    }
    std::fflush(stdout);
    if (++told < most) {
      logits = model.next({token});
    }
  }
  if (!options.ids) {
    std::printf("\n");
  }
  const double taken = seconds_since(begin);
  std::fprintf(stderr, "story: %zu tokens, %.1f tokens per second\n", told,
               taken > 0 ? static_cast<double>(told) / taken : 0.0);
  if (told == room) {
    std::fprintf(stderr, "story: ends with the model's context of %zu tokens\n",
                 model.context);
  }
}

}  // namespace

int main(int count, char** arguments) {
  Options options;
  try {
    options = read_options({arguments + 1, arguments + count});
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "story: %s\n%s", error.what(), kUsage);
    return 2;
  }
  try {
    tell(options);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "story: %s\n", exception.what());
    return 1;
  }
  return 0;
}
