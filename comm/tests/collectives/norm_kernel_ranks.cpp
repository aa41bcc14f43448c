#include "norm_kernel_ranks.hpp"

#include <cstring>
#include <stdexcept>

namespace polypath::test {

NormKernelRanks::NormKernelRanks(const ScratchShape& shape, unsigned threads)
    : shape_(shape), threads_(threads), ranks_(shape.ranks) {
  for (Rank& rank : ranks_) rank.scratch.resize(scratch_bytes(shape) / sizeof(Line));
}

void NormKernelRanks::set_calls_of_cells(std::uint64_t number) {
  const std::uint64_t value = number * kCallParts;
  for (Rank& rank : ranks_)
    std::memcpy(reinterpret_cast<std::byte*>(rank.scratch.data()) + ScratchLayout::calls(), &value,
                sizeof value);
}

simt::RunOptions NormKernelRanks::options(std::uint64_t seed) const {
  simt::RunOptions options;
  options.seed = seed;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    options.memory.push_back(
        {ranks_[rank].scratch.data(), scratch_bytes(shape_), static_cast<int>(rank)});
  return options;
}

void NormKernelRanks::complete(CollectiveArgs& args) {
  for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer)
    args.scratch[peer] = reinterpret_cast<unsigned char*>(ranks_[peer].scratch.data());
  args.counts = args.scratch[args.rank];
  Rank& rank = ranks_[args.rank];
  args.wait_ctx = {&rank.abort_flag, 1'000'000'000, &rank.status, &rank.reports, 7};
}

std::vector<NormKernelRanks::Memory> NormKernelRanks::memory_of(
    const MixedCase& what, Random& random, std::vector<simt::Launch>& launches) {
  std::vector<NormImage> norms;
  std::vector<Image> others;
  if (what.is_norm)
    norms = norm_images(random, what.norm);
  else
    others = images_of(random, what.collective);
  std::vector<Memory> all(ranks_.size());
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Memory& memory = all[rank];
    memory.image = what.is_norm ? static_cast<const Image&>(norms[rank]) : others[rank];
    memory.lines.resize((memory.image.before.size() + sizeof(Line) - 1) / sizeof(Line));
    auto* const at = reinterpret_cast<unsigned char*>(memory.lines.data());
    std::memcpy(at, memory.image.before.data(), memory.image.before.size());
    if (!what.is_norm) {
      CollectiveArgs args = args_of(what.collective, shape_, rank);
      complete(args);
      args.in = at + memory.image.in_at;
      args.out = at + memory.image.out_at;
      launches.push_back(simt::launch(
          collective_kernel(what.collective.family, what.collective.op, what.collective.type).name,
          static_cast<int>(rank), what.collective.blocks_of(rank), threads_, args));
      continue;
    }
    NormArgs args = norm_args_of(what.norm, shape_, rank);
    if (what.norm.rows > max_norm_rows(shape_, what.norm.hidden))
      throw std::invalid_argument(what.norm.text() + " does not fit");
    complete(args.call);
    args.call.in = at + memory.image.in_at;
    args.call.out = at + memory.image.out_at;
    args.residual = what.norm.has_residual ? at + norms[rank].residual_at : nullptr;
    args.residual_out = at + norms[rank].residual_out_at;
    args.weight = at + norms[rank].weight_at;
    args.scale =
        what.norm.to_float8 ? reinterpret_cast<const float*>(at + norms[rank].scale_at) : nullptr;
    launches.push_back(simt::launch(norm_kernel(true, what.norm.type).name, static_cast<int>(rank),
                                    what.norm.blocks_of(rank), threads_, args));
  }
  return all;
}

std::string NormKernelRanks::run_row(const std::vector<MixedCase>& cases, std::uint64_t seed,
                                     std::uint32_t missing) {
  Random random(seed);
  simt::RunOptions run_options = options(random());
  std::vector<std::vector<Memory>> memory;
  std::vector<std::vector<simt::Launch>> launches(ranks_.size());
  for (const MixedCase& what : cases) {
    std::vector<simt::Launch> of_call;
    memory.push_back(memory_of(what, random, of_call));
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      Memory& of_rank = memory.back()[rank];
      run_options.memory.push_back(
          {of_rank.lines.data(), of_rank.lines.size() * sizeof(Line), static_cast<int>(rank)});
      if (rank != missing) launches[rank].push_back(of_call[rank]);
    }
  }
  if (const std::string error = simt::run(launches, run_options); !error.empty()) return error;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].status.given_up != 0)
      return "rank " + std::to_string(rank) + " gave up, waiting for rank " +
             std::to_string(ranks_[rank].status.waited_for_rank);
  for (std::size_t call = 0; call < cases.size(); ++call)
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Memory& of_rank = memory[call][rank];
      const std::string text =
          difference(of_rank.image, reinterpret_cast<const unsigned char*>(of_rank.lines.data()));
      if (!text.empty())
        return "call " + std::to_string(call) + " on rank " + std::to_string(rank) + ": " +
               (cases[call].is_norm ? cases[call].norm.text() : cases[call].collective.text()) +
               "\n" + text;
    }
  return {};
}

std::string NormKernelRanks::run_apart(const std::vector<MixedCase>& by_rank, std::uint64_t seed) {
  Random random(seed);
  simt::RunOptions run_options = options(random());
  std::vector<std::vector<Memory>> memory;
  std::vector<std::vector<simt::Launch>> launches(ranks_.size());
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    std::vector<simt::Launch> of_call;
    memory.push_back(memory_of(by_rank[rank], random, of_call));
    Memory& of_rank = memory.back()[rank];
    run_options.memory.push_back(
        {of_rank.lines.data(), of_rank.lines.size() * sizeof(Line), static_cast<int>(rank)});
    launches[rank].push_back(of_call[rank]);
  }
  return simt::run(launches, run_options);
}

}  // namespace polypath::test
