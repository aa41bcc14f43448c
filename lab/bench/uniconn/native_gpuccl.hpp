// By NCCL's own calls.
#pragma once

#include "by_uniconn.hpp"
#include "polypath/uniconn/backend/gpuccl.hpp"

namespace uniconn_bench {

template <>
class Native<uc::GpucclBackend> {
  using Nccl = uc::detail::Nccl;

 public:
  Native(const uc::Bootstrap& bootstrap, int, const Gpu& gpu)
      : nccl_(Nccl::get()), gpu_(gpu), rank_(bootstrap.rank()), size_(bootstrap.size()) {
    Nccl::Id id;
    if (rank_ == 0) nccl_.check(nccl_.unique_id(&id), "ncclGetUniqueId");
    id = bootstrap.gather(id).front();
    nccl_.check(nccl_.init_rank(&comm_, size_, id, rank_), "ncclCommInitRank");
  }
  ~Native() {
    nccl_.destroy(comm_);
    for (const auto memory : memory_) gpu_.cuda.free(memory);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void* allocate(std::size_t bytes) {
    uc::detail::DevicePointer memory = 0;
    gpu_.cuda.check(gpu_.cuda.alloc(&memory, bytes), "cuMemAlloc");
    memory_.push_back(memory);
    return reinterpret_cast<void*>(memory);
  }
  void start() { nccl_.check(nccl_.group_start(), "ncclGroupStart"); }
  void post(const void* src, void*, std::size_t bytes, std::size_t, int to) {
    nccl_.check(nccl_.send(src, bytes, Nccl::kBytes, to, comm_, gpu_.stream), "ncclSend");
  }
  void acknowledge(void* dest, std::size_t bytes, std::size_t, int from) {
    nccl_.check(nccl_.recv(dest, bytes, Nccl::kBytes, from, comm_, gpu_.stream), "ncclRecv");
  }
  void end() { nccl_.check(nccl_.group_end(), "ncclGroupEnd"); }
  void all_gather(double* vector, const std::size_t* counts, const std::size_t* firsts) {
    start();
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_;
      const int from = (rank_ - step + size_) % size_;
      post(vector + firsts[rank_], nullptr, counts[rank_] * sizeof(double), 0, to);
      acknowledge(vector + firsts[from], counts[from] * sizeof(double), 0, from);
    }
    end();
  }
  void all_reduce(double* word) {
    constexpr int kDouble = polypath::nccl::number_of_type(POLYPATH_FLOAT64);
    nccl_.check(nccl_.all_reduce(word, word, 1, kDouble, Nccl::kSum, comm_, gpu_.stream),
                "ncclAllReduce");
  }

 private:
  const Nccl& nccl_;
  const Gpu& gpu_;
  int rank_;
  int size_;
  void* comm_ = nullptr;
  std::vector<uc::detail::DevicePointer> memory_;
};

}  // namespace uniconn_bench
