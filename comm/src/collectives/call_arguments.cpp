#include "collectives/call_arguments.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

bool sends(const CollectiveCall& call, int rank) {
  return call.op != CollectiveOp::broadcast || rank == call.root;
}
bool receives(const CollectiveCall& call, int rank) {
  return call.op != CollectiveOp::reduce || rank == call.root;
}
std::uint64_t parts_sent(const CollectiveCall& call, int size) {
  const bool all = call.op == CollectiveOp::reduce_scatter || call.op == CollectiveOp::all_to_all;
  return all ? static_cast<std::uint64_t>(size) : 1;
}
std::uint64_t parts_received(const CollectiveCall& call, int size) {
  const bool all = call.op == CollectiveOp::all_gather || call.op == CollectiveOp::all_to_all;
  return all ? static_cast<std::uint64_t>(size) : 1;
}

/// Elements of the parts of the ranks before `rank`; of all for the number of ranks.
std::uint64_t elements_before(const CollectiveCall& call, int rank) {
  if (!call.parts) return call.count * static_cast<unsigned>(rank);
  return std::accumulate(call.parts->begin(), call.parts->begin() + rank, std::uint64_t{0});
}

/// For buffers that overlap. A reduced part may lie where any part of `send` does, and parts that
/// are exchanged in one place: kernels take elements before others are stored there.
bool is_in_place(const CollectiveCall& call, int rank, int size) {
  const std::uint64_t part = bytes_of(call);
  if (call.parts) {
    const std::uint64_t begin = elements_before(call, rank) * size_of(call.type);
    return call.op == CollectiveOp::all_gather ? call.send == call.recv + begin
                                               : call.recv == call.send + begin;
  }
  switch (call.op) {
    case CollectiveOp::allreduce:
    case CollectiveOp::broadcast:
    case CollectiveOp::reduce:
    case CollectiveOp::all_to_all: return call.recv == call.send;
    case CollectiveOp::reduce_scatter:
      return call.recv >= call.send && (call.recv - call.send) % part == 0 &&
             call.recv - call.send < part * static_cast<unsigned>(size);
    case CollectiveOp::all_gather:
      return call.send == call.recv + part * static_cast<unsigned>(rank);
  }
  return false;
}

}  // namespace

std::uint64_t bytes_of(const CollectiveCall& call) { return call.count * size_of(call.type); }

bool has_root(CollectiveOp op) {
  return op == CollectiveOp::broadcast || op == CollectiveOp::reduce;
}

OperandBytes operand_bytes(const CollectiveCall& call, int rank, int size) {
  if (call.parts) {
    const std::uint64_t own = call.parts->at(static_cast<std::size_t>(rank)) * size_of(call.type);
    const std::uint64_t all = elements_before(call, size) * size_of(call.type);
    return call.op == CollectiveOp::all_gather ? OperandBytes{own, all} : OperandBytes{all, own};
  }
  return {sends(call, rank) ? bytes_of(call) * parts_sent(call, size) : 0,
          receives(call, rank) ? bytes_of(call) * parts_received(call, size) : 0};
}

void require_root(const CollectiveCall& call, int rank, int size) {
  if (has_root(call.op) && (call.root < 0 || call.root >= size))
    throw InvalidArgument(
        fmt::format("rank {}: root {} is none of {} ranks", rank, call.root, size));
}

void require_alike(const CollectiveCall& call, int rank, int size) {
  require_root(call, rank, size);
  const std::size_t element = size_of(call.type);
  if (call.count > std::numeric_limits<std::size_t>::max() / element / static_cast<unsigned>(size))
    throw InvalidArgument(fmt::format("rank {}: count {} is too large", rank, call.count));
}

void require_buffer(const CudaDriver& driver, const CallerRank& caller, const char* name,
                    CUdeviceptr address, std::uint64_t bytes, std::size_t alignment) {
  const int rank = caller.rank;
  if (address == 0) throw InvalidArgument(fmt::format("rank {}: {} is null", rank, name));
  if (address % alignment != 0)
    throw InvalidArgument(
        fmt::format("rank {}: {} is not aligned to {} bytes", rank, name, alignment));
  CUmemorytype type{};
  unsigned managed = 0;
  int gpu = -1;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, 5> values{&type, &managed, &gpu, &start, &size};
  POLYPATH_CHECK(
      driver, pointer_get_attributes(attributes.size(), attributes.data(), values.data(), address));
  if (type != CU_MEMORYTYPE_DEVICE && managed == 0)
    throw InvalidArgument(fmt::format("rank {}: {} is no memory of a GPU", rank, name));
  if (managed == 0 && gpu >= 0 && gpu != caller.gpu)
    throw InvalidArgument(fmt::format("rank {}: {} is memory of gpu{}, and the rank's is gpu{}",
                                      rank, name, gpu, caller.gpu));
  if (start != 0 && bytes > size - (address - start))
    throw InvalidArgument(fmt::format("rank {}: {} has {} bytes to its end, and {} are needed",
                                      rank, name, size - (address - start), bytes));
}

void require_buffers(const CudaDriver& driver, const CollectiveCall& call,
                     const CallerRank& caller) {
  const int rank = caller.rank;
  const int size = caller.size;
  if (call.count == 0) return;
  const std::size_t element = size_of(call.type);
  const auto [sent, received] = operand_bytes(call, rank, size);
  if (sent > 0) require_buffer(driver, caller, "send", call.send, sent, element);
  if (received > 0 && !(call.send == call.recv && received <= sent))
    require_buffer(driver, caller, "recv", call.recv, received, element);
  const bool overlap =
      sent > 0 && received > 0 && call.send < call.recv + received && call.recv < call.send + sent;
  if (overlap && !is_in_place(call, rank, size))
    throw InvalidArgument(fmt::format("rank {}: send and recv overlap", rank));
}

void require_parts_apart(const CollectiveCall& call, int rank, int size) {
  const std::uint64_t part = bytes_of(call);
  const CUdeviceptr end = call.send + part * parts_sent(call, size);
  const bool is_own_part = call.op == CollectiveOp::reduce_scatter &&
                           call.recv == call.send + part * static_cast<unsigned>(rank);
  if (parts_sent(call, size) > 1 && !is_own_part && call.recv < end &&
      call.send < call.recv + part * parts_received(call, size))
    throw InvalidArgument(
        fmt::format("rank {}: recv is a part of send for another rank, and copies may overwrite it "
                    "before it is sent; kernels do not",
                    rank));
}

}  // namespace polypath
