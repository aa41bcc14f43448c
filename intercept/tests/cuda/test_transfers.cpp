// Copies of an ordinary program that really take several routes: every byte, from several threads
// at once, and with streams that are held back.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "node_test.hpp"

namespace polypath::preload::test {
namespace {

constexpr std::size_t kBytes = 8 * kMebibyte + 5;

class Transfers : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (IsSkipped()) return;
    near = allocate(0, kBytes);
    far = allocate(1, kBytes);
    host = allocate_host(kBytes);
  }

  struct Form {
    const char* name;
    CUdeviceptr dst;
    CUdeviceptr src;
    std::function<CUresult()> call;
  };

  CUdeviceptr near = 0;
  CUdeviceptr far = 0;
  std::uint8_t* host = nullptr;
};

TEST_F(Transfers, EveryForm_ArrivesOverSeveralRoutes) {
  const CUstream stream = create_stream(0);
  const std::vector<Form> forms{
      {"cuMemcpyAsync", far, near, [&] { return cuMemcpyAsync(far, near, kBytes, stream); }},
      {"cuMemcpyDtoDAsync", near, far,
       [&] { return cuMemcpyDtoDAsync(near, far, kBytes, stream); }},
      {"cuMemcpyHtoDAsync", near, device(host),
       [&] { return cuMemcpyHtoDAsync(near, host, kBytes, stream); }},
      {"cuMemcpyDtoHAsync", device(host), near,
       [&] { return cuMemcpyDtoHAsync(host, near, kBytes, stream); }},
      {"cuMemcpyPeerAsync", far, near,
       [&] { return cuMemcpyPeerAsync(far, context(1), near, context(0), kBytes, stream); }},
      {"cuMemcpyAsync, default stream", far, near,
       [&] { return cuMemcpyAsync(far, near, kBytes, nullptr); }},
      {"cuMemcpy", far, near, [&] { return cuMemcpy(far, near, kBytes); }},
      {"cuMemcpyDtoD", near, far, [&] { return cuMemcpyDtoD(near, far, kBytes); }},
      {"cuMemcpyHtoD", near, device(host), [&] { return cuMemcpyHtoD(near, host, kBytes); }},
      {"cuMemcpyDtoH", device(host), far, [&] { return cuMemcpyDtoH(host, far, kBytes); }},
      {"cuMemcpyPeer", near, far,
       [&] { return cuMemcpyPeer(near, context(0), far, context(1), kBytes); }},
  };
  std::uint64_t seed = 1;
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    const auto values = random_bytes(kBytes, ++seed);
    write(form.src, values);
    write(form.dst, std::vector<std::uint8_t>(kBytes, 0xEE));
    const auto before = simulated_copies();
    EXPECT_CUDA(form.call());
    EXPECT_CUDA(cuCtxSynchronize());
    if (before) {
      const std::uint64_t copies = *simulated_copies() - *before;
      const bool has_host = form.src == device(host) || form.dst == device(host);
      if (has_host || splits_between_gpus(kBytes)) {
        EXPECT_GT(copies, 2U) << "one is the native copy";
      } else {
        EXPECT_EQ(copies, 1U);
      }
    }
    EXPECT_EQ(values, read(form.dst, kBytes));
  }
  EXPECT_CUDA(cuStreamDestroy(stream));
}

// Memory that CUDA does not know: CPU threads copy it, and the driver never sees it.
TEST_F(Transfers, PageableForms_TakeSeveralCopies) {
  const CUstream stream = create_stream(0);
  std::vector<std::uint8_t> memory(kBytes + 3);
  std::uint8_t* const pageable = memory.data() + 3;
  const CUdeviceptr unified = device(pageable);
  const auto rows = [&](bool is_to_gpu) {
    CUDA_MEMCPY2D shape{};
    shape.srcMemoryType = is_to_gpu ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    shape.dstMemoryType = is_to_gpu ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    shape.srcHost = shape.dstHost = pageable;
    shape.srcDevice = shape.dstDevice = near;
    shape.srcPitch = shape.dstPitch = shape.WidthInBytes = kBytes;
    shape.Height = 1;
    return cuMemcpy2D(&shape);
  };
  const std::vector<Form> forms{
      {"cuMemcpyHtoD", near, unified, [&] { return cuMemcpyHtoD(near, pageable, kBytes); }},
      {"cuMemcpyHtoDAsync", near, unified,
       [&] { return cuMemcpyHtoDAsync(near, pageable, kBytes, stream); }},
      {"cuMemcpyHtoDAsync, default stream", far, unified,
       [&] { return cuMemcpyHtoDAsync(far, pageable, kBytes, nullptr); }},
      {"cuMemcpy", near, unified, [&] { return cuMemcpy(near, unified, kBytes); }},
      {"cuMemcpyAsync", far, unified, [&] { return cuMemcpyAsync(far, unified, kBytes, stream); }},
      {"cuMemcpy2D", near, unified, [&] { return rows(true); }},
      {"cuMemcpyDtoH", unified, near, [&] { return cuMemcpyDtoH(pageable, near, kBytes); }},
      {"cuMemcpyDtoHAsync", unified, near,
       [&] { return cuMemcpyDtoHAsync(pageable, near, kBytes, stream); }},
      {"cuMemcpy back", unified, far, [&] { return cuMemcpy(unified, far, kBytes); }},
      {"cuMemcpyAsync back", unified, near,
       [&] { return cuMemcpyAsync(unified, near, kBytes, stream); }},
      {"cuMemcpy2D back", unified, near, [&] { return rows(false); }},
  };
  std::uint64_t seed = 60;
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    const auto values = random_bytes(kBytes, ++seed);
    const bool is_to_gpu = form.src == unified;
    if (is_to_gpu)
      std::ranges::copy(values, pageable);
    else
      write(form.src, values);
    if (is_to_gpu)
      write(form.dst, std::vector<std::uint8_t>(kBytes, 0xEE));
    else
      std::fill_n(pageable, kBytes, std::uint8_t{0xEE});
    const auto before = simulated_copies();
    const std::uint64_t natively = before ? polypath_sim_pageable_copies() : 0;
    EXPECT_CUDA(form.call());
    // The source has been read, or the destination written, when the call returns.
    const std::vector<std::uint8_t> back(pageable, pageable + kBytes);
    std::fill_n(pageable, kBytes, std::uint8_t{0x77});
    EXPECT_CUDA(cuCtxSynchronize());
    if (before) {
      EXPECT_GT(*simulated_copies(), *before + 2) << "one is the native copy";
      EXPECT_EQ(natively, polypath_sim_pageable_copies());
    }
    EXPECT_TRUE(values == (is_to_gpu ? read(form.dst, kBytes) : back));
  }
  EXPECT_CUDA(cuStreamDestroy(stream));
}

/// The threads of this process besides the calling one that would take one of the signals.
std::vector<std::string> threads_that_take(std::uint64_t signals) {
  std::vector<std::string> names;
  const std::string own = std::to_string(gettid());
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == own) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:") && (~std::stoull(line.substr(7), nullptr, 16) & signals) != 0)
        names.push_back(task.path().filename());
  }
  return names;
}

// A program may block a signal later, in all threads that it knows of, and wait for it.
TEST_F(Transfers, LeaveSignalsAndErrnoToTheProgram) {
  errno = EXDEV;
  EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, nullptr));
  EXPECT_EQ(EXDEV, errno);
  EXPECT_CUDA(cuCtxSynchronize());
  if (!simulated_copies()) return;  // the driver has threads of its own
  EXPECT_EQ(std::vector<std::string>{},
            threads_that_take((1U << (SIGUSR1 - 1)) | (1U << (SIGTERM - 1))));
}

TEST_F(Transfers, WithoutAContextAreRefusedAsByTheDriver) {
  const CUstream stream = create_stream(0);
  EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, stream));
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_CUDA(cuCtxSetCurrent(nullptr));
  // On GPUs this one succeeds (4 x H200, driver 580).
  if (simulated_copies()) {
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyAsync(far, near, kBytes, stream));
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy(far, near, kBytes));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer(far, context(1), near, context(0), kBytes));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(context(1)));
  use(0);
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxDisablePeerAccess(nullptr));
  EXPECT_CUDA(cuStreamDestroy(stream));
}

// The reset of a GPU waits for that one, and for no other: here for none that does anything.
TEST_F(Transfers, GoOnWhileAnotherGpuIsReset) {
  if (gpus < 3 || std::getenv("POLYPATH_ROUTES") == nullptr)
    GTEST_SKIP() << "needs a GPU that no route goes by way of";
  const auto values = random_bytes(kBytes, 12);
  write(near, values);
  auto* const word = reinterpret_cast<std::uint32_t*>(allocate_host(4096));
  *word = 0;
  const CUstream held = create_stream(0);
  const CUstream stream = create_stream(0);
  for (int round = 0; round < 2; ++round) {
    write(far, std::vector<std::uint8_t>(kBytes, 0xEE));
    const auto before = simulated_copies();
    EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, stream));
    if (before) {
      EXPECT_GT(*simulated_copies(), *before + 2) << "one is the native copy";
    }
    EXPECT_CUDA(cuStreamSynchronize(stream));
    write(far, std::vector<std::uint8_t>(kBytes, 0xEE));
    EXPECT_CUDA(cuStreamWaitValue32(held, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
    EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, held));
    EXPECT_CUDA(cuDevicePrimaryCtxReset(gpus - 1));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    EXPECT_CUDA(cuStreamSynchronize(held));
    EXPECT_EQ(values, read(far, kBytes));
    __atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
  }
  EXPECT_CUDA(cuStreamDestroy(stream));
  EXPECT_CUDA(cuStreamDestroy(held));
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(gpus - 1));
  EXPECT_CUDA(cuDevicePrimaryCtxRetain(&contexts.back(), gpus - 1));
}

// The order of a stream: each copy sees what the one before it wrote, and what follows
// sees its bytes.
TEST_F(Transfers, FollowEachOtherOnTheirStream) {
  const CUstream stream = create_stream(0);
  const CUdeviceptr middle = allocate(gpus - 1, kBytes);
  std::uint8_t* const back = allocate_host(kBytes);
  for (std::uint64_t round = 0; round < 4; ++round) {
    std::ranges::copy(random_bytes(kBytes, 100 + round), host);
    std::fill_n(back, kBytes, std::uint8_t{0xEE});
    EXPECT_CUDA(cuMemcpyHtoDAsync(near, host, kBytes, stream));
    EXPECT_CUDA(cuMemcpyDtoDAsync(middle, near, kBytes, stream));
    EXPECT_CUDA(cuMemsetD8Async(near, 0x11, kBytes, stream));
    EXPECT_CUDA(cuMemcpyAsync(far, middle, kBytes, stream));
    EXPECT_CUDA(cuMemcpyDtoHAsync(back, far, kBytes, stream));
    EXPECT_CUDA(cuStreamSynchronize(stream));
    EXPECT_TRUE(std::equal(back, back + kBytes, host));
  }
  EXPECT_CUDA(cuStreamDestroy(stream));
}

// The engine enables it as well, in the same contexts, and needs it to the end.
TEST_F(Transfers, LeavePeerAccessToTheProgram) {
  const auto copy = [&] {
    const auto values = random_bytes(kBytes, 11);
    write(near, values);
    write(far, std::vector<std::uint8_t>(kBytes, 0xEE));
    EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, nullptr));
    EXPECT_CUDA(cuCtxSynchronize());
    EXPECT_EQ(values, read(far, kBytes));
  };
  copy();  // the engine is there now
  const CUcontext peer = context(1);
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(peer, 0));
  for (int round = 0; round < 2; ++round) {
    EXPECT_CUDA(cuCtxDisablePeerAccess(peer));
    EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(peer));
    copy();
    EXPECT_CUDA(cuCtxEnablePeerAccess(peer, 0));
    EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(peer, 0));
  }
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(context(0), 0));
}

// With the program's last reference its context goes, and peer access with that. The engine holds
// the context.
TEST_F(Transfers, PeerAccessEndsWithTheProgramsReferences) {
  write(near, std::vector<std::uint8_t>(kBytes, 0xEE));
  EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, nullptr));
  EXPECT_CUDA(cuCtxSynchronize());  // the engine is there now
  CUdevice device = 0;
  EXPECT_CUDA(cuDeviceGet(&device, 1));
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context(1), 0));
  CUcontext again = nullptr;
  EXPECT_CUDA(cuDevicePrimaryCtxRetain(&again, device));
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(device));
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(context(1), 0));
  // Where the engine holds no reference its memory goes with the context.
  EXPECT_CUDA(cuMemFree(far));
  std::erase_if(memories, [](const auto& memory) { return memory.first == 1; });
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(device));
  EXPECT_CUDA(cuDevicePrimaryCtxRetain(&again, device));
  EXPECT_CUDA(cuCtxEnablePeerAccess(again, 0));
  EXPECT_EQ(context(1), again);
}

// A stream that is held back holds no other one: it waits for a word that the program writes only
// after copies on its other streams, more of them than there are streams of any link, have come
// through.
TEST_F(Transfers, PassByAHeldStream) {
  constexpr int kMany = 6;
  const auto values = random_bytes(kBytes, 7);
  write(near, values);
  auto* const word = reinterpret_cast<std::uint32_t*>(allocate_host(4096));
  *word = 0;
  const CUstream held = create_stream(0);
  std::vector<CUdeviceptr> behind;
  std::vector<CUdeviceptr> free;
  std::vector<CUstream> streams;
  for (int i = 0; i < kMany; ++i) {
    behind.push_back(allocate(1, kBytes));
    free.push_back(allocate(1, kBytes));
    streams.push_back(create_stream(i % gpus));
  }
  const std::vector<std::uint8_t> poison(kBytes, 0xEE);
  for (const CUdeviceptr memory : behind) write(memory, poison);
  for (const CUdeviceptr memory : free) write(memory, poison);
  // The routes are ready.
  EXPECT_CUDA(cuMemcpyAsync(far, near, kBytes, streams[0]));
  EXPECT_CUDA(cuStreamSynchronize(streams[0]));

  EXPECT_CUDA(cuStreamWaitValue32(held, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  for (const CUdeviceptr memory : behind) EXPECT_CUDA(cuMemcpyAsync(memory, near, kBytes, held));
  const auto before = simulated_copies();
  for (std::size_t i = 0; i < free.size(); ++i) {
    EXPECT_CUDA(cuMemcpyAsync(free[i], near, kBytes, streams[i]));
    EXPECT_CUDA(cuStreamSynchronize(streams[i]));
  }
  if (before) {
    EXPECT_GE(*simulated_copies(), *before + kMany);
  }
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(held));
  __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
  EXPECT_CUDA(cuStreamSynchronize(held));
  for (const CUdeviceptr memory : free) EXPECT_EQ(values, read(memory, kBytes));
  for (const CUdeviceptr memory : behind) EXPECT_EQ(values, read(memory, kBytes));
  for (const CUstream stream : streams) EXPECT_CUDA(cuStreamDestroy(stream));
  EXPECT_CUDA(cuStreamDestroy(held));
}

// Threads that begin at once, with copies of all directions, forms and sizes at random.
TEST_F(Transfers, ManyThreads_AllArrive) {
  constexpr int kThreads = 6;
  constexpr int kCopies = 12;
  constexpr std::size_t kMaxBytes = 6 * kMebibyte;
  struct Buffers {
    CUdeviceptr near;
    CUdeviceptr far;
    std::uint8_t* sent;
    std::uint8_t* received;
    CUstream stream;
  };
  std::vector<Buffers> all;
  for (int i = 0; i < kThreads; ++i)
    all.push_back({allocate(0, kMaxBytes), allocate(1, kMaxBytes), allocate_host(kMaxBytes),
                   allocate_host(kMaxBytes), create_stream(0)});
  const auto before = simulated_copies();
  {
    std::vector<std::jthread> threads;
    for (const Buffers& buffers : all)
      threads.emplace_back([&, seed = static_cast<std::uint32_t>(threads.size())] {
        use(0);
        std::mt19937 random(seed);
        for (int copy = 0; copy < kCopies; ++copy) {
          const std::size_t bytes = kMebibyte / 2 + random() % (kMaxBytes - kMebibyte / 2);
          const auto values = random_bytes(bytes, random());
          std::ranges::copy(values, buffers.sent);
          std::fill_n(buffers.received, bytes, std::uint8_t{0xEE});
          EXPECT_CUDA(cuMemcpyHtoDAsync(buffers.near, buffers.sent, bytes, buffers.stream));
          EXPECT_CUDA(copy % 2 == 0
                          ? cuMemcpyDtoDAsync(buffers.far, buffers.near, bytes, buffers.stream)
                          : cuMemcpyPeerAsync(buffers.far, context(1), buffers.near, context(0),
                                              bytes, buffers.stream));
          EXPECT_CUDA(cuMemcpyDtoHAsync(buffers.received, buffers.far, bytes, buffers.stream));
          EXPECT_CUDA(cuStreamSynchronize(buffers.stream));
          EXPECT_TRUE(std::equal(values.begin(), values.end(), buffers.received)) << bytes;
        }
      });
  }
  if (before) {
    EXPECT_GT(*simulated_copies(), *before + 2 * 3 * kThreads * kCopies) << "most are split";
  }
  for (const Buffers& buffers : all) EXPECT_CUDA(cuStreamDestroy(buffers.stream));
}

}  // namespace
}  // namespace polypath::preload::test
