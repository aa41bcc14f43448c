// Tutorial 03: copies from C++. docs/tutorials/03-copies-cpp.md explains the calls.
//
//   c++ -std=c++20 03_copies.cpp $(pkg-config --cflags --libs polypath) -lcuda -o copies && ./copies
//
// Without a GPU: link -lpolypath_sim in place of -lcuda, and run with POLYPATH_NODE=narval.
#include <cuda.h>

#include <array>
#include <cstdio>
#include <polypath/polypath.hpp>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;

void check(CUresult result) {
  if (result != CUDA_SUCCESS) throw std::runtime_error("a call of the driver failed");
}

CUdeviceptr allocate(int gpu) {
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  check(cuDevicePrimaryCtxRetain(&context, gpu));
  check(cuCtxSetCurrent(context));
  check(cuMemAlloc(&memory, kBytes));
  return memory;
}

}  // namespace

int main() try {
  // 1. Memory on two GPUs, with known contents.
  check(cuInit(0));
  const CUdeviceptr dst = allocate(1);
  const CUdeviceptr src = allocate(0);
  std::vector<unsigned char> sent(kBytes);
  std::vector<unsigned char> received(kBytes);
  unsigned value = 1;
  for (unsigned char& byte : sent) byte = (value = value * 1664525 + 1013904223) >> 24;
  check(cuMemcpyHtoD(src, sent.data(), kBytes));

  // 2. A context plans and issues. prepare() is optional.
  polypath::context context;
  const std::array requests{polypath::request{"gpu0", "gpu1", kBytes}};
  context.prepare(requests);

  // 3. The copy: on a stream, as cuMemcpyAsync.
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  context.copy_async(reinterpret_cast<void*>(dst), reinterpret_cast<void*>(src), kBytes, stream);
  check(cuStreamSynchronize(stream));

  // 4. Compare, and see how it went.
  check(cuMemcpyDtoH(received.data(), dst, kBytes));
  if (sent != received) throw std::runtime_error("the bytes differ");
  std::printf("%zu bytes copied and compared\n%s\n", kBytes, context.counters().c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
