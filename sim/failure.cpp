#include "failure.hpp"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace polypath::sim {

void fail_not_supported(const char* what) {
  static std::mutex mutex;
  static std::set<std::string> said;
  {
    const std::lock_guard lock(mutex);
    if (said.insert(what).second) std::fprintf(stderr, "polypath_sim: not supported: %s\n", what);
  }
  throw Failure{CUDA_ERROR_NOT_SUPPORTED};
}

}  // namespace polypath::sim
