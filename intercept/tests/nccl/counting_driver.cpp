// In the place of the CUDA driver (POLYPATH_DRIVER_LIBRARY): passes everything on to the simulated
// one, counts what a polypath communicator should take once a process, and lets calls fail.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace {

/// The call of the calling thread that fails: of this function, after `calls_before_failure` more.
thread_local const char* failing = nullptr;
thread_local int calls_before_failure = 0;

bool fails(const char* name) {
  if (failing == nullptr || std::strcmp(failing, name) != 0 || calls_before_failure-- > 0)
    return false;
  failing = nullptr;
  return true;
}

/// Each context of the engine asks once.
std::atomic<std::size_t> inits{0};
std::atomic<std::size_t> modules{0};
std::atomic<std::size_t> pinned_bytes{0};
std::atomic<std::size_t> frees{0};
/// So many questions for an event say that it has not come, but those of one thread.
std::atomic<int> held_answers{0};
thread_local bool gets_true_answers = false;

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
#define TEXT_OF(name) #name
#define NAME_OF(function) TEXT_OF(function)
/// The simulated driver's.
#define ORIGINAL(function) \
  reinterpret_cast<decltype(&(function))>(dlsym(RTLD_NEXT, NAME_OF(function)))

EXPORTED std::size_t polypath_test_inits() { return inits; }
EXPORTED std::size_t polypath_test_modules() { return modules; }
EXPORTED std::size_t polypath_test_pinned_bytes() { return pinned_bytes; }
EXPORTED std::size_t polypath_test_frees() { return frees; }

/// The `number`-th call of `name` by this thread from now on fails, once. True: one that was to
/// fail has not come yet; null: it does not fail any more.
EXPORTED bool polypath_test_fail(const char* name, int number) {
  const bool is_open = failing != nullptr;
  failing = name;
  calls_before_failure = number;
  return is_open;
}

/// As many questions of other threads for events say from now on that they have not come.
EXPORTED void polypath_test_hold_events(int questions) {
  gets_true_answers = true;
  held_answers = questions;
}
EXPORTED int polypath_test_held_events() { return held_answers; }
EXPORTED CUresult cuEventQuery(CUevent event) {
  static const auto original = ORIGINAL(cuEventQuery);
  int held = held_answers;
  while (!gets_true_answers && held > 0)
    if (held_answers.compare_exchange_weak(held, held - 1)) return CUDA_ERROR_NOT_READY;
  return original(event);
}

/// Counts, or lets the call fail, and passes it on.
#define PASS(function, parameters, arguments, ...)                 \
  EXPORTED CUresult function parameters {                          \
    if (fails(NAME_OF(function))) return CUDA_ERROR_OUT_OF_MEMORY; \
    __VA_ARGS__;                                                   \
    static const auto original = ORIGINAL(function);               \
    return original arguments;                                     \
  }

PASS(cuInit, (unsigned flags), (flags), ++inits)
PASS(cuModuleLoadData, (CUmodule * module, const void* image), (module, image), ++modules)
PASS(cuMemHostAlloc, (void** address, std::size_t bytes, unsigned flags), (address, bytes, flags),
     pinned_bytes += bytes)
PASS(cuMemHostRegister, (void* address, std::size_t bytes, unsigned flags), (address, bytes, flags),
     pinned_bytes += bytes)
PASS(cuMemFree, (CUdeviceptr address), (address), ++frees)
PASS(cuMemAlloc, (CUdeviceptr * address, std::size_t bytes), (address, bytes))
PASS(cuStreamCreate, (CUstream * stream, unsigned flags), (stream, flags))
PASS(cuEventCreate, (CUevent * event, unsigned flags), (event, flags))
PASS(cuEventRecord, (CUevent event, CUstream stream), (event, stream))
PASS(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))
PASS(cuMemsetD8Async,
     (CUdeviceptr address, unsigned char value, std::size_t bytes, CUstream stream),
     (address, value, bytes, stream))
PASS(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream),
     (to, from, bytes, stream))
