#include "graph_copy.hpp"

#include <bit>

#include "failure.hpp"

namespace polypath::sim {
namespace {

struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
};

std::uintptr_t address_of(const Side& side) {
  switch (side.type) {
    case CU_MEMORYTYPE_HOST: return std::bit_cast<std::uintptr_t>(side.host);
    case CU_MEMORYTYPE_DEVICE:
    case CU_MEMORYTYPE_UNIFIED: return side.device;
    case CU_MEMORYTYPE_ARRAY: fail_not_supported("a copy node with an array");
  }
  throw Failure{CUDA_ERROR_INVALID_VALUE};
}

/// Managed memory may be named as either.
bool fits(CUmemorytype type, const Allocation& allocation) {
  if (type == CU_MEMORYTYPE_UNIFIED || allocation.kind == Allocation::Kind::managed) return true;
  return allocation.is_on_device() == (type == CU_MEMORYTYPE_DEVICE);
}

void require_one_dimension(const CUDA_MEMCPY3D& given) {
  require(given.WidthInBytes > 0 && given.Height > 0 && given.Depth > 0, CUDA_ERROR_INVALID_VALUE);
  require(given.reserved0 == nullptr && given.reserved1 == nullptr, CUDA_ERROR_INVALID_VALUE);
  for (const std::size_t pitch : {given.srcPitch, given.dstPitch})
    require(pitch == 0 || pitch >= given.WidthInBytes, CUDA_ERROR_INVALID_VALUE);
  if (given.Height != 1 || given.Depth != 1)
    fail_not_supported("a copy node of more than one dimension");
  for (const std::size_t offset : {given.srcXInBytes, given.srcY, given.srcZ, given.srcLOD,
                                   given.dstXInBytes, given.dstY, given.dstZ, given.dstLOD})
    if (offset != 0) fail_not_supported("a copy node with an offset");
}

}  // namespace

GraphCopy read_graph_copy(const Driver& driver, const CUDA_MEMCPY3D* parameters,
                          CUcontext context) {
  const Context& runs_in = driver.contexts.get(context, CUDA_ERROR_INVALID_CONTEXT);
  require(parameters != nullptr, CUDA_ERROR_INVALID_VALUE);
  const CUDA_MEMCPY3D& given = *parameters;
  require_one_dimension(given);
  const auto find = [&](const Side& side) {
    const Operand operand = find_operand(driver.memory, address_of(side), given.WidthInBytes,
                                         driver.host_near(runs_in));
    if (!operand.allocation) fail_not_supported("pageable memory in a graph");
    require(fits(side.type, *operand.allocation), CUDA_ERROR_INVALID_VALUE);
    return operand;
  };
  const Operand dst = find({given.dstMemoryType, given.dstHost, given.dstDevice});
  const Operand src = find({given.srcMemoryType, given.srcHost, given.srcDevice});
  return {dst.address, src.address, given.WidthInBytes, context, dst.placement(), src.placement()};
}

}  // namespace polypath::sim
