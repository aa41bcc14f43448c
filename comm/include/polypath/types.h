/* polypath: element types and reduction operators. Needs no other header: C99, C++ and device
 * code. */
#ifndef POLYPATH_TYPES_H
#define POLYPATH_TYPES_H

typedef enum polypath_data_type {
  POLYPATH_INT8 = 0,
  POLYPATH_UINT8 = 1,
  POLYPATH_INT32 = 2,
  POLYPATH_UINT32 = 3,
  POLYPATH_INT64 = 4,
  POLYPATH_UINT64 = 5,
  POLYPATH_FLOAT16 = 6,
  POLYPATH_BFLOAT16 = 7,
  POLYPATH_FLOAT32 = 8,
  POLYPATH_FLOAT64 = 9
} polypath_data_type;

typedef enum polypath_reduce_op {
  POLYPATH_SUM = 0,
  POLYPATH_PRODUCT = 1,
  POLYPATH_MIN = 2,
  POLYPATH_MAX = 3,
  POLYPATH_AVG = 4 /* the sum divided by the number of ranks */
} polypath_reduce_op;

#endif
