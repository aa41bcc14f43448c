// The collectives of all element types; `bytes` combine nothing, and integers have a sign or none.
// Then those that combine as a tree, and those of uneven parts. Few programs need them, so they
// have images of their own, and the others stay as they are.
// The CUDA compiler takes half a minute for one type, so it compiles this file once for each
// (POLYPATH_KERNELS_OF_type); the host build has all.
#include "collectives/kernels/collective_kernels.cuh"

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_bytes)
POLYPATH_EVEN_KERNELS(bytes, polypath::Bytes);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_int8)
POLYPATH_COMBINING_KERNELS(int8, std::uint8_t);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_int32)
POLYPATH_COMBINING_KERNELS(int32, std::uint32_t);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_int64)
POLYPATH_COMBINING_KERNELS(int64, std::uint64_t);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_float16)
POLYPATH_COMBINING_KERNELS(float16, polypath::simt::float16);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_bfloat16)
POLYPATH_COMBINING_KERNELS(bfloat16, polypath::simt::bfloat16);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_float32)
POLYPATH_COMBINING_KERNELS(float32, float);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_float64)
POLYPATH_COMBINING_KERNELS(float64, double);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_tree_float16)
POLYPATH_TREE_KERNELS(float16, polypath::simt::float16);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_tree_bfloat16)
POLYPATH_TREE_KERNELS(bfloat16, polypath::simt::bfloat16);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_tree_float32)
POLYPATH_TREE_KERNELS(float32, float);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_tree_float64)
POLYPATH_TREE_KERNELS(float64, double);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_bytes)
POLYPATH_UNEVEN_KERNELS(bytes, polypath::Bytes);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_int8)
POLYPATH_UNEVEN_KERNELS(int8, std::uint8_t);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_int32)
POLYPATH_UNEVEN_KERNELS(int32, std::uint32_t);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_int64)
POLYPATH_UNEVEN_KERNELS(int64, std::uint64_t);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_float16)
POLYPATH_UNEVEN_KERNELS(float16, polypath::simt::float16);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_bfloat16)
POLYPATH_UNEVEN_KERNELS(bfloat16, polypath::simt::bfloat16);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_float32)
POLYPATH_UNEVEN_KERNELS(float32, float);
#endif

#if !defined(__CUDACC__) || defined(POLYPATH_KERNELS_OF_uneven_float64)
POLYPATH_UNEVEN_KERNELS(float64, double);
#endif
