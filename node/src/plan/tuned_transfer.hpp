// What a tuner found: the best choice for each pattern, pair class, size and executor, with what
// was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/transfer_config.hpp"

namespace polypath {

/// What else is under way when a transfer starts.
enum class Pattern : std::uint8_t {
  one_way,    ///< nothing
  both_ways,  ///< the opposite transfer of the same size, planned together with it
  window,     ///< transfers of the same pair on other streams
};
inline constexpr Pattern kPatterns[] = {Pattern::one_way, Pattern::both_ways, Pattern::window};
/// "one way", "both ways", "window".
std::string_view to_string(Pattern pattern) noexcept;

/// Transfers at once that stand for Pattern::window.
inline constexpr int kTunedWindow = 16;

struct TunedTransfer {
  Pattern pattern = Pattern::one_way;
  std::string pair = {};       ///< pair_class()
  TransferConfig choice = {};  ///< choice.bytes is the size
  ExecutorKind executor = ExecutorKind::stream;
  double native_gbps = 0;     ///< of the whole group or window, as the next two
  double predicted_gbps = 0;  ///< by the cost model
  double measured_gbps = 0;
  int tried = 0;        ///< choices that were measured
  bool edited = false;  ///< changed by hand in the profile: no search replaces it
};

/// The choice for `bytes`: that of the nearest size of the same pattern and class, of those of
/// which `bytes` is at least 0.7. Above the largest its shares and chunk sizes serve. Without a
/// given executor that of the faster one, against the native copies that were measured with it; a
/// graph when both are equal, since it costs the CPU less. Null: none.
const TunedTransfer* find_choice(std::span<const TunedTransfer> choices, Pattern pattern,
                                 std::string_view pair, std::uint64_t bytes,
                                 std::optional<ExecutorKind> executor);

/// A number of what plans follow: pattern, class, size, executor, routes, shares, chunks and slots.
/// A profile tells edited choices by it.
std::uint32_t digest(const TunedTransfer& choice) noexcept;

}  // namespace polypath
