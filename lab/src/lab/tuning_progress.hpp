// What the C API's tuners report to.
#pragma once

#include <polypath/lab.h>

#include "lab/tuning.hpp"

namespace polypath {

/// Empty for null.
inline TuningProgress progress_of(polypath_tune_progress progress, void* user) {
  if (progress == nullptr) return {};
  return [=](std::size_t done, std::size_t total, double left, const std::string& what) {
    return progress(done, total, left, what.c_str(), user) == 0;
  };
}

}  // namespace polypath
