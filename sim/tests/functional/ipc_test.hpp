// The fixture of the tests of memory of other processes.
#pragma once

#include <filesystem>
#include <iterator>

#include "fixture.hpp"
#include "peer.hpp"

namespace polypath::sim::test {

inline constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
inline constexpr std::size_t kBytes = 5 * kMiB + 77;

class Ipc : public SimTest {
 protected:
  /// The memory after the handle, opened in the context of `gpu`.
  CUdeviceptr open(const CUipcMemHandle& handle, int gpu) {
    use(gpu);
    CUdeviceptr address = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuIpcOpenMemHandle(&address, handle, kLazy));
    use(0);
    return address;
  }

  static CUresult try_open(const CUipcMemHandle& handle, unsigned flags = kLazy) {
    CUdeviceptr address = 0;
    return cuIpcOpenMemHandle(&address, handle, flags);
  }

  /// Copies on a stream of `gpu`, and waits.
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, int gpu) {
    const CUstream stream = create_stream(gpu);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(to, from, bytes, stream));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  }

  CUdeviceptr poisoned(int gpu, std::size_t bytes) {
    const CUdeviceptr address = allocate(gpu, bytes);
    write(address, std::vector<std::uint8_t>(bytes, 0xEE));
    return address;
  }

  static int files() {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return static_cast<int>(std::distance(begin(all), end(all)));
  }
};

}  // namespace polypath::sim::test
