// The C boundary: handles and strings in, exceptions out as status codes, converted in one place.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/version.hpp"
#include "core/bench.hpp"
#include "core/graph_phases_json.hpp"
#include "core/json.hpp"
#include "core/report.hpp"
#include "core/tuning.hpp"
#include "polypath/polypath.h"

struct polypath_context {
  explicit polypath_context(const polypath::OptionArguments& arguments) : context(arguments) {}

  polypath::Context context;
  std::mutex bench_mutex;
  polypath::Bench bench{context};
};

namespace {

using namespace polypath;

thread_local std::string last_error;
thread_local int last_cuda_result = 0;

/// Runs `body`; turns what it throws into a status and the thread's last error.
template <typename Body>
polypath_status guarded(Body&& body) noexcept {
  const auto fail = [](polypath_status status, const char* message, int result = 0) noexcept {
    last_cuda_result = result;
    try {
      last_error = message;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    body();
    return POLYPATH_SUCCESS;
  } catch (const InvalidArgument& error) {
    return fail(POLYPATH_INVALID_ARGUMENT, error.what());
  } catch (const NoDevice& error) {
    return fail(POLYPATH_NO_DEVICE, error.what());
  } catch (const NotSupported& error) {
    return fail(POLYPATH_NOT_SUPPORTED, error.what());
  } catch (const DriverError& error) {
    return fail(POLYPATH_DRIVER_ERROR, error.what(), error.code());
  } catch (const std::exception& error) {
    return fail(POLYPATH_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(POLYPATH_INTERNAL_ERROR, "unknown error");
  }
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
  *out = copy_of(value.dump());
}

Context& of(polypath_context* context) {
  require(context != nullptr, "context is null");
  return context->context;
}

CUdeviceptr address_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

CUipcMemHandle handle_of(const void* bytes) {
  require(bytes != nullptr, "handle is null");
  CUipcMemHandle handle{};
  std::memcpy(&handle, bytes, sizeof handle);
  return handle;
}

Transfer transfer_of(void* dst, const void* src, std::size_t bytes, void* stream) {
  return {address_of(dst), address_of(src), bytes, static_cast<CUstream>(stream)};
}

std::vector<Transfer> group_of(const polypath_transfer* transfers, std::size_t count) {
  require(transfers != nullptr || count == 0, "transfers is null");
  std::vector<Transfer> group;
  for (std::size_t i = 0; i < count; ++i)
    group.push_back(
        transfer_of(transfers[i].dst, transfers[i].src, transfers[i].bytes, transfers[i].stream));
  return group;
}

std::vector<Request> requests_of(const polypath_request* requests, std::size_t count) {
  require(requests != nullptr && count > 0, "requests is null or empty");
  std::vector<Request> out;
  for (std::size_t i = 0; i < count; ++i) {
    require(requests[i].src != nullptr && requests[i].dst != nullptr,
            "src or dst of a request is null");
    out.push_back(
        {parse_memory(requests[i].src), parse_memory(requests[i].dst), requests[i].bytes});
  }
  return out;
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
  }
  return "unknown status";
}

const char* polypath_last_error(void) { return last_error.c_str(); }

int polypath_last_cuda_result(void) { return last_cuda_result; }

void polypath_free(char* string) { std::free(string); }

polypath_status polypath_context_create(const polypath_setting* settings, size_t count,
                                        polypath_context** context) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    *context = new polypath_context(arguments_of(settings, count));
  });
}

void polypath_context_destroy(polypath_context* context) { delete context; }

polypath_status polypath_copy_async(polypath_context* context, void* dst, const void* src,
                                    size_t bytes, void* stream) {
  return guarded([&] { of(context).copy_async(transfer_of(dst, src, bytes, stream)); });
}

polypath_status polypath_try_copy_async(polypath_context* context, void* dst, const void* src,
                                        size_t bytes, void* stream, int* issued) {
  return guarded([&] {
    require(issued != nullptr, "issued is null");
    *issued = 0;
    try {
      *issued = of(context).try_copy_async(transfer_of(dst, src, bytes, stream)) ? 1 : 0;
    } catch (const DriverError&) {
      *issued = 1;
      throw;
    }
  });
}

polypath_status polypath_smallest_split(polypath_context* context,
                                        polypath_thresholds* thresholds) {
  return guarded([&] {
    require(thresholds != nullptr, "thresholds is null");
    const Thresholds least = of(context).smallest_split();
    *thresholds = {least.gpu_to_gpu, least.host_to_gpu, least.gpu_to_host};
  });
}

polypath_status polypath_group_copy_async(polypath_context* context,
                                          const polypath_transfer* transfers, size_t count) {
  return guarded([&] { of(context).group_copy_async(group_of(transfers, count)); });
}

polypath_status polypath_try_group_copy_async(polypath_context* context,
                                              const polypath_transfer* transfers, size_t count,
                                              int* issued) {
  return guarded([&] {
    require(issued != nullptr || count == 0, "issued is null");
    std::fill_n(issued, count, 0);
    of(context).try_group_copy_async(group_of(transfers, count), {issued, count});
  });
}

polypath_status polypath_prepare(polypath_context* context, const polypath_request* requests,
                                 size_t count) {
  return guarded([&] { of(context).prepare(requests_of(requests, count)); });
}

polypath_status polypath_memory_exported(polypath_context* context, const void* handle,
                                         const void* address) {
  return guarded([&] { of(context).memory_exported(handle_of(handle), address_of(address)); });
}

polypath_status polypath_memory_imported(polypath_context* context, const void* handle,
                                         const void* address) {
  return guarded([&] { of(context).memory_imported(handle_of(handle), address_of(address)); });
}

polypath_status polypath_memory_closed(polypath_context* context, const void* address) {
  return guarded([&] { of(context).memory_closed(address_of(address)); });
}

polypath_status polypath_plan(polypath_context* context, const polypath_request* requests,
                              size_t count, char** json) {
  return guarded([&] { give(to_json(of(context).plan(requests_of(requests, count))), json); });
}

polypath_status polypath_topology(polypath_context* context, char** json) {
  return guarded([&] { give(topology_json(of(context)), json); });
}

polypath_status polypath_measure(polypath_context* context, polypath_progress progress,
                                 void* user) {
  return guarded([&] {
    of(context).measure([&](std::size_t done, std::size_t total, const std::string& what) {
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

polypath_status polypath_devices(polypath_context* context, char** json) {
  return guarded([&] { give(devices_json(of(context)), json); });
}

polypath_status polypath_counters(polypath_context* context, char** json) {
  return guarded([&] { give(counters_json(of(context)), json); });
}

polypath_status polypath_report(polypath_context* context, char** text) {
  return guarded([&] {
    require(text != nullptr, "text is null");
    *text = copy_of(report(of(context)));
  });
}

polypath_status polypath_counters_reset(polypath_context* context) {
  return guarded([&] { of(context).reset_counters(); });
}

polypath_status polypath_tune(polypath_context* context, const polypath_tune_request* request,
                              polypath_tune_progress progress, void* user, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    TuningRequest wanted;
    if (request->transfers != nullptr)
      wanted.pairs = requests_of(request->transfers, request->count);
    if (request->sizes != nullptr)
      wanted.sizes.assign(request->sizes, request->sizes + request->size_count);
    require(request->budget_s >= 0, "budget_s is negative");
    if (request->budget_s > 0) wanted.budget_s = request->budget_s;
    wanted.exhaustive = request->exhaustive != 0;
    wanted.again = request->again != 0;
    TuningProgress report;
    if (progress != nullptr)
      report = [=](std::size_t done, std::size_t total, double left, const std::string& what) {
        return progress(done, total, left, what.c_str(), user) == 0;
      };
    const std::lock_guard lock(context->bench_mutex);
    const TuningResult result =
        Tuning(context->context, std::move(wanted), std::move(report)).run();
    nlohmann::json value = tuned_json(context->context);
    value["stopped"] = result.stopped;
    value["seconds"] = result.seconds;
    give(value, json);
  });
}

polypath_status polypath_tuned(polypath_context* context, char** json) {
  return guarded([&] { give(tuned_json(of(context)), json); });
}

polypath_status polypath_bench(polypath_context* context, const polypath_bench_request* request,
                               char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->warmup >= 1 && request->iterations >= 1,
            "warmup and iterations must be at least 1");
    require(request->window >= 0 && request->window <= 64, "window must be 1 to 64");
    PairOptions options;
    options.warmup = request->warmup;
    options.iterations = request->iterations;
    const std::lock_guard lock(context->bench_mutex);
    give(context->bench.run(requests_of(request->transfers, request->count), options,
                            std::max(1, request->window), request->compare_executors != 0),
         json);
  });
}

polypath_status polypath_graph_phases(polypath_context* context,
                                      const polypath_graph_phases_request* request, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->src != nullptr && request->dst != nullptr,
            "src or dst of the request is null");
    const GraphPhasesRequest wanted{parse_memory(request->src), parse_memory(request->dst),
                                    request->bytes, request->nodes, request->iterations};
    const std::lock_guard lock(context->bench_mutex);
    give(graph_phases_json(context->context, wanted), json);
  });
}
