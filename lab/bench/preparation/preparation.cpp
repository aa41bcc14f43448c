// How soon the routes of a first large transfer are ready, and what their preparation costs the
// program meanwhile. A loop copies 1 MiB and waits for it, again and again, while large transfers
// go one after another on another stream:
//
//   natively   both by the driver, before anything is prepared
//   meanwhile  both by polypath, from the first large transfer to the first that takes all routes
//   after it   both by polypath
//
// For each: median and longest time of the call that copies 1 MiB, and of the copy. Then what the
// preparation's own calls of the driver took. Usage: preparation [FROM TO [SIZE [ROUNDS]]], by
// default gpu0 gpu1 64M 2000. POLYPATH_PREPARE_THREADS varies the number of threads.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "core/context.hpp"
#include "lab/pairs.hpp"
#include "tune/group_timer.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kSmallBytes = kMiB;
constexpr double kTimeoutUs = 30e6;
constexpr std::uint64_t kSeed = 11;

// ---- the driver's calls, timed ------------------------------------------------------------------

/// What calls of other threads than the one that made it took. One at a time: entry points are
/// plain functions.
class TimedDriver {
 public:
  explicit TimedDriver(const CudaDriver& driver)
      : table_(std::make_shared<CudaDriver>(driver)), own_(std::this_thread::get_id()) {
    the_one() = this;
    time<&CudaDriver::primary_ctx_retain>("cuDevicePrimaryCtxRetain");
    time<&CudaDriver::ctx_enable_peer_access>("cuCtxEnablePeerAccess");
    time<&CudaDriver::mem_create>("cuMemCreate");
    time<&CudaDriver::mem_map>("cuMemMap");
    time<&CudaDriver::mem_set_access>("cuMemSetAccess");
    time<&CudaDriver::mem_alloc>("cuMemAlloc");
    time<&CudaDriver::mem_host_alloc>("cuMemHostAlloc");
    time<&CudaDriver::mem_host_register>("cuMemHostRegister");
    time<&CudaDriver::stream_create>("cuStreamCreate");
    time<&CudaDriver::event_create>("cuEventCreate");
  }
  ~TimedDriver() { the_one() = nullptr; }
  TimedDriver(const TimedDriver&) = delete;
  TimedDriver& operator=(const TimedDriver&) = delete;

  [[nodiscard]] std::shared_ptr<const CudaDriver> table() const { return table_; }
  void print() {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, times] : times_us_)
      fmt::print("  {:26} {:4} calls, median {:9.1f} us, longest {:9.1f} us\n", name, times.size(),
                 median(times), std::ranges::max(times));
  }

 private:
  static TimedDriver*& the_one() {
    static TimedDriver* instance = nullptr;
    return instance;
  }
  void took(const char* name, double us) {
    if (std::this_thread::get_id() == own_) return;
    const std::lock_guard lock(mutex_);
    times_us_[name].push_back(us);
  }

  template <auto Member>
  struct Timed;
  template <typename... Arguments, CUresult (*CudaDriver::*Member)(Arguments...)>
  struct Timed<Member> {
    static inline CUresult (*original)(Arguments...) = nullptr;
    static inline const char* name = "";
    static CUresult call(Arguments... arguments) {
      const double begin = steady_clock_us();
      const CUresult result = original(arguments...);
      if (TimedDriver* const timed = the_one()) timed->took(name, steady_clock_us() - begin);
      return result;
    }
  };
  template <auto Member>
  void time(const char* name) {
    auto& entry = (*table_).*Member;
    if (entry == nullptr) return;
    Timed<Member>::original = entry;
    Timed<Member>::name = name;
    entry = &Timed<Member>::call;
  }

  std::shared_ptr<CudaDriver> table_;
  std::thread::id own_;
  std::mutex mutex_;
  std::map<std::string, std::vector<double>> times_us_;
};

// ---- the program ------------------------------------------------------------------------------

struct Copy {
  Copy(Context& context, const Request& copy_request)
      : request(copy_request),
        dst(context.driver(), context.node(), copy_request.dst, copy_request.bytes),
        src(context.driver(), context.node(), copy_request.src, copy_request.bytes),
        own(copy_request.src.is_gpu() ? src.context() : dst.context()),
        stream(context.driver(), own) {
    src.fill(kSeed);
    dst.poison();
  }
  void issue(Context& context, bool natively) const {
    const Transfer transfer{dst.address(), src.address(), request.bytes, stream.get()};
    if (natively)
      POLYPATH_CHECK(context.driver(),
                     memcpy_async(transfer.dst, transfer.src, transfer.bytes, transfer.stream));
    else
      context.copy_async(transfer);
  }
  void wait(const CudaDriver& driver) const {
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
  }
  [[nodiscard]] bool is_done(const CudaDriver& driver) const {
    return driver.stream_query(stream.get()) == CUDA_SUCCESS;
  }
  [[nodiscard]] bool is_right() const { return !dst.first_difference(kSeed); }

  Request request;
  TestBuffer dst;
  TestBuffer src;
  CUcontext own;
  Stream stream;
};

struct Times {
  std::vector<double> call_us;
  std::vector<double> copy_us;
  void print(const char* when) const {
    fmt::print(
        "  {:10} {:6} copies of 1 MiB: call {:7.1f} us, longest {:9.1f}; copy {:7.1f} us, "
        "longest {:9.1f}\n",
        when, call_us.size(), median(call_us), std::ranges::max(call_us), median(copy_us),
        std::ranges::max(copy_us));
  }
};

class Program {
 public:
  Program(Context& context, const Request& request)
      : context_(context),
        driver_(context.driver()),
        large_(context, request),
        small_(context, {request.src, request.dst, kSmallBytes}) {}

  Times run_natively(int rounds) {
    Times times;
    for (int i = 0; i < rounds; ++i) {
      if (large_.is_done(driver_)) large_.issue(context_, true);
      copy_small(times, true);
    }
    return times;
  }

  /// Until a transfer takes all routes of `plan`; `since_us`: when the first began.
  Times run_until_ready(const Plan& plan, double& since_us, double& ready_us) {
    Times times;
    const auto& routes = plan.transfers.front().routes;
    std::vector<double> known(routes.size(), 0);
    since_us = steady_clock_us();
    bool is_ready = false;
    while (!is_ready) {
      if (large_.is_done(driver_)) is_ready = issue_large(routes.size());
      for (std::size_t r = 0; r < routes.size(); ++r) {
        if (known[r] > 0 || !context_.resources().ready(routes[r].route)) continue;
        known[r] = steady_clock_us() - since_us;
        if (routes[r].route.staged())
          fmt::print("  {:9.2f} ms  {} is ready\n", known[r] / 1e3, to_string(routes[r].route));
      }
      ready_us = steady_clock_us() - since_us;
      copy_small(times, false);
      if (ready_us > kTimeoutUs) throw Error("not all routes were ready within 30 s");
    }
    return times;
  }

  Times run_prepared(int rounds) {
    Times times;
    for (int i = 0; i < rounds; ++i) {
      if (large_.is_done(driver_)) large_.issue(context_, false);
      copy_small(times, false);
    }
    return times;
  }

  [[nodiscard]] CUcontext own() const noexcept { return large_.own; }
  /// Checks all that was copied since the last time.
  bool check() {
    large_.wait(driver_);
    small_.wait(driver_);
    const bool is_right = large_.is_right() && small_.is_right();
    large_.dst.poison();
    small_.dst.poison();
    return is_right;
  }

 private:
  void copy_small(Times& times, bool natively) {
    const double begin = steady_clock_us();
    small_.issue(context_, natively);
    times.call_us.push_back(steady_clock_us() - begin);
    small_.wait(driver_);
    times.copy_us.push_back(steady_clock_us() - begin);
  }

  /// Issues a large copy. Whether it took `routes` routes.
  bool issue_large(std::size_t routes) {
    const auto sent = [&] {
      std::uint64_t transfers = 0;
      const Counters::Snapshot now = context_.counters().snapshot();
      for (const auto& [key, count] : now.routes)
        if (key.src == large_.request.src && key.dst == large_.request.dst)
          transfers += count.transfers;
      return transfers;
    };
    const std::uint64_t before = sent();
    large_.issue(context_, false);
    return sent() - before == routes;
  }

  Context& context_;
  const CudaDriver& driver_;
  Copy large_;
  Copy small_;
};

int run(const Request& request, int rounds) {
  NodeSource source = open_node(load_options({}));
  const std::shared_ptr<const CudaDriver> plain = source.driver;
  TimedDriver timed(*plain);
  source.driver = timed.table();
  bool is_right = true;
  {
    Context context(source, {});
    // By the planner of another context: the first transfer must find no plan.
    const Plan plan = Context(source, {}).plan({request});
    if (plan.native()) throw Error("this transfer is not split on this node");
    fmt::print("{}, {} from {} to {}, {} threads prepare{}\n", context.node().name,
               format_bytes(request.bytes), to_string(request.src), to_string(request.dst),
               context.options().prepare_threads,
               source.simulated ? "; simulated: these times say nothing of hardware" : "");
    Program program(context, request);
    const CurrentContext current(*plain, program.own());
    const Times natively = program.run_natively(rounds);
    is_right = program.check() && is_right;
    double since_us = 0;
    double ready_us = 0;
    const Times meanwhile = program.run_until_ready(plan, since_us, ready_us);
    is_right = program.check() && is_right;
    const Times after = program.run_prepared(rounds);
    is_right = program.check() && is_right;
    fmt::print("  {:9.2f} ms  a transfer takes all {} routes\n", ready_us / 1e3,
               plan.transfers.front().routes.size());
    natively.print("natively");
    meanwhile.print("meanwhile");
    after.print("after it");
    timed.print();
  }
  fmt::print("{}\n", is_right ? "all bytes are right" : "WRONG BYTES");
  return is_right ? 0 : 1;
}

}  // namespace
}  // namespace polypath

int main(int argc, char** argv) {
  using namespace polypath;
  try {
    const auto argument = [&](int index, const char* otherwise) -> std::string_view {
      return index < argc ? argv[index] : otherwise;
    };
    const std::string_view rounds_text = argument(4, "2000");
    int rounds = 0;
    std::from_chars(rounds_text.data(), rounds_text.data() + rounds_text.size(), rounds);
    if (rounds < 1) throw Error("ROUNDS is 1 or more");
    return run({parse_memory(argument(1, "gpu0")), parse_memory(argument(2, "gpu1")),
                parse_bytes(argument(3, "64M"))},
               rounds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "preparation: {}\n", error.what());
    return 1;
  }
}
