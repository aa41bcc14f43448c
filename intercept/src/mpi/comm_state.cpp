#include "mpi/comm_state.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/thread.hpp"
#include "cuda/intercepted.hpp"
#include "gate/process.hpp"
#include "mpi/call.hpp"

namespace polypath::preload::mpi {
namespace {

/// In a row, before calls are not asked about: programs also reduce host memory between times.
constexpr unsigned kFreeRefusals = 8;
constexpr unsigned kMaxRefusals = kFreeRefusals + 6;
/// Agreements without device memory, until a communicator stays with MPI: of programs that have not
/// loaded the driver, and of others, which may use their GPUs later.
constexpr int kMaxWithoutDriver = 64;
constexpr int kMaxWithoutGpus = 256;
constexpr std::size_t kMaxKept = std::size_t{64} << 20;

constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/// All communicators that have ranks here, in the order of their numbers.
constinit CommState* first = nullptr;
/// Attributes of communicators, and of MPI_COMM_SELF, which is freed when MPI_Finalize begins.
constinit int ranks_key = 0;
constinit int end_key = 0;
constinit bool has_both_keys = false;

/// `mutex` is held.
void unlink(CommState* ranks) noexcept {
  for (CommState** at = &first; *at != nullptr; at = &(*at)->next)
    if (*at == ranks) {
      *at = ranks->next;
      return;
    }
}

/// `mutex` is held.
void link(CommState* ranks) noexcept {
  CommState** at = &first;
  while (*at != nullptr && (*at)->number < ranks->number) at = &(*at)->next;
  ranks->next = *at;
  *at = ranks;
}

/// What is of polypath and the driver is released or left.
void forget(CommState& ranks) noexcept {
  close_progress(ranks.progress);
  ranks.progress = nullptr;
  ranks.comm = nullptr;
  ranks.stream = nullptr;
  ranks.spare = 0;
  ranks.spare_bytes = 0;
}

/// What is of polypath and the driver. The ranks of other processes are waited for.
void release(CommState& ranks) noexcept {
  if (ranks.gpu < 0) return;
  const PrimaryContext primary(ranks.gpu);
  if (primary.get() != nullptr) {
    const InContext current(primary.get());
    if (ranks.stream != nullptr) driver::stream_synchronize(ranks.stream);
    if (ranks.spare != 0) driver::mem_free(ranks.spare);
    if (ranks.stream != nullptr) driver::stream_destroy(ranks.stream);
  }
  if (ranks.comm != nullptr) polypath_api().comm_destroy(ranks.comm);
  forget(ranks);
}

/// Ranks whose communicator MPI has freed here, and the thread that has them since: in which order
/// other processes free theirs is up to the program, and no rank may wait for another order.
struct LeavingRanks {
  CommState* ranks;
  int gpu;
  LeavingRanks* next;
  pthread_t thread;
  std::atomic<bool> has_left;
};
/// `mutex` is held.
constinit LeavingRanks* leaving = nullptr;

void* leave(void* argument) noexcept {
  auto* const entry = static_cast<LeavingRanks*>(argument);
  {
    const RelaxedCapture relaxed;
    release(*entry->ranks);
  }
  std::free(entry->ranks);
  entry->has_left.store(true, std::memory_order_release);
  return nullptr;
}

/// Whether a thread has them now. `mutex` is held, so that join_leaving() knows of the thread.
bool leave_in_background(CommState* ranks) noexcept {
  if (ranks->comm == nullptr) return false;
  void* const memory = std::malloc(sizeof(LeavingRanks));
  if (memory == nullptr) return false;
  auto* const entry = new (memory) LeavingRanks{ranks, ranks->gpu, leaving, {}, false};
  const BlockedSignals blocked;
  if (pthread_create(&entry->thread, nullptr, &leave, entry) != 0) {
    std::free(entry);
    return false;
  }
  leaving = entry;
  return true;
}

/// Waits for threads: for all, or for those that are done.
void join_leaving(bool all) noexcept {
  for (;;) {
    LeavingRanks* entry = nullptr;
    {
      const Lock lock(mutex);
      LeavingRanks** at = &leaving;
      while (*at != nullptr && !all && !(*at)->has_left.load(std::memory_order_acquire))
        at = &(*at)->next;
      entry = *at;
      if (entry != nullptr) *at = entry->next;
    }
    if (entry == nullptr) return;
    pthread_join(entry->thread, nullptr);
    std::free(entry);
  }
}

int copy_nothing(Handle, int, void*, void*, void*, int* flag) noexcept {
  *flag = 0;
  return kSuccess;
}

/// MPI frees a communicator.
int on_free(Handle, int, void* attribute, void*) noexcept {
  auto* const ranks = static_cast<CommState*>(attribute);
  join_leaving(false);
  // Calls of MPI are for threads of the program.
  end_network(ranks->between);
  {
    const Lock lock(mutex);
    unlink(ranks);
    if (leave_in_background(ranks)) return kSuccess;
  }
  release(*ranks);
  std::free(ranks);
  return kSuccess;
}

/// MPI_Finalize begins.
int on_end(Handle, int, void*, void*) noexcept {
  for (;;) {
    CommState* ranks = nullptr;
    {
      const Lock lock(mutex);
      ranks = first;
      if (ranks != nullptr) unlink(ranks);
    }
    if (ranks == nullptr) break;
    // The record is its communicator's, which MPI frees later, or never.
    release(*ranks);
    ranks->refused = Reason::lost;
  }
  join_leaving(true);
  return kSuccess;
}

bool has_keys() noexcept {
  const Lock lock(mutex);
  if (has_both_keys) return true;
  const Library& mpi = library();
  if (mpi.comm_create_keyval(&copy_nothing, &on_end, &end_key, nullptr) != kSuccess ||
      mpi.comm_set_attr(mpi.comm_self, end_key, &ranks_key) != kSuccess ||
      mpi.comm_create_keyval(&copy_nothing, &on_free, &ranks_key, nullptr) != kSuccess)
    return false;
  has_both_keys = true;
  return true;
}

/// A number for the node of this rank: by the setting comm_node, or by the kernel that runs.
std::uint64_t hash_of_node() noexcept {
  char text[256] = {};
  const char* const name = std::getenv("POLYPATH_COMM_NODE");
  if (name != nullptr && *name != '\0' && std::strcmp(name, "auto") != 0) {
    std::snprintf(text, sizeof text, "%s", name);
  } else {
    name_machine(text, sizeof text);
  }
  return hash_of(text, std::strlen(text));
}

/// What all ranks find by themselves.
Reason first_refusal(const CommState& ranks) noexcept {
  if (ranks.remote_size > 0) return Reason::intercommunicator;
  return ranks.size < 2 ? Reason::one_rank : Reason::none;
}

int exchange(const void* local, void* all, std::size_t bytes, void* user) noexcept {
  const Library& mpi = library();
  const auto count = static_cast<int>(bytes);
  return mpi.allgather(local, count, mpi.byte, all, count, mpi.byte,
                       static_cast<const CommState*>(user)->handle) != kSuccess;
}

/// Collective. The ranks of each node share their own.
bool share_progress(CommState& ranks) noexcept {
  int leader = -1;
  ranks.local_size = 0;
  for (int rank = 0; rank < ranks.size; ++rank) {
    if (polypath_api().comm_gpu(ranks.comm, rank) < 0) continue;  // of another node
    if (leader < 0) leader = rank;
    if (rank == ranks.rank) ranks.local_rank = ranks.local_size;
    ++ranks.local_size;
  }
  const bool can = leader >= 0 && ranks.local_size <= kMaxRanks;
  const ProgressPlace place = can && ranks.rank == leader ? offer_progress() : ProgressPlace{};
  if (exchange(&place, ranks.places, sizeof place, &ranks) == 0 && can)
    ranks.progress = open_progress(ranks.places[leader]);
  // No rank needs it any more once all have come here.
  const std::int64_t none = 0;
  std::int64_t least = 0;
  library().allreduce(&none, &least, 1, library().int64, library().min, ranks.handle);
  end_offer(place);
  return ranks.progress != nullptr;
}

/// False: MPI failed.
bool find_sizes(CommState& ranks) noexcept {
  const Library& mpi = library();
  int is_inter = 0;
  return mpi.comm_rank(ranks.handle, &ranks.rank) == kSuccess &&
         mpi.comm_test_inter(ranks.handle, &is_inter) == kSuccess &&
         (is_inter == 0 || mpi.comm_remote_size(ranks.handle, &ranks.remote_size) == kSuccess);
}

/// Without waiting for calls of other ranks: each has this rank's part of all calls that this one
/// completed. Their kernels may still give back what they took of its memory: that takes
/// microseconds, and is waited for, a second at most. The stream and the memory of a GPU that is
/// not the one reset stay.
void abandon_all() noexcept {
  int milliseconds = 1000;
  const Lock lock(mutex);
  for (CommState* ranks = first; ranks != nullptr; ranks = ranks->next) {
    if (ranks->progress != nullptr)
      wait_for_others(*ranks->progress, ranks->local_rank, ranks->local_size, milliseconds);
    polypath_api().comm_abandon(ranks->comm);
    forget(*ranks);
    ranks->is_lost = true;
  }
  first = nullptr;
}

/// Until threads that free memory of this GPU have done so, which they do not while they wait for
/// other ranks; a second at most. The others go on.
void join_leaving_of(CUdevice gpu) noexcept {
  constexpr int kMaxPolls = 1000;
  const auto is_any = [&] {
    const Lock lock(mutex);
    for (const LeavingRanks* entry = leaving; entry != nullptr; entry = entry->next)
      if (entry->gpu == gpu && !entry->has_left.load(std::memory_order_acquire)) return true;
    return false;
  };
  for (int i = 0; i < kMaxPolls && is_any(); ++i) pause_us(1000);
  join_leaving(false);
}

/// A number that no other communicator of these processes has, and grows.
std::int64_t next_number() noexcept {
  static constinit std::atomic<std::int64_t> count{0};
  return count.fetch_add(1) << 32 | getpid();
}

}  // namespace

CommState* ranks_of(Handle communicator) noexcept {
  const Library& mpi = library();
  if (!has_keys()) return nullptr;
  void* known = nullptr;
  int is_known = 0;
  if (mpi.comm_get_attr(communicator, ranks_key, static_cast<void*>(&known), &is_known) != kSuccess)
    return nullptr;
  if (is_known != 0) return static_cast<CommState*>(known);
  int size = 0;
  if (mpi.comm_size(communicator, &size) != kSuccess) return nullptr;
  void* const memory =
      std::malloc(sizeof(CommState) + static_cast<std::size_t>(size) * sizeof(ProgressPlace));
  if (memory == nullptr) return nullptr;
  auto* const ranks = new (memory) CommState{};
  ranks->handle = communicator;
  ranks->size = size;
  ranks->places = reinterpret_cast<ProgressPlace*>(ranks + 1);
  if (!find_sizes(*ranks) || mpi.comm_set_attr(communicator, ranks_key, ranks) != kSuccess) {
    std::free(ranks);
    return nullptr;
  }
  ranks->refused = first_refusal(*ranks);
  // Ranks without an engine, too, have to say so.
  ranks->is_off = is_set_to("POLYPATH_MPI_COLLECTIVES", "off");
  return ranks;
}

bool is_asked(CommState& ranks, Operation operation, std::uint64_t bytes) noexcept {
  Backoff& backoff =
      ranks.backoffs[static_cast<std::size_t>(operation)][std::bit_width(bytes) % 64];
  if (backoff.unasked == 0) return true;
  --backoff.unasked;
  return false;
}

void note_answer(CommState& ranks, Operation operation, std::uint64_t bytes, bool is_yes) noexcept {
  Backoff& backoff =
      ranks.backoffs[static_cast<std::size_t>(operation)][std::bit_width(bytes) % 64];
  backoff.refusals = is_yes
                         ? std::uint8_t{0}
                         : static_cast<std::uint8_t>(std::min(backoff.refusals + 1U, kMaxRefusals));
  const unsigned more = backoff.refusals - std::min<unsigned>(backoff.refusals, kFreeRefusals);
  backoff.unasked = static_cast<std::uint8_t>((1U << more) - 1);
}

Agreement agree(const CommState& ranks, Vote vote, std::int64_t arguments, Seen seen) noexcept {
  const Library& mpi = library();
  count_agreement();
  const std::int64_t local[4]{static_cast<std::int64_t>(vote), arguments, -arguments,
                              -static_cast<std::int64_t>(seen)};
  std::int64_t least[4]{};
  Agreement agreement;
  agreement.failed = mpi.allreduce(local, least, 4, mpi.int64, mpi.min, ranks.handle) != kSuccess;
  if (agreement.failed) return agreement;
  agreement.answer = static_cast<Vote>(least[0]);
  agreement.is_same = least[1] == -least[2];
  agreement.seen = static_cast<Seen>(-least[3]);
  return agreement;
}

void note_seen(CommState& ranks, Seen seen) noexcept {
  ranks.has_seen_gpus = ranks.has_seen_gpus || seen == Seen::device_memory;
  if (ranks.has_seen_gpus) return;
  if (++ranks.without_gpus >= (seen == Seen::nothing ? kMaxWithoutDriver : kMaxWithoutGpus))
    ranks.refused = Reason::never_on_gpus;
}

bool count_ranks_of_nodes(CommState& ranks) noexcept {
  ranks.knows_nodes = true;
  if (ranks.size <= kMaxRanks) return true;
  // There is room for one of these a rank.
  static_assert(sizeof(ProgressPlace) >= sizeof(std::uint64_t));
  auto* const nodes = reinterpret_cast<std::uint64_t*>(ranks.places);
  const std::uint64_t own = hash_of_node();
  if (exchange(&own, nodes, sizeof own, &ranks) != 0) return false;
  const auto size = static_cast<std::size_t>(ranks.size);
  std::sort(nodes, nodes + size);
  for (std::size_t first = 0; first + std::size_t{kMaxRanks} < size; ++first)
    if (nodes[first] == nodes[first + kMaxRanks]) ranks.refused = Reason::too_many_ranks;
  return true;
}

bool make_communicator(CommState& ranks, const Engine& engine) noexcept {
  const char* why = nullptr;
  ranks.between.handle = ranks.handle;
  const polypath_network network = network_of(ranks.between);
  polypath_comm_options options{};
  options.network = &network;
  // Ranks that have ended are found at once, with any limit.
  options.timeout_ms = time_limit_of(std::getenv("POLYPATH_COMM_TIMEOUT_MS"));
  if (engine.comm_create(engine.context, ranks.rank, ranks.size, ranks.gpu, &exchange, &ranks,
                         &options, &ranks.comm) != POLYPATH_SUCCESS ||
      engine.comm_prepare(ranks.comm) != POLYPATH_SUCCESS)
    why = engine.last_error();
  const PrimaryContext primary(ranks.gpu);
  const InContext current(primary.get());
  if (why == nullptr &&
      driver::stream_create(&ranks.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
    why = "no stream";
  if (!share_progress(ranks) && why == nullptr) why = "no memory that the ranks share";
  char reason[512];
  if (why != nullptr) std::snprintf(reason, sizeof reason, "%s", why);

  const std::int64_t local[2]{why == nullptr ? 1 : 0, next_number()};
  std::int64_t least[2]{};
  const Library& mpi = library();
  const bool is_made =
      mpi.allreduce(local, least, 2, mpi.int64, mpi.min, ranks.handle) == kSuccess && least[0] == 1;
  if (is_made) {
    ranks.number = least[1];
    count_communicator(engine.comm_node_count(ranks.comm));
    const Lock lock(mutex);
    link(&ranks);
    return true;
  }
  if (why == nullptr) std::snprintf(reason, sizeof reason, "another rank could not");
  log_line(LogLevel::info, "MPI's collectives stay MPI's among %d ranks: %s", ranks.size, reason);
  count_refusal(reason);
  ranks.refused = Reason::refused;
  release(ranks);
  return false;
}

void take_gpu(CommState& ranks, int gpu) noexcept {
  if (ranks.gpu == gpu) return;
  release(ranks);
  ranks.gpu = gpu;
}

bool reserve_spare(CommState& ranks, std::size_t bytes) noexcept {
  if (bytes <= ranks.spare_bytes) return true;
  const PrimaryContext primary(ranks.gpu);
  const InContext current(primary.get());
  if (primary.get() == nullptr || !current.is_there()) return false;
  if (ranks.spare != 0) driver::mem_free(ranks.spare);
  ranks.spare_bytes = 0;
  ranks.spare = 0;
  if (driver::mem_alloc(&ranks.spare, bytes) != CUDA_SUCCESS) return false;
  ranks.spare_bytes = bytes;
  return true;
}

void trim_spare(CommState& ranks) noexcept {
  if (ranks.spare_bytes <= kMaxKept) return;
  const PrimaryContext primary(ranks.gpu);
  const InContext current(primary.get());
  driver::mem_free(ranks.spare);
  ranks.spare = 0;
  ranks.spare_bytes = 0;
}

void abandon_communicators(CUdevice gpu) noexcept {
  abandon_all();
  join_leaving_of(gpu);
}

}  // namespace polypath::preload::mpi
