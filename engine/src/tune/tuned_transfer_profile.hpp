// Tuned transfers in a profile (`polypath tune`), which users may edit:
//
//   [[tuned]]
//   pattern = "one way"                       # or "both ways", "window"
//   pair = "gpu to gpu, nvlink x4, via 2 gpu, 1 host"
//   bytes = 67108864
//   executor = "graph"                        # or "stream"
//   routes = ["direct", "gpu", "gpu", "host"]
//   shares = [0.34, 0.31, 0.31, 0.04]         # add up to 1
//   chunks = [1, 9, 9, 4]
//   slots = 0                                 # 0: as many as fit
//   native_gbps, predicted_gbps, measured_gbps, tried
//   digest = 123456789                        # of pattern to slots: without it, or when it
//   differs,
//                                             # the entry counts as edited and no search replaces
//                                             it
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "plan/tuned_transfer.hpp"
#include "topology/toml_table.hpp"
#include "tune/profile_table.hpp"

namespace polypath {

/// The key is pattern, pair, size and executor.
template <>
struct ProfileFormat<TunedTransfer> {
  static constexpr std::string_view kTable = "tuned";
  static constexpr std::string_view kKey = "choices";
  static TunedTransfer read(TomlTable& table);
  static std::string format(const TunedTransfer& choice);
  static void append_json(nlohmann::json& array, const TunedTransfer& entry);
  static bool has_same_key(const TunedTransfer& left, const TunedTransfer& right);
};

}  // namespace polypath
