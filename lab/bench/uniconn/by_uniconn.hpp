// The calls that are timed, by UNICONN over a backend. Those of the backend's own library have the
// same form (native_*.hpp): memory that all ranks allocate together; messages with a word each,
// which rises by one a message; the two collectives of conjugate gradients.
#pragma once

#include <array>
#include <cstdint>

#include "gpu.hpp"

namespace uniconn_bench {

namespace uc = polypath::uniconn;
using uniconn_example::Gpu;

/// Words of each rank: as many kinds of messages may be sent to it.
constexpr std::size_t kWords = 4;

template <typename B>
class ByUniconn {
 public:
  ByUniconn(uc::Communicator<B>& comm, const Gpu& gpu)
      : comm_(comm),
        calls_(gpu.stream),
        words_(uc::Memory<B>::template Alloc<std::uint64_t>(kWords)) {
    gpu.zero(words_, kWords * sizeof(std::uint64_t));
    comm.Barrier(gpu.stream);
  }
  ~ByUniconn() {
    for (std::byte* const each : memory_) uc::Memory<B>::Free(each);
    uc::Memory<B>::Free(words_);
  }
  ByUniconn(const ByUniconn&) = delete;
  ByUniconn& operator=(const ByUniconn&) = delete;

  void* allocate(std::size_t bytes) {
    memory_.push_back(uc::Memory<B>::template Alloc<std::byte>(bytes));
    return memory_.back();
  }
  void start() { calls_.CommStart(); }
  void post(const void* src, void* dest, std::size_t bytes, std::size_t word, int to) {
    calls_.Post(static_cast<const std::byte*>(src), static_cast<std::byte*>(dest), bytes,
                words_ + word, ++posted_[word], to, &comm_);
  }
  void acknowledge(void* dest, std::size_t bytes, std::size_t word, int from) {
    calls_.Acknowledge(static_cast<std::byte*>(dest), bytes, words_ + word, ++awaited_[word], from,
                       &comm_);
  }
  void end() { calls_.CommEnd(); }
  void all_gather(double* vector, const std::size_t* counts, const std::size_t* firsts) {
    calls_.AllGatherv(vector, counts, firsts, &comm_);
  }
  void all_reduce(double* word) {
    calls_.template AllReduce<uc::ReductionOperator::SUM>(word, 1, &comm_);
  }

 private:
  uc::Communicator<B>& comm_;
  uc::Coordinator<B> calls_;
  std::uint64_t* words_;
  std::vector<std::byte*> memory_;
  std::array<std::uint64_t, kWords> posted_{};
  std::array<std::uint64_t, kWords> awaited_{};
};

/// The library's own calls. What no specialisation has is not compared.
template <typename B>
class Native;

}  // namespace uniconn_bench
