// Says what is in a picture:   classify model.pte picture.ppm labels.txt
//
// The program runs on the GPU through ExecuTorch's own Module: nothing below knows of
// WebGPU. It takes pictures of [1, 3, 224, 224], scaled as EfficientNet-Lite0 wants
// them, and gives a score for each of 1,000 classes.

#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using executorch::extension::from_blob;
using executorch::extension::Module;

constexpr size_t kSide = 224;
constexpr size_t kChannels = 3;
constexpr size_t kShown = 5;

struct Picture {
  size_t width = 0;
  size_t height = 0;
  std::vector<uint8_t> pixels;  // rows of red, green and blue
};

// The next number of a PPM's head, behind spaces and comments.
size_t read_number(std::istream& file) {
  while (file >> std::ws && file.peek() == '#') {
    std::string comment;
    std::getline(file, comment);
  }
  size_t number = 0;
  file >> number;
  return number;
}

Picture read_ppm(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  file >> magic;
  Picture picture;
  picture.width = read_number(file);
  picture.height = read_number(file);
  const size_t largest = read_number(file);
  file.get();  // the one space before the pixels
  constexpr size_t kMost = 1 << 15;
  if (!file || magic != "P6" || largest != 255 || picture.width == 0 ||
      picture.height == 0 || picture.width > kMost || picture.height > kMost) {
    throw std::runtime_error(path + ": must be a PPM (P6) of 8 bits");
  }
  picture.pixels.resize(picture.width * picture.height * kChannels);
  file.read(reinterpret_cast<char*>(picture.pixels.data()),
            static_cast<std::streamsize>(picture.pixels.size()));
  if (!file) {
    throw std::runtime_error(path + ": must have " +
                             std::to_string(picture.pixels.size()) +
                             " bytes of pixels, got fewer");
  }
  return picture;
}

// The square in the middle, averaged to kSide x kSide, as the model wants it.
std::vector<float> model_input(const Picture& picture) {
  const size_t side = std::min(picture.width, picture.height);
  const size_t left = (picture.width - side) / 2;
  const size_t top = (picture.height - side) / 2;
  const auto begin = [&](size_t i) { return i * side / kSide; };
  const auto end = [&](size_t i) {
    return std::max((i + 1) * side / kSide, begin(i) + 1);
  };
  std::vector<float> input(kChannels * kSide * kSide);
  for (size_t channel = 0; channel < kChannels; ++channel) {
    for (size_t y = 0; y < kSide; ++y) {
      for (size_t x = 0; x < kSide; ++x) {
        size_t sum = 0;
        size_t count = 0;
        for (size_t row = top + begin(y); row < top + end(y); ++row) {
          for (size_t column = left + begin(x); column < left + end(x); ++column) {
            sum += picture.pixels[(row * picture.width + column) * kChannels + channel];
            ++count;
          }
        }
        const float value = static_cast<float>(sum) / static_cast<float>(count);
        input[(channel * kSide + y) * kSide + x] = (value - 127.0f) / 128.0f;
      }
    }
  }
  return input;
}

std::vector<std::string> read_labels(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> labels;
  for (std::string line; std::getline(file, line);) {
    labels.push_back(line);
  }
  return labels;
}

void show_best(const float* scores, size_t count,
               const std::vector<std::string>& labels) {
  const float highest = *std::max_element(scores, scores + count);
  float total = 0;
  for (size_t i = 0; i < count; ++i) {
    total += std::exp(scores[i] - highest);
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  const size_t shown = std::min(kShown, count);
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(shown),
                    order.end(),
                    [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  for (size_t i = 0; i < shown; ++i) {
    const size_t best = order[i];
    const std::string label =
        best < labels.size() ? labels[best] : "class " + std::to_string(best);
    std::printf("%5.1f%%  %s\n", 100 * std::exp(scores[best] - highest) / total,
                label.c_str());
  }
}

void classify(const std::string& program, const std::string& picture,
              const std::string& labels) {
  std::vector<float> input = model_input(read_ppm(picture));
  Module module(program);
  const auto tensor =
      from_blob(input.data(), {1, static_cast<int>(kChannels), static_cast<int>(kSide),
                               static_cast<int>(kSide)});
  // The first call loads the method: it uploads weights and compiles kernels.
  for (const char* what : {"load and first call", "second call"}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto outputs = module.forward(tensor);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    if (!outputs.ok()) {
      throw std::runtime_error(program + ": forward must succeed, got error " +
                               std::to_string(static_cast<int>(outputs.error())) +
                               "; ExecuTorch's log says why");
    }
    std::printf("%s: %.0f ms\n", what, taken.count());
    if (what == std::string("second call")) {
      const auto& scores = outputs->at(0).toTensor();
      show_best(scores.const_data_ptr<float>(), static_cast<size_t>(scores.numel()),
                read_labels(labels));
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: classify model.pte picture.ppm labels.txt\n");
    return 2;
  }
  try {
    classify(arguments[1], arguments[2], arguments[3]);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "classify: %s\n", exception.what());
    return 1;
  }
  return 0;
}
