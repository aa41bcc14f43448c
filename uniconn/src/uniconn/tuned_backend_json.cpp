#include "uniconn/tuned_backend_json.hpp"

#include <nlohmann/json.hpp>

namespace polypath {

nlohmann::json to_json(const TunedBackend& entry) {
  nlohmann::json times = nlohmann::json::array();
  for (const BackendTime& time : entry.times)
    times.push_back({{"backend", time.backend}, {"us", time.us}});
  return {{"op", entry.op},           {"ranks", entry.ranks},      {"bytes", entry.bytes},
          {"backend", entry.backend}, {"times", std::move(times)}, {"pairs", entry.pairs},
          {"edited", entry.edited}};
}

}  // namespace polypath
