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

polypath_status keep_import(const char* what, const void* address) {
  engine.during_import(what);
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  const std::lock_guard lock(engine.mutex);
  engine.imports.emplace_back(what);
  engine.imported.push_back({what, address, context});
  return engine.import_status;
}

/// What the answer to a copy is, after it was issued if that is the answer.
polypath_status answer_to(const FakeEngine::Copy& copy, int* issued) {
  *issued = 0;
  switch (engine.answer) {
    case FakeEngine::Answer::leave: return POLYPATH_SUCCESS;
    case FakeEngine::Answer::refuse: return POLYPATH_INVALID_ARGUMENT;
    case FakeEngine::Answer::take:
      *issued = 1;
      return copy_natively(copy.dst, copy.src, copy.bytes, copy.stream) == CUDA_SUCCESS
                 ? POLYPATH_SUCCESS
                 : POLYPATH_DRIVER_ERROR;
    case FakeEngine::Answer::fail: *issued = 1; return POLYPATH_DRIVER_ERROR;
  }
  return POLYPATH_INTERNAL_ERROR;
}

void require_context(const polypath_context* context) {
  if (context != reinterpret_cast<const polypath_context*>(&engine) || !engine.is_alive)
    std::abort();
}

polypath_status take_copy(const polypath_context* context, const FakeEngine::Copy& copy,
                          int* issued) {
  require_context(context);
  {
    const std::lock_guard lock(engine.mutex);
    engine.copies.push_back(copy);
  }
  engine.during_copy();
  return answer_to(copy, issued);
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] FakeEngine* fake_engine() { return &engine; }

const char* polypath_last_error(void) { return "a fake reason"; }
int polypath_last_cuda_result(void) { return engine.cuda_result; }
void polypath_free_string(char* string) { std::free(string); }

polypath_status polypath_offload_acquire_context(polypath_context** context) {
  {
    const std::lock_guard lock(engine.mutex);
    ++engine.created;
  }
  engine.during_create();
  if (engine.create_status == POLYPATH_SUCCESS) {
    *context = reinterpret_cast<polypath_context*>(&engine);
    engine.is_alive = true;
    engine.is_retired = false;
  }
  return engine.create_status;
}

void polypath_offload_retire_context(void) { engine.is_retired = true; }

void polypath_offload_release_context(polypath_context* context) {
  require_context(context);
  if (!engine.is_retired) std::abort();  // a GPU is reset without notice
  engine.during_destroy();
  engine.is_alive = false;
}

polypath_status polypath_split_thresholds(polypath_context*, polypath_thresholds* thresholds) {
  *thresholds = engine.thresholds;
  return POLYPATH_SUCCESS;
}

polypath_status polypath_try_copy_async(polypath_context* context, void* dst, const void* src,
                                        size_t bytes, void* stream, int* issued) {
  return take_copy(context, {dst, src, bytes, stream}, issued);
}
polypath_status polypath_try_copy_sequenced_async(polypath_context* context, void* dst,
                                                  const void* src, size_t bytes, void* stream,
                                                  int* issued) {
  return take_copy(context, {dst, src, bytes, stream, true}, issued);
}

polypath_status polypath_try_group_copy_async(polypath_context* context,
                                              const polypath_transfer* transfers, size_t count,
                                              int* issued) {
  require_context(context);
  polypath_status status = POLYPATH_SUCCESS;
  {
    const std::lock_guard lock(engine.mutex);
    engine.groups.push_back(count);
    for (size_t i = 0; i < count; ++i)
      engine.copies.push_back(
          {transfers[i].dst, transfers[i].src, transfers[i].bytes, transfers[i].stream});
  }
  for (size_t i = 0; i < count; ++i) {
    engine.during_copy();
    const polypath_status answer = answer_to(
        {transfers[i].dst, transfers[i].src, transfers[i].bytes, transfers[i].stream}, &issued[i]);
    if (answer != POLYPATH_SUCCESS) status = answer;
  }
  return status;
}

polypath_status polypath_try_copy_batch_async(polypath_context* context, size_t count,
                                              void* const* dst, const void* const* src,
                                              const size_t* bytes, void* stream, int* issued) {
  require_context(context);
  {
    const std::lock_guard lock(engine.mutex);
    engine.batches.push_back(count);
  }
  polypath_status status = POLYPATH_SUCCESS;
  *issued = 0;
  for (size_t i = 0; i < count && status == POLYPATH_SUCCESS; ++i)
    status = answer_to({dst[i], src[i], bytes[i], stream}, issued);
  return status;
}

polypath_status polypath_note_copy(polypath_context* context, void* dst, const void* src,
                                   size_t bytes, void* stream) {
  require_context(context);
  const std::lock_guard lock(engine.mutex);
  engine.noted.push_back({dst, src, bytes, stream});
  return POLYPATH_SUCCESS;
}

polypath_status polypath_ipc_register_export(polypath_context* context, const void*,
                                             const void* address) {
  require_context(context);
  return keep_import("exported", address);
}
polypath_status polypath_ipc_register_import(polypath_context* context, const void*,
                                             const void* address) {
  require_context(context);
  return keep_import("imported", address);
}
polypath_status polypath_ipc_unregister_import(polypath_context* context, const void* address) {
  require_context(context);
  return keep_import("closed", address);
}

polypath_status polypath_share_mapping(polypath_context* context, const void* address, size_t) {
  require_context(context);
  return keep_import("shared", address);
}
polypath_status polypath_unshare_mapping(polypath_context* context, const void* address, size_t) {
  require_context(context);
  return keep_import("unshared", address);
}

polypath_status polypath_counters(polypath_context*, char** json) {
  *json = copy_of("{\"fake\": true}");
  return POLYPATH_SUCCESS;
}
polypath_status polypath_counters_text(polypath_context*, char** text) {
  *text = copy_of("a fake report\n");
  return POLYPATH_SUCCESS;
}
}
