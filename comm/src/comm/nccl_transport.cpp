#include "comm/nccl_transport.hpp"

#include <fmt/format.h>

#include <bit>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/thread.hpp"
#include "driver/check.hpp"
#include "polypath/nccl_types.hpp"

namespace polypath {
namespace {

constexpr int kNcclBytes = nccl::kInt8;
constexpr int kNcclSuccess = 0;

std::shared_ptr<const NcclFunctions> nccl_or_throw() {
  std::string why;
  auto nccl = load_nccl("", &why);
  if (nccl == nullptr) throw NotSupported(fmt::format("NCCL cannot be used: {}", why));
  return nccl;
}

}  // namespace

NcclTransport::NcclTransport(Communicator& local, const NodeMap& map)
    : local_(local), map_(map), nccl_(nccl_or_throw()), gate_(local, map.rank, false) {
  const CudaDriver& driver = local_.driver();
  const CurrentContext current(driver, local_.context());
  POLYPATH_CHECK(driver, mem_alloc(&records_, kMaxExchanges * bytes_of_records()));
}

std::size_t NcclTransport::bytes_of_records() const noexcept {
  return (static_cast<std::size_t>(map_.nodes) + 1) * sizeof(ExchangeRecord);
}

NcclTransport::~NcclTransport() {
  gate_.stop();
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  if (local_.aborted()) abort();
  if (comm_ != nullptr && !is_aborted_) nccl_->comm_destroy(comm_);
  POLYPATH_WARN(local_.driver(), mem_free(records_));
}

void NcclTransport::check(int result, const char* call) const {
  if (result != kNcclSuccess)
    throw CommunicatorError(
        fmt::format("rank {}: {}: {}", map_.rank, call, nccl_->get_error_string(result)));
}

void NcclTransport::fill(Hello& hello) const {
  NcclFunctions::UniqueId id{};
  check(nccl_->get_unique_id(&id), "ncclGetUniqueId");
  hello.id = id.bytes;
}

void NcclTransport::connect(const Hello& of_node_0) {
  // NCCL waits for a missing rank without a limit, so it has its own thread, which then is left.
  struct InitResult {
    void* comm = nullptr;
    int result = 0;
  };
  std::promise<InitResult> promise;
  std::future<InitResult> future = promise.get_future();
  make_thread([nccl = nccl_, set_current = local_.driver().ctx_set_current,
               context = local_.context(), id = NcclFunctions::UniqueId{of_node_0.id},
               nodes = map_.nodes, node = map_.node(), promise = std::move(promise)]() mutable {
    InitResult init;
    // NCCL works on the GPU whose context is current.
    init.result = set_current(context) == CUDA_SUCCESS
                      ? nccl->comm_init_rank(&init.comm, nodes, id, node)
                      : 1;
    promise.set_value(init);
  }).detach();
  if (future.wait_for(local_.time_limit()) != std::future_status::ready)
    throw CommunicatorError(
        fmt::format("rank {}: its equals on other nodes did not come to ncclCommInitRank within {} "
                    "ms",
                    map_.rank, local_.time_limit().count()));
  const InitResult init = future.get();
  check(init.result, "ncclCommInitRank");
  comm_ = init.comm;
}

void NcclTransport::issue(std::span<const NetworkMessage> sends,
                          std::span<const NetworkMessage> receives, const ExchangeArgs& args,
                          CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) {
    local_.check();  // throws the reason of the abort
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
  const auto local = std::bit_cast<CUdeviceptr>(args.local);
  check(nccl_->group_start(), "ncclGroupStart");
  for (const NetworkMessage& message : sends) {
    if (message.bytes == 0) continue;
    send(message.node, message.address, message.bytes);
    send(message.node, local, sizeof *args.local);
    sent_bytes_ += message.bytes;
  }
  for (const NetworkMessage& message : receives) {
    if (message.bytes == 0) continue;
    receive(message.node, message.address, message.bytes);
    receive(message.node, std::bit_cast<CUdeviceptr>(args.remote + message.node),
            sizeof *args.remote);
  }
  const int ended = nccl_->group_end();
  check(failed, "ncclSend or ncclRecv");
  check(ended, "ncclGroupEnd");
}

void NcclTransport::exchange(std::span<const NetworkMessage> sends,
                             std::span<const NetworkMessage> receives, const ExchangeMark& mark,
                             CUstream stream) {
  const std::size_t at = ++number_ % kMaxExchanges;
  ExchangeArgs args{};
  args.local = std::bit_cast<ExchangeRecord*>(records_ + at * bytes_of_records());
  args.remote = args.local + 1;
  args.nodes = static_cast<std::uint32_t>(map_.nodes);
  args.waits = mark.waits;
  args.what = mark.what;
  args.count = mark.count;
  local_.begin_exchange(args, stream);
  Event began = gate_.take_event();
  POLYPATH_CHECK(local_.driver(), event_record(began.get(), stream));
  try {
    issue(sends, receives, args, stream);
    local_.end_exchange(args, mark.number, stream);
    gate_.watch(stream, std::move(began), [this] { abort(); });
  } catch (...) {
    // No thread watches the issued kernels: without abort() the stream would never end.
    abort();
    throw;
  }
}

void NcclTransport::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr && !is_aborted_) nccl_->comm_abort(comm_);
  is_aborted_ = true;
}

}  // namespace polypath
