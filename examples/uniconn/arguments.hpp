// Options of the form --name value, and how a program ends.
#pragma once

#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace uniconn_example {

class Arguments {
 public:
  /// `known`: names without dashes, with their defaults. Throws std::runtime_error for any other.
  Arguments(int argc, char** argv, std::map<std::string, std::string> known)
      : values_(std::move(known)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string word = argv[i];
      const auto it = values_.find(word.substr(0, 2) == "--" ? word.substr(2) : "");
      if (it == values_.end()) {
        std::string names;
        for (const auto& [name, value] : values_) names += " --" + name;
        throw std::runtime_error("there is no option " + word + ":" + names);
      }
      if (i + 1 == argc) throw std::runtime_error(word + " needs a value");
      it->second = argv[i + 1];
    }
  }
  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }
  [[nodiscard]] int count(const std::string& name, int least) const {
    std::size_t used = 0;
    long value = -1;
    try {
      value = std::stol(text(name), &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != text(name).size() || value < least || value > 1 << 30)
      throw std::runtime_error("--" + name + " " + text(name) + " is no number from " +
                               std::to_string(least) + " on");
    return static_cast<int>(value);
  }

 private:
  std::map<std::string, std::string> values_;
};

/// What main() returns: what `run` does, or 1 after a line on stderr with what it threw.
inline int exit_code(int (*run)(int argc, char** argv), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace uniconn_example
