// Launch modes: which a program runs in, and kernels that communicate themselves. Those of these
// programs do so over polypath: the backend is that, or has chosen it.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "gpu.hpp"

namespace uniconn_example {

template <uc::BackendLibrary B>
constexpr bool kKernelsSend =
    std::is_same_v<B, uc::PolypathBackend> ||
    requires(uc::Communicator<B>& comm) { comm.template toDevice<uc::PolypathBackend>(); };

/// What kernels have of a communicator; collective.
template <uc::BackendLibrary B>
  requires kKernelsSend<B>
void* comm_of_kernels(uc::Communicator<B>& comm) {
  if constexpr (std::is_same_v<B, uc::PolypathBackend>) {
    return comm.toDevice();
  } else {
    return comm.template toDevice<uc::PolypathBackend>();
  }
}

/// Throws where the driver, or this build, has no kernels.
inline CUfunc_st* kernel_that_sends(const Gpu& gpu, std::span<const unsigned char> image,
                                    const char* name) {
  CUmod_st* const module = gpu.load(image, name);
  if (module == nullptr)
    throw std::runtime_error("this driver, or this build, has no kernel for this launch mode");
  return gpu.kernel(module, name);
}

/// Calls `body` with the launch mode of this name, as a std::integral_constant. Throws where there
/// is none, or no kernel for it.
template <uc::BackendLibrary B, typename Body>
void in_mode(const std::string& mode, const Body& body) {
  using uc::LaunchMode;
  if (mode == "host") return body(std::integral_constant<LaunchMode, LaunchMode::PureHost>{});
  if (mode != "partial" && mode != "device")
    throw std::runtime_error("--mode is host, partial or device");
  if constexpr (kKernelsSend<B>) {
    if (mode == "partial")
      return body(std::integral_constant<LaunchMode, LaunchMode::PartialDevice>{});
    return body(std::integral_constant<LaunchMode, LaunchMode::PureDevice>{});
  } else {
    throw std::runtime_error("--mode " + mode +
                             ": the kernels of this program communicate over polypath alone");
  }
}

}  // namespace uniconn_example
