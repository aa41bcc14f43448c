// Kernels that send active messages and execute them.
#include "channel_bench.h"
#include "items.cuh"
#include "polypath/device/active_messages.cuh"

namespace messaging_bench {

/// 32 bytes of arguments, looked at word by word.
struct TakeNote {
  using arguments = Item<8>;
  Count* count;
  SIMT_DEVICE void operator()(unsigned, const arguments& item) const { count->add(item); }
};
/// Messages and replies: what a request and its answer cost.
struct Noted {
  using arguments = Item<3>;
  Count* count;
  SIMT_DEVICE void operator()(unsigned, const arguments& item) const { count->add(item); }
};
struct TakeNoteAndSay {
  using arguments = Item<8>;
  SIMT_DEVICE device::reply<Noted> operator()(unsigned, const arguments& item) const {
    return {make_item<3>(id_of(item))};
  }
};

template <typename Handler>
SIMT_DEVICE void run_active(const ActiveRun& run) {
  const simt::this_warp warp{};
  Count count;
  device::active_messages<TakeNote, TakeNoteAndSay, Noted> messages(
      run.view, TakeNote{&count}, TakeNoteAndSay{}, Noted{&count});
  const std::uint64_t own =
      (std::uint64_t{simt::block_index()} * simt::block_size() + simt::thread_index()) /
      simt::kWarp;
  const std::uint64_t warps = std::uint64_t{run.senders} * simt::block_size() / simt::kWarp;
  bool has_come = true;
  if (simt::block_index() < run.senders) {
    for (std::uint32_t call = 0; call < run.calls && has_come; ++call) {
      const std::uint64_t id = (own * run.calls + call) * simt::kWarp + warp.rank();
      has_come =
          messages.template send<Handler>(warp, run.to, make_item<8>(id)) == device::status::done;
    }
    if (warp.is_leader() && simt::atomic_add_acq_rel(run.done, 1U) == warps - 1) messages.close();
    warp.sync();
  } else if (run.senders == 0 && own == 0) {
    if (warp.is_leader()) messages.close();
    warp.sync();
  }
  // Senders wait for the replies; others for the requests.
  if (has_come) messages.progress_until_closed(warp);
  count.write(run.tally);
}

SIMT_KERNEL(polypath_bench_active, 512, ActiveRun run) { run_active<TakeNote>(run); }
SIMT_KERNEL(polypath_bench_active_replied, 512, ActiveRun run) { run_active<TakeNoteAndSay>(run); }

}  // namespace messaging_bench
