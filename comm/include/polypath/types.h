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

/* In which order a collective combines the elements of ranks r0, r1, ... of floating-point types.
 * Integers have the same bits in every order. */
typedef enum polypath_sum_order {
  POLYPATH_SUM_ORDER_SETTING = 0, /* what the setting sum_order says */
  /* ((r0 + r1) + r2) + r3 ...; float16 and bfloat16 in float32, rounded once at the end. */
  POLYPATH_SUM_ORDER_RANK = 1,
  /* (r0 + r1) + (r2 + r3) ...: a balanced binary tree, each of whose nodes is rounded to the
   * elements' type, so that it is what a program has that adds two tensors of that type. */
  POLYPATH_SUM_ORDER_TREE = 2
} polypath_sum_order;

#endif
