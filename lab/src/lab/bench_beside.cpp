#include "lab/bench_beside.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/units.hpp"
#include "driver/library.hpp"
#include "lab/block_set.hpp"
#include "lab/pairs.hpp"
#include "lab/transfer_set.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

using nlohmann::json;

// After the traffic: what counts as recovered, and how long that is waited for.
constexpr double kRecoveredShare = 0.97;
constexpr double kRecoveryLimitUs = 2e6;

// A transfer may wait for this many copies of this process's traffic, and for each kChunkBytes of
// its own for twice those queued at any time: each chunk of a staged route waits for them. Many
// small copies of the traffic end while the CPU works, or another process has it. So a transfer may
// wait for these bytes of them, where that is more.
constexpr std::uint64_t kMaxTrafficCopies = 128;
constexpr std::uint64_t kMinTrafficBytes = 2 * kGiB;
constexpr std::uint64_t kChunkBytes = kMiB;

// About what this benchmark takes between two transfers on GPUs. The traffic goes on meanwhile, so
// in virtual time, where calls take next to nothing, that time has to pass as well.
constexpr double kBetweenUs = 150;
constexpr const char* kAdvance = "polypath_sim_advance_us";  // as in pairs.cpp, by name

/// Lets virtual time pass; does nothing elsewhere.
std::function<void()> pause_between(const NodeSource& source) {
  const auto nothing = [] {};
  if (!source.virtual_time) return nothing;
  void* const library = open_library(source.driver->library, nullptr);
  if (library == nullptr) return nothing;
  auto* const advance = find_symbol<void (*)(double)>(library, kAdvance);
  if (advance == nullptr) return nothing;
  return [advance] { advance(kBetweenUs); };
}

/// Samples of one phase of a round, microseconds, in the order in which they were measured.
struct Phase {
  std::vector<double> native_us;
  std::vector<double> polypath_us;
};

double median_of_later_half(const std::vector<double>& samples) {
  const auto half = static_cast<std::ptrdiff_t>(samples.size() / 2);
  return median({samples.begin() + half, samples.end()});
}

json to_json(const Phase& phase) {
  return {{"native_us", phase.native_us}, {"polypath_us", phase.polypath_us}};
}

/// `Set`: what is measured, a TransferSet, BlockSet, FileSet or SpreadSet.
template <typename Set>
class Beside {
 public:
  template <typename... Arguments>
  Beside(Context& context, const BesideOptions& options, const Arguments&... of_set)
      : options_(options),
        set_(context, of_set...),
        own_(context, options.own),
        timer_(context.driver(), set_.streams()),
        ahead_(set_.ahead()),
        clock_(cpu_clock(context.source())),
        pause_(pause_between(context.source())) {}

  json run() {
    json rounds = json::array();
    for (int i = 0; i < options_.rounds; ++i) rounds.push_back(round());
    return {{"group_bytes", set_.bytes()}, {"verified", true}, {"rounds", std::move(rounds)}};
  }

 private:
  json round() {
    verify();
    for (int i = 0; i < options_.warmup; ++i) {
      native();
      polypath();
    }
    const Phase idle = measure();
    switch_traffic(true);
    Phase loaded;
    double recovery_us = -1;
    try {
      loaded = measure();
      verify();
    } catch (...) {
      switch_traffic(false);
      throw;
    }
    switch_traffic(false);
    recovery_us = recover(median_of_later_half(idle.polypath_us));
    verify();
    return {{"idle", to_json(idle)},
            {"loaded", to_json(loaded)},
            {"recovery_us", recovery_us < 0 ? json() : json(recovery_us)}};
  }

  void switch_traffic(bool on) {
    if (options_.traffic) options_.traffic(on);
    if (on)
      own_.start();
    else
      own_.stop();
  }

  void verify() {
    wait_for("verification of native copies",
             [&] { set_.verify("native", [&] { set_.issue_native(); }); });
    own_.refill();
    wait_for("verification of polypath",
             [&] { set_.verify("polypath", [&] { set_.issue_polypath(); }); });
  }

  double native() {
    return timed("native copy", [&] { set_.issue_native(); });
  }
  double polypath() {
    return timed("polypath transfer", [&] { set_.issue_polypath(); });
  }
  double timed(const char* what, const std::function<void()>& issue) {
    pause_();
    own_.refill();
    double us = 0;
    wait_for(what, [&] { us = timer_.run(issue, ahead_); });
    return us;
  }
  /// Does what waits for work of this process, for a bounded number of copies of its traffic.
  void wait_for(const char* what, const std::function<void()>& work) {
    const auto queue = static_cast<std::uint64_t>(options_.own.queue);
    own_.begin_wait(fmt::format("{} of {}", what, format_bytes(set_.bytes())),
                    max_copies() + 2 * queue * (set_.bytes() / kChunkBytes));
    work();
    own_.end_wait();
  }

  [[nodiscard]] std::uint64_t max_copies() const {
    const auto& copies = options_.own.copies;
    const std::uint64_t smallest =
        copies.empty() ? kMinTrafficBytes : std::ranges::min(copies, {}, &Request::bytes).bytes;
    return std::max(kMaxTrafficCopies, kMinTrafficBytes / std::max<std::uint64_t>(smallest, 1));
  }

  /// Polypath first: its first transfers are those that meet a change of the load.
  Phase measure() {
    Phase phase;
    for (int i = 0; i < options_.iterations; ++i) {
      phase.polypath_us.push_back(polypath());
      phase.native_us.push_back(native());
    }
    return phase;
  }

  /// From now until a transfer begins that is about as fast as on the idle node; -1: none was.
  double recover(double idle_us) {
    const double begin_us = clock_();
    while (true) {
      const double now_us = clock_() - begin_us;
      if (now_us > kRecoveryLimitUs) return -1;
      if (polypath() * kRecoveredShare <= idle_us) return now_us;
    }
  }

  const BesideOptions& options_;
  Set set_;
  OwnTraffic own_;
  GroupTimer timer_;
  std::function<void()> ahead_;
  ClockFunction clock_;
  std::function<void()> pause_;
};

}  // namespace

json bench_beside(Context& context, const std::vector<Request>& requests,
                  const BesideOptions& options) {
  return Beside<TransferSet>(context, options, requests, 1).run();
}

json bench_blocks_beside(Context& context, const BlocksRequest& request,
                         const BesideOptions& options) {
  return Beside<BlockSet>(context, options, request).run();
}

json bench_file_beside(Context& context, const FileRequest& request, const BesideOptions& options) {
  return Beside<FileSet>(context, options, request).run();
}

json bench_spread_beside(Context& context, const SpreadRequest& request,
                         const BesideOptions& options) {
  return Beside<SpreadSet>(context, options, request).run();
}

}  // namespace polypath
