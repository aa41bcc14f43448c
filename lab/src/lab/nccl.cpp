#include "lab/nccl.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "polypath/nccl_types.hpp"

namespace polypath {

namespace {

int code_of(DataType type) { return nccl::number_of_type(static_cast<int>(type)); }
int code_of(Operator reduction) { return nccl::number_of_op(static_cast<int>(reduction)); }

void check(const NcclFunctions& nccl, int result, const char* call) {
  if (result != 0)
    throw Error(fmt::format("{} failed: {} ({})", call, nccl.get_error_string(result), result));
}

}  // namespace

std::shared_ptr<const Nccl> Nccl::load(const std::string& library, std::string* why) {
  auto nccl = load_nccl(library, why);
  if (nccl == nullptr) return nullptr;
  return std::shared_ptr<const Nccl>(new Nccl(std::move(nccl)));
}

std::string Nccl::version() const {
  int code = 0;
  check(*functions_, functions_->get_version(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

NcclId Nccl::unique_id() const {
  NcclFunctions::UniqueId id{};
  check(*functions_, functions_->get_unique_id(&id), "ncclGetUniqueId");
  return id.bytes;
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<const Nccl> nccl, const NcclId& id, int rank,
                                   int size)
    : nccl_(std::move(nccl)), size_(size) {
  const NcclFunctions& call = *nccl_->functions_;
  check(call, call.comm_init_rank(&handle_, size, NcclFunctions::UniqueId{id}, rank),
        "ncclCommInitRank");
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ != nullptr) nccl_->functions_->comm_destroy(handle_);
}

void NcclCommunicator::run(CollectiveOp op, CUdeviceptr send, CUdeviceptr recv, std::uint64_t count,
                           DataType type, Operator reduction, int root, CUstream stream) {
  const NcclFunctions& call = *nccl_->functions_;
  const int element = code_of(type);
  const auto* const from = reinterpret_cast<const std::byte*>(send);
  auto* const to = reinterpret_cast<std::byte*>(recv);
  switch (op) {
    case CollectiveOp::allreduce:
      return check(call,
                   call.allreduce(from, to, count, element, code_of(reduction), handle_, stream),
                   "ncclAllReduce");
    case CollectiveOp::reduce_scatter:
      return check(
          call, call.reduce_scatter(from, to, count, element, code_of(reduction), handle_, stream),
          "ncclReduceScatter");
    case CollectiveOp::reduce:
      return check(call,
                   call.reduce(from, to, count, element, code_of(reduction), root, handle_, stream),
                   "ncclReduce");
    case CollectiveOp::all_gather:
      return check(call, call.all_gather(from, to, count, element, handle_, stream),
                   "ncclAllGather");
    case CollectiveOp::broadcast:
      return check(call, call.broadcast(from, to, count, element, root, handle_, stream),
                   "ncclBroadcast");
    case CollectiveOp::all_to_all: {
      const std::size_t step = count * size_of(type);
      check(call, call.group_start(), "ncclGroupStart");
      for (int rank = 0; rank < size_; ++rank) {
        const std::size_t offset = static_cast<std::size_t>(rank) * step;
        check(call, call.send(from + offset, count, element, rank, handle_, stream), "ncclSend");
        check(call, call.recv(to + offset, count, element, rank, handle_, stream), "ncclRecv");
      }
      return check(call, call.group_end(), "ncclGroupEnd");
    }
  }
}

}  // namespace polypath
