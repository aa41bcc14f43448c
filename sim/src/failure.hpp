// How the code below the C functions reports an error: it throws a Failure, the C function returns
// its code.
#pragma once

#include "cuda_api.hpp"

namespace polypath::sim {

struct Failure {
  CUresult code;
};

/// Throws Failure{code} unless `holds`.
inline void require(bool holds, CUresult code) {
  if (!holds) throw Failure{code};
}

/// Says on stderr, once for each text, that the simulated driver does not do this, and throws
/// CUDA_ERROR_NOT_SUPPORTED.
[[noreturn]] void fail_not_supported(const char* what);

}  // namespace polypath::sim
