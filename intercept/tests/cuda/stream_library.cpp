// Built under several names (stream_library.hpp). MEMSET: it refers to a function that puts work on
// streams past the shim as well.
#include "stream_library.hpp"

namespace {

using polypath::preload::test::StreamLibrary;

// Each call must come from here, and not be a jump.
template <typename Result>
Result here(Result result) {
  asm volatile("" ::: "memory");
  return result;
}

CUresult make(CUstream* stream, unsigned flags) { return here(cuStreamCreate(stream, flags)); }
CUresult make_with_priority(CUstream* stream, unsigned flags, int priority) {
  return here(cuStreamCreateWithPriority(stream, flags, priority));
}
CUresult destroy(CUstream stream) { return here(cuStreamDestroy(stream)); }
CUresult copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return here(cuMemcpyDtoDAsync(dst, src, bytes, stream));
}

/// An event that was recorded on the stream; null when that failed.
CUevent recorded(CUstream stream) {
  CUevent event = nullptr;
  if (cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return nullptr;
  if (cuEventRecord(event, stream) == CUDA_SUCCESS) return event;
  cuEventDestroy(event);
  return nullptr;
}

CUresult record(CUstream stream) { return here(cuEventDestroy(recorded(stream))); }

CUresult wait(CUstream stream) {
  CUstream other = nullptr;
  CUresult result = cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return result;
  const CUevent event = recorded(other);
  result = cuStreamWaitEvent(stream, event, 0);
  cuEventDestroy(event);
  cuStreamDestroy(other);
  return result;
}

CUresult call_back(CUstream stream) {
  return here(cuStreamAddCallback(stream, [](CUstream, CUresult, void*) {}, nullptr, 0));
}

void* look_up(const char* name) { return here(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name)); }

void* ask(const char* name) {
  void* function = nullptr;
  cuGetProcAddress(name, &function, 13000, 0, nullptr);
  return function;
}

constexpr StreamLibrary kLibrary{make, make_with_priority, destroy, copy, record,
                                 wait, call_back,          look_up, ask};

}  // namespace

#ifdef MEMSET
extern "C" [[gnu::visibility("default")]] CUresult set(CUdeviceptr memory, size_t bytes,
                                                       CUstream stream) {
  return cuMemsetD8Async(memory, 0, bytes, stream);
}
#endif

extern "C" [[gnu::visibility("default")]] const StreamLibrary* stream_library() {
  return &kLibrary;
}
