// Tuned collectives in a profile (`polypath tune collectives`), which users may edit:
//
//   [[collective]]
//   op = "allreduce"
//   ranks = "4 ranks, nvlink x4"              # collective_class()
//   bytes = 1048576                           # of a rank's larger buffer
//   algorithm = "flat"
//   stages = 2                                # of kernels
//   blocks = 64                               # of a kernel
//   lanes, chunk_bytes                        # of what runs by copies
//   planned_us, us, tried
//   digest = 123456789                        # of op to chunk_bytes
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/tuned_collective.hpp"
#include "topology/toml_table.hpp"
#include "tune/profile_table.hpp"

namespace polypath {

/// The key is operation, ranks and size.
template <>
struct ProfileFormat<TunedCollective> {
  static constexpr std::string_view kTable = "collective";
  static constexpr std::string_view kKey = "collectives";
  static TunedCollective read(TomlTable& table);
  static std::string format(const TunedCollective& entry);
  static void append_json(nlohmann::json& array, const TunedCollective& entry);
  static bool has_same_key(const TunedCollective& left, const TunedCollective& right);
};

/// From a text with entries as ProfileFormat::format() writes them, among other tables.
std::vector<TunedCollective> read_collectives(std::string_view text);

}  // namespace polypath
