#include "arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "usage_error.hpp"

namespace mpi_bench {

void Arguments::option(std::string name, std::string value, std::string meaning, Read read) {
  options_.push_back({std::move(name), std::move(value), std::move(meaning), std::move(read)});
}

bool Arguments::parse(int argc, char** argv, std::string_view what, std::string& help) const {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      help = fmt::format("{}\n\n", what);
      for (const Option& option : options_)
        help += fmt::format("  {:<24}  {}\n", option.name + " " + option.value, option.meaning);
      return false;
    }
    const std::size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const auto it = std::find_if(options_.begin(), options_.end(),
                                 [&](const Option& option) { return option.name == name; });
    if (it == options_.end())
      throw UsageError(fmt::format("there is no option '{}' (--help lists them)", argument));
    if (equals != std::string_view::npos)
      it->read(name, argument.substr(equals + 1));
    else if (i + 1 < argc)
      it->read(name, argv[++i]);
    else
      throw UsageError(fmt::format("{} needs a value: {}", name, it->value));
  }
  return true;
}

MemoryKind parse_memory(std::string_view option, std::string_view value) {
  if (value == "gpu") return MemoryKind::gpu;
  if (value == "host") return MemoryKind::host;
  throw UsageError(fmt::format("{} '{}' is not one of gpu, host", option, value));
}

}  // namespace mpi_bench
