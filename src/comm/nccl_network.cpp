#include "comm/nccl_network.hpp"

#include <fmt/format.h>

#include <bit>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/own_thread.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

constexpr int kNcclBytes = 0;  // ncclInt8
constexpr int kNcclSuccess = 0;

/// A word for each node and each exchange that may be under way.
std::size_t bytes_of_words(const NodeMap& map) {
  return kMostExchanges * static_cast<std::size_t>(map.nodes) * sizeof(std::uint64_t);
}

std::shared_ptr<const NcclFunctions> nccl_or_throw() {
  std::string why;
  auto nccl = load_nccl("", &why);
  if (nccl == nullptr) throw NotSupported(fmt::format("NCCL cannot be used: {}", why));
  return nccl;
}

}  // namespace

NcclNetwork::NcclNetwork(Communicator& local, const NodeMap& map)
    : local_(local),
      map_(map),
      nccl_(nccl_or_throw()),
      came_memory_(local.driver(), local.primary_context(), bytes_of_words(map)),
      came_here_(reinterpret_cast<std::uint64_t*>(came_memory_.get())),
      gate_(local, map.rank, false) {
  const CurrentContext current(local_.driver(), local_.context());
  POLYPATH_CHECK(local_.driver(), mem_alloc(&came_, bytes_of_words(map)));
}

NcclNetwork::~NcclNetwork() {
  gate_.stop();
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  if (local_.aborted()) abort();
  if (comm_ != nullptr && !is_aborted_) nccl_->comm_destroy(comm_);
  POLYPATH_WARN(local_.driver(), mem_free(came_));
}

void NcclNetwork::check(int result, const char* call) const {
  if (result != kNcclSuccess)
    throw CommunicatorError(
        fmt::format("rank {}: {}: {}", map_.rank, call, nccl_->get_error_string(result)));
}

void NcclNetwork::fill(Hello& hello) const {
  NcclFunctions::UniqueId id{};
  check(nccl_->get_unique_id(&id), "ncclGetUniqueId");
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
  own_thread([nccl = nccl_, set_current = local_.driver().ctx_set_current,
              context = local_.context(), id = NcclFunctions::UniqueId{of_node_0.id},
              nodes = map_.nodes, node = map_.node(), promise = std::move(promise)]() mutable {
    Made its;
    // NCCL works on the GPU whose context is current.
    its.result =
        set_current(context) == CUDA_SUCCESS ? nccl->comm_init_rank(&its.comm, nodes, id, node) : 1;
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
}

void NcclNetwork::issue(std::span<const NetworkMessage> sends,
                        std::span<const NetworkMessage> receives, CUdeviceptr given_up,
                        CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) {
    local_.check();  // who aborted it had a reason
    throw CommunicatorError("the network between nodes was aborted");
  }
  int failed = kNcclSuccess;
  const auto send = [&](int node, CUdeviceptr from, std::uint64_t bytes) {
    if (failed == kNcclSuccess)
      failed =
          nccl_->send(std::bit_cast<const void*>(from), bytes, kNcclBytes, node, comm_, stream);
  };
  const auto receive = [&](int node, CUdeviceptr to, std::uint64_t bytes) {
    if (failed == kNcclSuccess)
      failed = nccl_->recv(std::bit_cast<void*>(to), bytes, kNcclBytes, node, comm_, stream);
  };
  // 64 bits: the count, and zeros.
  const auto reports = std::bit_cast<CUdeviceptr>(local_.patience().reports);
  check(nccl_->group_start(), "ncclGroupStart");
  for (const NetworkMessage& message : sends) {
    if (message.bytes == 0) continue;
    send(message.node, message.address, message.bytes);
    send(message.node, reports, sizeof *came_here_);
    sent_bytes_ += message.bytes;
  }
  for (const NetworkMessage& message : receives) {
    if (message.bytes == 0) continue;
    receive(message.node, message.address, message.bytes);
    receive(message.node, given_up + sizeof *came_here_ * static_cast<unsigned>(message.node),
            sizeof *came_here_);
  }
  const int ended = nccl_->group_end();
  check(failed, "ncclSend or ncclRecv");
  check(ended, "ncclGroupEnd");
}

void NcclNetwork::exchange(std::span<const NetworkMessage> sends,
                           std::span<const NetworkMessage> receives, CUstream stream) {
  const CudaDriver& driver = local_.driver();
  const auto nodes = static_cast<std::size_t>(map_.nodes);
  const std::size_t bytes = nodes * sizeof *came_here_;
  const std::size_t at = ++number_ % kMostExchanges;
  const CUdeviceptr given_up = came_ + at * bytes;
  std::uint64_t* const here = came_here_ + at * nodes;
  POLYPATH_CHECK(driver, memset_d8_async(given_up, 0, bytes, stream));
  Event began = gate_.take_event();
  POLYPATH_CHECK(driver, event_record(began.get(), stream));
  issue(sends, receives, given_up, stream);
  POLYPATH_CHECK(driver, memcpy_async(std::bit_cast<CUdeviceptr>(here), given_up, bytes, stream));
  gate_.let_go_within_limit(
      stream, std::move(began),
      [here, nodes] {
        for (std::size_t node = 0; node < nodes; ++node)
          if (here[node] != 0)
            throw CommunicatorError(fmt::format("node {} gave up its part of a collective", node));
        return true;
      },
      [this] { abort(); });
}

void NcclNetwork::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr && !is_aborted_) nccl_->comm_abort(comm_);
  is_aborted_ = true;
}

}  // namespace polypath
