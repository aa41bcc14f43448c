// The C API of collectives (comm.h), a thin shell around Collectives.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "collectives/collective_profile.hpp"
#include "collectives/comm_collectives.hpp"
#include "collectives/result_windows.hpp"
#include "comm/rank_threads.hpp"
#include "comm/stream_waits.hpp"
#include "core/c_boundary.hpp"
#include "driver/context_resets.hpp"
#include "driver/resources.hpp"

using namespace polypath;

namespace {

constexpr int kTypes = POLYPATH_FLOAT64 + 1;
constexpr int kOperators = POLYPATH_AVG + 1;

CUdeviceptr device_address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

/// What the first call takes, it cannot take in capture.
void require_ready(polypath_comm* comm, CUstream stream) {
  const CudaDriver& driver = local_of(comm).driver();
  if (comm->extensions.find<CommCollectives>() != nullptr) return;
  const CurrentContext current(driver, local_of(comm).context());  // of a default stream
  if (!is_captured(driver, stream)) return;
  throw InvalidArgument("rank " + std::to_string(polypath_comm_rank(comm)) +
                        ": stream is in capture, and comm has taken nothing for collectives yet: "
                        "call polypath_comm_prepare before");
}

polypath_status run(polypath_comm* comm, CollectiveOp op, const void* send, void* recv,
                    std::size_t count, polypath_data_type type, int operation, int root,
                    void* stream) {
  return guarded([&] {
    run_collective(comm, call_of(op, send, recv, count, type, operation, root),
                   static_cast<CUstream>(stream));
  });
}

/// Parts have different lengths.
polypath_status run_uneven(polypath_comm* comm, CollectiveOp op, const void* send, void* recv,
                           const std::size_t* counts, polypath_data_type type, int operation,
                           void* stream) {
  return guarded([&] {
    require(counts != nullptr, "counts is null");
    const int size = local_of(comm).size();
    if (comm->nodes != nullptr || size > static_cast<int>(kMaxRanks))
      throw NotSupported("parts of different lengths are of up to 8 ranks of one node");
    UnevenParts parts{};
    std::copy_n(counts, size, parts.begin());
    const std::uint64_t longest = *std::ranges::max_element(parts);
    CollectiveCall call = call_of(op, send, recv, longest, type, operation, 0);
    call.parts = parts;
    run_collective(comm, call, static_cast<CUstream>(stream));
  });
}

}  // namespace

namespace polypath {

CollectiveCall call_of(CollectiveOp op, const void* send, void* recv, std::size_t count,
                       polypath_data_type type, int operation, int root) {
  require(type >= 0 && type < kTypes, "type is none");
  require(operation >= 0 && operation < kOperators, "op is none");
  return {op,
          static_cast<DataType>(type),
          static_cast<Operator>(operation),
          root,
          count,
          device_address(send),
          device_address(recv)};
}

namespace {

CommCollectives& ready_collectives(polypath_comm* comm, CUstream stream) {
  require_ready(comm, stream);
  CommCollectives& collectives = collectives_of(comm);
  require(!collectives.inside.is_retired(), "comm was retired");
  return collectives;
}

}  // namespace

void run_collective(polypath_comm* comm, const NormCall& call, CUstream stream) {
  CommCollectives& collectives = ready_collectives(comm, stream);
  if (collectives.across != nullptr)
    collectives.across->run(call, stream);
  else
    collectives.inside.run(call, stream);
}

void run_collective(polypath_comm* comm, const CollectiveCall& call, CUstream stream) {
  CommCollectives& collectives = ready_collectives(comm, stream);
  if (collectives.across != nullptr)
    collectives.across->run(call, stream);
  else
    collectives.inside.run(call, stream);
}

CommCollectives& collectives_of(polypath_comm* comm, bool copies) {
  Communicator& communicator = local_of(comm);
  if (auto* const collectives = comm->extensions.find<CommCollectives>()) return *collectives;
  CollectivesOptions options;
  options.check = comm->context->options().check != 0;
  options.defers_scratch = comm->context->options().scratch_when_needed;
  options.copies = copies;
  if (comm->max_blocks > 0) options.max_blocks = comm->max_blocks;
  options.reserved_sms = comm->reserved_sms;
  options.retries_buffers = comm->retries_buffers;
  options.order = static_cast<SumOrder>(comm->sum_order);
  options.direct_results = has_direct_results(comm->context->options().direct_results, communicator,
                                              /*stands_in=*/comm->retries_buffers);
  const ProfileTable<TunedCollective> tuned = comm->context->tuned<TunedCollective>();
  options.tuned = tuned.entries();
  auto links = watch_host_links(comm->context->load(), comm->context->node(), communicator.gpu());
  options.host_links = links.get();
  options.relays = {&comm->context->devices(), &comm->context->load()};
  auto collectives = std::make_unique<CommCollectives>(communicator, options, std::move(links));
  if (comm->nodes != nullptr)
    collectives->across = std::make_unique<MultiNodeCollectives>(collectives->inside, *comm->nodes);
  return comm->extensions.add(std::move(collectives));
}

}  // namespace polypath

polypath_status polypath_load_kernels(polypath_context* context, int gpu) {
  return guarded([&] {
    const Context& engine_context = context_of(context);
    require(gpu >= 0 && gpu < static_cast<int>(engine_context.node().gpus.size()),
            "there is no such GPU");
    const CudaDriver& driver = *engine_context.source().driver;
    const PrimaryContext place(driver, gpu);
    const CurrentContext current(driver, place.get());
    const StreamWaits loaded(driver, place.get());
    const bool is_tree = engine_context.options().sum_order == SumOrderSetting::tree;
    KernelModules::load(driver, place.get(), {is_tree ? SumOrder::tree : SumOrder::rank, false});
  });
}

polypath_status polypath_comm_prepare(polypath_comm* comm) {
  return guarded([&] { collectives_of(comm); });
}

polypath_status polypath_comm_prepare_all(polypath_comm* const* comms, int count) {
  return guarded([&] {
    require_all(comms, count);
    on_threads(count, [&](std::size_t i) { collectives_of(comms[i]); });
  });
}

polypath_status polypath_comm_set_max_blocks(polypath_comm* comm, int blocks) {
  return guarded([&] {
    require(blocks >= 0, "blocks is negative");
    collectives_of(comm).inside.limit_blocks(blocks);
  });
}

polypath_status polypath_comm_release_sms(polypath_comm* comm) {
  return guarded([&] {
    const ContextInUse in_use(*local_of(comm).primary_context());
    auto* const collectives = comm->extensions.find<CommCollectives>();
    if (!in_use || collectives == nullptr) return;
    require(!collectives->in_flight(), "a collective is under way");
    collectives->inside.retire();
  });
}

polypath_status polypath_all_reduce(polypath_comm* comm, const void* send, void* recv, size_t count,
                                    polypath_data_type type, polypath_reduce_op op, void* stream) {
  return run(comm, CollectiveOp::allreduce, send, recv, count, type, op, 0, stream);
}

polypath_status polypath_reduce_scatter(polypath_comm* comm, const void* send, void* recv,
                                        size_t count, polypath_data_type type,
                                        polypath_reduce_op op, void* stream) {
  return run(comm, CollectiveOp::reduce_scatter, send, recv, count, type, op, 0, stream);
}

polypath_status polypath_reduce_scatterv(polypath_comm* comm, const void* send, void* recv,
                                         const size_t* counts, polypath_data_type type,
                                         polypath_reduce_op op, void* stream) {
  return run_uneven(comm, CollectiveOp::reduce_scatter, send, recv, counts, type, op, stream);
}

polypath_status polypath_all_gatherv(polypath_comm* comm, const void* send, void* recv,
                                     const size_t* counts, polypath_data_type type, void* stream) {
  return run_uneven(comm, CollectiveOp::all_gather, send, recv, counts, type, 0, stream);
}

polypath_status polypath_all_gather(polypath_comm* comm, const void* send, void* recv, size_t count,
                                    polypath_data_type type, void* stream) {
  return run(comm, CollectiveOp::all_gather, send, recv, count, type, 0, 0, stream);
}

polypath_status polypath_all_reduce_norm(polypath_comm* comm, void* input, void* output,
                                         const polypath_norm* norm, void* stream) {
  return guarded([&] {
    require(norm != nullptr, "norm is null");
    require(norm->type >= 0 && norm->type < kTypes, "type is none");
    run_collective(comm,
                   NormCall{static_cast<DataType>(norm->type), norm->rows, norm->hidden,
                            norm->epsilon, device_address(input), device_address(norm->residual),
                            device_address(norm->residual_out), device_address(norm->weight),
                            device_address(output), device_address(norm->scale)},
                   static_cast<CUstream>(stream));
  });
}

polypath_status polypath_broadcast(polypath_comm* comm, const void* send, void* recv, size_t count,
                                   polypath_data_type type, int root, void* stream) {
  return run(comm, CollectiveOp::broadcast, send, recv, count, type, 0, root, stream);
}

polypath_status polypath_comm_spread(polypath_comm* comm, const void* src, void* recv, size_t bytes,
                                     int root, void* stream) {
  return guarded([&] {
    communicator_of(comm);  // of one node
    const auto handle = static_cast<CUstream>(stream);
    require_ready(comm, handle);
    CommCollectives& collectives = collectives_of(comm);
    require(!collectives.inside.is_retired(), "comm was retired");
    if (collectives.spread == nullptr)
      collectives.spread = std::make_unique<CommSpread>(collectives.inside, *comm->context);
    collectives.spread->run({device_address(src), device_address(recv), bytes, root}, handle);
  });
}

polypath_status polypath_reduce(polypath_comm* comm, const void* send, void* recv, size_t count,
                                polypath_data_type type, polypath_reduce_op op, int root,
                                void* stream) {
  return run(comm, CollectiveOp::reduce, send, recv, count, type, op, root, stream);
}

polypath_status polypath_all_to_all(polypath_comm* comm, const void* send, void* recv, size_t count,
                                    polypath_data_type type, void* stream) {
  return run(comm, CollectiveOp::all_to_all, send, recv, count, type, 0, 0, stream);
}

polypath_status polypath_comm_report(polypath_comm* comm, char** json) {
  return guarded([&] {
    const PutCounts puts = local_of(comm).put_counts();
    // Without it, which to make is collective, nothing was counted.
    const auto* const handle = comm->extensions.find<CommCollectives>();
    const CollectiveCounts counts =
        handle != nullptr ? handle->inside.counts() : CollectiveCounts{};
    const CommSpreadCounts spreads = handle != nullptr && handle->spread != nullptr
                                         ? handle->spread->counts()
                                         : CommSpreadCounts{};
    nlohmann::json report{
        {"cells", counts.cells},
        {"lines", counts.lines},
        {"channels", counts.channels},
        {"copies", counts.copies},
        {"pairwise", counts.pairwise},
        {"relayed", counts.relayed},
        {"hierarchical", counts.hierarchical},
        {"ring", counts.ring},
        {"host_trees", counts.host_trees},
        {"mixed", counts.mixed},
        {"changed_by_load", counts.changed_by_load},
        {"without_relays", counts.without_relays},
        {"uneven", counts.uneven},
        {"fewer_blocks", counts.fewer_blocks},
        {"direct", counts.direct},
        {"by_first_scratch", counts.by_first_scratch},
        {"sum_order", to_string(static_cast<SumOrder>(comm->sum_order))},
        {"scratch_bytes", handle != nullptr ? handle->inside.scratch_bytes() : 0},
        {"puts", {{"kernel", puts.by_kernel}, {"copies", puts.by_copies}}},
        {"norms", {{"fused", counts.norms_fused}, {"apart", counts.norms_apart}}},
        {"spreads",
         {{"calls", spreads.calls}, {"native", spreads.native}, {"pieces", spreads.pieces}}}};
    if (comm->nodes != nullptr) {
      const NodeCounts across = handle != nullptr ? handle->across->counts() : NodeCounts{};
      const NetworkTransport& network = *comm->nodes->engine;
      if (handle != nullptr)
        report["scratch_bytes"] = handle->inside.scratch_bytes() + handle->across->scratch_bytes();
      report["nodes"] = {{"network", network.name()},
                         {"calls", across.calls},
                         {"chunks", across.chunks},
                         {"sent_bytes", network.sent_bytes()}};
    }
    give(report, json);
  });
}
