#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "ranks.hpp"
#include "support/cuda.hpp"

namespace jacobi {
namespace {

using mpi_bench::Cuda;

/// What one rank shows the others; read between two barriers.
struct Shown {
  CUcontext context = nullptr;
  Field* field = nullptr;
  CUevent sent = nullptr;  ///< after its last message
  double number = 0;
  std::uint64_t bits = 0;
  std::span<float> values;
};

struct Team {
  explicit Team(int threads) : shown(static_cast<std::size_t>(threads)), all(threads) {}
  std::vector<Shown> shown;  // by rank
  std::barrier<> all;
};

class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(Team& team, int rank) : team_(team), rank_(rank) {
    mpi_bench::use_gpu(rank);
    cuda_.check(cuda_.ctx_get_current(&own().context), "cuCtxGetCurrent");
    cuda_.check(cuda_.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    cuda_.check(cuda_.event_create(&own().sent, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    barrier();
    for (const int peer : {before(), after()}) {
      if (peer == rank_) continue;
      // Where there is no peer access the driver carries the messages by itself.
      const CUresult result = cuda_.ctx_enable_peer_access(shown_by(peer).context, 0);
      if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
          result != CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        cuda_.check(result, "cuCtxEnablePeerAccess");
    }
  }
  ~ThreadRanks() override {
    // No rank waits for its event any more.
    barrier();
    cuda_.event_destroy(own().sent);
    cuda_.stream_destroy(stream_);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(team_.shown.size()); }
  [[nodiscard]] int gpu() const noexcept override { return rank_; }
  [[nodiscard]] std::string name() const override { return "threads of one process"; }

  void barrier() override { team_.all.arrive_and_wait(); }
  double largest(double value) override {
    return over_all(&Shown::number, value, [](double a, double b) { return std::max(a, b); });
  }
  double mean(double value) override {
    return over_all(&Shown::number, value, [](double a, double b) { return a + b; }) / size();
  }
  std::uint64_t sum(std::uint64_t value) override {
    return over_all(&Shown::bits, value, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  }
  void largest(std::span<float> values) override {
    const std::vector<float> input(values.begin(), values.end());
    std::vector<float> result(input);
    own().values = values;
    barrier();
    for (const Shown& other : team_.shown)
      for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = std::max(result[i], other.values[i]);
    barrier();
    std::ranges::copy(result, values.begin());
  }

  void exchange_halo(Field& field) override {
    own().field = &field;
    barrier();  // all ranks have computed, so none reads its other halo any more
    Field& first = *shown_by(before()).field;
    send(row(first, first.rows() + 1), row(field, 1), field, after());
    Field& last = *shown_by(after()).field;
    send(row(last, 0), row(field, field.rows()), field, before());
    cuda_.check(cuda_.stream_synchronize(stream_), "cuStreamSynchronize");
  }

 private:
  [[nodiscard]] int before() const noexcept { return (rank_ + size() - 1) % size(); }
  [[nodiscard]] int after() const noexcept { return (rank_ + 1) % size(); }
  [[nodiscard]] Shown& shown_by(int rank) const {
    return team_.shown[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Shown& own() const { return shown_by(rank_); }

  static CUdeviceptr row(Field& field, std::uint64_t number) {
    return reinterpret_cast<CUdeviceptr>(field.next().data() + field.bytes(number));
  }

  /// One row to a neighbour's halo; then the stream waits for the message of rank `from`.
  void send(CUdeviceptr to, CUdeviceptr values, const Field& field, int from) {
    cuda_.check(cuda_.memcpy_async(to, values, field.bytes(1), stream_), "cuMemcpyAsync");
    cuda_.check(cuda_.event_record(own().sent, stream_), "cuEventRecord");
    barrier();  // every message is issued, and its event recorded
    cuda_.check(cuda_.stream_wait_event(stream_, shown_by(from).sent, 0), "cuStreamWaitEvent");
    barrier();  // no rank records its event anew before all wait for it
  }

  template <typename Value, typename Combine>
  Value over_all(Value Shown::* member, Value value, Combine combine) {
    own().*member = value;
    barrier();
    Value result = team_.shown[0].*member;
    for (std::size_t i = 1; i < team_.shown.size(); ++i)
      result = combine(result, team_.shown[i].*member);
    barrier();
    return result;
  }

  Team& team_;
  int rank_;
  const Cuda& cuda_ = Cuda::get();
  CUstream stream_ = nullptr;
};

}  // namespace

int with_threads(int threads, const std::function<int(Ranks&)>& body) {
  Team team(threads);
  std::vector<int> results(static_cast<std::size_t>(threads), 0);
  {
    std::vector<std::jthread> running;
    for (int rank = 0; rank < threads; ++rank)
      running.emplace_back([&, rank] {
        try {
          ThreadRanks ranks(team, rank);
          results[static_cast<std::size_t>(rank)] = body(ranks);
        } catch (const std::exception& error) {
          // The others wait for this one.
          fmt::print(stderr, "jacobi: rank {}: {}\n", rank, error.what());
          std::fflush(nullptr);
          std::_Exit(1);
        }
      });
  }
  return *std::ranges::max_element(results);
}

}  // namespace jacobi
