// By polypath's communicators, without UNICONN.
#pragma once

#include "by_uniconn.hpp"
#include "polypath/uniconn/region_map.hpp"

namespace uniconn_bench {

template <>
class Native<uc::PolypathBackend> {
 public:
  Native(const uc::Bootstrap& bootstrap, int number, const Gpu& gpu) : stream_(gpu.stream) {
    polypath_comm* comm = nullptr;
    polypath::detail::check(polypath_comm_create(uc::detail::engine().get(), bootstrap.rank(),
                                                 bootstrap.size(), number, bootstrap.function(),
                                                 bootstrap.user(), nullptr, &comm));
    comm_ = std::make_unique<polypath::communicator>(comm);
    words_ = comm_->alloc(kWords * sizeof(std::uint64_t));
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void* allocate(std::size_t bytes) {
    const polypath::symmetric_memory memory = comm_->alloc(bytes);
    void* const address = memory.address(comm_->rank());
    pieces_.add(address, bytes, memory.get());
    return address;
  }
  void start() { is_open_ = true; }
  void post(const void* src, void* dest, std::size_t bytes, std::size_t word, int to) {
    const auto& piece = pieces_.at(dest, bytes, "dest");
    const polypath_signal signal{words_.get(), word * sizeof(std::uint64_t), ++posted_[word]};
    if (is_open_) {
      signals_.push_back(signal);
      puts_.push_back({to, piece.handle, piece.offset_of(dest), src, bytes, nullptr});
    } else {
      polypath::detail::check(polypath_comm_put_signal(
          comm_->get(), to, piece.handle, piece.offset_of(dest), src, bytes, &signal, stream_));
    }
  }
  void acknowledge(void*, std::size_t, std::size_t word, int) {
    const polypath_signal signal{words_.get(), word * sizeof(std::uint64_t), ++awaited_[word]};
    if (is_open_) {
      waits_.push_back(signal);
    } else {
      comm_->wait_signal(signal, stream_);
    }
  }
  void end() {
    is_open_ = false;
    for (std::size_t i = 0; i < puts_.size(); ++i) puts_[i].signal = &signals_[i];
    put_all();
  }
  void all_gather(double* vector, const std::size_t* counts, const std::size_t* firsts) {
    const int own = comm_->rank();
    double* const own_part = vector + firsts[own];
    const auto& piece = pieces_.at(own_part, counts[own] * sizeof(double), "vector");
    comm_->barrier(stream_);
    for (int step = 1; step < comm_->size(); ++step)
      puts_.push_back({(own + step) % comm_->size(), piece.handle, piece.offset_of(own_part),
                       own_part, counts[own] * sizeof(double), nullptr});
    put_all();
    comm_->barrier(stream_);
  }
  void all_reduce(double* word) {
    polypath::detail::check(
        polypath_all_reduce(comm_->get(), word, word, 1, POLYPATH_FLOAT64, POLYPATH_SUM, stream_));
  }

 private:
  void put_all() {
    polypath::detail::check(polypath_comm_put_and_wait(comm_->get(), puts_.data(), puts_.size(),
                                                       waits_.data(), waits_.size(), stream_));
    puts_.clear();
    signals_.clear();
    waits_.clear();
  }

  std::unique_ptr<polypath::communicator> comm_;  // its end frees the memory
  uc::Stream stream_;
  uc::detail::Pieces<polypath_symmetric*> pieces_;
  polypath::symmetric_memory words_;
  std::array<std::uint64_t, kWords> posted_{};
  std::array<std::uint64_t, kWords> awaited_{};
  bool is_open_ = false;
  std::vector<polypath_put> puts_;
  std::vector<polypath_signal> signals_, waits_;
};

}  // namespace uniconn_bench
