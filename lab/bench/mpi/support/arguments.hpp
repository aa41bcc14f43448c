// The options of a command line: "--name VALUE" or "--name=VALUE", and flags.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "memory.hpp"

namespace mpi_bench {

/// What a program understands; the help is made from the same list.
class Arguments {
 public:
  using Read = std::function<void(std::string_view option, std::string_view value)>;

  /// An option with a value; `read` may throw UsageError.
  void option(std::string name, std::string value, std::string meaning, Read read);

  /// Reads a command line. False when that was --help, whose text is then in `help`. Throws
  /// UsageError.
  bool parse(int argc, char** argv, std::string_view what, std::string& help) const;

 private:
  struct Option {
    std::string name;
    std::string value;
    std::string meaning;
    Read read;
  };
  std::vector<Option> options_;
};

/// Reads the values gpu and host. Throws UsageError.
MemoryKind parse_memory(std::string_view option, std::string_view value);

}  // namespace mpi_bench
