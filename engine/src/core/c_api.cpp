// The C API of the engine (polypath.h), a thin shell around the context.
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/c_boundary.hpp"
#include "core/json.hpp"
#include "core/report.hpp"
#include "core/version.hpp"
#include "driver/library.hpp"

namespace polypath {
namespace {

thread_local std::string last_error;
thread_local int last_cuda_result = 0;

}  // namespace

polypath_status failed(polypath_status status, const char* message, int cuda_result) noexcept {
  last_cuda_result = cuda_result;
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

void require(bool condition, const char* message) {
  if (!condition) throw InvalidArgument(message);
}

char* copy_of(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

void give(const nlohmann::json& value, char** out) {
  require(out != nullptr, "json is null");
  // A name, of a file or a GPU, may be no UTF-8.
  *out = copy_of(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Context& context_of(polypath_context* context) {
  require(context != nullptr, "context is null");
  return context->context;
}

namespace {

/// "host0:pageable" as well as what parse_memory() reads.
MemoryId memory_of_text(std::string_view text, bool& is_pageable) {
  constexpr std::string_view kPageable = ":pageable";
  if (!text.ends_with(kPageable)) return parse_memory(text);
  const MemoryId memory = parse_memory(text.substr(0, text.size() - kPageable.size()));
  require(memory.is_host(), "only host memory is pageable: write host0:pageable");
  is_pageable = true;
  return memory;
}

}  // namespace

std::vector<Request> requests_of(const polypath_transfer_request* requests, std::size_t count) {
  require(requests != nullptr && count > 0, "requests is null or empty");
  std::vector<Request> out;
  for (std::size_t i = 0; i < count; ++i) {
    require(requests[i].src != nullptr && requests[i].dst != nullptr,
            "src or dst of a request is null");
    Request request;
    request.src = memory_of_text(requests[i].src, request.is_pageable);
    request.dst = memory_of_text(requests[i].dst, request.is_pageable);
    request.bytes = requests[i].bytes;
    out.push_back(request);
  }
  return out;
}

}  // namespace polypath

using namespace polypath;

namespace {

CUdeviceptr address_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

CUipcMemHandle handle_of(const void* bytes) {
  require(bytes != nullptr, "handle is null");
  CUipcMemHandle handle{};
  std::memcpy(&handle, bytes, sizeof handle);
  return handle;
}

Transfer transfer_of(void* dst, const void* src, std::size_t bytes, void* stream) {
  // The default stream has two handles: what is on one of them is on the other.
  return {address_of(dst), address_of(src), bytes,
          stream != nullptr ? static_cast<CUstream>(stream) : CU_STREAM_LEGACY};
}

Batch batch_of(size_t count, void* const* dst, const void* const* src, const size_t* bytes,
               void* stream) {
  return {count, dst, src, bytes,
          stream != nullptr ? static_cast<CUstream>(stream) : CU_STREAM_LEGACY};
}

MemoryId spread_source_of(const char* src) {
  require(src != nullptr, "src is null");
  return parse_memory(src);
}

std::vector<int> gpus_of(const int* gpus, std::size_t count) {
  require(gpus != nullptr || count == 0, "gpus is null");
  return {gpus, gpus + count};
}

polypath_status try_copy(polypath_context* context, const Transfer& transfer,
                         int* issued) noexcept {
  return guarded([&] {
    require(issued != nullptr, "issued is null");
    *issued = 0;
    bool midway = false;
    try {
      *issued = context_of(context).try_copy_async(transfer, midway) ? 1 : 0;
    } catch (...) {
      *issued = midway ? 1 : 0;
      throw;
    }
  });
}

std::vector<Transfer> group_of(const polypath_transfer* transfers, std::size_t count) {
  require(transfers != nullptr || count == 0, "transfers is null");
  std::vector<Transfer> group;
  for (std::size_t i = 0; i < count; ++i)
    group.push_back(
        transfer_of(transfers[i].dst, transfers[i].src, transfers[i].bytes, transfers[i].stream));
  return group;
}

OptionArguments arguments_of(const polypath_setting* settings, std::size_t count) {
  require(settings != nullptr || count == 0, "settings is null");
  OptionArguments arguments;
  for (std::size_t i = 0; i < count; ++i) {
    require(settings[i].name != nullptr && settings[i].value != nullptr,
            "name or value of a setting is null");
    arguments.emplace_back(settings[i].name, settings[i].value);
  }
  return arguments;
}

}  // namespace

const char* polypath_version(void) { return polypath::version(); }

const char* polypath_status_name(polypath_status status) {
  switch (status) {
    case POLYPATH_SUCCESS: return "POLYPATH_SUCCESS";
    case POLYPATH_INVALID_ARGUMENT: return "POLYPATH_INVALID_ARGUMENT";
    case POLYPATH_NO_DEVICE: return "POLYPATH_NO_DEVICE";
    case POLYPATH_NOT_SUPPORTED: return "POLYPATH_NOT_SUPPORTED";
    case POLYPATH_DRIVER_ERROR: return "POLYPATH_DRIVER_ERROR";
    case POLYPATH_INTERNAL_ERROR: return "POLYPATH_INTERNAL_ERROR";
    case POLYPATH_COMMUNICATOR_ERROR: return "POLYPATH_COMMUNICATOR_ERROR";
    case POLYPATH_FILE_ERROR: return "POLYPATH_FILE_ERROR";
  }
  return "unknown status";
}

const char* polypath_last_error(void) { return last_error.c_str(); }

int polypath_last_cuda_result(void) { return last_cuda_result; }

void polypath_free_string(char* string) { std::free(string); }

polypath_status polypath_context_create(const polypath_setting* settings, size_t count,
                                        polypath_context** context) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    *context = new polypath_context(arguments_of(settings, count));
  });
}

void polypath_context_destroy(polypath_context* context) {
  if (context != nullptr && context->made_by == getpid()) delete context;
}

polypath_status polypath_copy_async(polypath_context* context, void* dst, const void* src,
                                    size_t bytes, void* stream) {
  return guarded([&] { context_of(context).copy_async(transfer_of(dst, src, bytes, stream)); });
}

polypath_status polypath_try_copy_async(polypath_context* context, void* dst, const void* src,
                                        size_t bytes, void* stream, int* issued) {
  return try_copy(context, transfer_of(dst, src, bytes, stream), issued);
}

polypath_status polypath_try_copy_sequenced_async(polypath_context* context, void* dst,
                                                  const void* src, size_t bytes, void* stream,
                                                  int* issued) {
  Transfer transfer = transfer_of(dst, src, bytes, stream);
  // A default stream has several handles.
  transfer.follows = !is_special_stream(transfer.stream);
  return try_copy(context, transfer, issued);
}

void* polypath_driver_function(polypath_context* context, const char* name) {
  if (context == nullptr || name == nullptr) return nullptr;
  // Already loaded: the driver's own handle once more.
  void* const library = open_library(context->context.driver().library, nullptr);
  return library == nullptr ? nullptr : find_symbol<void*>(library, name);
}

polypath_status polypath_split_thresholds(polypath_context* context,
                                          polypath_thresholds* thresholds) {
  return guarded([&] {
    require(thresholds != nullptr, "thresholds is null");
    const Thresholds least = context_of(context).smallest_split();
    *thresholds = {least.gpu_to_gpu, least.host_to_gpu, least.gpu_to_host, least.pageable_to_gpu,
                   least.gpu_to_pageable};
  });
}

polypath_status polypath_group_copy_async(polypath_context* context,
                                          const polypath_transfer* transfers, size_t count) {
  return guarded([&] { context_of(context).group_copy_async(group_of(transfers, count)); });
}

polypath_status polypath_try_group_copy_async(polypath_context* context,
                                              const polypath_transfer* transfers, size_t count,
                                              int* issued) {
  return guarded([&] {
    require(issued != nullptr || count == 0, "issued is null");
    std::fill_n(issued, count, 0);
    context_of(context).try_group_copy_async(group_of(transfers, count), {issued, count});
  });
}

polypath_status polypath_copy_batch_async(polypath_context* context, size_t count, void* const* dst,
                                          const void* const* src, const size_t* bytes,
                                          void* stream) {
  return guarded(
      [&] { context_of(context).copy_batch_async(batch_of(count, dst, src, bytes, stream)); });
}

polypath_status polypath_try_copy_batch_async(polypath_context* context, size_t count,
                                              void* const* dst, const void* const* src,
                                              const size_t* bytes, void* stream, int* issued) {
  return guarded([&] {
    require(issued != nullptr, "issued is null");
    *issued = 0;
    bool midway = false;
    try {
      *issued = context_of(context).try_copy_batch_async(batch_of(count, dst, src, bytes, stream),
                                                         midway);
    } catch (...) {
      *issued = midway ? 1 : 0;
      throw;
    }
  });
}

polypath_status polypath_read_async(polypath_context* context, int file, uint64_t offset, void* dst,
                                    size_t bytes, void* stream) {
  return guarded([&] {
    const Transfer to = transfer_of(dst, nullptr, bytes, stream);
    context_of(context).read_async({{file, offset}, to.dst, to.bytes, to.stream});
  });
}

polypath_status polypath_prepare_batches(polypath_context* context,
                                         const polypath_transfer_request* requests, size_t count) {
  return guarded([&] { context_of(context).prepare_batches(requests_of(requests, count)); });
}

polypath_status polypath_spread_async(polypath_context* context, size_t count, void* const* dst,
                                      const void* src, size_t bytes, void* const* streams) {
  return guarded(
      [&] { context_of(context).spread_async({count, dst, address_of(src), bytes, streams}); });
}

polypath_status polypath_prepare_spread(polypath_context* context, const char* src, const int* gpus,
                                        size_t count) {
  return guarded(
      [&] { context_of(context).prepare_spread(spread_source_of(src), gpus_of(gpus, count)); });
}

polypath_status polypath_plan_spread(polypath_context* context, const char* src, const int* gpus,
                                     size_t count, size_t bytes, char** json) {
  return guarded([&] {
    const auto [trees, plan] =
        context_of(context).plan_spread(spread_source_of(src), gpus_of(gpus, count), bytes);
    give(spread_json(context_of(context).node(), trees, plan), json);
  });
}

polypath_status polypath_prepare(polypath_context* context,
                                 const polypath_transfer_request* requests, size_t count) {
  return guarded([&] { context_of(context).prepare(requests_of(requests, count)); });
}

polypath_status polypath_ipc_register_export(polypath_context* context, const void* handle,
                                             const void* address) {
  return guarded(
      [&] { context_of(context).memory_exported(handle_of(handle), address_of(address)); });
}

polypath_status polypath_ipc_register_import(polypath_context* context, const void* handle,
                                             const void* address) {
  return guarded(
      [&] { context_of(context).memory_imported(handle_of(handle), address_of(address)); });
}

polypath_status polypath_ipc_unregister_import(polypath_context* context, const void* address) {
  return guarded([&] { context_of(context).memory_closed(address_of(address)); });
}

polypath_status polypath_share_mapping(polypath_context* context, const void* address,
                                       size_t bytes) {
  return guarded([&] { context_of(context).share_mapping(address_of(address), bytes); });
}

polypath_status polypath_unshare_mapping(polypath_context* context, const void* address,
                                         size_t bytes) {
  return guarded([&] { context_of(context).unshare_mapping(address_of(address), bytes); });
}

polypath_status polypath_plan(polypath_context* context, const polypath_transfer_request* requests,
                              size_t count, char** json) {
  return guarded([&] {
    const Plan plan = context_of(context).plan(requests_of(requests, count));
    nlohmann::json value = to_json(plan);
    value["loaded"] = loaded_json(context_of(context), plan);
    give(value, json);
  });
}

polypath_status polypath_topology(polypath_context* context, char** json) {
  return guarded([&] { give(topology_json(context_of(context)), json); });
}

polypath_status polypath_note_copy(polypath_context* context, void* dst, const void* src,
                                   size_t bytes, void* stream) {
  return guarded([&] {
    const Transfer copy = transfer_of(dst, src, bytes, stream);
    context_of(context).load().note_copy(copy.dst, copy.src, copy.bytes, copy.stream);
  });
}

polypath_status polypath_load(polypath_context* context, char** json) {
  return guarded([&] { give(load_json(context_of(context)), json); });
}

polypath_status polypath_measure(polypath_context* context, polypath_progress progress,
                                 void* user) {
  return guarded([&] {
    context_of(context).measure([&](std::size_t done, std::size_t total, const std::string& what) {
      if (progress != nullptr) progress(done, total, what.c_str(), user);
    });
  });
}

polypath_status polypath_settings(polypath_context* context, char** json) {
  return guarded([&] {
    if (context != nullptr) {
      give(to_json(context->context.option_infos()), json);
      return;
    }
    std::vector<OptionInfo> infos;
    load_options({}, &infos);
    give(to_json(infos), json);
  });
}

polypath_status polypath_device_info(polypath_context* context, char** json) {
  return guarded([&] { give(devices_json(context_of(context)), json); });
}

polypath_status polypath_counters(polypath_context* context, char** json) {
  return guarded([&] { give(counters_json(context_of(context)), json); });
}

polypath_status polypath_counters_text(polypath_context* context, char** text) {
  return guarded([&] {
    require(text != nullptr, "text is null");
    *text = copy_of(report(context_of(context)));
  });
}

polypath_status polypath_counters_reset(polypath_context* context) {
  return guarded([&] { context_of(context).reset_counters(); });
}

polypath_status polypath_tuning_results(polypath_context* context, char** json) {
  return guarded([&] { give(tuned_json(context_of(context)), json); });
}
