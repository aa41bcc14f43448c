#include "exec/sequence.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace polypath {
namespace {

constexpr std::size_t kMaxSequences = 64;
constexpr std::size_t kMaxTransfers = 64;  ///< of one sequence: bounds the comparisons

bool overlap(CUdeviceptr a, std::uint64_t a_bytes, CUdeviceptr b, std::uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

/// Whether the staged route `next` must not start before `earlier` has ended.
bool conflict(const RouteAccess& next, const RouteAccess& earlier) {
  if (overlap(next.src, next.bytes, earlier.dst, earlier.bytes)) return true;
  // The same channels keep the order of their legs.
  if (next.first == earlier.first && next.second == earlier.second) return false;
  return overlap(next.dst, next.bytes, earlier.dst, earlier.bytes) ||
         overlap(next.dst, next.bytes, earlier.src, earlier.bytes);
}

}  // namespace

std::list<Sequences::Sequence>::iterator Sequences::find(const CallerStream& caller) {
  return std::ranges::find_if(
      sequences_, [&](const Sequence& sequence) { return sequence.first->caller() == caller; });
}

std::shared_ptr<TransferState> Sequences::follow(const CallerStream& caller) {
  const std::lock_guard lock(mutex_);
  const auto known = find(caller);
  if (known == sequences_.end() || known->transfers >= kMaxTransfers) return nullptr;
  return std::make_shared<TransferState>(*known->first);
}

bool Sequences::allows(const CallerStream& caller, const std::vector<RouteAccess>& uses) {
  const std::lock_guard lock(mutex_);
  const auto known = find(caller);
  return known != sequences_.end() && std::ranges::none_of(uses, [&](const RouteAccess& next) {
           return next.first != nullptr &&
                  std::ranges::any_of(known->uses, [&](const RouteAccess& earlier) {
                    return conflict(next, earlier);
                  });
         });
}

bool Sequences::last_was(const CallerStream& caller, const Request& pair) {
  const std::lock_guard lock(mutex_);
  const auto known = find(caller);
  return known != sequences_.end() && known->last.src == pair.src && known->last.dst == pair.dst;
}

void Sequences::add(const std::shared_ptr<TransferState>& ticket, std::vector<RouteAccess> uses,
                    bool follows, const Request& request) {
  const std::lock_guard lock(mutex_);
  const auto known = find(ticket->caller());
  if (follows && known != sequences_.end() && known->first->fork() == ticket->fork()) {
    known->uses.insert(known->uses.end(), uses.begin(), uses.end());
    known->last = request;
    ++known->transfers;
    return;
  }
  if (known != sequences_.end()) sequences_.erase(known);
  // Its sequence has made room for others meanwhile, or has ended: what the earlier transfers after
  // that fork touch is not known any more.
  if (follows) return;
  any_ = true;
  sequences_.push_front({ticket, request, std::move(uses), 1});
  if (sequences_.size() > kMaxSequences) sequences_.pop_back();
}

void Sequences::end(const CallerStream& caller) {
  const std::lock_guard lock(mutex_);
  if (const auto known = find(caller); known != sequences_.end()) sequences_.erase(known);
}

void Sequences::end(CUstream stream) {
  if (!any_) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(sequences_, [&](const Sequence& sequence) {
    return sequence.first->caller().stream == stream;
  });
}

}  // namespace polypath
