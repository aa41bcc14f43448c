// The C API of the benchmark of collectives (lab.h).
#include <polypath/lab.h>

#include "collectives/comm_collectives.hpp"
#include "core/c_boundary.hpp"
#include "core/json.hpp"
#include "lab/collective_bench.hpp"
#include "lab/collective_tuning.hpp"
#include "lab/tuning_progress.hpp"

struct polypath_collective_bench {
  polypath::CollectiveBench bench;
  polypath::Context& context;
};

using namespace polypath;

polypath_status polypath_collective_bench_create(polypath_comm* comm, const char* nccl,
                                                 const char* choice,
                                                 polypath_collective_bench** bench) {
  return guarded([&] {
    require(bench != nullptr, "bench is null");
    require(nccl == nullptr || choice == nullptr, "nccl and choice are both given");
    static_cast<void>(communicator_of(comm));  // of one node
    Collectives& collectives = collectives_of(comm, /*copies=*/true).inside;
    CollectiveBench::Baseline baseline;
    if (choice != nullptr) baseline.choice = parse_collective_choice(choice);
    if (nccl != nullptr) {
      std::string why;
      baseline.nccl = Nccl::load(nccl, &why);
      if (baseline.nccl == nullptr) throw NotSupported("NCCL cannot be used: " + why);
    }
    *bench = new polypath_collective_bench{
        CollectiveBench(collectives, std::move(baseline), comm->context->source()), *comm->context};
  });
}

void polypath_collective_bench_destroy(polypath_collective_bench* bench) { delete bench; }

polypath_status polypath_collective_bench_run(polypath_collective_bench* bench,
                                              const polypath_collective_bench_request* request,
                                              char** json) {
  return guarded([&] {
    require(bench != nullptr, "bench is null");
    require(request != nullptr, "request is null");
    require(request->op != nullptr && request->type != nullptr && request->operation != nullptr,
            "op, type or operation of the request is null");
    require(request->bytes > 0, "bytes is 0");
    require(request->warmup >= 0, "warmup is negative");
    require(request->iterations >= 1 && request->calls >= 1,
            "iterations and calls must be at least 1");
    CollectiveBenchRequest bench_request;
    bench_request.op = parse_collective_op(request->op);
    bench_request.type = parse_data_type(request->type);
    bench_request.operation = parse_operator(request->operation);
    bench_request.bytes = request->bytes;
    bench_request.warmup = request->warmup;
    bench_request.iterations = request->iterations;
    bench_request.calls = request->calls;
    if (request->choice != nullptr) bench_request.choice = parse_collective_choice(request->choice);
    give(bench->bench.run(bench_request), json);
  });
}

polypath_status polypath_tune_collectives(polypath_collective_bench* bench,
                                          const polypath_tune_collectives_request* request,
                                          polypath_tune_progress progress, void* user,
                                          char** json) {
  return guarded([&] {
    require(bench != nullptr, "bench is null");
    require(request != nullptr, "request is null");
    require(request->budget_s >= 0, "budget_s is negative");
    CollectiveTuningRequest tuning_request;
    if (request->op != nullptr) tuning_request.ops.push_back(parse_collective_op(request->op));
    if (request->sizes != nullptr)
      tuning_request.sizes.assign(request->sizes, request->sizes + request->size_count);
    if (request->budget_s > 0) tuning_request.budget_s = request->budget_s;
    tuning_request.again = request->again != 0;
    const TuningResult result =
        CollectiveTuning(bench->bench, bench->context, std::move(tuning_request),
                         progress_of(progress, user))
            .run();
    nlohmann::json value = tuned_json(bench->context);
    value["stopped"] = result.stopped;
    value["seconds"] = result.seconds;
    give(value, json);
  });
}
