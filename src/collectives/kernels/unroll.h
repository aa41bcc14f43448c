// How loops over ranks, words and bytes are compiled.
//   POLYPATH_UNROLL     before one whose arrays are to stay in registers
//   POLYPATH_NO_UNROLL  before one that is seldom run, to keep the code small
#pragma once

#if defined(__CUDACC__)
#define POLYPATH_UNROLL _Pragma("unroll")
#define POLYPATH_NO_UNROLL _Pragma("unroll 1")
#else
#define POLYPATH_UNROLL
#define POLYPATH_NO_UNROLL
#endif
