#include "uniconn/tuned_backend.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.hpp"
#include "plan/entry_digest.hpp"

namespace polypath {
namespace {

/// Number of nine rounds that must be won, ...
constexpr std::size_t kMustWin = 8;
constexpr std::size_t kOfTurns = 9;
/// ... and share of the time to gain: less is noise.
constexpr double kMinGainOfBackends = 0.01;

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return std::round(values[values.size() / 2] * 100) / 100;  // as profiles keep it
}

}  // namespace

void choose_backend(TunedBackend& entry, const std::vector<std::string>& backends,
                    std::span<const double> us) {
  const std::size_t count = backends.size();
  if (count == 0 || us.empty() || us.size() % count != 0)
    throw InvalidArgument("no backend was measured, or not all of them as often");
  const std::size_t turns = us.size() / count;
  entry.times.clear();
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> samples_of_backend;
    for (std::size_t turn = 0; turn < turns; ++turn)
      samples_of_backend.push_back(us[turn * count + i]);
    entry.times.push_back({backends[i], median_of(std::move(samples_of_backend))});
  }
  entry.pairs = static_cast<int>(turns);
  const BackendTime* best = &entry.times.front();
  for (std::size_t i = 1; i < count; ++i) {
    std::size_t won = 0;
    for (std::size_t turn = 0; turn < turns; ++turn)
      won += us[turn * count + i] < us[turn * count] ? 1 : 0;
    const BackendTime& time = entry.times[i];
    if (won * kOfTurns < turns * kMustWin) continue;
    if (time.us * (1 + kMinGainOfBackends) > entry.times.front().us) continue;
    if (time.us < best->us) best = &time;
  }
  entry.backend = best->backend;
}

std::uint32_t digest(const TunedBackend& entry) noexcept {
  EntryDigest all;
  for (const std::string* text : {&entry.op, &entry.ranks, &entry.backend}) all.mix_text(*text);
  all.mix(entry.bytes);
  for (const BackendTime& time : entry.times) {
    all.mix_text(time.backend);
    all.mix(static_cast<std::uint64_t>(std::llround(time.us * 100)));
  }
  return all.value();
}

}  // namespace polypath
