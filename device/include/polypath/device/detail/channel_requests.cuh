// What is under way in a context of a channel (channel.cuh), and where it lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/channel_view.hpp"
#include "polypath/device/detail/channel_lists.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/ring_buffer.cuh"
#include "polypath/device/scope.cuh"
#include "polypath/device/status.hpp"

namespace polypath::device::detail {

struct channel_pending {
  status result;
  std::uint32_t slot;
  std::uint32_t generation;
};

/// Called by all threads of one warp alike.
class channel_requests {
 public:
  static constexpr std::uint64_t kNoWindow = ~std::uint64_t{0};

  POLYPATH_DEVICE channel_requests(const channel_view& view, std::uint32_t context)
      : view_(view),
        context_(context),
        mine_(view.local + view.table_bytes() + context * view.context_bytes()) {}

  [[nodiscard]] POLYPATH_DEVICE const channel_view& view() const { return view_; }

  /// Window and offset in one word: 8 and 56 bits.
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t window_of(const void* data,
                                                        std::uint64_t bytes) const {
    const auto begin = reinterpret_cast<std::uint64_t>(data);
    for (std::uint32_t window = 0; window < view_.windows; ++window) {
      const std::uint64_t first = table(window + 1, view_.rank);
      const std::uint64_t size = table(window + 1, view_.ranks);
      if (begin >= first && begin - first <= size && bytes <= size - (begin - first))
        return std::uint64_t{window} << 56 | (begin - first);
    }
    return kNoWindow;
  }

 protected:
  using View = channel_view;
  using Unit = channel_unit;
  using Units = ring_buffer<channel_unit, system_scope, ll>;
  using Grants = ring_buffer<channel_cts, system_scope, ll>;
  enum : std::uint32_t { kUnderWay = 1, kArriving, kDone };  // a request

  // ---- memory ----

  [[nodiscard]] POLYPATH_DEVICE static std::uint64_t* word(unsigned char* at) {
    return reinterpret_cast<std::uint64_t*>(at);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t table(std::uint32_t row, std::uint32_t column) const {
    return load_constant(word(view_.local) + row * view_.table_words() + column);
  }
  [[nodiscard]] POLYPATH_DEVICE unsigned char* context_of(std::uint32_t rank) const {
    return reinterpret_cast<unsigned char*>(table(0, rank)) + (mine_ - view_.local);
  }
  [[nodiscard]] POLYPATH_DEVICE Units ring_from(std::uint32_t rank) const {
    return {mine_ + view_.rings() + rank * view_.ring_bytes(), view_.units_log2};
  }
  [[nodiscard]] POLYPATH_DEVICE Units ring_to(std::uint32_t rank) const {
    return {context_of(rank) + view_.rings() + view_.rank * view_.ring_bytes(), view_.units_log2};
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t* credit(unsigned char* context,
                                                      std::uint32_t rank) const {
    return word(context + View::kCredits + rank * View::kLine);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t turn_of(std::uint32_t slot,
                                                      std::uint32_t generation) const {
    return std::uint64_t{generation} << view_.requests_log2 | slot;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t room() const {
    return std::uint64_t{1} << view_.units_log2;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t* turns_at() const {
    return word(mine_ + View::kTurns) + rank_in_warp() * View::kTurnWords;
  }

  // ---- requests ----
  // The words of a slot: generation and state; buffer; bytes; window; tag and rank; bytes received;
  // result.

  struct Slot {
    std::uint32_t generation;
    std::uint32_t state;
    unsigned char* buffer;
    std::uint64_t bytes;
    std::uint64_t window;
  };
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t* slot_at(std::uint32_t slot) const {
    return word(mine_ + view_.slots() + slot * View::kSlotBytes);
  }
  [[nodiscard]] POLYPATH_DEVICE static std::uint64_t get(const std::uint64_t* at) {
    return load_relaxed<device_scope>(at);
  }
  POLYPATH_DEVICE static void set(std::uint64_t* at, std::uint64_t value) {
    if (rank_in_warp() == 0) store_relaxed<device_scope>(at, value);
  }
  [[nodiscard]] POLYPATH_DEVICE Slot slot_of(std::uint32_t slot) const {
    const std::uint64_t* const at = slot_at(slot);
    const std::uint64_t first = get(at);
    return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32),
            reinterpret_cast<unsigned char*>(get(at + 1)), get(at + 2), get(at + 3)};
  }
  POLYPATH_DEVICE void set_state(std::uint32_t slot, std::uint32_t state) const {
    const auto generation = static_cast<std::uint32_t>(get(slot_at(slot)));
    warp_sync();  // all have loaded it
    set(slot_at(slot), generation | std::uint64_t{state} << 32);
    warp_sync();
  }
  POLYPATH_DEVICE void set_result(std::uint32_t slot, std::uint32_t state, const received& got,
                                  status result) const {
    std::uint64_t* const at = slot_at(slot);
    set(at + 4, got.tag | std::uint64_t{got.source} << 32);
    set(at + 5, got.bytes);
    set(at + 6, static_cast<std::uint64_t>(result));
    set_state(slot, state);
  }
  /// A free slot; kNothing: there is none.
  POLYPATH_DEVICE channel_pending take_slot(unsigned char* buffer, std::uint64_t bytes,
                                            std::uint64_t window) {
    const std::uint32_t here = 1U << view_.requests_log2 > rank_in_warp() * kWarp ? ~used_ : 0;
    const unsigned those = warp_ballot(here != 0);
    if (those == 0) return {status::full, request::kNothing, 0};
    const unsigned lane = countr_one(~those);
    const unsigned bit = countr_one(~warp_shuffle(here, lane));
    if (rank_in_warp() == lane) used_ |= 1U << bit;
    const std::uint32_t slot = lane * kWarp + bit;
    std::uint64_t* const at = slot_at(slot);
    const auto generation = static_cast<std::uint32_t>(get(at)) + 1;
    warp_sync();
    set(at, generation | std::uint64_t{kUnderWay} << 32);
    set(at + 1, reinterpret_cast<std::uint64_t>(buffer));
    set(at + 2, bytes);
    set(at + 3, window);
    set(at + 6, static_cast<std::uint64_t>(status::done));  // a send has no other result
    warp_sync();
    return {status::done, slot, generation};
  }
  POLYPATH_DEVICE status look_at(const request& handle, received& got) {
    if (handle.slot == request::kNothing) return status::done;
    if (handle.slot >= 1U << view_.requests_log2) return status::bad_request;
    const bool is_used =
        (warp_shuffle(used_, handle.slot / kWarp) >> handle.slot % kWarp & 1U) != 0;
    const Slot slot = slot_of(handle.slot);
    if (!is_used || slot.generation != handle.generation) return status::bad_request;
    if (slot.state == kUnderWay) return status::in_progress;
    if (slot.state == kArriving) {
      Unit nothing;
      const std::uint64_t turn = turn_of(handle.slot, handle.generation);
      const Units arrivals(mine_ + view_.arrivals(), view_.requests_log2);
      if (!warp_any(rank_in_warp() == 0 && arrivals.get(turn, nothing))) return status::in_progress;
      POLYPATH_MUTANT_OMITS(channel_mutant::no_acquire)
      fence<system_scope>();
      warp_sync();
    }
    const std::uint64_t* const at = slot_at(handle.slot);
    const std::uint64_t from = get(at + 4);
    got = {static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(from >> 32), get(at + 5)};
    const auto result = static_cast<status>(get(at + 6));
    if (rank_in_warp() == handle.slot / kWarp) used_ &= ~(1U << handle.slot % kWarp);
    return result;
  }

  View view_;
  std::uint32_t context_;
  unsigned char* mine_;
  std::uint32_t used_ = 0;  ///< slots 32 * thread and after
};

}  // namespace polypath::device::detail
