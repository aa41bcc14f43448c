#include "exec/pageable_copies.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "driver/library.hpp"
#include "driver/resources.hpp"
#include "exec/failed_run.hpp"
#include "exec/guarded_copy.hpp"
#include "exec/relaxed_capture.hpp"
#include "exec/route_resources.hpp"

namespace polypath {
namespace {

/// Streams of a GPU for each purpose: a chunk's second leg overlaps with the first of another one.
constexpr std::size_t kPageableStreams = 4;
constexpr std::size_t kPageableEvents = 32;
constexpr int kHostMemory = -1;

/// The process's page faults.
std::uint64_t page_faults() noexcept {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_minflt) + static_cast<std::uint64_t>(usage.ru_majflt);
}

int gpu_of_plan(const PageablePlan& plan) noexcept {
  const Request& request = plan.plan.transfers.front().request;
  return request.src.is_host() ? request.dst.index : request.src.index;
}

}  // namespace

/// A chunk under way in a slot.
struct PageableCopies::Pending {
  CUevent event = nullptr;  ///< null: none is
  int gpu = 0;              ///< whose event it is
  Work* work = nullptr;     ///< from a GPU: of which transfer it is; else null
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Threads whose slots lie in one piece of pinned memory.
constexpr std::uint64_t kThreadsOfPiece = 8;

struct PageableCopies::Slot {
  std::byte* at = nullptr;
  std::uint64_t staging = 0;  ///< offset in the staging memory of any GPU
  Pending pending;
};

/// What one thread has of its own.
struct PageableCopies::Worker {
  std::array<Slot, kPageableSlots> slots;
  std::size_t next = 0;  ///< the slot used longest ago
  CUcontext context = nullptr;
  bool is_relaxed = false;
  bool is_of_callers = false;  ///< of one caller's thread after the other's
};

/// One transfer, on all threads that take part.
class PageableCopies::Work final : public SharedWork {
 public:
  Work(PageableCopies& owner, const PageableTransfer& transfer, const PageablePlan& plan,
       std::vector<Lane> lanes)
      : owner_(owner),
        transfer_(transfer),
        plan_(plan),
        lanes_(std::move(lanes)),
        chunks_((transfer.bytes + plan.chunk_bytes - 1) / plan.chunk_bytes),
        seats_(static_cast<std::size_t>(plan.threads)) {
    std::vector<std::size_t> taken(lanes_.size());
    for (std::size_t s = 0; s < seats_.size(); ++s)
      seats_[s].stream = taken[static_cast<std::size_t>(plan.route_of_thread[s])]++;
  }

  bool step(int thread, int seat) noexcept override {
    Worker& worker = *owner_.workers_[static_cast<std::size_t>(thread)];
    try {
      relax(worker);
      return transfer_.is_to_gpu ? send(worker, seat) : receive(worker, seat);
    } catch (...) {
      fail(std::current_exception());
      // A slot whose copy was issued and not recorded is another transfer's next.
      owner_.quiesce({lane_of(seat)});
      return transfer_.is_to_gpu ? false : drop(worker);
    }
  }

  [[nodiscard]] const std::vector<Lane>& lanes() const noexcept { return lanes_; }
  [[nodiscard]] bool has_faulted() const noexcept { return has_faulted_; }
  [[nodiscard]] bool has_failed() const noexcept { return has_failed_; }
  [[nodiscard]] std::exception_ptr error() const noexcept { return error_; }
  void count(PageableResult& result) const {
    result.route_bytes.assign(lanes_.size(), 0);
    result.route_chunks.assign(lanes_.size(), 0);
    for (std::size_t s = 0; s < seats_.size(); ++s) {
      const auto route = static_cast<std::size_t>(plan_.route_of_thread[s]);
      result.route_bytes[route] += seats_[s].bytes;
      result.route_chunks[route] += seats_[s].chunks;
    }
  }
  /// Calls `visit(event)` with the last event of each thread that has sent something.
  template <typename Visit>
  void for_each_end(Visit&& visit) const {
    for (const Seat& seat : seats_)
      if (seat.last != nullptr) visit(seat.last);
  }

 private:
  struct Seat {
    std::size_t stream = 0;  ///< number among the seats of its route
    CUevent last = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t chunks = 0;
  };
  struct Chunk {
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  void fail(std::exception_ptr error) noexcept {
    if (!has_failed_.exchange(true)) error_ = std::move(error);
  }
  void fault() noexcept {
    has_faulted_ = true;
    has_failed_ = true;
  }

  std::optional<Chunk> claim() noexcept {
    if (has_failed_.load(std::memory_order_relaxed)) return std::nullopt;
    const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= chunks_) return std::nullopt;
    const std::uint64_t offset = index * plan_.chunk_bytes;
    return Chunk{offset, std::min(plan_.chunk_bytes, transfer_.bytes - offset)};
  }

  [[nodiscard]] bool is_callers_thread(const Worker& worker) const noexcept {
    return worker.is_of_callers || owner_.is_virtual_;
  }

  /// Calls of this thread are never part of a capture of the program. Those of a caller's thread
  /// are not already (RelaxedCapture).
  void relax(Worker& worker) {
    if (worker.is_relaxed || is_callers_thread(worker)) return;
    worker.is_relaxed = true;
    if (owner_.driver().thread_exchange_capture_mode == nullptr) return;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    POLYPATH_CHECK(owner_.driver(), thread_exchange_capture_mode(&mode));
  }

  void use(Worker& worker, CUcontext context) {
    if (is_callers_thread(worker)) worker.context = nullptr;  // it is not known
    if (worker.context == context) return;
    POLYPATH_CHECK(owner_.driver(), ctx_set_current(context));
    worker.context = context;
  }

  /// Waits for the slot's chunk; one from a GPU is copied to where it belongs.
  void complete(Slot& slot) {
    Pending& pending = slot.pending;
    if (pending.event == nullptr) return;
    const CUevent event = std::exchange(pending.event, nullptr);
    const CUresult result = owner_.driver().event_synchronize(event);
    owner_.events_.release(pending.gpu, event);
    Work* const work = std::exchange(pending.work, nullptr);
    if (result != CUDA_SUCCESS)
      throw_driver_error(owner_.driver(), result, "event_synchronize(event)", __FILE__, __LINE__);
    if (work == nullptr || work->has_failed_) return;
    if (!copy_guarded(work->transfer_.host.memory + pending.offset, slot.at, pending.bytes,
                      Stores::streaming))
      work->fault();
  }

  /// The slot's chunk belongs to a transfer, which is told of what happens to it.
  void complete_for_owner(Slot& slot) noexcept {
    Work* const work = slot.pending.work;
    try {
      complete(slot);
    } catch (...) {
      (work != nullptr ? work : this)->fail(std::current_exception());
    }
  }

  Slot& free_slot(Worker& worker) {
    Slot& slot = worker.slots[worker.next];
    worker.next = (worker.next + 1) % worker.slots.size();
    complete_for_owner(slot);
    return slot;
  }

  void record(Slot& slot, int gpu, CUstream stream, int seat, const Chunk& chunk, Work* work) {
    const CUevent event = owner_.events_.acquire(gpu);
    const CUresult result = owner_.driver().event_record(event, stream);
    if (result != CUDA_SUCCESS) {
      owner_.events_.release(gpu, event);
      throw_driver_error(owner_.driver(), result, "event_record(event, stream)", __FILE__,
                         __LINE__);
    }
    slot.pending = {event, gpu, work, chunk.offset, chunk.bytes};
    Seat& own = seats_[static_cast<std::size_t>(seat)];
    own.last = event;
    own.bytes += chunk.bytes;
    ++own.chunks;
  }

  [[nodiscard]] const Lane& lane_of(int seat) const noexcept {
    return lanes_[static_cast<std::size_t>(plan_.route_of_thread[static_cast<std::size_t>(seat)])];
  }
  [[nodiscard]] CUstream stream_of(const Streams& streams, int seat) const noexcept {
    const std::size_t number = seats_[static_cast<std::size_t>(seat)].stream;
    return streams.streams[number % streams.streams.size()];
  }

  void copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes, CUstream stream) {
    POLYPATH_CHECK(owner_.driver(), memcpy_async(to, from, bytes, stream));
  }

  bool send(Worker& worker, int seat) {
    Slot& slot = free_slot(worker);
    const auto chunk = claim();
    if (!chunk) return false;
    if (transfer_.host.is_file()) {
      read_file(transfer_.host.file, chunk->offset, slot.at, chunk->bytes);
    } else if (!copy_guarded(slot.at, transfer_.host.memory + chunk->offset, chunk->bytes,
                             Stores::cached)) {
      fault();
      return false;
    }
    const Lane& lane = lane_of(seat);
    const CUstream stream = stream_of(*lane.first, seat);
    const auto pinned = reinterpret_cast<CUdeviceptr>(slot.at);
    const CUdeviceptr to = transfer_.device + chunk->offset;
    use(worker, lane.first->context);
    if (!transfer_.further.empty()) {
      send_to_all(lane, slot, *chunk, stream);
    } else if (lane.staging == 0) {
      copy(to, pinned, chunk->bytes, stream);
    } else {
      const CUdeviceptr staging = lane.staging + slot.staging;
      copy(staging, pinned, chunk->bytes, stream);
      copy(to, staging, chunk->bytes, stream);
    }
    record(slot, lane.first_gpu, stream, seat, *chunk, nullptr);
    return true;
  }

  /// A spread's chunk lands on the lane's GPU, and goes on from there to all other destinations.
  void send_to_all(const Lane& lane, const Slot& slot, const Chunk& chunk, CUstream stream) {
    CUdeviceptr landing = lane.staging + slot.staging;
    if (transfer_.gpu == lane.first_gpu) landing = transfer_.device + chunk.offset;
    for (const PageableEnd& end : transfer_.further)
      if (end.gpu == lane.first_gpu) landing = end.device + chunk.offset;
    copy(landing, reinterpret_cast<CUdeviceptr>(slot.at), chunk.bytes, stream);
    const auto pass = [&](CUdeviceptr to) {
      if (to != landing) copy(to, landing, chunk.bytes, stream);
    };
    pass(transfer_.device + chunk.offset);
    for (const PageableEnd& end : transfer_.further) pass(end.device + chunk.offset);
  }

  bool receive(Worker& worker, int seat) {
    Slot& slot = free_slot(worker);
    if (const auto chunk = claim()) {
      fetch(worker, slot, seat, *chunk);
      return true;
    }
    return drop(worker);
  }

  /// Ends what this thread has under way of this transfer; false.
  bool drop(Worker& worker) noexcept {
    for (std::size_t i = 0; i < worker.slots.size(); ++i) {
      Slot& slot = worker.slots[(worker.next + i) % worker.slots.size()];
      if (slot.pending.work == this) complete_for_owner(slot);
    }
    return false;
  }

  void fetch(Worker& worker, Slot& slot, int seat, const Chunk& chunk) {
    const Lane& lane = lane_of(seat);
    const auto pinned = reinterpret_cast<CUdeviceptr>(slot.at);
    const CUdeviceptr from = transfer_.device + chunk.offset;
    CUstream stream = stream_of(*lane.first, seat);
    use(worker, lane.first->context);
    if (lane.staging == 0) {
      copy(pinned, from, chunk.bytes, stream);
      record(slot, lane.first_gpu, stream, seat, chunk, this);
      return;
    }
    // The staging memory of the slot is free: the slot itself is.
    const CUdeviceptr staging = lane.staging + slot.staging;
    copy(staging, from, chunk.bytes, stream);
    const PooledEvent between(owner_.events_, lane.first_gpu);
    POLYPATH_CHECK(owner_.driver(), event_record(between.get(), stream));
    stream = stream_of(*lane.second, seat);
    use(worker, lane.second->context);
    POLYPATH_CHECK(owner_.driver(), stream_wait_event(stream, between.get(), 0));
    copy(pinned, staging, chunk.bytes, stream);
    record(slot, lane.second_gpu, stream, seat, chunk, this);
  }

  PageableCopies& owner_;
  const PageableTransfer& transfer_;
  const PageablePlan& plan_;
  const std::vector<Lane> lanes_;
  const std::uint64_t chunks_;
  std::vector<Seat> seats_;  // each written by one thread
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> has_faulted_{false};
  std::exception_ptr error_;  // written by the thread that failed first
};

PageableCopies::PageableCopies(std::shared_ptr<const CudaDriver> driver, Devices& devices,
                               const Node& node, EventPool& forks, int threads, bool is_virtual)
    : driver_(std::move(driver)),
      devices_(devices),
      node_(node),
      forks_(forks),
      is_virtual_(is_virtual),
      events_(driver_, devices),
      threads_(threads) {
  void* const library = is_virtual ? open_library(driver_->library, nullptr) : nullptr;
  if (library == nullptr) return;
  clock_us_ = find_symbol<double (*)()>(library, "polypath_sim_clock_us");
  advance_us_ = find_symbol<void (*)(double)>(library, "polypath_sim_advance_us");
}

PageableCopies::~PageableCopies() {
  const bool may_ask = !devices_.any_reset();
  bool is_idle = true;
  for (auto& [key, streams] : streams_) {
    if (!devices_.alive(key.first)) continue;
    for (const CUstream stream : streams.streams) {
      // Nothing on these streams waits for anything but copies: this ends soon.
      if (may_ask && driver().stream_synchronize(stream) != CUDA_SUCCESS) is_idle = false;
      POLYPATH_WARN(driver(), stream_destroy(stream));
    }
  }
  const auto end = [&](StagingMemory& memory) {
    if (devices_.gpu_of(memory.context()) < 0)
      memory.abandon();
    else if (!may_ask || !is_idle)
      memory.leave();
  };
  for (auto& [gpu, memory] : staging_) end(*memory);
  for (const auto& piece : slots_) end(*piece);
}

// ---- preparation --------------------------------------------------------------------------------

std::vector<PageableCopies::StreamKey> PageableCopies::keys_of(const PageablePlan& plan,
                                                               std::size_t route) {
  const TransferPlan& transfer = plan.plan.transfers.front();
  const bool is_to_gpu = transfer.request.src.is_host();
  const int gpu = gpu_of_plan(plan);
  const Route& taken = transfer.routes[route].route;
  if (!taken.staged()) return {{gpu, kHostMemory}};
  const int via = taken.via.index;
  if (is_to_gpu) return {{via, gpu}};
  return {{gpu, via}, {via, kHostMemory}};
}

bool PageableCopies::is_staged(const PageablePlan& plan, std::size_t route) {
  const Route& taken = plan.routes()[route].route;
  return taken.staged() &&
         std::ranges::find(plan.further_gpus, taken.via.index) == plan.further_gpus.end();
}

void PageableCopies::reach_destinations(const PageablePlan& plan, std::size_t route) {
  const int from = keys_of(plan, route).front().first;
  const auto reach = [&](int to) {
    if (to == from) return;
    devices_.enable_peer_access(from, to);
    const std::lock_guard lock(mutex_);
    sends_.emplace(from, to);
  };
  if (plan.further_gpus.empty()) return;
  reach(gpu_of_plan(plan));
  std::ranges::for_each(plan.further_gpus, reach);
}

void PageableCopies::make_slots(int gpu) {
  if (!slots_.empty()) return;
  const auto count = static_cast<std::uint64_t>(threads() + 1);  // and the callers'
  const std::uint64_t slot_bytes = pageable_slot_bytes(threads());
  const std::uint64_t own = kPageableSlots * slot_bytes;
  const MemoryId near = MemoryId::host(node_.gpus[static_cast<std::size_t>(gpu)].numa);
  std::vector<std::unique_ptr<StagingMemory>> created;
  workers_.clear();
  for (std::uint64_t first = 0; first < count; first += kThreadsOfPiece) {
    const std::uint64_t last = std::min(count, first + kThreadsOfPiece);
    created.push_back(std::make_unique<StagingMemory>(
        driver_, node_, near, (last - first) * own, gpu, devices_.context(gpu), devices_.pinned()));
    auto* const at = reinterpret_cast<std::byte*>(created.back()->address());
    for (std::uint64_t t = first; t < last; ++t) {
      auto worker = std::make_unique<Worker>();
      for (std::uint64_t s = 0; s < kPageableSlots; ++s) {
        worker->slots[s].at = at + (t - first) * own + s * slot_bytes;
        worker->slots[s].staging = t * own + s * slot_bytes;
      }
      workers_.push_back(std::move(worker));
    }
  }
  workers_.back()->is_of_callers = true;
  slots_bytes_ = count * own;
  const std::lock_guard lock(mutex_);
  slots_ = std::move(created);
}

void PageableCopies::reach_slots(int gpu) {
  {
    const std::lock_guard lock(mutex_);
    if (slots_reached_.contains(gpu)) return;
  }
  for (const auto& piece : slots_) piece->enable_access(gpu);
  const std::lock_guard lock(mutex_);
  slots_reached_.insert(gpu);
}

void PageableCopies::make_streams(const StreamKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (streams_.contains(key)) return;
  }
  Streams created;
  created.context = devices_.context(key.first);
  events_.reserve(key.first, kPageableEvents);
  ContextGuard guard(driver());
  guard.use(created.context);
  try {
    while (created.streams.size() < kPageableStreams) {
      CUstream stream = nullptr;
      POLYPATH_CHECK(driver(), stream_create(&stream, CU_STREAM_NON_BLOCKING));
      created.streams.push_back(stream);
    }
  } catch (const DriverError&) {
    for (const CUstream stream : created.streams) POLYPATH_WARN(driver(), stream_destroy(stream));
    throw;
  }
  const std::lock_guard lock(mutex_);
  streams_.emplace(key, std::move(created));
}

void PageableCopies::make_staging(int via, int gpu) {
  devices_.context(gpu);
  devices_.enable_peer_access(via, gpu);
  devices_.enable_peer_access(gpu, via);
  StagingMemory* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = staging_.find(via); known != staging_.end())
      memory = known->second.get();
  }
  if (memory == nullptr) {
    devices_.require_staging(via, slots_bytes_);
    auto created = std::make_unique<StagingMemory>(driver_, node_, MemoryId::gpu(via), slots_bytes_,
                                                   via, devices_.context(via), devices_.pinned());
    created->enable_access(via);
    memory = created.get();
    const std::lock_guard lock(mutex_);
    staging_.emplace(via, std::move(created));
  }
  memory->enable_access(gpu);
  const std::lock_guard lock(mutex_);
  reached_.emplace(via, gpu);
}

void PageableCopies::prepare(const PageablePlan& plan, std::size_t route) {
  const std::lock_guard turn(preparing_);
  const RelaxedCapture relaxed(driver());
  const int gpu = gpu_of_plan(plan);
  if (!is_virtual_ && !threads_.start())
    throw DriverError("no copy threads", static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
  make_slots(gpu);
  const Route& taken = plan.routes()[route].route;
  if (is_staged(plan, route)) make_staging(taken.via.index, gpu);
  reach_destinations(plan, route);
  for (const StreamKey& key : keys_of(plan, route)) {
    reach_slots(key.first);
    make_streams(key);  // last: then the route is ready
  }
}

bool PageableCopies::is_ready(const PageablePlan& plan, std::size_t route) {
  if (!is_virtual_ && !threads_.is_running()) return false;
  const Route& taken = plan.routes()[route].route;
  const int from = keys_of(plan, route).front().first;
  const auto reaches = [&](int to) { return to == from || sends_.contains({from, to}); };
  const std::lock_guard lock(mutex_);
  if (slots_.empty()) return false;
  if (is_staged(plan, route) && !reached_.contains({taken.via.index, gpu_of_plan(plan)}))
    return false;
  if (!plan.further_gpus.empty() &&
      !(reaches(gpu_of_plan(plan)) && std::ranges::all_of(plan.further_gpus, reaches)))
    return false;
  return std::ranges::all_of(keys_of(plan, route),
                             [&](const StreamKey& key) { return streams_.contains(key); });
}

std::uint64_t PageableCopies::pinned_bytes() {
  const std::lock_guard lock(mutex_);
  return slots_.empty() ? 0 : slots_bytes_;
}

// ---- a transfer ---------------------------------------------------------------------------------

std::vector<PageableCopies::Lane> PageableCopies::lanes_of(const PageablePlan& plan) {
  std::vector<Lane> lanes;
  const std::lock_guard lock(mutex_);
  for (std::size_t r = 0; r < plan.routes().size(); ++r) {
    const std::vector<StreamKey> keys = keys_of(plan, r);
    Lane lane;
    lane.first = &streams_.at(keys.front());
    lane.first_gpu = keys.front().first;
    lane.second = &streams_.at(keys.back());
    lane.second_gpu = keys.back().first;
    const Route& route = plan.routes()[r].route;
    if (is_staged(plan, r)) lane.staging = staging_.at(route.via.index)->address();
    lanes.push_back(lane);
  }
  return lanes;
}

void PageableCopies::wait_for_fork(const CallerStream& caller, int caller_gpu) {
  ContextGuard guard(driver());
  guard.use(caller.context);
  const PooledEvent fork(forks_, caller_gpu);
  POLYPATH_CHECK(driver(), event_record(fork.get(), caller.stream));
  POLYPATH_CHECK(driver(), event_synchronize(fork.get()));
}

void PageableCopies::wait_for_forks(const PageableTransfer& transfer) {
  wait_for_fork(transfer.caller, transfer.caller_gpu);
  for (const PageableEnd& end : transfer.further)
    if (end.caller != transfer.caller) wait_for_fork(end.caller, end.caller_gpu);
}

void PageableCopies::join(const PageableTransfer& transfer, Work& work) {
  ContextGuard guard(driver());
  const auto join_stream = [&](const CallerStream& caller) {
    guard.use(caller.context);
    // An event that is recorded anew meanwhile stands for a later chunk of the same stream.
    work.for_each_end(
        [&](CUevent end) { POLYPATH_CHECK(driver(), stream_wait_event(caller.stream, end, 0)); });
  };
  join_stream(transfer.caller);
  for (const PageableEnd& end : transfer.further)
    if (end.caller != transfer.caller) join_stream(end.caller);
}

bool PageableCopies::quiesce(const std::vector<Lane>& lanes) noexcept {
  bool is_known = true;
  const auto wait = [&](const Streams& streams, int gpu) {
    for (const CUstream stream : streams.streams) {
      if (driver().stream_synchronize(stream) == CUDA_SUCCESS) continue;
      // Nothing runs any more in a context that answers with an error each time.
      const CUresult result = persistent_error(driver(), stream);
      if (result == CUDA_SUCCESS)
        is_known = driver().stream_synchronize(stream) == CUDA_SUCCESS && is_known;
      else if (devices_.alive(gpu))
        devices_.mark_failed(gpu, result);
    }
  };
  for (const Lane& lane : lanes) {
    wait(*lane.first, lane.first_gpu);
    if (lane.second != lane.first) wait(*lane.second, lane.second_gpu);
  }
  return is_known;
}

double PageableCopies::now_us() const {
  if (is_virtual_) return clock_us_ != nullptr ? clock_us_() : 0;
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void PageableCopies::run_here(SharedWork& work, int seats, double chunk_us, bool is_to_gpu) {
  const std::lock_guard lock(virtual_mutex_);
  const auto reach = [&](double us) {
    if (advance_us_ != nullptr && us > now_us()) advance_us_(us - now_us());
  };
  // When each thread has copied a chunk and does its next step; ties by number.
  std::vector<double> free_us(static_cast<std::size_t>(seats), now_us());
  if (is_to_gpu)
    for (double& us : free_us) us += chunk_us;
  std::vector<bool> has_left(free_us.size());
  for (;;) {
    std::size_t next = free_us.size();
    for (std::size_t s = 0; s < free_us.size(); ++s)
      if (!has_left[s] && (next == free_us.size() || free_us[s] < free_us[next])) next = s;
    if (next == free_us.size()) break;
    reach(free_us[next]);
    has_left[next] = !work.step(static_cast<int>(next), static_cast<int>(next));
    free_us[next] = now_us() + (has_left[next] && is_to_gpu ? 0 : chunk_us);
  }
  if (!is_to_gpu) reach(*std::ranges::max_element(free_us) - chunk_us);
}

PageableResult PageableCopies::run(const PageableTransfer& transfer,
                                   const PageablePlan& plan) noexcept {
  PageableResult result;
  std::vector<Lane> lanes;
  try {
    if (!transfer.is_further_part) wait_for_forks(transfer);
    lanes = lanes_of(plan);
    const double begin_us = now_us();
    const std::uint64_t begin_faults = page_faults();
    Work work(*this, transfer, plan, lanes);
    {
      std::optional<FaultGuard> guard;
      if (!transfer.host.is_file()) guard.emplace();
      // Chunks that this thread sends make other contexts current.
      const CurrentContext current(driver(), transfer.caller.context);
      if (is_virtual_)
        run_here(work, plan.threads,
                 static_cast<double>(plan.chunk_bytes) * plan.threads / (plan.host_gbps * 1e3),
                 transfer.is_to_gpu);
      else if (!threads_.run(work, plan.threads))
        throw DriverError("no copy threads", static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
    }
    result.threads_us = now_us() - begin_us;
    result.page_faults = page_faults() - begin_faults;
    work.count(result);
    result.has_faulted = work.has_faulted();
    if (!work.has_failed()) {
      if (transfer.is_to_gpu) join(transfer, work);
      result.is_done = true;
      return result;
    }
    result.error = work.error();
  } catch (...) {
    result.error = std::current_exception();
  }
  result.is_ordered = quiesce(lanes);
  return result;
}

}  // namespace polypath
