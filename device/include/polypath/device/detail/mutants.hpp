// Defects that polypath's own tests switch on in code that they run on the host, to see that they
// find them. Elsewhere, and on GPUs, there are none.
//
//   enum class Fault { none, ... };                       // next to the kernels
//   if (!planted(Fault::no_fence)) fence_sys();           // in them
//   active_mutant<Fault> = Fault::no_fence;               // in a test, in no other program
#pragma once

namespace polypath {

#if defined(POLYPATH_MUTANTS)
template <typename Fault>
inline Fault active_mutant = Fault::none;
template <typename Fault>
bool has_mutant(Fault fault) {
  return active_mutant<Fault> == fault;
}
#elif defined(__CUDACC__)
template <typename Fault>
__device__ constexpr bool has_mutant(Fault) {
  return false;
}
#else
template <typename Fault>
constexpr bool has_mutant(Fault) {
  return false;
}
#endif

}  // namespace polypath
