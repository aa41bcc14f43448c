// Kernels that ask the hardware for one thing alone.
#include "limits_bench.h"
#include "polypath/device/scope.cuh"
#include "simt/platform.cuh"

namespace messaging_bench {

/// One thread of each warp adds to one word, `times` times.
SIMT_KERNEL(polypath_bench_fetch_adds, 512, LimitRun run) {
  if (polypath::simt::rank_in_warp() != 0) return;
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < run.times; ++i)
    sum += polypath::device::fetch_add<polypath::device::system_scope>(
        reinterpret_cast<std::uint64_t*>(run.memory), std::uint64_t{1});
  if (sum == ~std::uint64_t{0}) *run.result = 1;  // never, but the compiler does not know
}

/// All of the memory, 16 bytes a load, `times` times.
SIMT_KERNEL(polypath_bench_reads, 512, LimitRun run) {
  const std::uint64_t packets = run.bytes / 16;
  const std::uint64_t threads =
      std::uint64_t{polypath::simt::grid_size()} * polypath::simt::block_size();
  const std::uint64_t own =
      std::uint64_t{polypath::simt::block_index()} * polypath::simt::block_size() +
      polypath::simt::thread_index();
  const auto* const from = reinterpret_cast<const polypath::device::ll_packet*>(run.memory);
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < run.times; ++i) {
    std::uint64_t at = own;
    for (; at + 3 * threads < packets; at += 4 * threads) {
      polypath::device::ll_packet four[4];
      POLYPATH_UNROLL
      for (unsigned k = 0; k < 4; ++k)
        four[k] =
            polypath::device::load_relaxed<polypath::device::device_scope>(from + at + k * threads);
      POLYPATH_UNROLL
      for (unsigned k = 0; k < 4; ++k)
        sum += four[k].lap ^ four[k].data[0] ^ four[k].data[1] ^ four[k].data[2];
    }
    for (; at < packets; at += threads)
      sum += polypath::device::load_relaxed<polypath::device::device_scope>(from + at).lap;
  }
  if (sum == 0xFFFFFFF1U) *run.result = 1;
}

/// The same by stores, of one value a time, so that the last is known.
SIMT_KERNEL(polypath_bench_stores, 512, LimitRun run) {
  const std::uint64_t packets = run.bytes / 16;
  const std::uint64_t threads =
      std::uint64_t{polypath::simt::grid_size()} * polypath::simt::block_size();
  auto* const to = reinterpret_cast<polypath::device::ll_packet*>(run.memory);
  for (std::uint32_t i = 0; i < run.times; ++i)
    for (std::uint64_t at =
             std::uint64_t{polypath::simt::block_index()} * polypath::simt::block_size() +
             polypath::simt::thread_index();
         at < packets; at += threads)
      polypath::device::store_relaxed<polypath::device::system_scope>(
          to + at, polypath::device::ll_packet{{i + 1, i + 1, i + 1}, i + 1});
}

}  // namespace messaging_bench
