// How two ranks send each other messages: by UNICONN's host calls, and by the calls of the backend's
// own library that those become. A way is one rank's; it posts to the other one, and acknowledges
// what that one posted. Signals rise by one a message and direction.
#pragma once

#include <memory>

#include "gpu.hpp"

namespace uniconn_bench {

/// What both ways of one rank use: two buffers and two words, from Memory.
template <typename B>
struct Place {
  Place(int rank_, std::size_t bytes)
      : rank(rank_),
        other(1 - rank_),
        sent(uc::Memory<B>::template Alloc<std::byte>(bytes)),
        came(uc::Memory<B>::template Alloc<std::byte>(bytes)),
        words(uc::Memory<B>::template Alloc<std::uint64_t>(1)) {}
  ~Place() {
    uc::Memory<B>::Free(sent);
    uc::Memory<B>::Free(came);
    uc::Memory<B>::Free(words);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  int rank;
  int other;
  std::byte* sent;
  std::byte* came;
  std::uint64_t* words;
  std::uint64_t posted = 0;  ///< by this rank
  std::uint64_t awaited = 0;
};

template <typename B>
class ByUniconn {
 public:
  ByUniconn(Place<B>& place, uc::Communicator<B>& comm, uc::Stream stream)
      : place_(place), comm_(comm), calls_(stream) {}

  void post(std::size_t bytes) {
    calls_.Post(place_.sent, place_.came, bytes, place_.words, ++place_.posted, place_.other,
                &comm_);
  }
  void acknowledge(std::size_t bytes) {
    calls_.Acknowledge(place_.came, bytes, place_.words, ++place_.awaited, place_.other, &comm_);
  }
  void start() { calls_.CommStart(); }
  void end() { calls_.CommEnd(); }

 private:
  Place<B>& place_;
  uc::Communicator<B>& comm_;
  uc::Coordinator<B> calls_;
};

/// The library's own calls. What no specialisation has is not compared.
template <typename B>
class Native;

template <>
class Native<uc::PolypathBackend> {
 public:
  /// A communicator of its own, as a program without UNICONN has it.
  Native(const uc::Bootstrap& bootstrap, int gpu, std::size_t bytes, uc::Stream stream)
      : stream_(stream), other_(1 - bootstrap.rank()) {
    polypath_comm* made = nullptr;
    polypath::detail::check(polypath_comm_create(uc::detail::engine().get(), bootstrap.rank(),
                                                 bootstrap.size(), gpu, bootstrap.function(),
                                                 bootstrap.user(), nullptr, &made));
    comm_ = std::make_unique<polypath::communicator>(made);
    sent_ = comm_->alloc(bytes);
    came_ = comm_->alloc(bytes);
    words_ = comm_->alloc(sizeof(std::uint64_t));
  }
  ~Native() {
    comm_->free(std::move(sent_));
    comm_->free(std::move(came_));
    comm_->free(std::move(words_));
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void post(std::size_t bytes) {
    const polypath_signal signal{words_.get(), 0, ++posted_};
    if (is_open_) {
      signals_.push_back(signal);
      puts_.push_back({other_, came_.get(), 0, sent_.address(1 - other_), bytes, nullptr});
      return;
    }
    polypath::detail::check(polypath_comm_put_signal(
        comm_->get(), other_, came_.get(), 0, sent_.address(1 - other_), bytes, &signal, stream_));
  }
  void acknowledge(std::size_t) {
    const polypath_signal signal{words_.get(), 0, ++awaited_};
    if (is_open_) {
      waits_.push_back(signal);
      return;
    }
    comm_->wait_signal(signal, stream_);
  }
  void start() { is_open_ = true; }
  void end() {
    is_open_ = false;
    for (std::size_t i = 0; i < puts_.size(); ++i) puts_[i].signal = &signals_[i];
    if (!puts_.empty())
      polypath::detail::check(
          polypath_comm_put_group(comm_->get(), puts_.data(), puts_.size(), stream_));
    for (const polypath_signal& signal : waits_) comm_->wait_signal(signal, stream_);
    puts_.clear();
    signals_.clear();
    waits_.clear();
  }

 private:
  std::unique_ptr<polypath::communicator> comm_;
  uc::Stream stream_;
  int other_;
  polypath::symmetric_memory sent_, came_, words_;
  std::uint64_t posted_ = 0;
  std::uint64_t awaited_ = 0;
  bool is_open_ = false;
  std::vector<polypath_put> puts_;
  std::vector<polypath_signal> signals_, waits_;
};

template <>
class Native<uc::GpucclBackend> {
 public:
  Native(const uc::Bootstrap& bootstrap, int, std::size_t bytes, uc::Stream stream)
      : nccl_(uc::detail::Nccl::get()),
        cuda_(uc::detail::engine().get()),
        stream_(stream),
        other_(1 - bootstrap.rank()) {
    uc::detail::Nccl::Id id;
    if (bootstrap.rank() == 0) nccl_.check(nccl_.unique_id(&id), "ncclGetUniqueId");
    id = bootstrap.gather(id).front();
    nccl_.check(nccl_.init_rank(&comm_, bootstrap.size(), id, bootstrap.rank()),
                "ncclCommInitRank");
    for (auto* const memory : {&sent_, &came_})
      cuda_.check(cuda_.alloc(memory, bytes), "cuMemAlloc");
  }
  ~Native() {
    nccl_.destroy(comm_);
    for (const auto memory : {sent_, came_}) cuda_.free(memory);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void post(std::size_t bytes) {
    nccl_.check(nccl_.send(reinterpret_cast<const void*>(sent_), bytes, uc::detail::Nccl::kBytes,
                           other_, comm_, stream_),
                "ncclSend");
  }
  void acknowledge(std::size_t bytes) {
    nccl_.check(nccl_.recv(reinterpret_cast<void*>(came_), bytes, uc::detail::Nccl::kBytes, other_,
                           comm_, stream_),
                "ncclRecv");
  }
  void start() { nccl_.check(nccl_.group_start(), "ncclGroupStart"); }
  void end() { nccl_.check(nccl_.group_end(), "ncclGroupEnd"); }

 private:
  const uc::detail::Nccl& nccl_;
  uc::detail::Cuda cuda_;
  void* comm_ = nullptr;
  uc::Stream stream_;
  int other_;
  uc::detail::DevicePointer sent_ = 0;
  uc::detail::DevicePointer came_ = 0;
};

}  // namespace uniconn_bench
