// By NVSHMEM's own calls, on a stream; Environment has begun it.
#pragma once

#include "by_uniconn.hpp"
#include "polypath/uniconn/backend/gpushmem.hpp"

namespace uniconn_bench {

template <>
class Native<uc::GpushmemBackend> {
  using Nvshmem = uc::detail::Nvshmem;

 public:
  Native(const uc::Bootstrap& bootstrap, int, const Gpu& gpu)
      : nvshmem_(Nvshmem::get()),
        gpu_(gpu),
        rank_(bootstrap.rank()),
        size_(bootstrap.size()),
        words_(static_cast<std::uint64_t*>(allocate(kWords * sizeof(std::uint64_t)))) {
    gpu.zero(words_, kWords * sizeof(std::uint64_t));
    nvshmem_.barrier_all(gpu.stream);
  }
  ~Native() {
    for (void* const memory : memory_) nvshmem_.free(memory);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void* allocate(std::size_t bytes) {
    void* const memory = nvshmem_.allocate(bytes);
    if (memory == nullptr) throw std::runtime_error("nvshmem_malloc failed");
    memory_.push_back(memory);
    return memory;
  }
  void start() { is_open_ = true; }
  void post(const void* src, void* dest, std::size_t bytes, std::size_t word, int to) {
    nvshmem_.put_signal(dest, src, bytes, words_ + word, ++posted_[word], Nvshmem::kSet, to,
                        gpu_.stream);
  }
  void acknowledge(void*, std::size_t, std::size_t word, int) {
    if (is_open_) {
      waits_.push_back({word, ++awaited_[word]});
    } else {
      wait({word, ++awaited_[word]});
    }
  }
  void end() {
    is_open_ = false;
    for (const Wait& pending : waits_) wait(pending);
    waits_.clear();
  }
  void all_gather(double* vector, const std::size_t* counts, const std::size_t* firsts) {
    nvshmem_.barrier_all(gpu_.stream);
    double* const own_part = vector + firsts[rank_];
    for (int step = 1; step < size_; ++step)
      nvshmem_.put(own_part, own_part, counts[rank_] * sizeof(double), (rank_ + step) % size_,
                   gpu_.stream);
    nvshmem_.barrier_all(gpu_.stream);
  }
  void all_reduce(double* word) {
    const auto sum = nvshmem_.reduction(uc::Element::float64, uc::ReductionOperator::SUM);
    if (sum == nullptr) throw std::runtime_error("this NVSHMEM has no sum of doubles");
    Nvshmem::check(sum(Nvshmem::kTeamWorld, word, word, 1, gpu_.stream),
                   "nvshmemx_double_sum_reduce_on_stream");
  }

 private:
  struct Wait {
    std::size_t word;
    std::uint64_t value;
  };
  void wait(const Wait& request) {
    nvshmem_.wait(words_ + request.word, Nvshmem::kAtLeast, request.value, gpu_.stream);
  }

  const Nvshmem& nvshmem_;
  const Gpu& gpu_;
  int rank_;
  int size_;
  std::vector<void*> memory_;
  std::uint64_t* words_;
  std::array<std::uint64_t, kWords> posted_{};
  std::array<std::uint64_t, kWords> awaited_{};
  bool is_open_ = false;
  std::vector<Wait> waits_;
};

}  // namespace uniconn_bench
