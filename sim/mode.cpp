#include "mode.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/units.hpp"

namespace polypath::sim {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
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
  const std::string_view wanted = variable("POLYPATH_SIM_MODE");
  mode.is_functional = wanted == "functional";
  if (!mode.is_functional && wanted != "virtual" && !wanted.empty())
    throw Error(
        fmt::format("POLYPATH_SIM_MODE is \"{}\"; it can be virtual or functional", wanted));
  const std::string_view addresses = variable("POLYPATH_SIM_ADDRESSES");
  mode.reuses_addresses = addresses == "reused";
  if (!mode.reuses_addresses && addresses != "unique" && !addresses.empty())
    throw Error(
        fmt::format("POLYPATH_SIM_ADDRESSES is \"{}\"; it can be unique or reused", addresses));
  mode.seed = number<std::uint64_t>("POLYPATH_SIM_SEED", mode.seed, "0 to 2^64 - 1");
  const std::string_view blocks = variable("POLYPATH_SIM_BLOCKS");
  mode.folds_blocks = blocks == "folded";
  if (!mode.folds_blocks && blocks != "whole" && !blocks.empty())
    throw Error(fmt::format("POLYPATH_SIM_BLOCKS is \"{}\"; it can be whole or folded", blocks));
  mode.patience = std::chrono::seconds(
      number<std::uint32_t>("POLYPATH_SIM_PATIENCE", 120, "0 to 2^32 - 1 seconds"));
  const std::string_view compute = variable("POLYPATH_SIM_COMPUTE_MODE");
  if (compute == "exclusive_process")
    mode.compute = Mode::Compute::exclusive_process;
  else if (compute == "prohibited")
    mode.compute = Mode::Compute::prohibited;
  else if (compute != "default" && !compute.empty())
    throw Error(fmt::format(
        "POLYPATH_SIM_COMPUTE_MODE is \"{}\"; it can be default, exclusive_process or prohibited",
        compute));
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
