// What handles and imported pointers are good for, and what is refused.
#include "ipc_test.hpp"
#include "mappings.hpp"

namespace polypath::sim::test {
namespace {

TEST_F(Ipc, ExportingProcess_CannotOpen) {
  CUipcMemHandle handle{};
  ASSERT_CUDA(cuIpcGetMemHandle(&handle, allocate(0, kMiB)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, try_open(handle));
}

TEST_F(Ipc, ImportBelongsToTheImportingContext) {
  Peer peer;
  const CUdeviceptr remote = open(peer.allocate(0, kBytes, 1), 1);
  int ordinal = -1;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, remote));
  EXPECT_EQ(1, ordinal);
  CUcontext of_pointer = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuPointerGetAttribute(&of_pointer, CU_POINTER_ATTRIBUTE_CONTEXT, remote));
  EXPECT_EQ(context(1), of_pointer);
  unsigned type = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, remote));
  EXPECT_EQ(unsigned{CU_MEMORYTYPE_DEVICE}, type);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemGetAddressRange(&base, &bytes, remote + 5));
  EXPECT_EQ(remote, base);
  EXPECT_EQ(kBytes, bytes);
}

TEST_F(Ipc, BoundsAreThoseOfTheExportedMemory) {
  Peer peer;
  const CUdeviceptr remote = open(peer.allocate(0, kBytes, 1), 1);
  const CUdeviceptr local = poisoned(1, 2 * kBytes);
  const CUstream stream = create_stream(1);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(local, remote, kBytes + 1, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(local, remote + 1, kBytes, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(local, remote - 1, 2, stream));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemFree(remote));
  CUipcMemHandle again{};
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&again, remote));
}

TEST_F(Ipc, NoChangedHandleIsOpened) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 1);
  for (std::size_t i = 0; i < sizeof handle; ++i) {
    CUipcMemHandle changed = handle;
    changed.reserved[i] = static_cast<char>(changed.reserved[i] ^ 1);
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, try_open(changed)) << "byte " << i;
  }
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, try_open(handle, 0));
  EXPECT_CUDA(CUDA_SUCCESS, try_open(handle));
}

TEST_F(Ipc, WithoutALinkThereIsNoImport) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(2, kBytes, 1);
  use(1);
  EXPECT_CUDA(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, try_open(handle));
  use(0);
  EXPECT_CUDA(CUDA_SUCCESS, try_open(handle));
}

TEST_F(Ipc, OnlyWholeDeviceMemoryIsExported) {
  use(0);
  CUipcMemHandle handle{};
  std::uint8_t local = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, device(&local)));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, device(allocate_host(4096))));
  CUdeviceptr pool = 0;
  ASSERT_CUDA(cuMemAllocAsync(&pool, kMiB, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&handle, pool));
  ASSERT_CUDA(cuMemFreeAsync(pool, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(nullptr, allocate(0, kMiB)));
  EXPECT_CUDA(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetEventHandle(nullptr, nullptr));
}

TEST_F(Ipc, ImportTakesNoGpuMemory) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 1);
  const auto free_bytes = [] {
    std::size_t bytes = 0;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemGetInfo(&bytes, nullptr));
    return bytes;
  };
  const std::size_t before = free_bytes();
  const CUdeviceptr remote = open(handle, 0);
  EXPECT_EQ(before, free_bytes());
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(remote));
  EXPECT_EQ(before, free_bytes());
}

TEST_F(Ipc, DeviceMemory_IsInaccessibleToHost) {
  Peer peer;
  EXPECT_EQ("---p", access_of(open(peer.allocate(0, kBytes, 1), 1)));
  EXPECT_EQ("---p", access_of(allocate(0, kBytes)));
}

}  // namespace
}  // namespace polypath::sim::test
