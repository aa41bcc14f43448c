// Memory that kernels allocate and free: blocks of 64, 128, ... 4096 bytes from slabs of one size
// each. Of one GPU; blocks may be given to other GPUs as handles (shared_pool.cuh).
//
// A slab has a gate, a word that says its class and counts the blocks that are held or promised,
// and a bit for each block. An allocation first raises the gate: what it is promised there, it
// finds among the bits. Threads of a warp that ask for one size are served together: one addition
// to a gate, one atomic operation on a word of bits, for any number of threads. Where they begin to
// look is spread, so that no word is contended by all. A slab whose gate counts nothing is free for
// any class, and taken by one exchange of its gate.
//
// No call waits: a pool that has nothing says so. Only threads of the pool's own GPU allocate and
// free.
//
// Memory model: what a thread did with a block before it freed it happens before what the next
// holder does after its allocation.
#pragma once

#include <cstdint>

#include "polypath/device/detail/bits.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/group.cuh"
#include "polypath/device/pool_view.hpp"
#include "polypath/device/scope.cuh"
#include "polypath/device/status.hpp"

namespace polypath::device {

namespace detail {

/// As many of `bits` as `count` says, or all; those from `from` on, in a circle, first.
POLYPATH_DEVICE std::uint32_t some_of(std::uint32_t bits, unsigned count, unsigned from) {
  from &= 31U;
  const std::uint32_t turned = bits >> from | bits << ((32 - from) & 31U);
  if (count >= popcount(turned)) return bits;
  const std::uint32_t some = turned & ((1U << select_bit(turned, count)) - 1);
  return some << from | some >> ((32 - from) & 31U);
}

}  // namespace detail

class pool {
 public:
  static constexpr std::uint32_t kNoBlock = pool_view::kNoBlock;

  POLYPATH_DEVICE explicit pool(const pool_view& view) : view_(view) {}

  /// A block of at least `bytes` for each thread of the group, which all call it; for 0 bytes none.
  /// `done`: `handle` is the thread's own, until it frees it. Else it is kNoBlock: `empty`,
  /// `too_large`.
  template <typename Group>
  POLYPATH_DEVICE status allocate(const Group& group, std::uint32_t bytes,
                                  std::uint32_t& handle) const {
    return allocate_each(detail::team_of(group), bytes, handle);
  }
  /// One for all of the warp.
  POLYPATH_DEVICE status allocate_one(const this_warp& warp, std::uint32_t bytes,
                                      std::uint32_t& handle) const {
    std::uint32_t own = kNoBlock;
    const auto result =
        static_cast<std::uint32_t>(allocate_each(warp, warp.is_leader() ? bytes : 0, own));
    handle = warp_shuffle(own, 0);
    return static_cast<status>(warp_shuffle(result, 0));
  }

  /// Gives the block of each thread of the group back; kNoBlock: nothing of this thread's. All
  /// threads of the group must have ended their use of a block when the group comes here.
  /// `invalid_handle`, `double_free`: nothing was done for this thread. A block that another thread
  /// holds by now is freed for that thread, without an error.
  template <typename Group>
  POLYPATH_DEVICE status free(const Group& group, std::uint32_t handle) const {
    group.sync();
    POLYPATH_MUTANT_OMITS(pool_mutant::no_release)
    fence<device_scope>();
    const status result = handle == kNoBlock ? status::done : free_block(handle);
    count_frees(detail::team_of(group), handle != kNoBlock && result == status::done,
                result != status::done);
    return result;
  }

  /// Where a block begins, aligned to its size. Of kNoBlock nowhere.
  [[nodiscard]] POLYPATH_DEVICE unsigned char* address(std::uint32_t handle) const {
    return view_.blocks + offset_of(handle);
  }
  [[nodiscard]] POLYPATH_DEVICE static std::uint64_t offset_of(std::uint32_t handle) {
    return std::uint64_t{handle & kGranules} << pool_view::kMinLog2;
  }
  /// Size of a block.
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t bytes_of(std::uint32_t handle) {
    return 1U << (pool_view::kMinLog2 + (handle >> pool_view::kClassShift));
  }

 private:
  static constexpr std::uint32_t kGranules = (1U << pool_view::kClassShift) - 1;
  static constexpr std::uint32_t kNoSlab = 0xFFFFFFFF;
  static constexpr unsigned kWordsAtOnce = 4;  // of bits, by one load
  static constexpr unsigned kGatesAtOnce = 4;  // of a thread that looks for a slab

  /// One thread's way to the blocks of a class.
  struct Search {
    std::uint32_t slab = kNoSlab;
    std::uint32_t need = 0;      ///< blocks
    std::uint32_t promised = 0;  ///< of them, by the gate of the slab
    std::uint32_t quad = 0;      ///< the words to look at next
    bool is_last = false;        ///< the slab has no more than what it promised
  };
  /// Blocks that were taken at once: some of a word.
  struct Taken {
    std::uint32_t bits = 0;
    std::uint32_t first = 0;  ///< the handle of bit 0
  };

  // ---- Groups -----------------------------------------------------------------------------------

  POLYPATH_DEVICE static std::uint32_t from(const this_thread&, std::uint32_t value, unsigned) {
    return value;
  }
  POLYPATH_DEVICE static std::uint32_t from(const this_warp&, std::uint32_t value, unsigned rank) {
    return warp_shuffle(value, rank);
  }
  POLYPATH_DEVICE static unsigned ballot(const this_thread&, bool value) { return value ? 1 : 0; }
  POLYPATH_DEVICE static unsigned ballot(const this_warp&, bool value) {
    return warp_ballot(value);
  }
  POLYPATH_DEVICE static unsigned lowest_of(unsigned bits) {
    return countr_one(~bits & (bits - 1));
  }

  /// Threads of the team with this one's class; 0 for kClasses.
  POLYPATH_DEVICE static unsigned alike(const this_thread&, unsigned of_class) {
    return of_class < pool_view::kClasses ? 1 : 0;
  }
  POLYPATH_DEVICE static unsigned alike(const this_warp&, unsigned of_class) {
    unsigned mask = 0;
    POLYPATH_UNROLL
    for (unsigned c = 0; c < pool_view::kClasses; ++c) {
      const unsigned those = warp_ballot(of_class == c);
      if (of_class == c) mask = those;
    }
    return mask;
  }

  // ---- Numbers ----------------------------------------------------------------------------------

  /// kClasses: too large, or nothing.
  POLYPATH_DEVICE static unsigned class_of(std::uint32_t bytes) {
    if (bytes == 0) return pool_view::kClasses;
    unsigned of_class = 0;
    POLYPATH_UNROLL
    for (unsigned c = 0; c < pool_view::kClasses; ++c)
      of_class += bytes > (1U << (pool_view::kMinLog2 + c)) ? 1 : 0;
    return of_class;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t blocks_of_slab(unsigned of_class) const {
    return 1U << (view_.slab_log2 - pool_view::kMinLog2 - of_class);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* bits_of(std::uint32_t slab) const {
    return view_.bits + (std::size_t{slab} << (view_.slab_log2 - pool_view::kBitsLog2));
  }
  POLYPATH_DEVICE static std::uint32_t of_class(std::uint32_t gate) {
    return gate >> pool_view::kGateShift;
  }
  POLYPATH_DEVICE static unsigned warp_number() {
    return block_index() * ((threads_of_block() + kWarp - 1) / kWarp) + rank_in_block() / kWarp;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t shard() const {
    return warp_number() & ((1U << view_.shards_log2) - 1);
  }
  /// Where this warp begins to look, of a power of two.
  POLYPATH_DEVICE static std::uint32_t spread() { return warp_number() * 0x9E3779B9U >> 5; }

  // ---- Allocation -------------------------------------------------------------------------------

  template <typename Team>
  POLYPATH_DEVICE status allocate_each(const Team& team, std::uint32_t bytes,
                                       std::uint32_t& handle) const {
    const unsigned own = class_of(bytes);
    const bool is_asked = own < pool_view::kClasses;
    const unsigned peers = alike(team, own);
    const unsigned leader = is_asked ? lowest_of(peers) : team.rank();
    unsigned rank = popcount(peers & ((1U << team.rank()) - 1));
    bool is_pending = is_asked;
    handle = kNoBlock;
    Search search;
    std::uint32_t* const hint = view_.hints + shard() * pool_view::kHints + own;
    std::uint32_t start = spread() % view_.slabs;
    if (is_asked && leader == team.rank()) {
      search.need = popcount(peers);
      search.slab = load_relaxed<device_scope>(hint) - 1;
    }
    for (;;) {
      Taken taken;
      if (search.need > 0) {
        if (search.promised == 0 && search.slab != kNoSlab) raise_gate(search, own);
        if (search.promised > 0) taken = take(search, own);
      }
      const std::uint32_t bits = from(team, taken.bits, leader);
      const std::uint32_t first = from(team, taken.first, leader);
      const unsigned count = popcount(bits);
      if (is_pending && rank < count) {
        unsigned which = rank;
        POLYPATH_MUTANT(pool_mutant::same_rank, which = 0)
        handle = first + (detail::select_bit(bits, which) << own);
        is_pending = false;
      }
      rank -= count;
      if (ballot(team, is_pending) == 0) break;
      const bool looks = search.need > 0 && search.promised == 0 && search.slab == kNoSlab;
      const unsigned in_vain = find_slabs(team, looks, own, search, hint, start);
      if (is_pending && (in_vain >> leader & 1U) != 0) is_pending = false;
    }
    const bool has_failed = is_asked && handle == kNoBlock;
    const bool is_too_large = bytes > pool_view::kLargest;
    count_allocations(team, is_asked && !has_failed, has_failed, is_too_large);
    team.sync();  // what the leaders acquired
    if (is_too_large) return status::too_large;
    return has_failed ? status::empty : status::done;
  }

  /// One thread: promises of the slab's gate for what it needs, or a part; or none, and no slab.
  POLYPATH_DEVICE void raise_gate(Search& search, unsigned own) const {
    std::uint32_t* const gate = view_.gates + search.slab;
    const std::uint32_t all = blocks_of_slab(own);
    const std::uint32_t need = search.need;
    std::uint32_t before;
    POLYPATH_MUTANT_ELSE(pool_mutant::no_acquire, before = fetch_add<device_scope>(gate, need))
    before = fetch_add_acquire<device_scope>(gate, need);
    const std::uint32_t held = before & pool_view::kGateCount;
    bool is_of_class = of_class(before) == own + 1;
    POLYPATH_MUTANT(pool_mutant::late_class, is_of_class = of_class(before) != 0)
    const std::uint32_t room = is_of_class && held < all ? all - held : 0;
    search.promised = room < search.need ? room : search.need;
    search.is_last = search.promised < search.need;
    POLYPATH_MUTANT_OMITS(pool_mutant::no_promise_returned)
    if (search.is_last) lower_gate(search.slab, search.need - search.promised);
    if (search.promised == 0) search.slab = kNoSlab;
    begin_at(search, own);
  }
  POLYPATH_DEVICE void lower_gate(std::uint32_t slab, std::uint32_t count) const {
    (void)fetch_add<device_scope>(view_.gates + slab, 0U - count);
  }
  POLYPATH_DEVICE void begin_at(Search& search, unsigned own) const {
    search.quad = spread() & (quads_of_slab(own) - 1);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t quads_of_slab(unsigned own) const {
    const std::uint32_t quads = blocks_of_slab(own) / (32 * kWordsAtOnce);
    return quads == 0 ? 1 : quads;
  }

  /// One thread: blocks of one word, of those that are promised; or none, where others were faster.
  /// There are as many free ones as there are promises, so the way round the slab finds them.
  POLYPATH_DEVICE Taken take(Search& search, unsigned own) const {
    const std::uint32_t all = blocks_of_slab(own);
    for (;;) {
      std::uint32_t* const words = bits_of(search.slab) + search.quad * kWordsAtOnce;
      const ll_packet quad = load_relaxed<device_scope>(reinterpret_cast<const ll_packet*>(words));
      const std::uint32_t used[kWordsAtOnce] = {quad.data[0], quad.data[1], quad.data[2], quad.lap};
      unsigned place = kWordsAtOnce;
      std::uint32_t available = 0;
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kWordsAtOnce; ++i) {
        const unsigned at = (i + spread() / 64) % kWordsAtOnce;
        const std::uint32_t before = (search.quad * kWordsAtOnce + at) * 32;
        std::uint32_t free_here = 0;
        POLYPATH_UNROLL
        for (unsigned word = 0; word < kWordsAtOnce; ++word)
          if (word == at) free_here = ~used[word];
        if (before >= all) free_here = 0;
        if (all < 32) free_here &= (1U << all) - 1;
        if (place == kWordsAtOnce && free_here != 0) {
          place = at;
          available = free_here;
        }
      }
      if (place == kWordsAtOnce) {
        search.quad = (search.quad + 1) & (quads_of_slab(own) - 1);
        continue;
      }
      const std::uint32_t requested = detail::some_of(available, search.promised, spread() / 8);
      auto* const word = words + place;
      std::uint32_t seen;
      POLYPATH_MUTANT_ELSE(pool_mutant::no_acquire, seen = fetch_or<device_scope>(word, requested))
      seen = fetch_or_acquire<device_scope>(word, requested);
      std::uint32_t got = requested & ~seen;
      POLYPATH_MUTANT(pool_mutant::bits_not_compared, got = requested)
      const unsigned count = popcount(got);
      search.promised -= count;
      search.need -= count;
      const std::uint32_t granule = (search.slab << (view_.slab_log2 - pool_view::kMinLog2)) +
                                    ((search.quad * kWordsAtOnce + place) * 32 << own);
      if (search.promised == 0 && search.is_last) search.slab = kNoSlab;
      return {got, granule | own << pool_view::kClassShift};
    }
  }

  // ---- Slabs ------------------------------------------------------------------------------------

  /// A slab for each thread that `looks` for one. Returns for which there is none, by their ranks.
  template <typename Team>
  POLYPATH_DEVICE unsigned find_slabs(const Team& team, bool looks, unsigned own, Search& search,
                                      std::uint32_t* hint, std::uint32_t& start) const {
    unsigned in_vain = 0;
    for (unsigned looking = ballot(team, looks); looking != 0; looking &= looking - 1) {
      const unsigned who = lowest_of(looking);
      const std::uint32_t previous_slab = from(team, own, who);
      const Candidate candidate = find_slab(team, view_.gates, view_.slabs, previous_slab + 1,
                                            blocks_of_slab(previous_slab), from(team, start, who));
      const std::uint32_t slab = candidate.slab;
      if (slab == kNoSlab) in_vain |= 1U << who;
      if (team.rank() != who) continue;
      if (slab == kNoSlab) {
        search.need = 0;
      } else {
        start = slab + 1 < view_.slabs ? slab + 1 : 0;
        settle(search, own, slab, candidate.gate);
        if (search.slab != kNoSlab) store_relaxed<device_scope>(hint, slab + 1);
      }
    }
    return in_vain;
  }

  /// One thread: the slab is looked into next; one that is free is taken for the class, unless
  /// another thread has taken it.
  POLYPATH_DEVICE void settle(Search& search, unsigned own, std::uint32_t slab,
                              std::uint32_t gate) const {
    if (of_class(gate) == own + 1) {
      search.slab = slab;
      return;
    }
    const std::uint32_t all = blocks_of_slab(own);
    const std::uint32_t promised = search.need < all ? search.need : all;
    const std::uint32_t taken = (own + 1) << pool_view::kGateShift | promised;
    if (compare_exchange<device_scope>(view_.gates + slab, gate, taken) != gate) return;
    POLYPATH_MUTANT_OMITS(pool_mutant::no_acquire)
    fence<device_scope>();  // for the thread that freed it by other bits
    search.slab = slab;
    search.promised = promised;
    search.is_last = promised < search.need;
    begin_at(search, own);
  }

  /// How well a slab suits: one of the class with room, one that is free, one that is nearly full.
  POLYPATH_DEVICE static unsigned merit_of(std::uint32_t gate, std::uint32_t size_class,
                                           std::uint32_t blocks) {
    const std::uint32_t held = gate & pool_view::kGateCount;
    if (of_class(gate) != size_class) return held == 0 ? 2 : 0;
    if (held >= blocks) return 0;
    return held + blocks / 8 < blocks ? 3 : 1;
  }
  struct Candidate {
    std::uint32_t slab;
    std::uint32_t gate;
  };

  /// Finds a slab of `size_class`, as gates have it, from `start` on; all of the team look
  /// together, each at some gates.
  template <typename Team>
  POLYPATH_DEVICE_NOINLINE static Candidate find_slab(const Team team,
                                                      const std::uint32_t* all_gates,
                                                      std::uint32_t count, std::uint32_t size_class,
                                                      std::uint32_t blocks, std::uint32_t start) {
    // A gate that counts more than there are blocks was raised in vain, and will be lowered: until
    // then it says nothing about its slab.
    bool is_raised = false;
    for (std::uint32_t done = 0;; done += team.size() * kGatesAtOnce) {
      if (done >= count) {
        if (ballot(team, is_raised) == 0) break;
        is_raised = false;
        done = 0;
      }
      std::uint32_t gates[kGatesAtOnce];
      std::uint32_t slabs[kGatesAtOnce];
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kGatesAtOnce; ++i) {
        const std::uint32_t at = done + i * team.size() + team.rank();
        const bool is_inside = at < count;
        slabs[i] = is_inside ? (start + at) % count : kNoSlab;
        gates[i] = is_inside ? load_relaxed<device_scope>(all_gates + slabs[i]) : 0;
      }
      unsigned best = 0;
      std::uint32_t slab = kNoSlab;
      std::uint32_t best_gate = 0;
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kGatesAtOnce; ++i) {
        if (of_class(gates[i]) == size_class && (gates[i] & pool_view::kGateCount) > blocks)
          is_raised = true;
        const unsigned merit = slabs[i] == kNoSlab ? 0 : merit_of(gates[i], size_class, blocks);
        if (merit <= best) continue;
        best = merit;
        slab = slabs[i];
        best_gate = gates[i];
      }
      for (unsigned merit = 3; merit > 0; --merit) {
        const unsigned those = ballot(team, best == merit);
        if (those == 0) continue;
        return {from(team, slab, lowest_of(those)), from(team, best_gate, lowest_of(those))};
      }
    }
    return {kNoSlab, 0};
  }

  // ---- Freeing ----------------------------------------------------------------------------------

  /// One thread.
  [[nodiscard]] POLYPATH_DEVICE status free_block(std::uint32_t handle) const {
    const unsigned own = handle >> pool_view::kClassShift;
    const std::uint32_t granule = handle & kGranules;
    const unsigned slab_log2 = view_.slab_log2 - pool_view::kMinLog2;
    const std::uint32_t slab = granule >> slab_log2;
    if (own >= pool_view::kClasses || slab >= view_.slabs || (granule & ((1U << own) - 1)) != 0)
      return status::invalid_handle;
    POLYPATH_MUTANT_OMITS(pool_mutant::class_not_looked_at)
    if (of_class(load_relaxed<device_scope>(view_.gates + slab)) != own + 1)
      return status::double_free;
    const std::uint32_t index = (granule & ((1U << slab_log2) - 1)) >> own;
    const std::uint32_t bit = 1U << index % 32;
    const std::uint32_t previous = fetch_and<device_scope>(bits_of(slab) + index / 32, ~bit);
    POLYPATH_MUTANT_OMITS(pool_mutant::bit_not_looked_at)
    if ((previous & bit) == 0) return status::double_free;
    POLYPATH_MUTANT_OMITS(pool_mutant::gate_not_lowered)
    lower_gate(slab, 1);
    return status::done;
  }

  // ---- Counts -----------------------------------------------------------------------------------

  template <typename Team>
  POLYPATH_DEVICE void count(const Team& team, std::uint64_t pool_counts::* which,
                             bool value) const {
    const unsigned those = ballot(team, value);
    if (those != 0 && team.is_leader())
      (void)fetch_add<device_scope>(&(view_.counts[shard()].*which),
                                    std::uint64_t{popcount(those)});
  }
  template <typename Team>
  POLYPATH_DEVICE void count_allocations(const Team& team, bool is_given, bool has_failed,
                                         bool is_too_large) const {
    count(team, &pool_counts::allocated, is_given);
    if (ballot(team, has_failed || is_too_large) == 0) return;
    count(team, &pool_counts::failed, has_failed);
    count(team, &pool_counts::refused, is_too_large);
  }
  template <typename Team>
  POLYPATH_DEVICE void count_frees(const Team& team, bool is_freed, bool is_refused) const {
    count(team, &pool_counts::freed, is_freed);
    count(team, &pool_counts::refused, is_refused);
  }

  pool_view view_;
};

}  // namespace polypath::device
