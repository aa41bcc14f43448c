#include "exchange.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.hpp"
#include "base/units.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::byte kPoison{0xA5};

/// Whole MiB: the memory of all ranks is of few sizes, so that one takes the place of another.
std::uint64_t room(std::uint64_t bytes) { return bytes / kMiB * kMiB + kMiB; }

int length(const Message& message) { return static_cast<int>(message.bytes); }

int tag(const Phase& phase, const Message& message) {
  return static_cast<int>(&message - phase.messages.data());
}

void check_status(const MPI_Status& status, const Phase& phase, const Message& message) {
  int bytes = -1;
  check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
  if (status.MPI_SOURCE != message.from || status.MPI_TAG != tag(phase, message) ||
      bytes != length(message))
    throw Error(fmt::format(
        "received {} bytes, tag {}, from {}; sent were {} bytes, tag {}, from {}", bytes,
        status.MPI_TAG, status.MPI_SOURCE, message.bytes, tag(phase, message), message.from));
}

#define POLYPATH_MPI(call) check_mpi(call, #call)

}  // namespace

void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(result, text.data(), &size);
  throw Error(fmt::format("{}: {}", call, text.data()));
}

Exchange::Exchange(const RankGpu& gpu, int rank, const std::vector<Phase>& phases)
    : gpu_(gpu), rank_(rank) {
  for (const Phase& phase : phases) {
    const Extent needed = extent(phase, rank);
    most_.from_bytes = std::max(most_.from_bytes, needed.from_bytes);
    most_.to_bytes = std::max(most_.to_bytes, needed.to_bytes);
  }
  memory_ = allocate();
}

Exchange::~Exchange() {
  try {
    free(memory_);
  } catch (const Error& error) {
    fmt::print(stderr, "rank {}: {}\n", rank_, error.what());
  }
}

Exchange::Memory Exchange::allocate() const {
  return {gpu_.allocate(room(most_.from_bytes)), gpu_.allocate(room(most_.to_bytes))};
}

void Exchange::free(const Memory& memory) const {
  gpu_.free(memory.from);
  gpu_.free(memory.to);
}

void Exchange::reallocate() {
  frees_first_ = !frees_first_;
  const Memory old = memory_;
  if (frees_first_) free(old);
  memory_ = allocate();
  if (!frees_first_) free(old);
}

void* Exchange::address(const Message& message) const {
  return std::bit_cast<void*>(message.from == rank_ ? memory_.from + message.from_offset
                                                    : memory_.to + message.to_offset);
}

void Exchange::prepare(const Phase& phase) {
  const Extent used = extent(phase, rank_);
  host_.assign(used.from_bytes, kPoison);
  for (const Message& message : phase.messages)
    if (message.from == rank_)
      fill_pattern(std::span(host_).subspan(message.from_offset, message.bytes), message.seed);
  if (!host_.empty()) gpu_.write(memory_.from, host_);
  host_.assign(used.to_bytes, kPoison);
  if (!host_.empty()) gpu_.write(memory_.to, host_);
}

void Exchange::verify(const Phase& phase) {
  host_.resize(extent(phase, rank_).to_bytes);
  if (host_.empty()) return;
  gpu_.read(memory_.to, host_);
  // Ranges of messages lie in the order of the list.
  std::uint64_t end = 0;
  for (const Message& message : phase.messages) {
    if (message.to != rank_) continue;
    const auto gap = std::span(host_).subspan(end, message.to_offset - end);
    if (std::ranges::find_if(gap, [](std::byte each) { return each != kPoison; }) != gap.end())
      throw Error(fmt::format("something wrote before the {} bytes from rank {}", message.bytes,
                              message.from));
    const auto received = std::span(host_).subspan(message.to_offset, message.bytes);
    if (const auto wrong = first_difference(received, message.seed))
      throw Error(
          fmt::format("byte {} of {} from rank {} is wrong", *wrong, message.bytes, message.from));
    end = message.to_offset + message.bytes;
  }
}

void Exchange::run(const Phase& phase, const std::function<void()>& started) {
  switch (phase.way) {
    case Way::blocking: run_blocking(phase); return;
    case Way::nonblocking: run_nonblocking(phase, started); return;
    case Way::sendrecv: run_sendrecv(phase); return;
  }
}

void Exchange::run_blocking(const Phase& phase) {
  for (const Message& message : phase.messages) {
    if (message.from == rank_)
      POLYPATH_MPI(MPI_Send(address(message), length(message), MPI_BYTE, message.to,
                            tag(phase, message), MPI_COMM_WORLD));
    if (message.to != rank_) continue;
    MPI_Status status;
    POLYPATH_MPI(MPI_Recv(address(message), length(message), MPI_BYTE, message.from,
                          tag(phase, message), MPI_COMM_WORLD, &status));
    check_status(status, phase, message);
  }
}

void Exchange::run_nonblocking(const Phase& phase, const std::function<void()>& started) {
  std::vector<MPI_Request> requests;
  std::vector<const Message*> received;
  for (const Message& message : phase.messages) {
    if (message.to != rank_) continue;
    POLYPATH_MPI(MPI_Irecv(address(message), length(message), MPI_BYTE, message.from,
                           tag(phase, message), MPI_COMM_WORLD, &requests.emplace_back()));
    received.push_back(&message);
  }
  for (const Message& message : phase.messages)
    if (message.from == rank_)
      POLYPATH_MPI(MPI_Isend(address(message), length(message), MPI_BYTE, message.to,
                             tag(phase, message), MPI_COMM_WORLD, &requests.emplace_back()));
  started();
  std::vector<MPI_Status> statuses(requests.size());
  POLYPATH_MPI(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), statuses.data()));
  for (std::size_t i = 0; i < received.size(); ++i) check_status(statuses[i], phase, *received[i]);
}

void Exchange::run_sendrecv(const Phase& phase) {
  const auto& messages = phase.messages;
  const auto sent =
      std::ranges::find_if(messages, [this](const Message& each) { return each.from == rank_; });
  const auto received =
      std::ranges::find_if(messages, [this](const Message& each) { return each.to == rank_; });
  MPI_Status status;
  POLYPATH_MPI(MPI_Sendrecv(address(*sent), length(*sent), MPI_BYTE, sent->to, tag(phase, *sent),
                            address(*received), length(*received), MPI_BYTE, received->from,
                            tag(phase, *received), MPI_COMM_WORLD, &status));
  check_status(status, phase, *received);
}

}  // namespace polypath::test
