#include "comm/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/bootstrap.hpp"
#include "comm/communicator_impl.hpp"
#include "comm/late_release.hpp"
#include "driver/check.hpp"
#include "driver/context_resets.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// How long ranks that meet let each other's streams come to an end of their waits.
constexpr std::chrono::seconds kSettling{3};

/// A line of a GPU's caches, in bytes.
constexpr std::uint64_t kLine = 128;

using Uuid = std::array<unsigned char, 16>;

Uuid uuid_of(const CudaDriver& driver, int gpu) {
  Uuid uuid{};
  CUuuid id{};
  if (driver.device_get_uuid == nullptr) throw NotSupported("the driver has no cuDeviceGetUuid_v2");
  CUdevice device = 0;
  POLYPATH_CHECK(driver, device_get(&device, gpu));
  POLYPATH_CHECK(driver, device_get_uuid(&id, device));
  std::memcpy(uuid.data(), id.bytes, uuid.size());
  return uuid;
}

void require_gpu(const Node& node, int gpu) {
  if (gpu < 0 || gpu >= static_cast<int>(node.gpus.size()))
    throw InvalidArgument(
        fmt::format("gpu{} is none of the {} GPUs of this node", gpu, node.gpus.size()));
}

}  // namespace

Communicator::Impl::Impl(std::shared_ptr<const CudaDriver> table, const Node& known_node,
                         const CommunicatorOptions& options)
    : driver(std::move(table)),
      node(known_node),
      engine(options.engine),
      put_kernel_max_bytes(options.put_kernel_max_bytes),
      limit(options.time_limit),
      where(options.where) {
  Hello hello = make_hello();
  hello.rank = options.rank;
  hello.size = options.size;
  hello.gpu = options.gpu;
  hello.timeout_ms = options.time_limit.count();
  hello.sum_order = options.sum_order;
  hello.problem.catch_from([&] { prepare(options.gpu, hello); });
  BootstrapResult joined = join(
      hello, options.exchange, [&](const Uuid& uuid) { return number_of(uuid); },
      [&](const Members& all) { return reach(all); });
  board = std::move(joined.board);
  members = std::move(joined.members);
  limit = joined.limit;
  placement = joined.reaches_all ? SymmetricPlacement::gpus : SymmetricPlacement::host;
  try {
    heap.emplace(SymmetricHeap::Place{driver, board, node, members, placement, context,
                                      fill_stream->get(), engine, &limit});
    watchdog.emplace(board, members, [this] {
      look();
      look_at_waits();
      return settle();
    });
    const std::uint64_t words_bytes =
        counts_offset() +
        sizeof(std::uint32_t) * kCountingStreams * static_cast<std::uint64_t>(members.size());
    barrier_words = heap->alloc(words_bytes, SymmetricUse::direct);
    own_words = placement == SymmetricPlacement::gpus
                    ? barrier_words
                    : heap->alloc(words_bytes, SymmetricUse::local);
    ProcessEvents::add(*this);
  } catch (const std::exception& error) {
    board->abort(error.what());
    // Others may have come to the end of the creation before they were told.
    if (heap) leave(std::chrono::milliseconds(0));
    throw;
  }
}

Communicator::Impl::~Impl() = default;

bool Communicator::Impl::end_waits() {
  const auto are_over = [&] {
    const ContextInUse in_use(*context);
    return !in_use || !waits->any();
  };
  if (are_over()) return true;
  board->abort(fmt::format(
      "rank {} destroyed the communicator while its streams waited for signals", members.rank));
  log_warn("{}", board->reason());
  words->abort();
  const auto deadline = std::chrono::steady_clock::now() + limit.load();
  while (std::chrono::steady_clock::now() < deadline) {
    if (are_over()) return true;
    std::this_thread::yield();
  }
  return are_over();
}

void Communicator::Impl::look_at_own_gpu() {
  const ContextInUse in_use(*context);
  if (!in_use || board->aborted()) return;
  const RelaxedCapture relaxed(*driver);
  const CUresult result = driver->stream_query(fill_stream->get());
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    board->abort(fmt::format("rank {}: work of its GPU has failed: {}", members.rank,
                             describe(*driver, result)));
}

// It is told of a reset until all ranks have left.
bool Communicator::Impl::leave(std::chrono::milliseconds most) noexcept {
  std::function<void()> release = [] {};
  try {
    if (!end_waits()) {
      log_warn("rank {}: its streams still wait: what they use is kept", members.rank);
      return false;
    }
    look_at_own_gpu();
    if (const ContextInUse in_use(*context); in_use) release = heap->release();
  } catch (const std::exception& error) {
    log_warn("memory of a communicator is not freed: {}", error.what());
  }
  const auto stops = [in_use = context] { return !ContextInUse(*in_use); };
  release_late(board, members,
               board->leave(members.rank, members.here(), std::move(release), most, stops), stops);
  ProcessEvents::remove(*this);
  watchdog.reset();
  return true;
}

void Communicator::Impl::abandon() noexcept {
  ProcessEvents::remove(*this);
  {
    // No thread waits for kernels that are under way: they may run until the process ends.
    const ContextInUse in_use(*context);
    const RelaxedCapture relaxed(*driver);
    board->set_reaching(members.rank, in_use && (has_calls_in_flight() == true || waits->any()));
  }
  board->depart(members.rank, Departure::gpu_reset);
  watchdog.reset();
}

// Ranks that have this one's part of all their calls go on; those that make another call find that
// it has left.
void Communicator::Impl::gpu_is_reset(int gpu) noexcept {
  if (gpu != members.all[static_cast<std::size_t>(members.rank)].gpu) return;
  board->set_reaching(members.rank, true);  // until wait_for_others(), or abandon()
  if (has_calls_in_flight() == true) {
    board->ended(members.rank,
                 fmt::format("rank {} reset its GPU while a call was under way", members.rank));
  } else {
    board->depart(members.rank, Departure::gpu_reset);
  }
  words->abort();  // kernels of this rank that wait would hold up the reset
}

// Ranks that have left have nothing under way, except those whose GPU is reset as well.
void Communicator::Impl::wait_for_others(int gpu,
                                         std::chrono::steady_clock::time_point deadline) noexcept {
  if (gpu != members.all[static_cast<std::size_t>(members.rank)].gpu) return;
  constexpr std::chrono::milliseconds kPause{1};
  const std::uint32_t departures = board->departures();
  const auto is_settled = [&](int other) {
    const Departure how = board->departure_of(other);
    return other == members.rank || (how != Departure::none && how != Departure::gpu_reset) ||
           board->settled(other) >= departures;
  };
  for (bool is_told = false; std::chrono::steady_clock::now() < deadline;) {
    const std::uint32_t heard = board->bell();
    if (!is_told && has_calls_in_flight() != true) {
      board->settle(members.rank, departures);
      board->set_reaching(members.rank, false);
      is_told = true;
      continue;
    }
    bool are_settled = true;
    for (int other = 0; other < members.size(); ++other)
      are_settled = are_settled && is_settled(other);
    if (are_settled) return;
    board->wait_bell(heard, kPause);
  }
}

bool Communicator::Impl::settle() noexcept {
  const std::uint32_t departures = board->departures();
  if (board->settled(members.rank) >= departures) return true;
  const ContextInUse in_use(*context);
  if (!in_use) return true;
  // A question for an event may end a capture of the program.
  const RelaxedCapture relaxed(*driver);
  if (has_calls_in_flight() == true) return false;
  board->settle(members.rank, departures);
  return true;
}

// Where work is under way the others find that the process is gone, and that is an error.
void Communicator::Impl::process_ends() noexcept {
  if (has_calls_in_flight() == false && !has_uncounted_waits)
    board->depart(members.rank, Departure::exited);
}

std::optional<bool> Communicator::Impl::has_calls_in_flight() noexcept {
  const std::lock_guard lock(calls_mutex);
  return calls_in_flight == nullptr ? std::nullopt : std::optional(calls_in_flight());
}

void Communicator::Impl::prepare(int gpu, Hello& hello) {
  require_gpu(node, gpu);
  hello.gpu_uuid = uuid_of(*driver, gpu);
  context = std::make_shared<PrimaryContext>(*driver, gpu);
  fill_stream.emplace(*driver, context->get());
  words.emplace(*driver, context);
  waits.emplace(*driver, context->get());
  put_streams.emplace(*driver, context->get());
}

int Communicator::Impl::number_of(const Uuid& uuid) const {
  for (int gpu = 0; gpu < static_cast<int>(node.gpus.size()); ++gpu)
    if (uuid_of(*driver, gpu) == uuid) return gpu;
  return -1;
}

// What a driver promises it may refuse: in a virtual machine, or for too many GPUs.
bool Communicator::Impl::reach(const Members& all) {
  const int own = all.all[static_cast<std::size_t>(all.rank)].gpu;
  for (int rank = 0; rank < all.size(); ++rank) {
    if (rank == all.rank) continue;
    const Member& other = all.all[static_cast<std::size_t>(rank)];
    int can = 0;
    POLYPATH_CHECK(*driver, device_can_access_peer(&can, own, other.gpu));
    if (can == 0) {
      log_info("gpu{} cannot address the memory of gpu{} (rank {}): ranks share host memory", own,
               other.gpu, rank);
      return false;
    }
    if (!other.here) {
      if (driver->ipc_get_mem_handle == nullptr || driver->ipc_open_mem_handle == nullptr ||
          driver->ipc_close_mem_handle == nullptr)
        throw NotSupported("the driver has no CUDA IPC, by which processes share memory");
      continue;
    }
    const auto& peer = peers.emplace_back(std::make_shared<PrimaryContext>(*driver, other.gpu));
    const CurrentContext current(*driver, context->get());
    const CUresult result = driver->ctx_enable_peer_access(peer->get(), 0);
    if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED || result == CUDA_ERROR_TOO_MANY_PEERS) {
      log_info("gpu{} gets no peer access to gpu{} (rank {}): ranks share host memory", own,
               other.gpu, rank);
      return false;
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      throw_driver_error(*driver, result, "ctx_enable_peer_access(peer, 0)", __FILE__, __LINE__);
  }
  return true;
}

void Communicator::Impl::look() noexcept {
  try {
    look_at_departed();
    if (!board->aborted())
      if (const std::string given_up = words->given_up(numbered); !given_up.empty())
        board->abort(fmt::format("rank {}: {}", members.rank, given_up));
  } catch (const std::exception& error) {
    board->abort(fmt::format("rank {}: {}", members.rank, error.what()));
  }
  if (board->aborted()) words->abort();
}

void Communicator::Impl::look_at_departed() {
  if (board->departures() == 0) return;
  const std::uint64_t calls = board->calls(members.rank);
  for (int rank = 0; rank < members.size(); ++rank)
    if (rank != members.rank && board->has_left(rank) && board->calls(rank) < calls)
      board->ended(rank, fmt::format("rank {} {} before call {}", rank,
                                     text_of(board->departure_of(rank)), calls));
}

void Communicator::Impl::look_at_waits() noexcept {
  const std::uint32_t departures = board->departures();
  if (departures == 0 || board->aborted()) return;
  const ContextInUse in_use(*context);
  const RelaxedCapture relaxed(*driver);
  // Waits of calls that are counted are looked at by their number.
  if (!in_use || !(has_uncounted_waits || (waits->any() && has_calls_in_flight() != true))) {
    departures_with_waits = 0;
    return;
  }
  // What a rank told before it left comes within a look.
  if (std::exchange(departures_with_waits, departures) != departures) return;
  for (int rank = 0; rank < members.size(); ++rank)
    if (const Departure how = board->departure_of(rank);
        how == Departure::exited || how == Departure::gpu_reset)
      board->ended(
          rank, fmt::format("rank {} {} while rank {} waited", rank, text_of(how), members.rank));
}

void Communicator::Impl::require_usable() {
  look();  // the watchdog may not have
  try {
    if (context->is_lost())
      throw CommunicatorError(fmt::format("rank {}: its GPU was reset", members.rank));
    board->require_usable();
  } catch (const CommunicatorError& error) {
    if (where.empty()) throw;
    throw CommunicatorError(where + error.what());
  }
}

std::uint64_t Communicator::Impl::reports_offset() const noexcept {
  return sizeof(std::uint64_t) * static_cast<std::uint64_t>(members.size());
}

std::uint64_t Communicator::Impl::next_look_offset() const noexcept {
  return reports_offset() / kLine * kLine + kLine;  // reports are read more often
}

std::uint64_t Communicator::Impl::epoch_offset() const noexcept {
  return next_look_offset() + kLine;
}

std::uint64_t Communicator::Impl::counts_offset() const noexcept { return epoch_offset() + kLine; }

Communicator::Communicator(std::shared_ptr<const CudaDriver> driver, const Node& node,
                           const CommunicatorOptions& options) {
  if (options.size < 1) throw InvalidArgument(fmt::format("size is {}", options.size));
  if (!options.exchange) throw InvalidArgument("exchange is null");
  if (options.time_limit.count() <= 0) throw InvalidArgument("the time limit is not positive");
  impl_ = std::make_unique<Impl>(std::move(driver), node, options);
}

Communicator::~Communicator() {
  const bool is_kept = !impl_->watchdog || !impl_->leave(impl_->limit);
  if (const ContextInUse in_use(*impl_->context); in_use && !is_kept)
    impl_.reset();
  else
    Impl::keep(std::move(impl_));  // what it owns went with its context, or stays there
}

void Communicator::abandon() noexcept { impl_->abandon(); }

bool Communicator::is_lost() const noexcept { return impl_->context->is_lost(); }

void Communicator::begin_call() {
  impl_->board->count_call(rank());
  if (impl_->board->departures() > 0) check();
}

void Communicator::set_calls_in_flight(std::function<bool()> in_flight) {
  const std::lock_guard lock(impl_->calls_mutex);
  impl_->calls_in_flight = std::move(in_flight);
}

void Communicator::note_uncounted_waits() noexcept { impl_->has_uncounted_waits = true; }

int Communicator::rank() const noexcept { return impl_->members.rank; }
int Communicator::size() const noexcept { return impl_->members.size(); }
int Communicator::gpu_of(int rank) const {
  return impl_->members.all.at(static_cast<std::size_t>(rank)).gpu;
}
bool Communicator::is_same_communicator(const Communicator& other) const noexcept {
  return impl_->board->id() == other.impl_->board->id();
}
bool Communicator::is_here(int rank) const {
  return impl_->members.all.at(static_cast<std::size_t>(rank)).here;
}
const Node& Communicator::node() const noexcept { return impl_->node; }
const CudaDriver& Communicator::driver() const noexcept { return *impl_->driver; }
CUcontext Communicator::context() const noexcept { return impl_->context->get(); }
const std::shared_ptr<const PrimaryContext>& Communicator::primary_context() const noexcept {
  return impl_->context;
}

SymmetricMemory Communicator::alloc(std::uint64_t bytes, SymmetricUse use) {
  return impl_->heap->alloc(bytes, use);
}

DeferredMemory& Communicator::defer(std::uint64_t bytes) { return impl_->heap->defer(bytes); }

RelayMemory* Communicator::reserve_relays(Devices& devices, std::vector<int> gpus,
                                          std::uint64_t bytes, std::size_t pinned_bytes) {
  return impl_->heap->reserve_relays(devices, std::move(gpus), bytes, pinned_bytes);
}

void Communicator::free(SymmetricMemory&& memory) {
  impl_->heap->free(memory);
  memory = {};
}

void Communicator::require_own(const SymmetricMemory& memory, const char* what) const {
  impl_->heap->require_range(memory, 0, 0, what);
}

std::optional<std::vector<CUdeviceptr>> Communicator::peer_addresses(CUdeviceptr address,
                                                                     std::uint64_t bytes) const {
  return impl_->heap->peer_addresses(address, bytes);
}

std::shared_ptr<const SharedHostMemory> Communicator::alloc_host(std::uint64_t bytes) {
  check();
  std::vector<int> hosts(impl_->node.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  return impl_->heap->alloc_host(bytes, std::move(hosts));
}

bool Communicator::has_peer_access() const noexcept {
  return impl_->placement == SymmetricPlacement::gpus;
}

void Communicator::exchange(std::span<const std::byte> local, std::span<std::byte> all) {
  impl_->board->gather(rank(), {Call::Kind::exchange, 0, local.size()}, local, all, impl_->limit);
}

void Communicator::barrier_when_idle() {
  const auto meet = [&] {
    const std::byte empty{};
    std::vector<std::byte> all(static_cast<std::size_t>(size()));
    exchange(std::span(&empty, 1), all);
  };
  meet();  // what any of them issued before, it has issued
  const auto deadline = std::chrono::steady_clock::now() +
                        std::min<std::chrono::nanoseconds>(time_limit(), kSettling);
  while (streams_wait() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  meet();
}

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  struct SplitRequest {
    int color;
    int key;
    int rank;
  };
  const auto gather = [&](std::uint32_t stage, std::span<const std::byte> local,
                          std::span<std::byte> all) {
    impl_->board->gather(rank(), {Call::Kind::split, stage, 0}, local, all, impl_->limit);
  };
  const SplitRequest request{color, key, rank()};
  std::vector<SplitRequest> wishes(static_cast<std::size_t>(size()));
  gather(0, std::as_bytes(std::span(&request, 1)), std::as_writable_bytes(std::span(wishes)));
  std::vector<SplitRequest> group;
  for (const SplitRequest& wish : wishes)
    if (wish.color == color) group.push_back(wish);
  std::ranges::sort(group, [](const SplitRequest& a, const SplitRequest& b) {
    return std::pair(a.key, a.rank) < std::pair(b.key, b.rank);
  });

  // The new ones exchange over this one's board, all groups in the same rounds. Ranks without a
  // color take part in those.
  std::uint32_t round = 0;
  std::vector<std::byte> gathered;
  const auto among_all = [&](std::span<const std::byte> bytes) {
    gathered.resize(bytes.size() * static_cast<std::size_t>(size()));
    gather(++round, bytes, gathered);
  };
  if (color < 0) {
    for (const std::size_t bytes : kJoinRecords) among_all(std::vector<std::byte>(bytes));
    return nullptr;
  }
  CommunicatorOptions options;
  options.rank =
      static_cast<int>(std::ranges::find(group, rank(), &SplitRequest::rank) - group.begin());
  options.size = static_cast<int>(group.size());
  options.gpu = gpu();
  options.time_limit = time_limit();
  options.engine = impl_->engine;
  options.put_kernel_max_bytes = impl_->put_kernel_max_bytes;
  options.exchange = [&](std::span<const std::byte> bytes, std::span<std::byte> all) {
    among_all(bytes);
    for (std::size_t i = 0; i < group.size(); ++i)
      std::memcpy(all.data() + i * bytes.size(),
                  gathered.data() + static_cast<std::size_t>(group[i].rank) * bytes.size(),
                  bytes.size());
  };
  return std::make_unique<Communicator>(impl_->driver, impl_->node, options);
}

void Communicator::abort(std::string_view reason) noexcept {
  impl_->board->abort(reason);
  impl_->words->abort();
}
bool Communicator::aborted() const noexcept { return impl_->board->aborted(); }
void Communicator::check() const { impl_->require_usable(); }

wait_context Communicator::Impl::wait_ctx() const noexcept {
  const std::chrono::nanoseconds time_limit = limit.load();
  return {words->abort_flag(), static_cast<std::uint64_t>(time_limit.count()), words->status(),
          reinterpret_cast<std::uint32_t*>(own_words.local() + reports_offset()),
          wait_error::kStreamWait};
}
wait_context Communicator::wait_ctx() const noexcept { return impl_->wait_ctx(); }
wait_context Communicator::program_wait_context() const noexcept {
  wait_context ctx = wait_ctx();
  ctx.kernel = wait_error::kProgram;
  impl_->has_uncounted_waits = true;
  ctx.next_abort_poll_ns =
      reinterpret_cast<std::uint64_t*>(impl_->own_words.local() + impl_->next_look_offset());
  return ctx;
}
std::uint32_t Communicator::register_waits(std::uint32_t count, WaitRegistry::Describe describe) {
  return impl_->numbered.add(count, std::move(describe));
}
void Communicator::unregister_waits(std::uint32_t first) { impl_->numbered.remove(first); }
std::string Communicator::describe_wait(const wait_error& status) const {
  return impl_->numbered.describe(status);
}
std::chrono::milliseconds Communicator::time_limit() const noexcept { return impl_->limit; }
void Communicator::set_time_limit(std::chrono::milliseconds limit) {
  if (limit.count() <= 0) throw InvalidArgument("the time limit is not positive");
  impl_->limit = limit;
}

}  // namespace polypath
