// The kernels of one data type, and their names.
#pragma once

#include "collectives/kernels/collective_ll.cuh"
#include "collectives/kernels/collective_ll128.cuh"
#include "collectives/kernels/collective_simple.cuh"
#include "collectives/kernels/sums.cuh"

#if defined(__CUDACC__)
#define POLYPATH_PARAMETER const __grid_constant__
#else
#define POLYPATH_PARAMETER const
// In the simulated driver one warp may do a block's work; of channels, one next to those that lead
// and tell.
#define POLYPATH_FOLDS(name, warps) SIMT_EMULATED_THREADS(name, 32 * (warps))
#endif
#if !defined(POLYPATH_FOLDS)
#define POLYPATH_FOLDS(name, warps) static_assert(true)
#endif

// A kernel of a call waits itself for earlier ones: what it works out before takes no memory.
#define POLYPATH_COLLECTIVE_KERNEL(family, type, Element, order, Args, warps) \
  SIMT_KERNEL(polypath_##family##_##type, ::polypath::kCollectiveThreads,     \
              POLYPATH_PARAMETER ::polypath::Args args) {                     \
    ::polypath::family::run<Element, ::polypath::SumOrder::order>(args);      \
  }                                                                           \
  POLYPATH_FOLDS(polypath_##family##_##type, warps)

#define POLYPATH_LINES_KERNEL(type, Element)                         \
  SIMT_KERNEL(polypath_lines_##type, ::polypath::kCollectiveThreads, \
              POLYPATH_PARAMETER ::polypath::CollectiveArgs args) {  \
    ::polypath::lines::run<Element>(args);                           \
  }                                                                  \
  POLYPATH_FOLDS(polypath_lines_##type, 1)

#define POLYPATH_COLLECTIVE_KERNELS(type, Element, order, Args)     \
  POLYPATH_COLLECTIVE_KERNEL(cells, type, Element, order, Args, 1); \
  POLYPATH_COLLECTIVE_KERNEL(channels, type, Element, order, Args, 3)

/// Kernels of calls whose parts are even and whose sums are in rank order.
#define POLYPATH_EVEN_KERNELS(type, Element)                        \
  POLYPATH_COLLECTIVE_KERNELS(type, Element, rank, CollectiveArgs); \
  POLYPATH_LINES_KERNEL(type, Element)

#define POLYPATH_SUM_KERNEL(type, Element, order)                      \
  SIMT_KERNEL(polypath_sums_##type, ::polypath::kCollectiveThreads,    \
              POLYPATH_PARAMETER ::polypath::SumArgs args) {           \
    ::polypath::sums::run<Element, ::polypath::SumOrder::order>(args); \
  }                                                                    \
  POLYPATH_FOLDS(polypath_sums_##type, 1)

/// Kernels of a type whose elements are combined, and those that combine.
#define POLYPATH_COMBINING_KERNELS(type, Element) \
  POLYPATH_EVEN_KERNELS(type, Element);           \
  POLYPATH_SUM_KERNEL(type, Element, rank)

/// Kernels of calls whose parts are uneven.
#define POLYPATH_UNEVEN_KERNELS(type, Element) \
  POLYPATH_COLLECTIVE_KERNELS(uneven_##type, Element, rank, UnevenArgs)

/// Kernels that combine as a tree; parts may be uneven.
#define POLYPATH_TREE_KERNELS(type, Element)                           \
  POLYPATH_COLLECTIVE_KERNELS(tree_##type, Element, tree, UnevenArgs); \
  POLYPATH_SUM_KERNEL(tree_##type, Element, tree)
