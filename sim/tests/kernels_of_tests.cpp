// Kernels that the simulated driver of these tests knows.
#include "kernels_of_tests.h"

#include "simt/platform.cuh"

namespace polypath::sim::test {

using namespace simt;

namespace {

struct FloatSum {
  using Element = float;
  using Sum = float;
  SIMT_DEVICE Sum widen(Element value) const { return value; }
  SIMT_DEVICE Sum combine(Sum a, Sum b) const { return a + b; }
  SIMT_DEVICE Element narrow(Sum sum) const { return sum; }
};

constexpr std::size_t kTile = 16384;  // floats

SIMT_DEVICE pointer_list<unsigned char, 1> place(float* at) {
  return {{reinterpret_cast<unsigned char*>(at)}, 1};
}

/// All threads: waits until every rank has sent its flag of the stage for this block.
SIMT_DEVICE bool wait_for_all(const PushArgs& args, unsigned stage) {
  const warp_group all = warp_group::block();
  bool aborted = false;
  if (all.rank() < args.ranks) {
    const std::uint64_t* const flag =
        args.flags[args.rank] + (stage * grid_size() + block_index()) * args.ranks + all.rank();
    aborted = !spin_until([&] { return load_acquire(flag) >= args.round; },
                          [&] { return load_volatile(args.abort) != 0; });
  }
  return !all.any(aborted);
}

SIMT_DEVICE void tell_all(const PushArgs& args, unsigned stage) {
  const warp_group all = warp_group::block();
  all.sync();
  if (all.rank() < args.ranks)
    store_release(
        args.flags[all.rank()] + (stage * grid_size() + block_index()) * args.ranks + args.rank,
        args.round);
}

}  // namespace

SIMT_KERNEL(test_push_sum, 512, PushArgs args) {
  const warp_group all = warp_group::block();
  const std::size_t slice = args.count / args.ranks;  // of an owner
  const std::size_t part = slice / grid_size();       // of it, a block's
  const std::size_t begin = block_index() * part;
  for (std::size_t done = 0; done < part; done += kTile) {
    const std::size_t now = part - done < kTile ? part - done : kTile;
    for (unsigned k = 0; k < args.ranks; ++k) {
      const unsigned owner = (args.rank + k) % args.ranks;
      copy_tile(all, place(args.scratch[owner] + args.rank * slice + begin + done),
                reinterpret_cast<const unsigned char*>(args.in + owner * slice + begin + done),
                now * sizeof(float));
    }
  }
  tell_all(args, 0);
  if (!wait_for_all(args, 0)) return;
  for (std::size_t done = 0; done < part; done += kTile) {
    const std::size_t now = part - done < kTile ? part - done : kTile;
    pointer_list<const float, kMaxGpus> from;
    pointer_list<float, kMaxGpus> to;
    from.count = to.count = static_cast<int>(args.ranks);
    for (unsigned r = 0; r < args.ranks; ++r) {
      from.at[r] = args.scratch[args.rank] + r * slice + begin + done;
      to.at[r] = args.scratch[r] + (args.ranks + args.rank) * slice + begin + done;
    }
    reduce_tile(all, FloatSum{}, to, from, now);
  }
  tell_all(args, 1);
  if (!wait_for_all(args, 1)) return;
  for (unsigned owner = 0; owner < args.ranks; ++owner)
    for (std::size_t done = 0; done < part; done += kTile) {
      const std::size_t now = part - done < kTile ? part - done : kTile;
      copy_tile(all, place(args.out + owner * slice + begin + done),
                reinterpret_cast<const unsigned char*>(args.scratch[args.rank] +
                                                       (args.ranks + owner) * slice + begin + done),
                now * sizeof(float));
    }
}
SIMT_EMULATED_THREADS(test_push_sum, 32);

/// Adds `value` to each of `count` words.
SIMT_KERNEL(test_add, 256, std::uint32_t* words, std::uint32_t count, std::uint32_t value) {
  const unsigned stride = grid_size() * block_size();
  for (unsigned i = block_index() * block_size() + thread_index(); i < count; i += stride)
    store(words + i, load(words + i) + value);
}

/// Counts its threads.
SIMT_KERNEL(test_count_threads, 256, std::uint32_t* count) { red_add_relaxed(count, 1); }
SIMT_EMULATED_THREADS(test_count_threads, 32);

/// Waits for a word that is not 0; times out by the global timer.
SIMT_KERNEL(test_wait_for_word, 64, const std::uint32_t* word, std::uint64_t limit_ns,
            std::uint32_t* aborted) {
  if (thread_index() == 0) {
    const std::uint64_t begin = global_timer_ns();
    if (!spin_until([&] { return load_acquire(word) != 0; },
                    [&] { return limit_ns != 0 && global_timer_ns() - begin > limit_ns; }))
      store(aborted, 1U);
  }
  block_sync();
}

}  // namespace polypath::sim::test
