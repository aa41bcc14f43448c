// One transfer from GPU 0 to GPU 1 over every path, from C++.
//
//   c++ -std=c++20 copy.cpp $(pkg-config --cflags --libs polypath) -lcuda -o copy && ./copy
//
// Without a GPU: link -lpolypath_sim, the simulated driver, in place of -lcuda, and run with
// POLYPATH_NODE=narval.
#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <polypath/polypath.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;

void cuda(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown error";
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string(what) + ": " + name);
}

CUdeviceptr address_of(const void* host) { return reinterpret_cast<CUdeviceptr>(host); }

/// Memory of one GPU, in its primary context, which stays current.
struct Buffer {
  explicit Buffer(int gpu) : device(gpu) {
    CUcontext context = nullptr;
    cuda(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    cuda(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    cuda(cuMemAlloc(&memory, kBytes), "cuMemAlloc");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    cuMemFree(memory);
    cuDevicePrimaryCtxRelease(device);
  }
  CUdevice device;
  CUdeviceptr memory = 0;
};

}  // namespace

int main() try {
  std::vector<unsigned> sent(kBytes / sizeof(unsigned));
  std::vector<unsigned> received(sent.size());
  std::mt19937 random(std::random_device{}());
  for (unsigned& word : sent) word = random();

  cuda(cuInit(0), "cuInit");
  const Buffer dst(1);
  const Buffer src(0);
  CUstream stream = nullptr;
  cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  cuda(cuMemcpyAsync(src.memory, address_of(sent.data()), kBytes, stream), "cuMemcpyAsync");

  polypath::context context;
  const std::array requests{polypath::request{"gpu0", "gpu1", kBytes}};
  context.prepare(requests);
  context.copy_async(reinterpret_cast<void*>(dst.memory), reinterpret_cast<void*>(src.memory),
                     kBytes, stream);
  cuda(cuStreamSynchronize(stream), "cuStreamSynchronize");

  cuda(cuMemcpy(address_of(received.data()), dst.memory, kBytes), "cuMemcpy");
  if (sent != received) throw std::runtime_error("the bytes differ");
  std::puts(context.counters().c_str());
  cuda(cuStreamDestroy(stream), "cuStreamDestroy");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
