// Mutants: defects that polypath's own tests switch on in code that they run on the host, to see
// that they find them. Programs and GPUs have none: an install leaves out this file, and all lines
// of other headers that name it or one of its macros (cmake/strip_mutants.cmake).
//
//   enum class x_mutant { none, ... };                      // below
//   POLYPATH_MUTANT_OMITS(x_mutant::no_fence)               // in the code, on a line of its own
//   fence_sys();
//   active_mutant<x_mutant> = x_mutant::no_fence;           // in a test, in no other program
//
// Each is a whole line of at most 100 columns, without a semicolon:
//   POLYPATH_MUTANT(mutant, statements)        the mutant also executes the statements
//   POLYPATH_MUTANT_OMITS(mutant)              ... does not execute the next statement
//   POLYPATH_MUTANT_ELSE(mutant, statements)   ... executes these in place of the next statement
//   POLYPATH_MUTANT_ONLY(declaration)          what mutants need, and nothing else
#pragma once

#if defined(POLYPATH_MUTANTS)
#define POLYPATH_MUTANT(mutant, ...) \
  if (has_mutant(mutant)) {          \
    __VA_ARGS__;                     \
  }
#define POLYPATH_MUTANT_ELSE(mutant, ...) POLYPATH_MUTANT(mutant, __VA_ARGS__) else
#define POLYPATH_MUTANT_OMITS(mutant) POLYPATH_MUTANT(mutant, ) else
#define POLYPATH_MUTANT_ONLY(...) __VA_ARGS__;
#else
#define POLYPATH_MUTANT(mutant, ...)
#define POLYPATH_MUTANT_ELSE(mutant, ...)
#define POLYPATH_MUTANT_OMITS(mutant)
#define POLYPATH_MUTANT_ONLY(...)
#endif

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
