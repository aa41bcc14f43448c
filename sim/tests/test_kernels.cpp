// Kernels on the simulated node: launches, what they move over which links, order, graphs,
// failures. Runs in virtual time, and in functional mode as well.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "fixture.hpp"
#include "kernels_of_tests.h"

namespace polypath::sim::test {
namespace {

constexpr const char* kImage = "polypath: kernels of tests";

bool is_functional() {
  const char* const mode = std::getenv("POLYPATH_SIM_MODE");
  return mode != nullptr && std::string_view(mode) == "functional";
}

class Kernels : public SimTest {
 protected:
  CUfunction function(int gpu, const char* name) {
    use(gpu);
    CUmodule module = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuModuleLoadData(&module, kImage));
    CUfunction function = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuModuleGetFunction(&function, module, name));
    use(0);
    return function;
  }

  template <typename... Arguments>
  CUresult launch(CUfunction kernel, unsigned blocks, unsigned threads, CUstream stream,
                  Arguments... arguments) {
    void* parameters[] = {&arguments...};
    return cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
  }

  template <typename T>
  std::vector<T> read(CUdeviceptr from, std::size_t count) {
    std::vector<T> values(count);
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoH(values.data(), from, count * sizeof(T)));
    return values;
  }

  template <typename T>
  void write(CUdeviceptr to, const std::vector<T>& values) {
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoD(to, values.data(), values.size() * sizeof(T)));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(nullptr));  // it may land after the call
  }
};

TEST_F(Kernels, RunInTheOrderOfTheirStream) {
  const CUfunction add = function(0, "test_add");
  const CUdeviceptr words = allocate(0, 1000 * 4);
  const CUstream stream = create_stream(0);
  write(words, std::vector<std::uint32_t>(1000, 7));
  for (std::uint32_t value : {1U, 10U, 100U})
    ASSERT_CUDA(launch(add, 3, 64, stream, words, 1000U, value));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint32_t>(1000, 118), read<std::uint32_t>(words, 1000));
}

TEST_F(Kernels, RunAllThreadsOrTheFewestEmulated) {
  const CUfunction counts = function(0, "test_count_threads");
  const CUdeviceptr count = allocate(0, 4);
  write(count, std::vector<std::uint32_t>{0});
  ASSERT_CUDA(launch(counts, 2, 128, nullptr, count));
  ASSERT_CUDA(cuCtxSynchronize());
  const bool folds = !is_functional() || std::getenv("POLYPATH_SIM_BLOCKS") != nullptr;
  EXPECT_EQ(read<std::uint32_t>(count, 1).front(), folds ? 64U : 256U);
}

// The stages of a sum over four GPUs: every byte, and by which links they went.
class PushSum : public Kernels {
 protected:
  static constexpr unsigned kRanks = 4;

  void prepare(std::size_t floats, unsigned blocks_) {
    count = floats;
    blocks = blocks_;
    word = reinterpret_cast<std::uint32_t*>(allocate_host(4));
    *word = 0;
    for (unsigned r = 0; r < kRanks; ++r) {
      const int gpu = static_cast<int>(r);
      for (int peer = 0; peer < static_cast<int>(kRanks); ++peer)
        if (peer != gpu) enable_peer(gpu, peer);
      in.push_back(allocate(gpu, count * 4));
      out.push_back(allocate(gpu, count * 4));
      scratch.push_back(allocate(gpu, 2 * count * 4));
      flags.push_back(allocate(gpu, 2 * kRanks * blocks * 8));
      use(gpu);
      write(flags.back(), std::vector<std::uint64_t>(2 * kRanks * blocks, 0));
      streams.push_back(create_stream(gpu));
      kernels.push_back(function(gpu, "test_push_sum"));
    }
    use(0);
  }

  PushArgs args_of(unsigned rank, std::uint64_t round) const {
    PushArgs args{};
    args.rank = rank;
    args.ranks = kRanks;
    args.round = round;
    args.count = count;
    args.in = std::bit_cast<const float*>(in[rank]);
    args.out = std::bit_cast<float*>(out[rank]);
    args.abort = word;
    for (unsigned r = 0; r < kRanks; ++r) {
      args.scratch[r] = std::bit_cast<float*>(scratch[r]);
      args.flags[r] = std::bit_cast<std::uint64_t*>(flags[r]);
    }
    return args;
  }

  void launch_on(unsigned rank, std::uint64_t round) {
    // Every thread is one in functional mode with a seed; virtual time folds blocks.
    const unsigned threads = is_functional() ? 64 : 512;
    use(static_cast<int>(rank));
    ASSERT_CUDA(launch(kernels[rank], blocks, threads, streams[rank], args_of(rank, round)));
  }

  void synchronize() {
    for (const CUstream stream : streams) ASSERT_CUDA(cuStreamSynchronize(stream));
  }

  /// Fills the sources; returns what every rank's result has to be.
  std::vector<float> fill(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> sum(count, 0);
    for (unsigned r = 0; r < kRanks; ++r) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(random() % 100000) * 0.37F;
        sum[i] = r == 0 ? values[i] : sum[i] + values[i];
      }
      use(static_cast<int>(r));
      write(in[r], values);
      write(out[r], std::vector<float>(count, -7));
    }
    use(0);
    return sum;
  }

  void expect_results(const std::vector<float>& sum) {
    for (unsigned r = 0; r < kRanks; ++r) {
      use(static_cast<int>(r));
      EXPECT_TRUE(sum == read<float>(out[r], count)) << "rank " << r;
    }
    use(0);
  }

  std::size_t count = 0;
  unsigned blocks = 0;
  std::uint32_t* word = nullptr;
  std::vector<CUdeviceptr> in, out, scratch, flags;
  std::vector<CUstream> streams;
  std::vector<CUfunction> kernels;
};

TEST_F(PushSum, MovesEveryByteOverTheLinks) {
  prepare(std::size_t{1} << 18, 8);
  for (unsigned round = 1; round <= 3; ++round) {
    const std::vector<float> sum = fill(round);
    polypath_sim_reset_counters();
    for (unsigned r = kRanks; r-- > 0;) launch_on(r, round);
    synchronize();
    expect_results(sum);
    if (is_functional()) continue;
    // A slice out and a result out to each of the others, and flags.
    const std::uint64_t bulk = 2 * count * 4 / kRanks;
    const std::uint64_t moved = polypath_sim_link_bytes("gpu1", "gpu2");
    EXPECT_EQ(bulk + 2 * blocks * 8, moved);
  }
}

// In virtual time: the ports carry 3/4 of the bytes twice, at switch_share of 396 GB/s.
TEST_F(PushSum, TakesTheTimeOfItsBytes) {
  if (is_functional()) GTEST_SKIP() << "figures are of virtual time";
  prepare(std::size_t{4} << 20, 64);
  const std::vector<float> sum = fill(1);
  std::vector<CUevent> begins;
  std::vector<CUevent> ends;
  for (unsigned r = 0; r < kRanks; ++r) {
    use(static_cast<int>(r));
    begins.push_back(create_event(static_cast<int>(r)));
    ends.push_back(create_event(static_cast<int>(r)));
    use(static_cast<int>(r));
    ASSERT_CUDA(cuEventRecord(begins[r], streams[r]));
    launch_on(r, 1);
    ASSERT_CUDA(cuEventRecord(ends[r], streams[r]));
  }
  synchronize();
  float ms = 0;
  use(0);
  ASSERT_CUDA(cuEventElapsedTime(&ms, begins[0], ends[0]));
  const double bytes = static_cast<double>(count) * 4 * 2 * (kRanks - 1) / kRanks;
  const double gbps = bytes / (static_cast<double>(ms) * 1e6);
  EXPECT_GT(gbps, 150);
  EXPECT_LT(gbps, 396);
  expect_results(sum);
}

TEST_F(PushSum, RunsFromACapturedGraph) {
  prepare(std::size_t{1} << 16, 4);
  // The same round in every launch would not wait: flags are set back before each.
  std::vector<CUgraphExec> execs;
  for (unsigned r = 0; r < kRanks; ++r) {
    use(static_cast<int>(r));
    ASSERT_CUDA(cuStreamBeginCapture(streams[r], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    launch_on(r, 1);
    CUgraph graph = nullptr;
    ASSERT_CUDA(cuStreamEndCapture(streams[r], &graph));
    std::size_t nodes = 0;
    ASSERT_CUDA(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(1U, nodes);
    CUgraphExec exec = nullptr;
    ASSERT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    ASSERT_CUDA(cuGraphDestroy(graph));
    execs.push_back(exec);
  }
  for (unsigned turn = 1; turn <= 2; ++turn) {
    const std::vector<float> sum = fill(turn);
    for (unsigned r = 0; r < kRanks; ++r) {
      use(static_cast<int>(r));
      write(flags[r], std::vector<std::uint64_t>(2 * kRanks * blocks, 0));
    }
    for (unsigned r = 0; r < kRanks; ++r) {
      use(static_cast<int>(r));
      ASSERT_CUDA(cuGraphLaunch(execs[r], streams[r]));
    }
    synchronize();
    expect_results(sum);
  }
  for (const CUgraphExec exec : execs) ASSERT_CUDA(cuGraphExecDestroy(exec));
}

// A rank that never comes: the others leave when the program says so.
TEST_F(PushSum, EndsByTheProgramsWord) {
  prepare(std::size_t{1} << 16, 4);
  for (unsigned r = 1; r < kRanks; ++r) launch_on(r, 1);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(streams[1]));
  __atomic_store_n(word, 1U, __ATOMIC_RELEASE);
  while (cuStreamQuery(streams[1]) == CUDA_ERROR_NOT_READY) {
  }
  synchronize();
}

TEST_F(Kernels, RunAsGraphNodes) {
  const CUfunction add = function(0, "test_add");
  const CUdeviceptr words = allocate(0, 256 * 4);
  const CUdeviceptr copy = allocate(0, 256 * 4);
  write(words, std::vector<std::uint32_t>(256, 1));
  CUgraph graph = nullptr;
  ASSERT_CUDA(cuGraphCreate(&graph, 0));
  CUdeviceptr at = words;
  std::uint32_t count = 256;
  std::uint32_t value = 5;
  void* parameters[] = {&at, &count, &value};
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = add;
  node.gridDimX = 2;
  node.blockDimX = 128;
  node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = parameters;
  CUgraphNode first = nullptr;
  ASSERT_CUDA(cuGraphAddKernelNode(&first, graph, nullptr, 0, &node));
  value = 20;  // the node keeps what it was given
  CUDA_MEMCPY3D move{};
  move.srcMemoryType = move.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  move.srcDevice = words;
  move.dstDevice = copy;
  move.WidthInBytes = 256 * 4;
  move.Height = move.Depth = 1;
  CUgraphNode second = nullptr;
  ASSERT_CUDA(cuGraphAddMemcpyNode(&second, graph, &first, 1, &move, context(0)));
  CUgraphExec exec = nullptr;
  ASSERT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const CUstream stream = create_stream(0);
  ASSERT_CUDA(cuGraphLaunch(exec, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint32_t>(256, 6), read<std::uint32_t>(copy, 256));
  ASSERT_CUDA(cuGraphExecKernelNodeSetParams(exec, first, &node));
  ASSERT_CUDA(cuGraphLaunch(exec, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint32_t>(256, 26), read<std::uint32_t>(copy, 256));
  ASSERT_CUDA(cuGraphExecDestroy(exec));
  ASSERT_CUDA(cuGraphDestroy(graph));
}

// The node's place in the instantiated graph is not its place in the graph.
TEST_F(Kernels, NodeParametersFollowOrder) {
  const CUfunction add = function(0, "test_add");
  const CUdeviceptr words[] = {allocate(0, 32 * 4), allocate(0, 32 * 4)};
  CUgraph graph = nullptr;
  ASSERT_CUDA(cuGraphCreate(&graph, 0));
  CUdeviceptr at = 0;
  std::uint32_t count = 32;
  std::uint32_t value = 1;
  void* parameters[] = {&at, &count, &value};
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = add;
  node.blockDimX = 32;
  node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = parameters;
  CUgraphNode nodes[2] = {};
  for (int i = 0; i < 2; ++i) {
    at = words[i];
    write(at, std::vector<std::uint32_t>(32, 0));
    ASSERT_CUDA(cuGraphAddKernelNode(&nodes[i], graph, nullptr, 0, &node));
  }
  ASSERT_CUDA(cuGraphAddDependencies_v2(graph, &nodes[1], &nodes[0], nullptr, 1));
  CUgraphExec exec = nullptr;
  ASSERT_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
  at = words[0];
  value = 20;
  ASSERT_CUDA(cuGraphExecKernelNodeSetParams(exec, nodes[0], &node));
  const CUstream stream = create_stream(0);
  ASSERT_CUDA(cuGraphLaunch(exec, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint32_t>(32, 20), read<std::uint32_t>(words[0], 32));
  EXPECT_EQ(std::vector<std::uint32_t>(32, 1), read<std::uint32_t>(words[1], 32));
  ASSERT_CUDA(cuGraphExecDestroy(exec));
  ASSERT_CUDA(cuGraphDestroy(graph));
}

TEST_F(Kernels, WaitSeesStreamAndHostWrites) {
  const CUfunction wait = function(0, "test_wait_for_word");
  const CUdeviceptr word = allocate(0, 4);
  const CUdeviceptr aborted = allocate(0, 4);
  write(word, std::vector<std::uint32_t>{0});
  auto* const on_host = reinterpret_cast<std::uint32_t*>(allocate_host(4));
  *on_host = 0;
  const CUstream waiting = create_stream(0);
  const CUstream writing = create_stream(0);
  ASSERT_CUDA(launch(wait, 2, 64, waiting, word, std::uint64_t{0}, aborted));
  ASSERT_CUDA(launch(wait, 2, 64, waiting, on_host, std::uint64_t{0}, aborted));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
  ASSERT_CUDA(cuStreamWriteValue32(writing, word, 1, 0));
  ASSERT_CUDA(cuStreamSynchronize(writing));
  __atomic_store_n(on_host, 1U, __ATOMIC_RELEASE);
  ASSERT_CUDA(cuStreamSynchronize(waiting));
}

TEST_F(Kernels, GiveUpByTheirOwnTimeLimit) {
  const CUfunction wait = function(0, "test_wait_for_word");
  const CUdeviceptr word = allocate(0, 8);
  write(word, std::vector<std::uint32_t>{0, 0});
  const CUstream stream = create_stream(0);
  ASSERT_CUDA(launch(wait, 1, 64, stream, word, std::uint64_t{20'000'000}, word + 4));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ((std::vector<std::uint32_t>{0, 1}), read<std::uint32_t>(word, 2));
}

/// Sets `*word` after a while, through no driver.
std::thread set_later(std::uint32_t* word) {
  return std::thread([word] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    __atomic_store_n(word, 1U, __ATOMIC_RELEASE);
  });
}

// As on GPUs (docs/cuda-notes.md).
TEST_F(Kernels, ModuleLoad_WaitsForKernelsOfItsGpu) {
  const CUfunction wait = function(0, "test_wait_for_word");
  auto* const word = reinterpret_cast<std::uint32_t*>(allocate_host(4));
  *word = 0;
  const CUstream stream = create_stream(0);
  ASSERT_CUDA(launch(wait, 1, 64, stream, word, std::uint64_t{0}, word));
  (void)function(1, "test_add");
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream)) << "that of another GPU";
  std::thread setting = set_later(word);
  (void)function(0, "test_add");
  EXPECT_EQ(1U, __atomic_load_n(word, __ATOMIC_ACQUIRE));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(stream));
  setting.join();
}

TEST_F(Kernels, ModuleLoad_BlocksOtherThreadsCalls) {
  const CUfunction wait = function(0, "test_wait_for_word");
  auto* const word = reinterpret_cast<std::uint32_t*>(allocate_host(4));
  *word = 0;
  const CUstream stream = create_stream(0);
  ASSERT_CUDA(launch(wait, 1, 64, stream, word, std::uint64_t{0}, word));
  std::thread loading([&] { (void)function(0, "test_add"); });
  // This thread calls the driver over and over; the kernel is released when no call returns any
  // more.
  std::atomic<std::uint64_t> calls{1};
  std::atomic<bool> is_over{false};
  std::atomic<bool> was_kept_out{false};
  std::thread watching([&] {
    for (std::uint64_t seen = 0; !is_over && !was_kept_out; seen = calls) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      was_kept_out = calls == seen;
    }
    __atomic_store_n(word, 1U, __ATOMIC_RELEASE);
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!was_kept_out && std::chrono::steady_clock::now() < end) {
    (void)cuStreamQuery(stream);
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // or the other one never comes
  }
  EXPECT_TRUE(was_kept_out);
  is_over = true;
  watching.join();
  loading.join();
}

TEST_F(Kernels, EndlessWait_Fails) {
  if (is_functional()) GTEST_SKIP() << "another process might still write the word";
  const CUfunction wait = function(0, "test_wait_for_word");
  const CUdeviceptr word = allocate(0, 4);
  write(word, std::vector<std::uint32_t>{0});
  const CUstream stream = create_stream(0);
  testing::internal::CaptureStderr();
  ASSERT_CUDA(launch(wait, 1, 64, stream, word, std::uint64_t{0}, word));
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
  const std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.npos,
            messages.find("test_wait_for_word on GPU 0, block 0: 63 threads at barrier 0"))
      << messages;
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, cuCtxSynchronize());
}

TEST_F(Kernels, UnreachableMemory_FailsTheLaunch) {
  const CUfunction add = function(0, "test_add");
  const CUdeviceptr there = allocate(1, 4096);  // no peer access
  const CUstream stream = create_stream(0);
  testing::internal::CaptureStderr();
  ASSERT_CUDA(launch(add, 1, 32, stream, there, 32U, 1U));
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
  const std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.npos, messages.find("on gpu1, may not be used by GPU 0")) << messages;
}

TEST_F(Kernels, AccessPastAllocation_FailsTheLaunch) {
  const CUfunction add = function(0, "test_add");
  const CUdeviceptr words = allocate(0, 4096);
  const CUstream stream = create_stream(0);
  ASSERT_CUDA(launch(add, 1, 32, stream, words, 1025U, 1U));
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
}

TEST_F(Kernels, EarlyStartWithoutWait_Fails) {
  const CUfunction add = function(0, "test_add");  // does not wait for earlier kernels
  const CUdeviceptr words = allocate(0, 4096);
  const CUstream stream = create_stream(0);
  CUdeviceptr at = words;
  std::uint32_t count = 1;
  void* parameters[] = {&at, &count, &count};
  CUlaunchAttribute early{};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  ASSERT_CUDA(cuLaunchKernelEx(&config, add, parameters, nullptr));
  EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(stream));
  early.value.programmaticStreamSerializationAllowed = 1;
  testing::internal::CaptureStderr();
  ASSERT_CUDA(cuLaunchKernelEx(&config, add, parameters, nullptr));
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
  const std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_NE(messages.npos, messages.find("before earlier kernels have ended")) << messages;
}

TEST_F(Kernels, WrongLaunches_AreRefused) {
  CUmodule module = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "nonsense"));
  ASSERT_CUDA(cuModuleLoadData(&module, kImage));
  CUfunction function = nullptr;
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "no_such_kernel"));
  ASSERT_CUDA(cuModuleGetFunction(&function, module, "test_add"));
  int value = 0;
  EXPECT_CUDA(CUDA_SUCCESS,
              cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  EXPECT_EQ(256, value);
  EXPECT_CUDA(CUDA_SUCCESS, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 256, 0));
  EXPECT_EQ(1, value);
  const CUdeviceptr words = allocate(0, 4096);
  const CUstream stream = create_stream(0);
  EXPECT_CUDA(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, launch(function, 1, 512, stream, words, 1U, 1U));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, launch(function, 0, 32, stream, words, 1U, 1U));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT, launch(function, 1, 32, create_stream(1), words, 1U, 1U));
  std::uint32_t count = 1;
  CUdeviceptr at = words;
  void* parameters[] = {&at, &count, &count};
  EXPECT_CUDA(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
              cuLaunchCooperativeKernel(function, 133, 1, 1, 32, 1, 1, 0, stream, parameters));
  EXPECT_CUDA(CUDA_SUCCESS,
              cuLaunchCooperativeKernel(function, 132, 1, 1, 32, 1, 1, 0, stream, parameters));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  ASSERT_CUDA(cuModuleUnload(module));
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, launch(function, 1, 32, stream, words, 1U, 1U));
}

}  // namespace
}  // namespace polypath::sim::test
