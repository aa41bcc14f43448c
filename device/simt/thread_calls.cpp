// The functions of host.hpp: what the thread whose turn it is asks of the machine.
#include <algorithm>
#include <cstdio>

#include "simt/machine.hpp"

namespace polypath::device {

using simt::Fault;
using simt::Machine;
using simt::Thread;

unsigned thread_index() { return Machine::me().index; }
unsigned block_size() { return Machine::me().block->grid->threads; }
unsigned block_index() { return Machine::me().block->index; }
unsigned grid_size() { return static_cast<unsigned>(Machine::me().block->grid->blocks.size()); }

void grid_dependency_wait() { Machine::me().may_use_memory = true; }

void barrier_sync(unsigned id, unsigned threads) {
  Machine::machine_of_me().meet_at_barrier(id, threads, false);
}
bool barrier_any(unsigned id, unsigned threads, bool value) {
  return Machine::machine_of_me().meet_at_barrier(id, threads, value);
}

void warp_sync() { Machine::machine_of_me().meet_in_warp(0, 0, true); }
unsigned warp_ballot(bool value) {
  return static_cast<unsigned>(Machine::machine_of_me().meet_in_warp(value ? 1 : 0, 0, true));
}

void fence_sys() {
  Machine::machine_of_me().fence(false);
  Machine::machine_of_me().forget_loaded();
}
void fence_gpu() {
  Machine::machine_of_me().fence(true);
  Machine::machine_of_me().forget_loaded();
}

std::uint64_t global_timer_ns() {
  Thread& thread = Machine::me();
  thread.looked_at_time = true;
  return thread.block->grid->outside->now_ns();
}
void sleep_ns(unsigned ns) { Machine::machine_of_me().sleep(ns); }
void spin_pause() { Machine::machine_of_me().pause(); }
void stop_watching() { Machine::me().watches.clear(); }

namespace detail {

void fail_misaligned(const void* address, std::size_t bytes) {
  char text[80];
  std::snprintf(text, sizeof text, "%p is not aligned to %zu bytes", address, bytes);
  throw Fault{text};
}

void* dynamic_shared_memory() { return Machine::me().block->dynamic_shared.data(); }

void* shared_variable(const void* key, std::size_t bytes, std::size_t) {
  // Poisoned, not zero: on the device it holds stale contents.
  constexpr std::byte kPoison{0xC3};
  std::unique_ptr<std::byte[]>& variable = Machine::me().block->shared[key];
  if (!variable) {
    variable = std::make_unique<std::byte[]>(bytes);
    std::fill_n(variable.get(), bytes, kPoison);
  }
  return variable.get();
}

std::uint64_t exchange_in_warp(std::uint64_t value, unsigned lane) {
  return Machine::machine_of_me().meet_in_warp(value, lane, false);
}

void load_bytes(const LoadPart* parts, std::size_t count, Loading how) {
  Machine::machine_of_me().load(parts, count, how);
}

void store_bytes(void* to, const void* value, std::size_t bytes, Storing how) {
  if (how == Storing::release) Machine::machine_of_me().fence(false);
  Machine::machine_of_me().store(reinterpret_cast<std::uintptr_t>(to),
                                 static_cast<const std::byte*>(value), bytes, false);
}

void store_vector(void* to, const void* value, Storing how) {
  constexpr std::size_t kHalf = 8;
  if (Machine::machine_of_me().is_timed()) return store_bytes(to, value, 2 * kHalf, how);
  // The second half first: a flag that follows the data is the harder case.
  store_bytes(static_cast<std::byte*>(to) + kHalf, static_cast<const std::byte*>(value) + kHalf,
              kHalf, how);
  store_bytes(to, value, kHalf, how == Storing::release ? Storing::relaxed : how);
}

void store_line(void* to, const void* part) {
  if (!Machine::machine_of_me().options().whole_lines) {
    // Where stores come in order, the last part of a line comes first all the same.
    constexpr unsigned kLateNs = 10'000;
    const bool is_last = reinterpret_cast<std::uintptr_t>(to) % 128 == 112;
    if (Machine::machine_of_me().is_timed() && !is_last) {
      stop_watching();  // a sleep would wait for what is watched
      sleep_ns(kLateNs);
    }
    return store_bytes(to, part, 16, Storing::relaxed);
  }
  Machine::machine_of_me().store_lines(to, part);
}
void load_line(void* part, const void* from) {
  const LoadPart alone{part, from, 16};
  if (!Machine::machine_of_me().options().whole_lines)
    return load_bytes(&alone, 1, Loading::relaxed);
  Machine::machine_of_me().load_lines(part, from);
}

void add(void* to, std::uint64_t value, unsigned bytes, Ordering order) {
  if (order == Ordering::release) Machine::machine_of_me().fence(false);
  Machine::machine_of_me().store(reinterpret_cast<std::uintptr_t>(to),
                                 reinterpret_cast<const std::byte*>(&value), bytes, true);
}

std::uint64_t fetch_add(void* at, std::uint64_t value, unsigned bytes, Ordering order) {
  if (order == Ordering::acq_rel || order == Ordering::release)
    Machine::machine_of_me().fence(false);
  const std::uint64_t old =
      Machine::machine_of_me().fetch_add(reinterpret_cast<std::uintptr_t>(at), value, bytes);
  if (order == Ordering::acq_rel || order == Ordering::acquire)
    Machine::machine_of_me().forget_loaded();
  return old;
}

std::uint64_t fetch_or(void* at, std::uint64_t bits, unsigned bytes, Ordering order) {
  const std::uint64_t old =
      Machine::machine_of_me().fetch_or(reinterpret_cast<std::uintptr_t>(at), bits, bytes);
  if (order == Ordering::acquire) Machine::machine_of_me().forget_loaded();
  return old;
}
std::uint64_t fetch_and(void* at, std::uint64_t bits, unsigned bytes) {
  return Machine::machine_of_me().fetch_and(reinterpret_cast<std::uintptr_t>(at), bits, bytes);
}

std::uint64_t compare_exchange(void* at, std::uint64_t expected, std::uint64_t value,
                               unsigned bytes) {
  return Machine::machine_of_me().compare_exchange(reinterpret_cast<std::uintptr_t>(at), expected,
                                                   value, bytes);
}

unsigned parts_of_tile() { return Machine::machine_of_me().options().max_parts; }

unsigned owner_of_part(const void* tile, unsigned part, unsigned group_size) {
  const Thread& thread = Machine::me();
  std::uint64_t value = Machine::machine_of_me().options().seed * 31 + part;
  value = value * 0x9E3779B97F4A7C15U + reinterpret_cast<std::uintptr_t>(tile);
  // A group of several blocks agrees on it.
  const bool is_of_block = group_size <= thread.block->threads.size();
  value = value * 0x9E3779B97F4A7C15U + (is_of_block ? thread.block->index : 0);
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
  value = (value ^ value >> 27) * 0x94D049BB133111EBU;
  return static_cast<unsigned>((value ^ value >> 31) % group_size);
}

}  // namespace detail
}  // namespace polypath::device
