// How long memory of another process can be opened, and stays open.
#include "ipc_test.hpp"

namespace polypath::sim::test {
namespace {

TEST_F(Ipc, EachContextHasOneImportOfItsOwn) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 1);
  const CUdeviceptr first = open(handle, 1);
  EXPECT_EQ(first, open(handle, 1));
  const CUdeviceptr other = open(handle, 0);
  EXPECT_NE(first, other);
  // Each opening has to be closed.
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(first));
  EXPECT_TRUE(pattern(kBytes, 1) == peek(first, kBytes));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(first));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(first));
  std::uint8_t byte = 0;
  EXPECT_EQ(-1, polypath_sim_peek(first, &byte, 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(other));
}

TEST_F(Ipc, FreedMemoryCannotBeOpened) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 1);
  peer.free();
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, try_open(handle));
  // Nor is the next allocation, at the same file number, taken for it.
  const CUipcMemHandle next = peer.allocate(0, kBytes, 2);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, try_open(handle));
  const CUdeviceptr remote = open(next, 0);
  EXPECT_TRUE(pattern(kBytes, 2) == peek(remote, kBytes));
}

TEST_F(Ipc, ExportedMemory_IsNotReused) {
  Peer peer;
  const CUdeviceptr remote = open(peer.allocate(0, kBytes, 1), 0);
  peer.free();
  peer.allocate(0, kBytes, 2);
  EXPECT_TRUE(pattern(kBytes, 1) == peek(remote, kBytes));
}

TEST_F(Ipc, KilledProcess_LeavesNoFiles) {
  const int files_before = files();
  const auto in_shm = [] {
    const auto all = std::filesystem::directory_iterator("/dev/shm");
    std::vector<std::string> names;
    for (const auto& entry : all)
      if (entry.path().filename().string().find("polypath-sim") != std::string::npos)
        names.push_back(entry.path().filename().string());
    return names;
  };
  const auto shm_before = in_shm();
  {
    Peer peer;
    const CUipcMemHandle handle = peer.allocate(0, kBytes, 51);
    const CUdeviceptr remote = open(handle, 1);
    peer.kill();
    // What was imported before stays until it is closed; no process can open it anew.
    EXPECT_TRUE(pattern(kBytes, 51) == peek(remote, kBytes));
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, try_open(handle));
    EXPECT_CUDA(CUDA_SUCCESS, cuIpcCloseMemHandle(remote));
  }
  EXPECT_EQ(files_before, files());
  EXPECT_EQ(shm_before, in_shm());
}

TEST_F(Ipc, DestroyedContext_ClosesItsImports) {
  Peer peer;
  const CUipcMemHandle handle = peer.allocate(0, kBytes, 1);
  const int files_before = files();
  CUcontext own = nullptr;
  ASSERT_CUDA(cuCtxCreate(&own, nullptr, 0, 1));
  ASSERT_CUDA(try_open(handle));
  EXPECT_EQ(files_before + 1, files());
  ASSERT_CUDA(cuCtxDestroy(own));
  EXPECT_EQ(files_before, files());
}

}  // namespace
}  // namespace polypath::sim::test
