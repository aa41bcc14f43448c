#include "mode.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/error.hpp"
#include "base/units.hpp"

namespace polypath::sim {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Which of the words the variable is; the first when it is not set.
std::size_t word(const char* name, std::initializer_list<std::string_view> words) {
  const std::string_view text = variable(name);
  if (text.empty()) return 0;
  const auto* const it = std::ranges::find(words, text);
  if (it != words.end()) return static_cast<std::size_t>(it - words.begin());
  const auto* const last = words.end() - 1;
  throw Error(fmt::format("{} is \"{}\"; it can be {} or {}", name, text,
                          fmt::join(words.begin(), last, ", "), *last));
}

/// The variable's value, `otherwise` when it is not set.
template <typename Number>
Number number(const char* name, Number otherwise, const char* range) {
  const std::string_view text = variable(name);
  const char* const last = text.data() + text.size();
  Number value = otherwise;
  if (const auto [end, error] = std::from_chars(text.data(), last, value);
      !text.empty() && (error != std::errc{} || end != last))
    throw Error(fmt::format("{} is \"{}\"; it can be {}", name, text, range));
  return value;
}

}  // namespace

Mode read_mode() {
  Mode mode;
  mode.is_functional = word("POLYPATH_SIM_MODE", {"virtual", "functional"}) == 1;
  mode.reuses_addresses = word("POLYPATH_SIM_ADDRESSES", {"unique", "reused"}) == 1;
  mode.has_call_times = word("POLYPATH_SIM_CALL_TIMES", {"none", "real"}) == 1;
  mode.has_greedy_engines = word("POLYPATH_SIM_ENGINES", {"fair", "greedy"}) == 1;
  mode.seed = number<std::uint64_t>("POLYPATH_SIM_SEED", mode.seed, "0 to 2^64 - 1");
  mode.has_whole_lines = word("POLYPATH_SIM_LINES", {"torn", "whole"}) == 1;
  mode.folds_blocks = word("POLYPATH_SIM_BLOCKS", {"whole", "folded"}) == 1;
  mode.timeout = std::chrono::seconds(
      number<std::uint32_t>("POLYPATH_SIM_TIMEOUT", 120, "0 to 2^32 - 1 seconds"));
  constexpr std::array kCompute{Mode::Compute::standard, Mode::Compute::exclusive_process,
                                Mode::Compute::prohibited};
  mode.compute =
      kCompute[word("POLYPATH_SIM_COMPUTE_MODE", {"default", "exclusive_process", "prohibited"})];
  mode.machine = variable("POLYPATH_SIM_MACHINE");
  if (const std::string_view memory = variable("POLYPATH_SIM_MEMORY"); !memory.empty()) {
    try {
      mode.free_bytes = parse_bytes(memory);
    } catch (const Error&) {
      throw Error(
          fmt::format("POLYPATH_SIM_MEMORY is \"{}\"; it can be a size, 8G for example", memory));
    }
  }
  return mode;
}

}  // namespace polypath::sim
