// The kernels that prove that lines of 128 bytes come whole on a path: one pushes lines to the
// other, whose words follow from their turns, and the other compares all of them. They are pairs as
// programs have them, of layout `line`.
#include "comm/kernels/ll128_probe_args.h"
#include "polypath/device/ll128.cuh"
#include "polypath/device/spsc_queue.cuh"
#include "simt/platform.cuh"

namespace polypath {

/// On the host a trial takes a thousand times longer, and says the same by few lines.
SIMT_DEVICE std::uint32_t calls_of(const LL128ProbeArgs& args) {
#if defined(__CUDACC__)
  return args.calls;
#else
  constexpr std::uint32_t kCalls = 32;
  return simt::block_index() > 0 ? 0 : args.calls < kCalls ? args.calls : kCalls;
#endif
}

SIMT_DEVICE std::uint32_t proof_word(std::uint32_t turn, std::uint32_t place) {
  const std::uint32_t value = (turn * 0x9E3779B9U + place * 0x85EBCA6BU) ^ turn >> 15;
  return (value ^ value >> 16) * 0x7FEB352DU;
}

SIMT_DEVICE device::spsc_view view_of_warp(const LL128ProbeArgs& args) {
  device::spsc_view view = args.view;
  const std::uint64_t pair =
      simt::block_index() * (simt::block_size() / simt::kWarp) + simt::warp_index();
  const auto move = [](auto*& at, std::uint64_t bytes) {
    using Pointer = decltype(&*at);
    at = reinterpret_cast<Pointer>(reinterpret_cast<unsigned char*>(at) + bytes);
  };
  move(view.credit, pair * args.producer_bytes);
  move(view.sent, pair * args.producer_bytes);
  move(view.cells, pair * args.consumer_bytes);
  move(view.received, pair * args.consumer_bytes);
  return view;
}

}  // namespace polypath

SIMT_KERNEL(polypath_line_proof_push, polypath::kProofThreads, polypath::LL128ProbeArgs args) {
  using namespace polypath;
  device::spsc_producer<ProbeItem, device::system_scope, device::ll128> pair(view_of_warp(args));
  for (std::uint32_t call = 0; call < calls_of(args); ++call) {
    const std::uint32_t turn = call * simt::kWarp + simt::lane_index();
    ProbeItem line;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < 30; ++i) line.words[i] = proof_word(turn, i);
    const bool aborted = pair.push(simt::this_warp{}, line) != device::status::done;
    if (simt::warp_any(aborted || simt::load_relaxed(args.stop) != 0)) return;
  }
  pair.leave(simt::this_warp{});
}

SIMT_EMULATED_THREADS(polypath_line_proof_push, 32);

SIMT_KERNEL(polypath_line_proof_pop, polypath::kProofThreads, polypath::LL128ProbeArgs args) {
  using namespace polypath;
  device::spsc_consumer<ProbeItem, device::system_scope, device::ll128> pair(view_of_warp(args));
  const std::uint64_t began = simt::global_timer_ns();
  for (std::uint32_t call = 0; call < calls_of(args); ++call) {
    const std::uint32_t turn = call * simt::kWarp + simt::lane_index();
    ProbeItem line;
    const bool aborted = pair.pop(simt::this_warp{}, line) != device::status::done;
    if (simt::warp_any(aborted)) return;
    bool is_whole = true;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < 30; ++i) is_whole = is_whole && line.words[i] == proof_word(turn, i);
    const bool is_late = simt::global_timer_ns() - began > kProofNs;
    if (!is_whole || is_late) {
      simt::atomic_add_relaxed(is_whole ? args.late : args.torn, 1U);
      simt::store_relaxed(args.stop, 1U);
      simt::store_relaxed(args.stop_own, 1U);
    }
    if (simt::warp_any(!is_whole || is_late || simt::load_relaxed(args.stop_own) != 0)) return;
  }
  pair.leave(simt::this_warp{});
}
SIMT_EMULATED_THREADS(polypath_line_proof_pop, 32);
