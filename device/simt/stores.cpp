// How what threads store comes to be seen, and what their loads see.
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "simt/machine.hpp"

namespace polypath::simt {
namespace {

constexpr std::size_t kLine = 128;
constexpr std::size_t kPiece = std::size_t{64} << 10;  // larger stores arrive in such pieces
constexpr std::size_t kMaxInProgress = 4096;           // stores, of a machine that is not timed
constexpr std::size_t kRoom = std::size_t{128} << 10;  // bytes of a block under way, where timed
constexpr unsigned kMaxRepeats = 1000;  // of a load without a pause, before it counts as polling

bool is_word(const std::byte* at, std::size_t bytes, std::size_t word) {
  return bytes == word && reinterpret_cast<std::uintptr_t>(at) % word == 0;
}

#if defined(__SSE2__)
// 16 bytes at once: every processor with AVX promises it for aligned ones.
__attribute__((no_sanitize("thread"))) void copy_16(void* to, const void* from) {
  _mm_store_si128(static_cast<__m128i*>(to), _mm_load_si128(static_cast<const __m128i*>(from)));
}
#else
void copy_16(void* to, const void* from) { std::memcpy(to, from, 16); }
#endif

/// Words at once: other threads of the program may use them, too.
void read_memory(std::byte* to, const std::byte* at, std::size_t bytes) {
  if (is_word(at, bytes, 4)) {
    const auto word = __atomic_load_n(reinterpret_cast<const std::uint32_t*>(at), __ATOMIC_ACQUIRE);
    std::memcpy(to, &word, 4);
  } else if (is_word(at, bytes, 8)) {
    const auto word = __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
    std::memcpy(to, &word, 8);
  } else if (is_word(at, bytes, 16)) {
    alignas(16) std::byte value[16];
    copy_16(value, at);
    std::memcpy(to, value, 16);
  } else {
    std::memcpy(to, at, bytes);
  }
}

void require_may_use_memory(const Thread& thread) {
  if (!thread.may_use_memory)
    throw Fault{"memory is used before earlier kernels have ended (grid_dependency_wait)"};
}

void write_memory(std::byte* at, const std::byte* from, std::size_t bytes) {
  if (is_word(at, bytes, 4)) {
    std::uint32_t word = 0;
    std::memcpy(&word, from, 4);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), word, __ATOMIC_RELEASE);
  } else if (is_word(at, bytes, 8)) {
    std::uint64_t word = 0;
    std::memcpy(&word, from, 8);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), word, __ATOMIC_RELEASE);
  } else if (is_word(at, bytes, 16)) {
    alignas(16) std::byte value[16];
    std::memcpy(value, from, 16);
    copy_16(at, value);
  } else if (is_word(at, bytes, kLine)) {  // for other processes: what they look at comes last
    std::uint64_t last = 0;
    std::memcpy(at, from, kLine - sizeof last);
    std::memcpy(&last, from + kLine - sizeof last, sizeof last);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(at + kLine - sizeof last), last,
                     __ATOMIC_RELEASE);
  } else {
    std::memcpy(at, from, bytes);
  }
}

std::uint64_t add_memory(std::byte* at, std::uint64_t value, std::size_t bytes) {
  if (bytes == 4)
    return __atomic_fetch_add(reinterpret_cast<std::uint32_t*>(at),
                              static_cast<std::uint32_t>(value), __ATOMIC_ACQ_REL);
  return __atomic_fetch_add(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_ACQ_REL);
}

std::uint64_t number(const std::byte* value, std::size_t bytes) {
  std::uint64_t result = 0;
  std::memcpy(&result, value, bytes);
  return result;
}

/// Calls `visit(granule, offset in it, offset in the range, bytes)` for all 16 bytes that the range
/// has a part of.
template <typename Visit>
void for_each_granule(std::uintptr_t from, std::size_t bytes, const Visit& visit) {
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t in = (from + at) % 16;
    const std::size_t count = std::min(16 - in, bytes - at);
    visit((from + at) / 16, in, at, count);
    at += count;
  }
}

unsigned mask_of(std::size_t in, std::size_t count) { return ((1U << count) - 1) << in; }

void keep(Cache& cache, std::uintptr_t from, const std::byte* value, std::size_t bytes) {
  for_each_granule(from, bytes,
                   [&](std::uintptr_t granule, std::size_t in, std::size_t at, std::size_t count) {
                     CachedBytes& line = cache[granule];
                     std::memcpy(line.bytes.data() + in, value + at, count);
                     line.valid = static_cast<std::uint16_t>(line.valid | mask_of(in, count));
                   });
}

void take(Cache& cache, std::uintptr_t from, std::byte* to, std::size_t bytes) {
  if (cache.empty()) return;
  for_each_granule(from, bytes,
                   [&](std::uintptr_t granule, std::size_t in, std::size_t at, std::size_t count) {
                     const CachedBytes* const line = cache.find(granule);
                     if (line == nullptr) return;
                     const unsigned mask = mask_of(in, count);
                     if ((line->valid & mask) == mask) {
                       std::memcpy(to + at, line->bytes.data() + in, count);
                       return;
                     }
                     for (std::size_t i = 0; i < count; ++i)
                       if ((line->valid >> (in + i) & 1U) != 0) to[at + i] = line->bytes[in + i];
                   });
}

/// What a block itself stores it sees, where it has loaded the bytes.
void change(Cache& cache, std::uintptr_t to, const std::byte* value, std::size_t bytes) {
  if (cache.empty()) return;
  for_each_granule(to, bytes,
                   [&](std::uintptr_t granule, std::size_t in, std::size_t at, std::size_t count) {
                     if (CachedBytes* const line = cache.find(granule))
                       std::memcpy(line->bytes.data() + in, value + at, count);
                   });
}

}  // namespace

// ---- loads ----

void Machine::load(const detail::LoadPart* parts, std::size_t count, detail::Loading how) {
  Thread& thread = me();
  require_may_use_memory(thread);
  maybe_yield();
  fetch(thread, {parts, count}, how == detail::Loading::acquire);
  for (std::size_t i = 0; i < count; ++i) read(thread, parts[i], how);
  if (how == detail::Loading::acquire) thread.block->loaded.clear();
}

void Machine::fetch(Thread& thread, std::span<const detail::LoadPart> parts, bool acquires) {
  if (!options_.is_timed) return;
  MemorySystem& outside = *thread.block->grid->outside;
  if (outside.fetch(parts.data(), parts.size(), acquires, [this, &thread] { wake(thread); }))
    wait_as(Thread::State::waiting);
}

void Machine::wait_outside(Thread& thread, double ns) {
  thread.block->grid->outside->wait(ns, [this, &thread] { wake(thread); });
  wait_as(Thread::State::waiting);
}

void Machine::wake(Thread& thread) {
  if (thread.state == Thread::State::waiting) make_ready(thread);
}

void Machine::read(Thread& thread, const detail::LoadPart& part, detail::Loading how) {
  Block& block = *thread.block;
  const auto from = reinterpret_cast<std::uintptr_t>(part.from);
  auto* const to = static_cast<std::byte*>(part.to);
  const std::byte* const at = block.grid->outside->at(from, part.bytes, false);
  read_memory(to, at, part.bytes);
  overlay(block, from, to, part.bytes);
  switch (how) {
    case detail::Loading::plain:
      if (options_.is_timed) break;
      take(block.loaded, from, to, part.bytes);
      if (chance(2)) keep(block.loaded, from, to, part.bytes);
      break;
    case detail::Loading::streaming:
      if (!options_.is_timed) take(block.loaded, from, to, part.bytes);
      break;
    case detail::Loading::constant:
      if (options_.is_timed) break;
      take(block.constants, from, to, part.bytes);
      keep(block.constants, from, to, part.bytes);
      break;
    case detail::Loading::relaxed:
    case detail::Loading::acquire:
      if (part.bytes <= 16) watch(thread, from, at, to, part.bytes);
      break;
  }
}

void Machine::overlay(const Block& block, std::uintptr_t from, std::byte* to, std::size_t bytes) {
  static thread_local std::vector<Store*> overlapping;
  block.under_way.find_overlapping(from, bytes, UINT64_MAX, overlapping);
  for (const Store* const store : overlapping) {
    if (store->adds) {
      if (store->to < from || store->to + store->bytes > from + bytes) continue;
      std::byte* const word = to + (store->to - from);
      const std::uint64_t sum = number(word, store->bytes) + number(store->value(), store->bytes);
      std::memcpy(word, &sum, store->bytes);
      continue;
    }
    const std::uintptr_t begin = std::max(from, store->to);
    const std::uintptr_t end = std::min(from + bytes, store->to + store->bytes);
    std::memcpy(to + (begin - from), store->value() + (begin - store->to), end - begin);
  }
}

void Machine::forget_loaded() { me().block->loaded.clear(); }

void Machine::watch(Thread& thread, std::uintptr_t address, const std::byte* at,
                    const std::byte* seen, std::size_t bytes) {
  const auto known = std::ranges::find_if(thread.watches, [&](const Watch& each) {
    return each.address == address && each.bytes == bytes;
  });
  if (known == thread.watches.end()) {
    Watch watch{address, at, bytes, {}, 0};
    std::memcpy(watch.last_seen.data(), seen, bytes);
    thread.watches.push_back(watch);
    longest_watch_ = std::max(longest_watch_, bytes);
    return;
  }
  const bool is_same = std::memcmp(known->last_seen.data(), seen, bytes) == 0;
  std::memcpy(known->last_seen.data(), seen, bytes);
  known->repeats = is_same ? known->repeats + 1 : 0;
  if (known->repeats > kMaxRepeats) pause();
}

bool Machine::has_changed(const Thread& thread, const Watch& watch) const {
  std::array<std::byte, 16> now;
  read_memory(now.data(), watch.at, watch.bytes);
  overlay(*thread.block, watch.address, now.data(), watch.bytes);
  return std::memcmp(now.data(), watch.last_seen.data(), watch.bytes) != 0;
}

// ---- stores ----

void Machine::store(std::uintptr_t to, const std::byte* value, std::size_t bytes, bool adds) {
  Thread& thread = me();
  Block& block = *thread.block;
  MemorySystem& outside = *block.grid->outside;
  require_may_use_memory(thread);
  for (std::size_t done = 0; done < bytes; done += kPiece) {
    maybe_yield();
    const StorePtr store = StorePtr::make();
    store->block = &block;
    store->serial = ++last_serial_;
    store->to = to + done;
    store->bytes = std::min(bytes - done, kPiece);
    store->adds = adds;
    store->at = outside.at(store->to, store->bytes, true);
    if (adds && reinterpret_cast<std::uintptr_t>(store->at) % bytes != 0)
      throw Fault{"an addition to an address that is not aligned"};
    std::byte* copy = store->small.data();
    if (store->bytes > store->small.size()) {
      store->large = std::make_unique_for_overwrite<std::byte[]>(store->bytes);
      copy = store->large.get();
    }
    std::memcpy(copy, value + done, store->bytes);
    double busy_ns = 0;
    if (options_.is_timed && !outside.send(block.index, store->to, store->bytes, busy_ns,
                                           [this, store] { arrive(store); })) {
      arrive_overlapping(block, store->to, store->bytes, store->serial);
      write(*store);
      wake_pollers(store->to, store->bytes);
      continue;
    }
    post(thread, store);
    if (busy_ns > 0) wait_outside(thread, busy_ns);
    while (options_.is_timed && block.under_way.bytes() > kRoom) {
      block.wants_room.push_back(&thread);
      wait_as(Thread::State::waiting);
    }
  }
}

void Machine::post(Thread& thread, StorePtr store) {
  Block& block = *thread.block;
  if (!thread.own) thread.own = BatchPtr::make();
  store->batch = thread.own;
  ++store->batch->outstanding;
  ++block.grid->outstanding;
  if (!store->adds) change(block.loaded, store->to, store->value(), store->bytes);
  const std::uintptr_t to = store->to;
  const std::size_t bytes = store->bytes;
  block.under_way.add(store);
  if (!options_.is_timed) {
    store->place = under_way_.size();
    under_way_.push_back(std::move(store));
    if (under_way_.size() > kMaxInProgress) arrive_any();
  }
  if (bytes <= 16) wake_pollers(to, bytes);
}

void Machine::write(Store& store) {
  store.has_arrived = true;
  if (store.adds)
    add_memory(store.at, number(store.value(), store.bytes), store.bytes);
  else
    write_memory(store.at, store.value(), store.bytes);
}

void Machine::arrive_overlapping(Block& block, std::uintptr_t from, std::size_t bytes,
                                 std::uint64_t before) {
  for (const StorePtr& store : block.under_way.overlapping(from, bytes, before)) {
    if (store->has_arrived) continue;
    write(*store);
    finish(store);
  }
}

void Machine::arrive(const StorePtr& store) {
  if (store->has_arrived) return;
  const StorePtr held = store;
  // One place sees what one block stores there in order.
  arrive_overlapping(*held->block, held->to, held->bytes, held->serial);
  write(*held);
  finish(held);
}

void Machine::arrive_any() { arrive(under_way_[random() % under_way_.size()]); }

void Machine::finish(const StorePtr& store) {
  const StorePtr held = store;  // the lists below may hold the last other pointer
  Block& block = *held->block;
  Grid& grid = *block.grid;
  block.under_way.remove(*held);
  if (!options_.is_timed) {
    const std::size_t place = held->place;
    under_way_[place] = std::move(under_way_.back());
    under_way_[place]->place = place;
    under_way_.pop_back();
  }
  --held->batch->outstanding;
  --grid.outstanding;
  for (const std::shared_ptr<Fence>& fence : held->fences)
    if (--fence->remaining == 0) make_ready(*fence->thread);
  if (block.under_way.bytes() <= kRoom)
    for (Thread* const each : std::exchange(block.wants_room, {})) make_ready(*each);
  wake_pollers(held->to, held->bytes);
  end_if_done(grid);
}

void Machine::fence(bool is_local) {
  Thread& thread = me();
  require_may_use_memory(thread);
  maybe_yield();
  wait_for_stores(thread, is_local);
  if (options_.is_timed && !is_local) wait_outside(thread, thread.block->grid->outside->fence_ns());
}

void Machine::wait_for_stores(Thread& thread, bool is_local) {
  Block& block = *thread.block;
  MemorySystem& outside = *block.grid->outside;
  const std::uint64_t mark = ++last_mark_;
  bool has_stored = false;
  const auto meet = [&](Batch& batch) {
    if (batch.outstanding == 0) return;
    batch.mark = mark;
    has_stored = true;
  };
  if (thread.own) meet(*thread.own);
  if (thread.known)
    for (const BatchPtr& batch : *thread.known) meet(*batch);
  if (!has_stored) return;
  std::vector<StorePtr> known;
  for (const StorePtr& store : block.under_way.all())
    if (store->batch->mark == mark && (!is_local || outside.is_local(store->to)))
      known.push_back(store);
  if (!options_.is_timed) {
    std::ranges::sort(known, {},
                      [](const StorePtr& each) { return std::pair{each->to, each->serial}; });
    for (const StorePtr& store : known) arrive(store);
    return;
  }
  if (known.empty()) return;
  const auto fence = std::make_shared<Fence>(Fence{&thread, known.size()});
  for (const StorePtr& store : known) store->fences.push_back(fence);
  wait_as(Thread::State::waiting);
}

// ---- lines of a warp ----

template <typename Run>
void Machine::meet_for_lines(void* part, const void* place, const Run& run) {
  constexpr std::size_t kOfLine = kLine / 16;
  Thread& thread = me();
  Meeting& meeting = thread.block->warps[thread.index / 32];
  thread.line_part = part;
  thread.line_place = place;
  meeting.arrived.push_back(&thread);
  if (meeting.arrived.size() < 32) return wait_as(Thread::State::in_warp);
  std::array<Thread*, 32> threads{};
  for (Thread* const each : meeting.arrived) threads[each->index % 32] = each;
  for (std::size_t first = 0; first < threads.size(); first += kOfLine) {
    const auto begin = reinterpret_cast<std::uintptr_t>(threads[first]->line_place);
    for (std::size_t i = 0; i < kOfLine; ++i)
      if (begin % kLine != 0 ||
          reinterpret_cast<std::uintptr_t>(threads[first + i]->line_place) != begin + 16 * i)
        throw Fault{"eight threads of a warp have no line of 128 bytes"};
    run(begin, &threads[first]);
  }
  release(meeting);
  wait_as(Thread::State::ready);
}

void Machine::store_lines(void* to, const void* part) {
  meet_for_lines(const_cast<void*>(part), to, [&](std::uintptr_t begin, Thread* const* threads) {
    std::array<std::byte, kLine> line;
    for (std::size_t at = 0; at < kLine; at += 16)
      std::memcpy(&line[at], threads[at / 16]->line_part, 16);
    store(begin, line.data(), kLine, false);
  });
}

void Machine::load_lines(void* part, const void* from) {
  meet_for_lines(part, from, [&](std::uintptr_t begin, Thread* const* threads) {
    const auto* const at = reinterpret_cast<const std::byte*>(begin);
    std::array<std::byte, kLine> line;
    constexpr std::size_t kLast = kLine - 16;
    // The last 16 bytes first, which are stored last; their thread waits for them.
    const detail::LoadPart parts[] = {{&line[kLast], at + kLast, 16}, {line.data(), at, kLast}};
    Thread& thread = me();
    require_may_use_memory(thread);
    maybe_yield();
    fetch(thread, parts, false);
    Thread& watcher = *threads[kLast / 16];
    std::erase_if(watcher.watches,
                  [&](const Watch& each) { return each.address == begin + kLast; });
    read(watcher, parts[0], detail::Loading::relaxed);
    read(thread, parts[1], detail::Loading::relaxed);
    for (std::size_t i = 0; i < kLine; i += 16)
      std::memcpy(threads[i / 16]->line_part, &line[i], 16);
  });
}

std::byte* Machine::word_to_change(std::uintptr_t at, unsigned bytes) {
  Thread& thread = me();
  Block& block = *thread.block;
  MemorySystem& outside = *block.grid->outside;
  maybe_yield();
  std::uint64_t scratch = 0;
  const detail::LoadPart part{&scratch, reinterpret_cast<const void*>(at), bytes};
  fetch(thread, {&part, 1}, false);
  std::byte* const word = outside.at(at, bytes, true);
  if (reinterpret_cast<std::uintptr_t>(word) % bytes != 0)
    throw Fault{"an atomic operation on an address that is not aligned"};
  arrive_overlapping(block, at, bytes, UINT64_MAX);
  return word;
}

std::uint64_t Machine::fetch_add(std::uintptr_t at, std::uint64_t value, unsigned bytes) {
  const std::uint64_t old = add_memory(word_to_change(at, bytes), value, bytes);
  wake_pollers(at, bytes);
  return old;
}

std::uint64_t Machine::fetch_or(std::uintptr_t at, std::uint64_t bits, unsigned bytes) {
  std::byte* const word = word_to_change(at, bytes);
  const std::uint64_t old =
      bytes == 4
          ? __atomic_fetch_or(reinterpret_cast<std::uint32_t*>(word),
                              static_cast<std::uint32_t>(bits), __ATOMIC_ACQ_REL)
          : __atomic_fetch_or(reinterpret_cast<std::uint64_t*>(word), bits, __ATOMIC_ACQ_REL);
  if ((bits & ~old) != 0) wake_pollers(at, bytes);
  return old;
}

std::uint64_t Machine::fetch_and(std::uintptr_t at, std::uint64_t bits, unsigned bytes) {
  std::byte* const word = word_to_change(at, bytes);
  const std::uint64_t old =
      bytes == 4
          ? __atomic_fetch_and(reinterpret_cast<std::uint32_t*>(word),
                               static_cast<std::uint32_t>(bits), __ATOMIC_ACQ_REL)
          : __atomic_fetch_and(reinterpret_cast<std::uint64_t*>(word), bits, __ATOMIC_ACQ_REL);
  if ((old & ~bits) != 0) wake_pollers(at, bytes);
  return old;
}

std::uint64_t Machine::compare_exchange(std::uintptr_t at, std::uint64_t expected,
                                        std::uint64_t value, unsigned bytes) {
  std::byte* const word = word_to_change(at, bytes);
  const bool is_new = value != expected;
  bool is_stored = false;
  if (bytes == 4) {
    auto narrow = static_cast<std::uint32_t>(expected);
    is_stored = __atomic_compare_exchange_n(reinterpret_cast<std::uint32_t*>(word), &narrow,
                                            static_cast<std::uint32_t>(value), false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    expected = narrow;
  } else {
    is_stored = __atomic_compare_exchange_n(reinterpret_cast<std::uint64_t*>(word), &expected,
                                            value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  }
  if (is_stored && is_new) wake_pollers(at, bytes);
  return expected;
}

}  // namespace polypath::simt
