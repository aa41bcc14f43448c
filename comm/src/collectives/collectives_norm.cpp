// Rows that are summed and normalised: by one kernel, or by an allreduce and a kernel that
// normalises.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/collectives.hpp"
#include "collectives/norm_call.hpp"
#include "driver/context_guard.hpp"

namespace polypath {

std::size_t Collectives::NormShapeHash::operator()(const NormShape& shape) const noexcept {
  const auto small = static_cast<std::uint64_t>(shape.type) << 48 |
                     static_cast<std::uint64_t>(shape.route) << 56 |
                     static_cast<std::uint64_t>(shape.block_limit) << 32;
  return ((shape.hidden << 20 ^ shape.rows) ^ small) * 0x9e3779b97f4a7c15;
}

NormPlan Collectives::plan(const NormCall& call, NormRoute route) const {
  require_norm_alike(call, comm_.rank());
  const CollectiveRequest request = request_of(all_reduce_of(call));
  CollectiveOptions options = options_of(request, AlgorithmOverride::planned);
  options.explain = false;
  if (runner_ == nullptr) options.copies = false;
  const CollectivePlan apart = make_plan(request, options, AlgorithmOverride::planned);
  NormPlan plan =
      plan_norm(basis_.node, request, call.rows,
                {options.limits.blocks, max_norm_rows(shape_, norm_args_of(call).hidden)},
                apart.predicted_us);
  // The kernel of both adds in rank order.
  if (route == NormRoute::apart || request.needs_tree()) plan.is_fused = false;
  if (route == NormRoute::fused) {
    if (request.needs_tree())
      throw InvalidArgument(
          fmt::format("rank {}: one kernel cannot keep the order of sums", comm_.rank()));
    if (plan.fused_us == 0)
      throw InvalidArgument(fmt::format(
          "rank {}: {} rows of {} elements are more than the scratch of one kernel holds",
          comm_.rank(), call.rows, call.hidden));
    plan.is_fused = true;
  }
  return plan;
}

void Collectives::run(const NormCall& call, CUstream stream, NormRoute route) {
  run_counted(
      all_reduce_of(call), stream, [&] { require_norm_alike(call, comm_.rank()); },
      [&] { run_norm_alone(call, stream, route); });
}

void Collectives::run_norm_alone(const NormCall& call, CUstream stream, NormRoute route) {
  const CudaDriver& driver = comm_.driver();
  require_of_buffers(
      [&] { require_norm_buffers(driver, call, {comm_.rank(), comm_.size(), comm_.gpu()}); });
  ContextGuard guard(driver);
  guard.use(comm_.context());
  require_stream(stream);
  if (comm_.size() == 1) {
    launch_norm_alone(call, call.input, stream);
    return;
  }
  const NormShape shape{call.rows, call.hidden, call.type, route, block_limit_};
  const NormPlan* plan = norm_plans_.find(shape);
  if (plan == nullptr) {
    norm_plans_.put(shape, this->plan(call, route), 1);
    plan = norm_plans_.find(shape);
  }
  const bool needs_rest =
      rest_ != nullptr && call.rows > max_norm_rows(first_shape_, norm_args_of(call).hidden);
  if (plan->is_fused &&
      (!needs_rest || may_use_rest(/*is_counted=*/false, order_->capture_of(stream) != 0))) {
    launch_norm_fused(call, *plan, needs_rest, stream);
    return;
  }
  // Another order of sums would make the bits depend on the number of rows.
  const CollectiveCall first = all_reduce_of(call);
  const bool in_order = launch_of(first, AlgorithmOverride::planned).plan.rank_order;
  run_alone(first, stream, in_order ? AlgorithmOverride::planned : AlgorithmOverride::kernels);
  launch_norm_alone(call, first.recv, stream);
}

void Collectives::launch_norm_fused(const NormCall& call, const NormPlan& plan, bool uses_rest,
                                    CUstream stream) {
  const std::uint64_t capture = order_->capture_of(stream);
  if (capture != 0) comm_.note_uncounted_waits();
  comm_.begin_call();
  BlockShare::Use use = blocks_->begin(plan.blocks, capture != 0);
  order_->before(stream, capture);
  NormArgs args = norm_args_of(call);
  const CollectiveArgs of_rank = first_args();
  args.call.rank = of_rank.rank;
  args.call.shape = of_rank.shape;
  args.call.calls = of_rank.calls;
  std::ranges::copy(of_rank.scratch, args.call.scratch);
  args.call.counts = of_rank.counts;
  if (uses_rest) use_rest(args.call);
  args.team = std::min(static_cast<std::uint32_t>(plan.team), use.blocks());
  const auto planned =
      hash_with(static_cast<std::uint32_t>(plan.blocks), static_cast<std::uint64_t>(plan.team));
  args.call.mark = mark_of(call, hash_with(planned, skipped_));
  args.call.wait_ctx = comm_.wait_ctx();
  args.call.wait_ctx.kernel = number_;
  modules_->launch_norm(/*is_fused=*/true, args, use.blocks(), stream, capture != 0);
  order_->behind(stream, capture);
  use.done();
  if (use.blocks() < static_cast<unsigned>(plan.blocks)) ++counts_.fewer_blocks;
  ++counts_.norms_fused;
}

void Collectives::launch_norm_alone(const NormCall& call, CUdeviceptr sums, CUstream stream) {
  const CurrentContext current(comm_.driver(), comm_.context());
  NormCall rest = call;
  rest.input = sums;
  modules_->launch_norm(/*is_fused=*/false, norm_args_of(rest), norm_blocks(call.rows), stream,
                        order_->capture_of(stream) != 0);
  ++counts_.norms_apart;
}

}  // namespace polypath
