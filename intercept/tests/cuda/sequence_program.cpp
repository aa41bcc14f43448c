// sequence_program LIBRARY HOW: copies of one size back to back on one stream of that library
// (stream_library.hpp), an event after each, over memory that HOW names: "apart" (nothing twice),
// "one-destination", or "chained" (each reads what the one before it wrote). Ends with status 7
// when all bytes are right.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "stream_library.hpp"

using polypath::preload::test::StreamLibrary;

namespace {

constexpr int kCopies = 16;
constexpr std::size_t kBytes = (8 << 20) + 5;
using Bytes = std::vector<unsigned char>;

void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "a call failed: %d\n", static_cast<int>(result));
  std::exit(1);
}

Bytes random_bytes(std::mt19937_64& random) {
  Bytes bytes(kBytes + sizeof(std::uint64_t));
  for (std::size_t at = 0; at < kBytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  bytes.resize(kBytes);
  return bytes;
}

CUdeviceptr allocate(CUcontext context) {
  CUdeviceptr memory = 0;
  check(cuCtxSetCurrent(context));
  check(cuMemAlloc(&memory, kBytes));
  return memory;
}

struct Copy {
  CUdeviceptr dst;
  CUdeviceptr src;
  Bytes expected;  ///< in dst, when all is done
};

}  // namespace

int main(int, char** arguments) {
  const std::string how = arguments[2];
  check(cuInit(0));
  CUcontext contexts[2];
  for (int gpu = 0; gpu < 2; ++gpu) check(cuDevicePrimaryCtxRetain(&contexts[gpu], gpu));
  const StreamLibrary* const library = polypath::preload::test::open_stream_library(arguments[1]);
  if (library == nullptr) check(CUDA_ERROR_NOT_FOUND);

  std::mt19937_64 random(1);
  std::vector<Copy> copies;
  CUdeviceptr src = allocate(contexts[0]);
  Bytes values = random_bytes(random);
  check(cuMemcpyHtoD(src, values.data(), kBytes));
  CUdeviceptr dst = 0;
  for (int i = 0; i < kCopies; ++i) {
    const CUcontext there = contexts[how == "chained" ? (i + 1) % 2 : 1];
    if (how != "one-destination" || dst == 0) dst = allocate(there);
    check(cuMemcpyHtoD(dst, Bytes(kBytes, 0xEE).data(), kBytes));
    copies.push_back({dst, src, values});
    if (how == "chained") {
      src = dst;
      continue;
    }
    src = allocate(contexts[0]);
    values = random_bytes(random);
    check(cuMemcpyHtoD(src, values.data(), kBytes));
  }
  if (how == "one-destination")
    for (Copy& copy : copies) copy.expected = copies.back().expected;

  for (const CUcontext context : {contexts[1], contexts[0]}) {
    check(cuCtxSetCurrent(context));
    check(cuCtxSynchronize());  // what is not pinned may land after its call
  }
  CUstream stream = nullptr;
  check(library->make(&stream, CU_STREAM_NON_BLOCKING));
  for (const Copy& copy : copies) {
    check(library->copy(copy.dst, copy.src, kBytes, stream));
    check(library->record(stream));
  }
  check(cuStreamSynchronize(stream));
  for (const Copy& copy : copies) {
    Bytes contents(kBytes);
    check(cuMemcpyDtoH(contents.data(), copy.dst, kBytes));
    if (contents != copy.expected) return 2;
  }
  return 7;
}
