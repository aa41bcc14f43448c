#include "mode.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.hpp"

namespace polypath::sim {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
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
  const std::string_view seed = variable("POLYPATH_SIM_SEED");
  const char* const last = seed.data() + seed.size();
  if (const auto [end, error] = std::from_chars(seed.data(), last, mode.seed);
      !seed.empty() && (error != std::errc{} || end != last))
    throw Error(fmt::format("POLYPATH_SIM_SEED is \"{}\"; it can be 0 to 2^64 - 1", seed));
  return mode;
}

}  // namespace polypath::sim
