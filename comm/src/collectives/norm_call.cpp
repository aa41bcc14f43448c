#include "collectives/norm_call.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace polypath {
namespace {

/// What the kernels load and store at once, of rows that begin at multiples of 16 bytes; a row of
/// FP8 begins at multiples of 8.
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kAlignmentOfFloat8 = 8;

/// All that a rank must give alike with the others but type and number of elements.
std::uint32_t hash_of(const NormCall& call) {
  const std::uint32_t forms = (call.residual != 0 ? 1U : 0U) | (call.scale != 0 ? 2U : 0U) | 4U;
  return hash_with(hash_with(forms, call.hidden), std::bit_cast<std::uint32_t>(call.epsilon)) | 1U;
}

struct NamedRange {
  const char* name;
  CUdeviceptr address;
  std::uint64_t bytes;
  std::size_t alignment;
};

void require_apart(const NamedRange& a, const NamedRange& b, bool may_be_same, int rank) {
  if (a.address == 0 || b.address == 0) return;
  if (may_be_same && a.address == b.address) return;
  if (a.address < b.address + b.bytes && b.address < a.address + a.bytes)
    throw InvalidArgument(fmt::format("rank {}: {} and {} overlap", rank, a.name, b.name));
}

}  // namespace

CollectiveCall all_reduce_of(const NormCall& call) {
  return {.op = CollectiveOp::allreduce,
          .type = call.type,
          .count = call.rows * call.hidden,
          .send = call.input,
          .recv = call.scale != 0 ? call.input : call.output,
          .within = hash_of(call)};
}

void require_norm_alike(const NormCall& call, int rank) {
  if (!can_normalise(call.type))
    throw InvalidArgument(
        fmt::format("rank {}: rows of {} are not normalised: float16 and bfloat16 are", rank,
                    to_string(call.type)));
  constexpr std::uint64_t kMaxHidden = std::uint64_t{kMaxNormUnits} * kNormUnit;
  if (call.hidden == 0 || call.hidden % kNormGranule != 0 || call.hidden > kMaxHidden)
    throw InvalidArgument(fmt::format("rank {}: hidden {} is not a multiple of {} from {} to {}",
                                      rank, call.hidden, kNormGranule, kNormGranule, kMaxHidden));
  if (call.rows > std::numeric_limits<std::uint32_t>::max())
    throw InvalidArgument(fmt::format("rank {}: rows {} is too large", rank, call.rows));
  if (!std::isfinite(call.epsilon) || call.epsilon < 0)
    throw InvalidArgument(
        fmt::format("rank {}: epsilon {} is negative or not finite", rank, call.epsilon));
}

void require_norm_buffers(const CudaDriver& driver, const NormCall& call,
                          const CallerRank& caller) {
  if (call.rows == 0) return;
  const std::uint64_t row = call.hidden * size_of(call.type);
  const std::uint64_t bytes = call.rows * row;
  const bool is_float8 = call.scale != 0;
  const NamedRange input{"input", call.input, bytes, kAlignment};
  const NamedRange residual{"residual", call.residual, bytes, kAlignment};
  const NamedRange residual_out{"residual_out", call.residual_out, bytes, kAlignment};
  const NamedRange weight{"weight", call.weight, row, kAlignment};
  const NamedRange scale{"scale", call.scale, sizeof(float), sizeof(float)};
  const NamedRange output{"output", call.output, is_float8 ? bytes / size_of(call.type) : bytes,
                          is_float8 ? kAlignmentOfFloat8 : kAlignment};
  for (const NamedRange* const each : {&input, &residual_out, &weight, &output})
    require_buffer(driver, caller, each->name, each->address, each->bytes, each->alignment);
  if (residual.address != 0 && residual.address != residual_out.address)
    require_buffer(driver, caller, residual.name, residual.address, bytes, kAlignment);
  if (is_float8)
    require_buffer(driver, caller, scale.name, scale.address, scale.bytes, scale.alignment);
  require_apart(residual, residual_out, true, caller.rank);
  require_apart(input, output, !is_float8, caller.rank);
  require_apart(input, residual, false, caller.rank);
  require_apart(input, residual_out, false, caller.rank);
  for (const NamedRange* const other : {&residual, &residual_out, &weight, &scale})
    require_apart(output, *other, false, caller.rank);
  for (const NamedRange* const other : {&weight, &scale})
    require_apart(residual_out, *other, false, caller.rank);
}

NormArgs norm_args_of(const NormCall& call) {
  NormArgs args{};
  args.call.op = CollectiveOp::allreduce;
  args.call.type = call.type;
  args.call.reduction = Operator::sum;
  args.call.stages = 1;
  args.call.count = call.rows * call.hidden;
  args.call.in = std::bit_cast<const void*>(call.input);
  args.call.out = std::bit_cast<void*>(call.output);
  args.residual = std::bit_cast<const void*>(call.residual);
  args.residual_out = std::bit_cast<void*>(call.residual_out);
  args.weight = std::bit_cast<const void*>(call.weight);
  args.scale = std::bit_cast<const float*>(call.scale);
  args.rows = static_cast<std::uint32_t>(call.rows);
  args.hidden = static_cast<std::uint32_t>(call.hidden);
  args.epsilon = call.epsilon;
  args.inverse_hidden = 1.0F / static_cast<float>(call.hidden);
  args.team = 1;
  return args;
}

CallMark mark_of(const NormCall& call, std::uint32_t how) {
  return norm_mark(call.type, call.scale != 0, static_cast<std::uint32_t>(call.rows),
                   static_cast<std::uint32_t>(call.hidden), hash_with(how, hash_of(call)));
}

}  // namespace polypath
