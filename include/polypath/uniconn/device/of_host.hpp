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
template <typename B>
class Communicator;
template <typename B, LaunchMode = LaunchMode::PureHost>
using Coordinator = DeviceCalls<B>;

}  // namespace polypath::uniconn

#endif
