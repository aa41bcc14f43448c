// polypath/nccl_types.hpp against the header of NCCL.
#include <nccl.h>

#include "polypath/nccl_types.hpp"

namespace polypath::nccl {

static_assert(type_of(ncclInt8) == POLYPATH_INT8 && type_of(ncclUint8) == POLYPATH_UINT8 &&
              type_of(ncclInt32) == POLYPATH_INT32 && type_of(ncclUint32) == POLYPATH_UINT32 &&
              type_of(ncclInt64) == POLYPATH_INT64 && type_of(ncclUint64) == POLYPATH_UINT64 &&
              type_of(ncclFloat16) == POLYPATH_FLOAT16 &&
              type_of(ncclFloat32) == POLYPATH_FLOAT32 &&
              type_of(ncclFloat64) == POLYPATH_FLOAT64 &&
              type_of(ncclBfloat16) == POLYPATH_BFLOAT16 && type_of(ncclBfloat16 + 1) == -1);
static_assert(operator_of(ncclSum) == POLYPATH_SUM && operator_of(ncclProd) == POLYPATH_PRODUCT &&
              operator_of(ncclMax) == POLYPATH_MAX && operator_of(ncclMin) == POLYPATH_MIN &&
              operator_of(ncclAvg) == POLYPATH_AVG && operator_of(ncclNumOps) == -1);
static_assert(kInt8 == ncclInt8 && kSum == ncclSum);
static_assert(number_of_type(POLYPATH_FLOAT64) == ncclFloat64 &&
              number_of_op(POLYPATH_MIN) == ncclMin && number_of_op(POLYPATH_AVG + 1) == -1);

}  // namespace polypath::nccl
