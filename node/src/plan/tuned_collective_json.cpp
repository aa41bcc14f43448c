#include "plan/tuned_collective_json.hpp"

namespace polypath {

nlohmann::json to_json(const TunedCollective& one) {
  using nlohmann::json;
  const auto unless_zero = [](auto value) { return value > 0 ? json(value) : json(); };
  return {{"op", one.op},
          {"ranks", one.ranks},
          {"bytes", one.bytes},
          {"algorithm", one.way.algorithm},
          {"stages", unless_zero(one.way.stages)},
          {"blocks", unless_zero(one.way.blocks)},
          {"lanes", unless_zero(one.way.lanes)},
          {"chunk_bytes", unless_zero(one.way.chunk_bytes)},
          {"planned_us", unless_zero(one.planned_us)},
          {"us", unless_zero(one.us)},
          {"tried", one.tried},
          {"edited", one.edited}};
}

}  // namespace polypath
