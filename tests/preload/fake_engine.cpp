#include "fake_engine.hpp"

#include <cuda.h>

#include <cstdlib>
#include <cstring>

#undef cuMemcpyAsync

using polypath::preload::test::FakeEngine;

namespace {

FakeEngine engine;

/// For programs that no test runs in: FAKE_ANSWER=take.
[[maybe_unused]] const bool is_answer_read = [] {
  const char* const answer = std::getenv("FAKE_ANSWER");
  if (answer != nullptr && std::strcmp(answer, "take") == 0)
    engine.answer = FakeEngine::Answer::take;
  return true;
}();

char* copy_of(const char* text) { return strdup(text); }

/// This library is one of the project's, by its name: it finds the driver's own function.
CUresult copy_natively(void* dst, const void* src, size_t bytes, void* stream) {
  static const auto copy = reinterpret_cast<decltype(&cuMemcpyAsync)>(
      dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemcpyAsync"));
  return copy(reinterpret_cast<CUdeviceptr>(dst), reinterpret_cast<CUdeviceptr>(src), bytes,
              static_cast<CUstream>(stream));
}

polypath_status keep_import(const char* what) {
  engine.during_import(what);
  const std::lock_guard lock(engine.mutex);
  engine.imports.emplace_back(what);
  return engine.import_status;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] FakeEngine* fake_engine() { return &engine; }

const char* polypath_last_error(void) { return "a fake reason"; }
int polypath_last_cuda_result(void) { return engine.cuda_result; }
void polypath_free(char* string) { std::free(string); }

polypath_status polypath_context_create(const polypath_setting*, size_t,
                                        polypath_context** context) {
  {
    const std::lock_guard lock(engine.mutex);
    ++engine.created;
  }
  engine.during_create();
  if (engine.create_status == POLYPATH_SUCCESS)
    *context = reinterpret_cast<polypath_context*>(&engine);
  return engine.create_status;
}

polypath_status polypath_smallest_split(polypath_context*, polypath_thresholds* thresholds) {
  *thresholds = engine.thresholds;
  return POLYPATH_SUCCESS;
}

polypath_status polypath_try_copy_async(polypath_context* context, void* dst, const void* src,
                                        size_t bytes, void* stream, int* issued) {
  if (context != reinterpret_cast<polypath_context*>(&engine)) std::abort();
  {
    const std::lock_guard lock(engine.mutex);
    engine.copies.push_back({dst, src, bytes, stream});
  }
  engine.during_copy();
  *issued = 0;
  switch (engine.answer) {
    case FakeEngine::Answer::leave: return POLYPATH_SUCCESS;
    case FakeEngine::Answer::refuse: return POLYPATH_INVALID_ARGUMENT;
    case FakeEngine::Answer::take:
      *issued = 1;
      return copy_natively(dst, src, bytes, stream) == CUDA_SUCCESS ? POLYPATH_SUCCESS
                                                                    : POLYPATH_DRIVER_ERROR;
    case FakeEngine::Answer::fail: *issued = 1; return POLYPATH_DRIVER_ERROR;
  }
  return POLYPATH_INTERNAL_ERROR;
}

polypath_status polypath_memory_exported(polypath_context*, const void*, const void*) {
  return keep_import("exported");
}
polypath_status polypath_memory_imported(polypath_context*, const void*, const void*) {
  return keep_import("imported");
}
polypath_status polypath_memory_closed(polypath_context*, const void*) {
  return keep_import("closed");
}

polypath_status polypath_counters(polypath_context*, char** json) {
  *json = copy_of("{\"fake\": true}");
  return POLYPATH_SUCCESS;
}
polypath_status polypath_report(polypath_context*, char** text) {
  *text = copy_of("a fake report\n");
  return POLYPATH_SUCCESS;
}
}
