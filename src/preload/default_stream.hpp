// The default stream between GPUs: CUDA lets a copy on it from the memory of one GPU to that of another wait
// for all that either GPU was given before, and lets all that either is given later wait for the copy (CUDA C++
// Programming Guide, "Peer-to-Peer Memory Copy"). The engine knows the order of one stream only; this adds the
// other GPUs' to it.
#pragma once

#include <cstddef>

#include "preload/copy.hpp"

namespace polypath::preload {

class DefaultStreamOrder {
 public:
  /// Before the copy: makes the current context's default stream wait for those of the other contexts that the
  /// two memories belong to. False when that cannot be: the copy has to be the driver's.
  [[nodiscard]] bool begin(const Copy& copy) noexcept;

  /// After it: makes them wait for the copy.
  [[nodiscard]] CUresult end() noexcept;

 private:
  [[nodiscard]] bool add_other_context(CUdeviceptr address) noexcept;

  CUcontext others_[2] = {};
  std::size_t count_ = 0;
};

}  // namespace polypath::preload
