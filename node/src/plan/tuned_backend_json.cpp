#include "plan/tuned_backend_json.hpp"

#include <nlohmann/json.hpp>

namespace polypath {

nlohmann::json to_json(const TunedBackend& one) {
  nlohmann::json times = nlohmann::json::array();
  for (const BackendTime& time : one.times)
    times.push_back({{"backend", time.backend}, {"us", time.us}});
  return {{"op", one.op},           {"ranks", one.ranks},        {"bytes", one.bytes},
          {"backend", one.backend}, {"times", std::move(times)}, {"pairs", one.pairs},
          {"edited", one.edited}};
}

}  // namespace polypath
