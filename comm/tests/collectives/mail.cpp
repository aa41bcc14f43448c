#include "mail.hpp"

#include <cstring>

namespace polypath::test {
namespace {

/// Tests of a request before it is done.
constexpr int kTests = 3;

}  // namespace

polypath_network Mail::network(int rank, bool progress_in_caller) {
  const std::lock_guard lock(mutex_);
  Rank& state = ranks_[rank];
  state.mail = this;
  state.rank = rank;
  return {progress_in_caller ? 1U : 0U, 0, &state, &begin, &send, &receive, &test, &end};
}

void Mail::lose_those_of(int rank) {
  const std::lock_guard lock(mutex_);
  lost_.insert(rank);
}

void Mail::refuse_those_of(int rank) {
  const std::lock_guard lock(mutex_);
  refused_.insert(rank);
}

std::uint64_t Mail::sent_bytes(int rank) {
  const std::lock_guard lock(mutex_);
  return ranks_[rank].sent_bytes;
}

int Mail::open() {
  const std::lock_guard lock(mutex_);
  return open_;
}

int Mail::begin(void* user) {
  Mail& mail = *static_cast<Rank*>(user)->mail;
  const std::lock_guard lock(mail.mutex_);
  ++mail.open_;
  return 0;
}

void Mail::end(void* user) {
  Mail& mail = *static_cast<Rank*>(user)->mail;
  const std::lock_guard lock(mail.mutex_);
  --mail.open_;
}

int Mail::send(void* user, int to, int tag, const void* bytes, std::size_t count,
               std::uint64_t* request) {
  Rank& rank = *static_cast<Rank*>(user);
  Mail& mail = *rank.mail;
  const std::lock_guard lock(mail.mutex_);
  if (mail.refused_.contains(rank.rank)) return 1;
  rank.sent_bytes += count;
  const Envelope envelope{rank.rank, to, tag};
  const auto* const first = static_cast<const unsigned char*>(bytes);
  if (!mail.lost_.contains(rank.rank))
    mail.messages_.emplace(envelope, Bytes(first, first + count));
  *request = mail.requests_.size();
  mail.requests_.push_back({false, envelope, nullptr, count, 0});
  return 0;
}

int Mail::receive(void* user, int from, int tag, void* bytes, std::size_t count,
                  std::uint64_t* request) {
  const Rank& rank = *static_cast<Rank*>(user);
  Mail& mail = *rank.mail;
  const std::lock_guard lock(mail.mutex_);
  *request = mail.requests_.size();
  mail.requests_.push_back({true, {from, rank.rank, tag}, bytes, count, 0});
  return 0;
}

int Mail::test(void* user, std::uint64_t* request, int* done) {
  Mail& mail = *static_cast<Rank*>(user)->mail;
  const std::lock_guard lock(mail.mutex_);
  Request& state = mail.requests_.at(*request);
  *done = 0;
  if (++state.tests < kTests) return 0;
  if (state.is_receive) {
    const auto message = mail.messages_.find(state.envelope);
    if (message == mail.messages_.end()) return 0;
    if (message->second.size() != state.bytes) return 1;
    std::memcpy(state.memory, message->second.data(), state.bytes);
    mail.messages_.erase(message);
  }
  *done = 1;
  return 0;
}

}  // namespace polypath::test
