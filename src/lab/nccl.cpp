#include "lab/nccl.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "driver/library.hpp"

namespace polypath {

// NCCL's ABI, as its documentation gives it: handles are pointers, enumerations are ints, the id is
// a struct of 128 bytes that is passed by value.
struct NcclUniqueId {
  std::array<std::byte, 128> bytes;
};

struct NcclFunctions {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank)(void**, int, NcclUniqueId, int) = nullptr;
  int (*comm_destroy)(void*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*allreduce)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, CUstream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, void*, CUstream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*send)(const void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*recv)(void*, std::size_t, int, int, void*, CUstream) = nullptr;
};

namespace {

int code_of(DataType type) {
  switch (type) {
    case DataType::int8: return 0;
    case DataType::uint8: return 1;
    case DataType::int32: return 2;
    case DataType::uint32: return 3;
    case DataType::int64: return 4;
    case DataType::uint64: return 5;
    case DataType::float16: return 6;
    case DataType::float32: return 7;
    case DataType::float64: return 8;
    case DataType::bfloat16: return 9;
  }
  throw InvalidArgument("NCCL has no such type");
}

int code_of(Operator reduction) {
  switch (reduction) {
    case Operator::sum: return 0;
    case Operator::product: return 1;
    case Operator::max: return 2;
    case Operator::min: return 3;
    case Operator::avg: return 4;
  }
  throw InvalidArgument("NCCL has no such operator");
}

void check(const NcclFunctions& nccl, int result, const char* call) {
  if (result != 0)
    throw Error(fmt::format("{} failed: {} ({})", call, nccl.get_error_string(result), result));
}

}  // namespace

std::shared_ptr<const Nccl> Nccl::load(const std::string& library, std::string* why) {
  std::string ignored;
  std::string& reason = why != nullptr ? *why : ignored;
  void* const handle = open_library(library.empty() ? "libnccl.so.2" : library, &reason);
  if (handle == nullptr) return nullptr;
  auto found = std::make_shared<NcclFunctions>();
  const char* missing = nullptr;
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = find_symbol<Function>(handle, name);
    if (function == nullptr && missing == nullptr) missing = name;
  };
  find(found->get_version, "ncclGetVersion");
  find(found->get_unique_id, "ncclGetUniqueId");
  find(found->comm_init_rank, "ncclCommInitRank");
  find(found->comm_destroy, "ncclCommDestroy");
  find(found->get_error_string, "ncclGetErrorString");
  find(found->group_start, "ncclGroupStart");
  find(found->group_end, "ncclGroupEnd");
  find(found->allreduce, "ncclAllReduce");
  find(found->reduce_scatter, "ncclReduceScatter");
  find(found->reduce, "ncclReduce");
  find(found->all_gather, "ncclAllGather");
  find(found->broadcast, "ncclBroadcast");
  find(found->send, "ncclSend");
  find(found->recv, "ncclRecv");
  if (missing != nullptr) {
    reason = fmt::format("NCCL's library has no {}", missing);
    return nullptr;
  }
  return std::shared_ptr<const Nccl>(new Nccl(std::move(found)));
}

std::string Nccl::version() const {
  int code = 0;
  check(*functions_, functions_->get_version(&code), "ncclGetVersion");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

NcclId Nccl::unique_id() const {
  NcclUniqueId id{};
  check(*functions_, functions_->get_unique_id(&id), "ncclGetUniqueId");
  return id.bytes;
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<const Nccl> nccl, const NcclId& id, int rank,
                                   int size)
    : nccl_(std::move(nccl)), size_(size) {
  const NcclFunctions& call = *nccl_->functions_;
  check(call, call.comm_init_rank(&handle_, size, NcclUniqueId{id}, rank), "ncclCommInitRank");
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
