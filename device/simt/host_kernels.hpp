// The host builds of kernels, by the kernels' names.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace polypath::simt {

struct HostKernel {
  std::string name;
  unsigned max_threads = 0;  ///< of a block
  /// To how few threads a block may be folded where only results and time count; 0: not at all.
  unsigned folded_threads = 0;
  std::vector<std::size_t> parameter_bytes;
  /// What one thread runs; args[i] points to the i-th parameter.
  std::function<void(void* const* args)> entry;
};

template <typename... Parameters>
HostKernel make_host_kernel(const char* name, unsigned max_threads, void (*kernel)(Parameters...)) {
  return {name, max_threads, 0, {sizeof(Parameters)...}, [kernel](void* const* args) {
            [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
              kernel(*static_cast<Parameters*>(args[kIndex])...);
            }(std::index_sequence_for<Parameters...>{});
          }};
}

/// The host build of the kernel of that name; null when there is none.
const HostKernel* find_host_kernel(std::string_view name);

/// Adds a host build while the program is loaded, by SIMT_KERNEL.
struct HostKernelRegistration {
  explicit HostKernelRegistration(HostKernel kernel);
};
/// Says that a block of the kernel may be folded to `threads` threads, by SIMT_EMULATED_THREADS.
struct EmulatedThreads {
  EmulatedThreads(std::string_view name, unsigned threads);
};

}  // namespace polypath::simt
