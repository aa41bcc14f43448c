#include "comm/ll128_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/error.hpp"
#include "comm/kernels/images.hpp"
#include "comm/kernels/ll128_probe_args.h"
#include "comm/rank_error.hpp"
#include "driver/check.hpp"
#include "driver/kernel_module.hpp"
#include "driver/library.hpp"
#include "driver/resources.hpp"

namespace polypath {
namespace {

constexpr std::uint32_t kProofCalls = 2048;  // 4 million lines
constexpr std::uint64_t kLineBytes = 128;

enum class Lines : std::uint8_t { unknown, whole, torn, unproven };

/// The paths that this process knows, by driver and the two GPUs.
struct KnownPaths {
  using Key = std::tuple<const CudaDriver*, int, int>;
  std::mutex mutex;
  std::map<Key, Lines> all;
};
KnownPaths& known_paths() {
  static KnownPaths* const paths = new KnownPaths;  // as long as any communicator
  return *paths;
}

/// A pair, as queues have it: words of the producer and of the consumer, and the cells.
constexpr std::uint32_t kCapacityLog2 = 10;
constexpr std::uint32_t kSegmentLog2 = 8;
constexpr std::uint64_t kCreditAt = kLineBytes;
constexpr std::uint64_t kProducerBytes = 2 * kLineBytes;
constexpr std::uint64_t kCellsAt = 2 * kLineBytes;
constexpr std::uint64_t kConsumerBytes = kCellsAt + (kLineBytes << kCapacityLog2);

/// Where a rank's part of the memory of one trial has what.
struct ProofMemory {
  static constexpr std::uint64_t kPushes = 0;  // abort word, reports, status record of the producer
  static constexpr std::uint64_t kPops = 4 * kLineBytes;  // ... and of the consumer
  static constexpr std::uint64_t kTorn = 8 * kLineBytes;
  static constexpr std::uint64_t kPairs = 9 * kLineBytes;

  static std::uint64_t bytes() { return kPairs + kProofPairs * (kProducerBytes + kConsumerBytes); }
  static wait_context wait_ctx(CUdeviceptr at, const Communicator& communicator) {
    wait_context wait_ctx = communicator.wait_ctx();
    wait_ctx.time_limit_ns = std::min(wait_ctx.time_limit_ns, kProofNs);
    wait_ctx.abort_flag = reinterpret_cast<const std::uint32_t*>(at);
    wait_ctx.reports = reinterpret_cast<std::uint32_t*>(at + kLineBytes);
    wait_ctx.status = reinterpret_cast<wait_error*>(at + 2 * kLineBytes);
    return wait_ctx;
  }
};

/// From `pushes`, the memory of one rank, to `pops`, that of another.
LL128ProbeArgs args_of(CUdeviceptr pushes, CUdeviceptr pops) {
  const CUdeviceptr producers = pushes + ProofMemory::kPairs;
  const CUdeviceptr consumers = pops + ProofMemory::kPairs + kProofPairs * kProducerBytes;
  LL128ProbeArgs args{};
  args.view.sent = reinterpret_cast<std::uint64_t*>(producers);
  args.view.credit = reinterpret_cast<std::uint64_t*>(producers + kCreditAt);
  args.view.received = reinterpret_cast<std::uint64_t*>(consumers);
  args.view.cells = reinterpret_cast<unsigned char*>(consumers + kCellsAt);
  args.view.capacity_log2 = kCapacityLog2;
  args.view.segment_log2 = kSegmentLog2;
  args.producer_bytes = kProducerBytes;
  args.consumer_bytes = kConsumerBytes;
  args.calls = kProofCalls;
  args.torn = reinterpret_cast<std::uint32_t*>(pops + ProofMemory::kTorn);
  args.late = args.torn + 1;
  args.stop = reinterpret_cast<std::uint32_t*>(pushes + ProofMemory::kPushes);
  args.stop_own = reinterpret_cast<std::uint32_t*>(pops + ProofMemory::kPops);
  return args;
}

}  // namespace

bool may_have_whole_lines(const CudaDriver& driver) {
  void* const library = open_library(driver.library, nullptr);
  if (library == nullptr) return true;
  const auto says_whole = find_symbol<int (*)()>(library, "polypath_sim_has_whole_lines");
  return says_whole == nullptr || says_whole() != 0;
}

namespace {

class Trial {
 public:
  explicit Trial(Communicator& communicator)
      : communicator_(communicator),
        driver_(communicator.driver()),
        current_(driver_, communicator.context()),
        module_(KernelModule::load(driver_, communicator.context(), ll128_probe_image())),
        push_(module_->function("polypath_line_proof_push")),
        pop_(module_->function("polypath_line_proof_pop")),
        pushing_(driver_, communicator.context()),
        popping_(driver_, communicator.context()) {}

  /// The part of this rank in trials from `from` to it, and from it to `to`; null: it has none.
  /// Returns the result of the consumer.
  Lines run(std::optional<CUdeviceptr> from, CUdeviceptr own, std::optional<CUdeviceptr> to) {
    try {
      launch(from, own, to);
      POLYPATH_CHECK(driver_, stream_synchronize(pushing_.get()));
      POLYPATH_CHECK(driver_, stream_synchronize(popping_.get()));
    } catch (...) {
      // The memory of what runs goes next.
      POLYPATH_WARN(driver_, stream_synchronize(pushing_.get()));
      POLYPATH_WARN(driver_, stream_synchronize(popping_.get()));
      throw;
    }
    if (!from) return Lines::unknown;
    if (*from != own && !may_have_whole_lines(driver_)) return Lines::torn;
    if (word(own + ProofMemory::kTorn) != 0) return Lines::torn;
    const bool is_late = word(own + ProofMemory::kTorn + sizeof(std::uint32_t)) != 0 ||
                         word(own + ProofMemory::kPops + kLineBytes) != 0;  // or a wait timed out
    return is_late ? Lines::unproven : Lines::whole;
  }
  void clear(CUdeviceptr own) {
    POLYPATH_CHECK(driver_, memset_d8_async(own, 0, ProofMemory::bytes(), pushing_.get()));
    POLYPATH_CHECK(driver_, stream_synchronize(pushing_.get()));
  }
  /// In this rank's own memory, from itself to itself.
  Lines run_alone() {
    CUdeviceptr own = 0;
    POLYPATH_CHECK(driver_, mem_alloc(&own, ProofMemory::bytes()));
    try {
      clear(own);
      const Lines lines = run(own, own, own);
      POLYPATH_CHECK(driver_, mem_free(own));
      return lines;
    } catch (...) {
      POLYPATH_WARN(driver_, mem_free(own));
      throw;
    }
  }

 private:
  void launch(std::optional<CUdeviceptr> from, CUdeviceptr own, std::optional<CUdeviceptr> to) {
    if (from) {
      LL128ProbeArgs args = args_of(*from, own);
      args.view.wait_ctx = ProofMemory::wait_ctx(own + ProofMemory::kPops, communicator_);
      launch(pop_, args, popping_.get());
    }
    if (to) {
      LL128ProbeArgs args = args_of(own, *to);
      args.view.wait_ctx = ProofMemory::wait_ctx(own + ProofMemory::kPushes, communicator_);
      launch(push_, args, pushing_.get());
    }
  }
  void launch(CUfunction kernel, LL128ProbeArgs& args, CUstream stream) {
    void* arguments = &args;
    POLYPATH_CHECK(driver_, launch_kernel(kernel, kProofBlocks, 1, 1, kProofThreads, 1, 1, 0,
                                          stream, &arguments, nullptr));
  }
  std::uint32_t word(CUdeviceptr at) {
    std::uint32_t value = 0;
    POLYPATH_CHECK(driver_, memcpy_sync(reinterpret_cast<CUdeviceptr>(&value), at, sizeof value));
    return value;
  }

  Communicator& communicator_;
  const CudaDriver& driver_;
  CurrentContext current_;
  std::shared_ptr<const KernelModule> module_;
  CUfunction push_;
  CUfunction pop_;
  Stream pushing_;
  Stream popping_;
};

/// What all ranks tell of each path, at [rank * paths + path].
std::vector<Lines> gathered(Communicator& communicator, const std::vector<Lines>& own_lines) {
  std::vector<Lines> all(own_lines.size() * static_cast<std::size_t>(communicator.size()));
  communicator.exchange(std::as_bytes(std::span(own_lines)),
                        std::as_writable_bytes(std::span(all)));
  return all;
}

/// What a rank could not do.
struct Part {
  RankError problem;
  bool is_unsupported = false;  ///< by its driver, GPU or build

  template <typename Body>
  void attempt(Body&& body) noexcept {
    problem.catch_from([&] {
      try {
        body();
      } catch (const NotSupported&) {
        is_unsupported = true;
        throw;
      }
    });
  }
};

/// Collective: all throw the same where one of them could not do its part.
void agree_on(Communicator& communicator, const Part& own_part) {
  std::vector<Part> all(static_cast<std::size_t>(communicator.size()));
  communicator.exchange(std::as_bytes(std::span(&own_part, 1)),
                        std::as_writable_bytes(std::span(all)));
  try {
    throw_first_error(all, "layout line: the trial");
  } catch (const CommunicatorError& error) {
    const auto first =
        std::ranges::find_if(all, [](const Part& part) { return static_cast<bool>(part.problem); });
    if (first->is_unsupported) throw NotSupported(error.what());
    throw;
  }
}

/// Paths as far from rank to rank go together: each rank is in two of them at most. `memory`: of
/// all trials, taken by the first.
void try_together(Communicator& communicator, const std::vector<std::pair<int, int>>& paths,
                  std::vector<Lines>& lines, int distance, SymmetricMemory& memory) {
  const int size = communicator.size();
  std::vector<std::size_t> together;
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (lines[i] == Lines::unknown && (paths[i].second - paths[i].first + size) % size == distance)
      together.push_back(i);
  if (together.empty()) return;
  Part part;
  std::optional<Trial> trial;
  part.attempt([&] {
    trial.emplace(communicator);
    if (distance != 0 && memory) trial->clear(memory.local());
    if (distance != 0) return;
    for (const std::size_t i : together)
      if (paths[i].first == communicator.rank()) lines[i] = trial->run_alone();
  });
  agree_on(communicator, part);
  if (distance == 0) return;
  if (!memory) memory = communicator.alloc(ProofMemory::bytes(), SymmetricUse::peers);
  std::optional<CUdeviceptr> from;
  std::optional<CUdeviceptr> to;
  std::optional<std::size_t> own_path;
  for (const std::size_t i : together) {
    if (paths[i].first == communicator.rank()) to = memory.address(paths[i].second);
    if (paths[i].second != communicator.rank()) continue;
    from = memory.address(paths[i].first);
    own_path = i;
  }
  part.attempt([&] {
    const Lines result = trial->run(from, memory.local(), to);
    if (own_path) lines[*own_path] = result;
  });
  agree_on(communicator, part);
}

void try_all(Communicator& communicator, const std::vector<std::pair<int, int>>& paths,
             std::vector<Lines>& lines, bool frees_memory) {
  SymmetricMemory memory;
  std::exception_ptr error;  // the same on all ranks
  try {
    for (int distance = 0; distance < communicator.size(); ++distance)
      try_together(communicator, paths, lines, distance, memory);
  } catch (const Error&) {
    error = std::current_exception();
  }
  if (frees_memory && memory) communicator.free(std::move(memory));
  if (error) std::rethrow_exception(error);
}

void prove_own_line(Communicator& communicator, std::vector<Lines>& lines) {
  if (lines.front() == Lines::unknown) lines.front() = Trial(communicator).run_alone();
}

}  // namespace

void probe_ll128(Communicator& communicator, const std::vector<std::pair<int, int>>& paths,
                 ProbeCall call) {
  const bool collective = call != ProbeCall::alone;
  const auto key = [&](const std::pair<int, int>& path) {
    return KnownPaths::Key{&communicator.driver(), communicator.gpu_of(path.first),
                           communicator.gpu_of(path.second)};
  };
  std::vector<Lines> lines;
  {
    const std::lock_guard lock(known_paths().mutex);
    for (const auto& path : paths) {
      const auto at = known_paths().all.find(key(path));
      lines.push_back(at == known_paths().all.end() ? Lines::unknown : at->second);
    }
  }
  // All ranks decide alike: by what all ranks know, and then by the result of each consumer.
  const auto agree = [&](bool by_all) {
    if (!collective) return;
    const std::vector<Lines> all = gathered(communicator, lines);
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto reported = [&](std::size_t rank) { return all[rank * paths.size() + i]; };
      lines[i] = reported(static_cast<std::size_t>(paths[i].second));
      for (std::size_t rank = 0; by_all && rank < all.size() / paths.size(); ++rank)
        if (reported(rank) == Lines::unknown) lines[i] = Lines::unknown;
    }
  };
  agree(true);
  if (!collective) prove_own_line(communicator, lines);
  if (collective) try_all(communicator, paths, lines, call == ProbeCall::together);
  agree(false);
  const std::lock_guard lock(known_paths().mutex);
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (lines[i] != Lines::unproven) known_paths().all[key(paths[i])] = lines[i];
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (lines[i] == Lines::whole) continue;
    throw NotSupported(fmt::format(
        "layout line: on the path from rank {} (gpu{}) to rank {} (gpu{}) {}; packets do not need "
        "that",
        paths[i].first, communicator.gpu_of(paths[i].first), paths[i].second,
        communicator.gpu_of(paths[i].second),
        lines[i] == Lines::torn ? "a line of 128 bytes came torn"
                                : "the trial of whole lines came to no end"));
  }
}

}  // namespace polypath
