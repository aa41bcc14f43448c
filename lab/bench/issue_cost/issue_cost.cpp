// What issuing a transfer takes of the thread that calls: of one thread alone, and of two at once
// that copy between different pairs of GPUs. Medians of single calls, in turn by polypath, by the
// driver's own copy, and by calls of the driver such as a staged leg is made of: what of the
// difference between one thread and two is the driver's. Usage: issue_cost [SIZE [ROUNDS]], by
// default 64M and 50.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <bit>
#include <charconv>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
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

/// Transfers that a thread issues back to back; more of them would fill the channels.
constexpr int kTransfers = 8;

enum class Way : std::uint8_t { polypath, native, staged };
enum class Turn : std::uint8_t { first_alone, second_alone, both };
constexpr std::array kWays{Way::polypath, Way::native, Way::staged};
constexpr std::array kTurns{Turn::first_alone, Turn::second_alone, Turn::both};

/// Pieces that go through host memory, by calls of the driver alone: as many calls as a transfer of
/// 256 MiB makes.
class StagedByHand {
 public:
  static constexpr int kPieces = 8;
  static constexpr std::uint64_t kPieceBytes = 64 * kKiB;

  StagedByHand(const CudaDriver& driver, const TestBuffer& dst, const TestBuffer& src)
      : driver_(driver), dst_(dst), src_(src), up_(driver, dst.context()) {
    const CurrentContext current(driver, src.context());
    void* pinned = nullptr;
    POLYPATH_CHECK(driver,
                   mem_host_alloc(&pinned, kPieces * kPieceBytes, CU_MEMHOSTALLOC_PORTABLE));
    host_ = std::bit_cast<CUdeviceptr>(pinned);
    for (int i = 0; i < kPieces; ++i)
      arrived_.push_back(std::make_unique<Event>(driver, src.context(), CU_EVENT_DISABLE_TIMING));
    done_ = std::make_unique<Event>(driver, dst.context(), CU_EVENT_DISABLE_TIMING);
  }
  ~StagedByHand() { driver_.mem_free_host(std::bit_cast<void*>(host_)); }
  StagedByHand(const StagedByHand&) = delete;
  StagedByHand& operator=(const StagedByHand&) = delete;

  void issue(CUstream down) const {
    for (int i = 0; i < kPieces; ++i) {
      const std::uint64_t at = static_cast<std::uint64_t>(i) * kPieceBytes;
      POLYPATH_CHECK(driver_, memcpy_async(host_ + at, src_.address() + at, kPieceBytes, down));
      POLYPATH_CHECK(driver_, event_record(arrived_[static_cast<std::size_t>(i)]->get(), down));
      const CurrentContext current(driver_, dst_.context());
      POLYPATH_CHECK(driver_,
                     stream_wait_event(up_.get(), arrived_[static_cast<std::size_t>(i)]->get(), 0));
      POLYPATH_CHECK(driver_,
                     memcpy_async(dst_.address() + at, host_ + at, kPieceBytes, up_.get()));
    }
    const CurrentContext current(driver_, dst_.context());
    POLYPATH_CHECK(driver_, event_record(done_->get(), up_.get()));
    POLYPATH_CHECK(driver_, stream_wait_event(down, done_->get(), 0));
  }

 private:
  const CudaDriver& driver_;
  const TestBuffer& dst_;
  const TestBuffer& src_;
  Stream up_;
  CUdeviceptr host_ = 0;
  std::vector<std::unique_ptr<Event>> arrived_;
  std::unique_ptr<Event> done_;
};

/// One thread's transfer, and what its calls took.
struct Side {
  Side(Context& context, const Request& request)
      : requested(request),
        dst(context.driver(), context.node(), request.dst, request.bytes),
        src(context.driver(), context.node(), request.src, request.bytes),
        stream(context.driver(), src.context()),
        staged(context.driver(), dst, src) {
    src.fill(kSeed);
    dst.poison();
  }
  static constexpr std::uint64_t kSeed = 7;

  Request requested;
  TestBuffer dst;
  TestBuffer src;
  Stream stream;
  StagedByHand staged;
  std::array<std::vector<double>, kWays.size()> alone_us;
  std::array<std::vector<double>, kWays.size()> beside_us;
};

void issue(Context& context, const Side& side, Way way) {
  const Transfer transfer{side.dst.address(), side.src.address(), side.requested.bytes,
                          side.stream.get()};
  switch (way) {
    case Way::polypath: context.copy_async(transfer); break;
    case Way::native:
      POLYPATH_CHECK(context.driver(),
                     memcpy_async(transfer.dst, transfer.src, transfer.bytes, transfer.stream));
      break;
    case Way::staged: side.staged.issue(side.stream.get()); break;
  }
}

void time_calls(Context& context, Side& side, Way way, Turn turn) {
  auto& samples = turn == Turn::both ? side.beside_us : side.alone_us;
  for (int i = 0; i < kTransfers; ++i) {
    const double begin = steady_clock_us();
    issue(context, side, way);
    samples[static_cast<std::size_t>(way)].push_back(steady_clock_us() - begin);
  }
  POLYPATH_CHECK(context.driver(), stream_synchronize(side.stream.get()));
}

/// All turns of all rounds, by one thread; the other one goes through the same.
void take_part(Context& context, Side& side, bool is_first, int rounds, std::barrier<>& together,
               std::exception_ptr& failure) noexcept {
  try {
    const CurrentContext current(context.driver(), side.src.context());
    for (int round = 0; round < rounds; ++round) {
      for (const Way way : kWays) {
        for (const Turn turn : kTurns) {
          together.arrive_and_wait();
          const bool waits = turn == (is_first ? Turn::second_alone : Turn::first_alone);
          if (!waits) time_calls(context, side, way, turn);
          together.arrive_and_wait();
        }
      }
    }
  } catch (...) {
    failure = std::current_exception();
    together.arrive_and_drop();
  }
}

/// Requests of two pairs of GPUs that have no GPU in common, if there are enough GPUs.
std::array<Request, 2> requests_of(const Node& node, std::uint64_t bytes) {
  const auto gpus = static_cast<int>(node.gpus.size());
  if (gpus < 2) throw NoDevice("two GPUs are needed");
  const int third = gpus > 3 ? 2 : 1;
  return {Request{MemoryId::gpu(0), MemoryId::gpu(1), bytes},
          Request{MemoryId::gpu(third), MemoryId::gpu(gpus > 3 ? 3 : 0), bytes}};
}

void report(const std::array<Side, 2>& sides) {
  for (const Way way : kWays) {
    const auto index = static_cast<std::size_t>(way);
    double worst = 0;
    std::string figures;
    for (const Side& side : sides) {
      const double alone = median(side.alone_us[index]);
      const double beside = median(side.beside_us[index]);
      worst = std::max(worst, beside / alone);
      figures +=
          fmt::format("  {} to {}: {:.1f} us alone, {:.1f} us beside the other,",
                      to_string(side.requested.src), to_string(side.requested.dst), alone, beside);
    }
    fmt::print("{}{} at most {:.2f} times as long\n",
               way == Way::polypath ? "polypath      "
               : way == Way::native ? "driver        "
                                    : "driver, staged",
               figures, worst);
  }
}

void run(std::uint64_t bytes, int rounds) {
  Context context{OptionArguments{}};
  const auto requests = requests_of(context.node(), bytes);
  context.prepare({requests.begin(), requests.end()});
  std::array sides{Side(context, requests[0]), Side(context, requests[1])};
  fmt::print("{}, {} a transfer{}\n", context.node().name, format_bytes(bytes),
             context.source().simulated
                 ? ": the simulated driver lets threads take turns, so its times say nothing"
                 : "");
  std::barrier together(2);
  std::array<std::exception_ptr, 2> failures;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < sides.size(); ++i)
      threads.emplace_back(
          [&, i] { take_part(context, sides[i], i == 0, rounds, together, failures[i]); });
  }
  for (const std::exception_ptr& failure : failures)
    if (failure != nullptr) std::rethrow_exception(failure);
  for (const Side& side : sides)
    if (side.dst.first_difference(Side::kSeed)) throw Error("a byte is wrong");
  report(sides);
  const auto counts = context.counters().snapshot();
  const int issued = rounds * kTransfers * 4;
  fmt::print("{}{} transfers were split\n",
             counts.split == static_cast<std::uint64_t>(issued)
                 ? std::string("all ")
                 : fmt::format("{} of ", counts.split),
             issued);
}

}  // namespace
}  // namespace polypath

int main(int argc, char** argv) {
  using namespace polypath;
  try {
    const std::uint64_t bytes = argc > 1 ? parse_bytes(argv[1]) : 64 * kMiB;
    int rounds = 50;
    if (argc > 2) {
      const char* const end = argv[2] + std::strlen(argv[2]);
      if (std::from_chars(argv[2], end, rounds).ptr != end || rounds < 1)
        throw InvalidArgument("usage: issue_cost [SIZE [ROUNDS]]");
    }
    run(bytes, rounds);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
