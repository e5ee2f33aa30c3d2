// What the drivers of tests have in common: they read commands, one a line, and answer
// each by a line: "ok ..." or "error <code> <text>". Content of tensors is in files; a
// shape is written as 2x3, a scalar's as "-".

#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace driver {

using Content = std::vector<char>;

// nullopt if there is no such file.
inline std::optional<Content> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  return Content(std::istreambuf_iterator<char>(file), {});
}

inline void write(const std::string& path, const void* data, size_t size) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
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

// What a command is answered with if it fails.
class Refusal : public std::runtime_error {
 public:
  Refusal(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

// The rest of the line, and what is to follow "ok" in the answer.
using Command = std::function<std::string(const std::string& name, std::istream& rest)>;

// Answers until there are no more lines.
inline int serve(const Command& command) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream rest(line);
    std::string name;
    rest >> name;
    std::string answer;
    try {
      answer = "ok" + command(name, rest);
    } catch (const Refusal& refusal) {
      answer = "error " + std::to_string(refusal.code()) + " " + refusal.what();
    } catch (const std::exception& exception) {
      answer = std::string("error 1 ") + exception.what();
    }
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    std::cout << answer << std::endl;
  }
  return 0;
}

}  // namespace driver
