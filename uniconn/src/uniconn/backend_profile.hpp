// Measured backends in a profile (`polypath tune backend`), which users may edit:
//
//   [[comm]]
//   op = "post"
//   ranks = "4 ranks, nvlink x4"              # collective_class()
//   bytes = 1048576                           # of a message; of a rank's larger buffer
//   backend = "polypath"                      # the choice
//   backends, us                              # that were measured, and how long each took
//   pairs                                     # how often
//   digest = 123456789                        # of op to us
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "topology/toml_table.hpp"
#include "tune/profile_table.hpp"
#include "uniconn/tuned_backend.hpp"

namespace polypath {

/// The key is operation, ranks and size.
template <>
struct ProfileFormat<TunedBackend> {
  static constexpr std::string_view kTable = "comm";
  static constexpr std::string_view kKey = "comm";
  static TunedBackend read(TomlTable& table);
  static std::string format(const TunedBackend& entry);
  static void append_json(nlohmann::json& array, const TunedBackend& entry);
  static bool has_same_key(const TunedBackend& left, const TunedBackend& right);
};

}  // namespace polypath
