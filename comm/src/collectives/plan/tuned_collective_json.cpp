#include "collectives/plan/tuned_collective_json.hpp"

namespace polypath {

nlohmann::json to_json(const TunedCollective& entry) {
  using nlohmann::json;
  const auto unless_zero = [](auto value) { return value > 0 ? json(value) : json(); };
  return {{"op", entry.op},
          {"ranks", entry.ranks},
          {"bytes", entry.bytes},
          {"algorithm", entry.way.algorithm},
          {"stages", unless_zero(entry.way.stages)},
          {"blocks", unless_zero(entry.way.blocks)},
          {"tile_bytes", unless_zero(entry.way.tile_bytes)},
          {"lag", unless_zero(entry.way.lag)},
          {"lanes", unless_zero(entry.way.lanes)},
          {"chunk_bytes", unless_zero(entry.way.chunk_bytes)},
          {"planned_us", unless_zero(entry.planned_us)},
          {"us", unless_zero(entry.us)},
          {"tried", entry.tried},
          {"edited", entry.edited}};
}

}  // namespace polypath
