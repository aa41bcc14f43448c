#include "comm/deferred_memory.hpp"

#include <bit>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/memory_offer.hpp"
#include "driver/context_resets.hpp"
#include "exec/relaxed_capture.hpp"
#include "polypath/device/detail/mutant_switch.hpp"

namespace polypath {
namespace {

/// Until the thread looks anew, if nothing rings before.
constexpr std::chrono::seconds kLookAnew{1};

}  // namespace

DeferredMemory::DeferredMemory(SymmetricHeap& heap, SymmetricMemory memory)
    : heap_(heap), memory_(std::move(memory)) {
  piece_.imports.resize(memory_.addresses_.size());
}

DeferredMemory::~DeferredMemory() { stop(); }

void DeferredMemory::want() {
  if (is_stopped_ || state_.load(std::memory_order_acquire) != State::idle) return;
  if (!std::has_single_bit(++wanted_)) return;
  state_ = State::taking;
  if (!taking_.add([this] { take(); })) state_ = State::idle;
}

bool DeferredMemory::is_ready() const noexcept {
  const State state = state_.load(std::memory_order_acquire);
  if (has_mutant(DeferredFault::ready_early)) return state != State::idle;
  return state == State::ready;
}

bool DeferredMemory::may_use(bool is_agreed) const noexcept {
  if (has_mutant(DeferredFault::used_early) && memory_.rank_ == 1) return is_ready();
  if (has_mutant(DeferredFault::used_late) && memory_.rank_ == 1) return false;
  return is_agreed;
}

const SymmetricMemory& DeferredMemory::memory() const {
  if (state_.load(std::memory_order_acquire) != State::ready)
    throw Error("memory that ranks take when they need it is not there yet");
  return memory_;
}

void DeferredMemory::stop() noexcept {
  if (is_stopped_.exchange(true) || wanted_ == 0) return;
  ControlSegment::wake_all();
  taking_.wait();
}

SymmetricHeap::Piece DeferredMemory::release() noexcept {
  stop();
  return std::exchange(piece_, {});
}

void DeferredMemory::take() noexcept {
  State next = State::idle;
  try {
    if (take_all()) next = State::ready;
  } catch (const std::exception& error) {
    log_info("rank {} does without {} bytes of scratch: {}", memory_.rank_, memory_.bytes_,
             error.what());
  }
  state_.store(next, std::memory_order_release);
}

bool DeferredMemory::take_all() {
  const SymmetricHeap::Place& place = heap_.place_;
  const RelaxedCapture relaxed(*place.driver);  // other threads may capture
  ControlSegment& board = *place.board;
  std::vector<SymmetricHeap::Offer> offers(static_cast<std::size_t>(board.size()));
  if (!board.note_of(memory_.rank_)) {
    const ContextInUse in_use(*place.context);
    if (!in_use) return false;
    const SymmetricHeap::Offer own = heap_.offer(piece_, memory_.bytes_, SymmetricUse::direct);
    if (piece_.own != 0) bytes_taken_ = memory_.bytes_;
    if (own.problem) throw Error(std::string(own.problem.line()));
    board.leave_note(memory_.rank_, MemoryNote{own.address, own.handle}.note());
  }
  for (int rank = 0; rank < board.size();) {
    const std::uint32_t heard = board.bell();
    if (is_stopped_ || board.aborted() || board.departures() > 0) return false;
    const auto bytes = board.note_of(rank);
    if (!bytes) {
      board.wait_bell(heard, kLookAnew);
      continue;
    }
    const MemoryNote note = MemoryNote::from(*bytes);
    offers[static_cast<std::size_t>(rank)] = {note.address, note.handle, {}};
    ++rank;
  }
  const ContextInUse in_use(*place.context);
  if (!in_use) return false;
  heap_.open(piece_, memory_, offers);
  return true;
}

}  // namespace polypath
