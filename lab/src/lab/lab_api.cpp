// The C API of the laboratory (lab.h), a thin shell around benchmarks, tuner and graph phases.
#include <polypath/lab.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "core/c_boundary.hpp"
#include "core/json.hpp"
#include "lab/bench.hpp"
#include "lab/bench_beside.hpp"
#include "lab/bench_blocks.hpp"
#include "lab/bench_file.hpp"
#include "lab/bench_spread.hpp"
#include "lab/graph_phases.hpp"
#include "lab/tuning.hpp"
#include "lab/tuning_progress.hpp"

using namespace polypath;

namespace {

using nlohmann::json;

/// The context's own, which keeps between rows what is slow to make. With its laboratory_mutex
/// held.
Bench& bench_of(polypath_context& context) {
  using Kept = std::shared_ptr<Bench>;
  if (!context.laboratory.has_value())
    context.laboratory = std::make_shared<Bench>(context.context);
  return *std::any_cast<Kept&>(context.laboratory);
}

std::function<void(bool)> switch_of(polypath_traffic_switch traffic, void* user) {
  return [=](bool on) {
    if (traffic(on ? 1 : 0, user) != 0)
      throw Error(on ? "the traffic did not start" : "the traffic did not end");
  };
}

/// What `alone(options)` gives without `traffic`, else what `beside(options)` gives next to it.
template <typename Request, typename Alone, typename Beside>
json compared(const Request& request, polypath_traffic_switch traffic, void* user,
              const Alone& alone, const Beside& beside) {
  if (traffic == nullptr) {
    PairOptions options;
    options.warmup = request.warmup;
    options.iterations = request.iterations;
    return alone(options);
  }
  require(request.rounds >= 1, "rounds must be at least 1");
  BesideOptions options;
  options.warmup = request.warmup;
  options.iterations = request.iterations;
  options.rounds = request.rounds;
  options.traffic = switch_of(traffic, user);
  return beside(options);
}

json graph_phases_json(Context& context, const GraphPhasesRequest& request) {
  if (context.source().emulated_mesh_gbps > 0)
    throw InvalidArgument(
        "the phases of a graph are those of the driver's own copies: not measured on an emulated "
        "mesh");
  const GraphPhases phases = measure_graph_phases(
      context.driver(), context.node(), context.devices(), request, cpu_clock(context.source()));
  return {{"bytes", request.bytes},
          {"nodes", request.nodes},
          {"via", to_string(phases.via)},
          {"create_us", phases.create_us},
          {"construct_us", phases.construct_us},
          {"instantiate_us", phases.instantiate_us},
          {"first_launch_us", phases.first_launch_us},
          {"launch_us", phases.launch_us},
          {"patch_us", phases.patch_us},
          {"destroy_us", phases.destroy_us},
          {"first_latency_us", phases.first_latency_us},
          {"latency_us", phases.latency_us},
          {"patched_latency_us", phases.patched_latency_us},
          {"stream_issue_us", phases.stream_issue_us},
          {"stream_latency_us", phases.stream_latency_us},
          {"gpu_bytes", phases.gpu_bytes ? json(*phases.gpu_bytes) : json()},
          {"verified", true}};
}

}  // namespace

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
    const std::lock_guard lock(context->laboratory_mutex);
    give(bench_of(*context).run(requests_of(request->transfers, request->count), options,
                                std::max(1, request->window), request->compare_executors != 0),
         json);
  });
}

polypath_status polypath_bench_beside(polypath_context* context,
                                      const polypath_bench_beside_request* request,
                                      polypath_traffic_switch traffic, void* user, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->warmup >= 0, "warmup is negative");
    require(request->iterations >= 1 && request->rounds >= 1,
            "iterations and rounds must be at least 1");
    require(traffic != nullptr || request->own != nullptr, "there is no traffic");
    BesideOptions options;
    options.warmup = request->warmup;
    options.iterations = request->iterations;
    options.rounds = request->rounds;
    if (traffic != nullptr) options.traffic = switch_of(traffic, user);
    if (request->own != nullptr) {
      require(request->own_queue >= 1, "own_queue must be at least 1");
      require(request->own_on_us >= 0 && request->own_off_us >= 0 &&
                  (request->own_on_us > 0) == (request->own_off_us > 0),
              "own_on_us and own_off_us must be positive, or both 0");
      options.own = {requests_of(request->own, request->own_count), request->own_queue,
                     request->own_on_us, request->own_off_us};
    }
    const std::lock_guard lock(context->laboratory_mutex);
    give(bench_beside(context->context, requests_of(request->transfers, request->count), options),
         json);
  });
}

polypath_status polypath_bench_blocks(polypath_context* context,
                                      const polypath_bench_blocks_request* request,
                                      polypath_traffic_switch traffic, void* user, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->src != nullptr && request->dst != nullptr,
            "src or dst of the request is null");
    require(request->block_bytes > 0 && request->count > 0, "there are no blocks");
    require(request->warmup >= 0, "warmup is negative");
    require(request->iterations >= 1, "iterations must be at least 1");
    const BlocksRequest blocks{parse_memory(request->src), parse_memory(request->dst),
                               request->block_bytes, request->count};
    const std::lock_guard lock(context->laboratory_mutex);
    const auto alone = [&](const PairOptions& options) {
      return bench_blocks(context->context, blocks, options);
    };
    const auto beside = [&](const BesideOptions& options) {
      return bench_blocks_beside(context->context, blocks, options);
    };
    give(compared(*request, traffic, user, alone, beside), json);
  });
}

polypath_status polypath_bench_file(polypath_context* context,
                                    const polypath_bench_file_request* request,
                                    polypath_traffic_switch traffic, void* user, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->dst != nullptr, "dst of the request is null");
    require(request->file != nullptr || request->bytes > 0, "there is no file, and no size of one");
    require(request->warmup >= 0, "warmup is negative");
    require(request->iterations >= 1, "iterations must be at least 1");
    const FileRequest file{parse_memory(request->dst),
                           request->file != nullptr ? request->file : "", request->bytes};
    require(file.dst.is_gpu() && context->context.node().contains(file.dst),
            "dst is no GPU of this node");
    const std::lock_guard lock(context->laboratory_mutex);
    const auto alone = [&](const PairOptions& options) {
      return bench_file(context->context, file, options);
    };
    const auto beside = [&](const BesideOptions& options) {
      return bench_file_beside(context->context, file, options);
    };
    give(compared(*request, traffic, user, alone, beside), json);
  });
}

polypath_status polypath_bench_spread(polypath_context* context,
                                      const polypath_bench_spread_request* request,
                                      polypath_traffic_switch traffic, void* user, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->src != nullptr && request->gpus != nullptr,
            "src or gpus of the request is null");
    require(request->bytes > 0, "bytes are 0");
    require(request->warmup >= 0, "warmup is negative");
    require(request->iterations >= 1, "iterations must be at least 1");
    SpreadRequest spread;
    spread.src = parse_memory(request->src);
    spread.gpus.assign(request->gpus, request->gpus + request->count);
    spread.bytes = request->bytes;
    spread.is_pageable = request->pageable != 0;
    require(!spread.is_pageable || spread.src.is_host(), "memory of a GPU is not pageable");
    const std::lock_guard lock(context->laboratory_mutex);
    const auto alone = [&](const PairOptions& options) {
      return bench_spread(context->context, spread, options);
    };
    const auto beside = [&](const BesideOptions& options) {
      return bench_spread_beside(context->context, spread, options);
    };
    give(compared(*request, traffic, user, alone, beside), json);
  });
}

polypath_status polypath_graph_phases(polypath_context* context,
                                      const polypath_graph_phases_request* request, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    require(request->src != nullptr && request->dst != nullptr,
            "src or dst of the request is null");
    const GraphPhasesRequest phases_request{parse_memory(request->src), parse_memory(request->dst),
                                            request->bytes, request->nodes, request->iterations};
    const std::lock_guard lock(context->laboratory_mutex);
    give(graph_phases_json(context->context, phases_request), json);
  });
}

polypath_status polypath_tune(polypath_context* context, const polypath_tune_request* request,
                              polypath_tune_progress progress, void* user, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    TuningRequest tuning_request;
    if (request->transfers != nullptr)
      tuning_request.pairs = requests_of(request->transfers, request->count);
    if (request->sizes != nullptr)
      tuning_request.sizes.assign(request->sizes, request->sizes + request->size_count);
    require(request->budget_s >= 0, "budget_s is negative");
    if (request->budget_s > 0) tuning_request.budget_s = request->budget_s;
    tuning_request.exhaustive = request->exhaustive != 0;
    tuning_request.again = request->again != 0;
    const std::lock_guard lock(context->laboratory_mutex);
    const TuningResult result =
        Tuning(context->context, std::move(tuning_request), progress_of(progress, user)).run();
    nlohmann::json value = tuned_json(context->context);
    value["stopped"] = result.stopped;
    value["seconds"] = result.seconds;
    give(value, json);
  });
}
