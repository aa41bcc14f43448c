// What the device headers need of the host's. C++20: Communicator and Coordinator as the host has
// them, so that a file may hold host and device code. C++17 has them for kernels alone.
#pragma once

#include "polypath/uniconn/device_calls.hpp"
#if __cplusplus >= 202002L
#include "polypath/uniconn/coordinator.hpp"
#else

namespace polypath::uniconn {

struct GpucclBackend;
struct GpushmemBackend;
struct PolypathBackend;
/// What toDevice() gave.
template <typename B>
class Communicator {
 public:
  [[nodiscard]] POLYPATH_UNICONN_DEVICE int GlobalSize() const {
    return detail::DeviceVerbs<B>::size(this);
  }
  [[nodiscard]] POLYPATH_UNICONN_DEVICE int GlobalRank() const {
    return detail::DeviceVerbs<B>::rank(this);
  }
  /// One group of each rank comes to it.
  template <ThreadGroup G>
  POLYPATH_UNICONN_DEVICE void Barrier() const {
    detail::DeviceVerbs<B>::template barrier<G>(this);
  }
};
template <typename B, LaunchMode = LaunchMode::PureHost>
using Coordinator = DeviceCalls<B>;

}  // namespace polypath::uniconn

#endif
