// Defects that polypath's own tests switch on in code that they run on the host, to see that they
// find them. Elsewhere, and on GPUs, there are none.
//
//   enum class Fault { none, ... };                       // beside the kernels
//   if (!planted(Fault::no_fence)) fence_sys();           // in them
//   planted_fault<Fault> = Fault::no_fence;               // in a test, in no other program
#pragma once

namespace polypath {

#if defined(POLYPATH_PLANTED_FAULTS)
template <typename Fault>
inline Fault planted_fault = Fault::none;
template <typename Fault>
bool planted(Fault fault) {
  return planted_fault<Fault> == fault;
}
#elif defined(__CUDACC__)
template <typename Fault>
__device__ constexpr bool planted(Fault) {
  return false;
}
#else
template <typename Fault>
constexpr bool planted(Fault) {
  return false;
}
#endif

}  // namespace polypath
