#include "comm/nccl_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "driver/library.hpp"

namespace polypath {

/// As nccl.h declares them; an ncclUniqueId is passed by value.
struct NcclLibrary {
  struct Id {
    std::array<char, 128> bytes;
  };
  int (*get_unique_id)(Id*) = nullptr;
  int (*comm_init_rank)(void**, int, Id, int) = nullptr;
  int (*comm_destroy)(void*) = nullptr;
  int (*comm_abort)(void*) = nullptr;
  int (*comm_get_async_error)(void*, int*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*receive)(void*, std::size_t, int, int, void*, CUstream) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kBytes = 0;       // ncclInt8
constexpr int kSuccess = 0;     // ncclSuccess
constexpr int kInProgress = 7;  // ncclInProgress
constexpr std::chrono::milliseconds kPeriod{20};

std::shared_ptr<const NcclLibrary> open_nccl() {
  std::string why;
  void* const handle = open_library(kLibrary, &why);
  if (handle == nullptr) throw NotSupported(fmt::format("there is no NCCL: {}", why));
  auto library = std::make_shared<NcclLibrary>();
  const auto find = [&](auto& function, const char* name) {
    function = find_symbol<std::remove_reference_t<decltype(function)>>(handle, name);
    if (function == nullptr) throw NotSupported(fmt::format("{} has no {}", kLibrary, name));
  };
  find(library->get_unique_id, "ncclGetUniqueId");
  find(library->comm_init_rank, "ncclCommInitRank");
  find(library->comm_destroy, "ncclCommDestroy");
  find(library->comm_abort, "ncclCommAbort");
  find(library->comm_get_async_error, "ncclCommGetAsyncError");
  find(library->group_start, "ncclGroupStart");
  find(library->group_end, "ncclGroupEnd");
  find(library->send, "ncclSend");
  find(library->receive, "ncclRecv");
  find(library->error_string, "ncclGetErrorString");
  return library;
}

}  // namespace

NcclNetwork::NcclNetwork(Communicator& local, const NodeMap& map)
    : local_(local), map_(map), library_(open_nccl()) {}

void NcclNetwork::check(int result, const char* call) const {
  if (result != kSuccess && result != kInProgress)
    throw CommunicatorError(
        fmt::format("rank {}: {}: {}", map_.rank, call, library_->error_string(result)));
}

void NcclNetwork::fill(Hello& hello) const {
  NcclLibrary::Id id{};
  check(library_->get_unique_id(&id), "ncclGetUniqueId");
  hello.id = id.bytes;
}

void NcclNetwork::connect(const Hello& of_node_0) {
  // It waits for ever for one who does not come, so it has a thread, which then is left.
  struct Made {
    void* comm = nullptr;
    int result = 0;
  };
  std::promise<Made> promise;
  std::future<Made> made = promise.get_future();
  std::thread([library = library_, driver = &local_.driver(), context = local_.context(),
               id = NcclLibrary::Id{of_node_0.id}, nodes = map_.nodes, node = map_.node(),
               promise = std::move(promise)]() mutable {
    Made its;
    // NCCL works on the GPU whose context is current.
    its.result = driver->ctx_set_current(context) == CUDA_SUCCESS
                     ? library->comm_init_rank(&its.comm, nodes, id, node)
                     : 1;
    promise.set_value(its);
  }).detach();
  if (made.wait_for(local_.time_limit()) != std::future_status::ready)
    throw CommunicatorError(
        fmt::format("rank {}: its equals on other nodes did not come to ncclCommInitRank within {} "
                    "ms",
                    map_.rank, local_.time_limit().count()));
  const Made its = made.get();
  check(its.result, "ncclCommInitRank");
  comm_ = its.comm;
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}

NcclNetwork::~NcclNetwork() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  if (comm_ == nullptr || is_aborted_) return;
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  if (local_.aborted())
    library_->comm_abort(comm_);
  else
    library_->comm_destroy(comm_);
}

void NcclNetwork::exchange(std::span<const NetworkMessage> sends,
                           std::span<const NetworkMessage> receives, CUstream stream) {
  const CudaDriver& driver = local_.driver();
  const std::lock_guard lock(mutex_);
  local_.check();
  std::list<Exchange> mine;
  if (free_.empty()) {
    mine.push_back({0, Event(driver, local_.context(), CU_EVENT_DISABLE_TIMING),
                    Event(driver, local_.context(), CU_EVENT_DISABLE_TIMING)});
  } else {
    mine.splice(mine.end(), free_, free_.begin());
  }
  Exchange& its = mine.front();
  its.number = ++number_;
  its.seen = {};
  POLYPATH_CHECK(driver, event_record(its.began.get(), stream));
  check(library_->group_start(), "ncclGroupStart");
  int failed = kSuccess;
  for (const NetworkMessage& send : sends) {
    if (send.bytes == 0 || failed != kSuccess) continue;
    failed = library_->send(std::bit_cast<const void*>(send.address), send.bytes, kBytes, send.node,
                            comm_, stream);
    sent_bytes_ += send.bytes;
  }
  for (const NetworkMessage& receive : receives)
    if (receive.bytes > 0 && failed == kSuccess)
      failed = library_->receive(std::bit_cast<void*>(receive.address), receive.bytes, kBytes,
                                 receive.node, comm_, stream);
  const int ended = library_->group_end();
  check(failed, "ncclSend or ncclRecv");
  check(ended, "ncclGroupEnd");
  POLYPATH_CHECK(driver, event_record(its.ended.get(), stream));
  pending_.splice(pending_.end(), mine);
  came_.notify_one();
}

void NcclNetwork::abort(std::string_view reason) noexcept {
  local_.abort(reason);
  is_aborted_ = true;
  pending_.clear();
  // Its kernels end by this.
  library_->comm_abort(comm_);
}

void NcclNetwork::look() {
  const CudaDriver& driver = local_.driver();
  int error = kSuccess;
  check(library_->comm_get_async_error(comm_, &error), "ncclCommGetAsyncError");
  check(error, "NCCL between nodes");
  while (!pending_.empty() &&
         driver.event_query(pending_.front().ended.get()) != CUDA_ERROR_NOT_READY)
    free_.splice(free_.end(), pending_, pending_.begin());
  if (pending_.empty()) return;
  Exchange& first = pending_.front();
  if (driver.event_query(first.began.get()) == CUDA_ERROR_NOT_READY) return;
  const auto now = std::chrono::steady_clock::now();
  if (first.seen == std::chrono::steady_clock::time_point{}) first.seen = now;
  if (now - first.seen > local_.time_limit())
    throw CommunicatorError(
        fmt::format("rank {}: a stream waited past the time limit for exchange {} with other nodes",
                    map_.rank, first.number));
}

void NcclNetwork::watch(const std::stop_token& stop) {
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested() && !is_aborted_) {
    came_.wait(lock, stop, [&] { return !pending_.empty(); });
    if (pending_.empty()) continue;
    try {
      local_.check();
      look();
    } catch (const std::exception& thrown) {
      abort(thrown.what());
    }
    // Not the condition: what is new is no reason to look again.
    lock.unlock();
    std::this_thread::sleep_for(kPeriod);
    lock.lock();
  }
}

}  // namespace polypath
