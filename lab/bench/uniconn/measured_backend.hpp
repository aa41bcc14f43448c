// The operations that a table of backends is about (polypath/uniconn/backend/routing_table.hpp), by
// one backend: run, and compared to the last byte.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gpu.hpp"
#include "polypath/uniconn/backend/routing_table.hpp"

namespace uniconn_bench {

namespace uc = polypath::uniconn;
using uniconn_example::Gpu;

/// Bytes of an operation on `ranks` ranks, about `bytes`: whole elements, as many for each rank.
inline std::size_t whole_bytes(int op, std::size_t bytes, std::size_t ranks) {
  constexpr std::size_t kElement = sizeof(float);
  if (op == POLYPATH_COMM_POST || op == POLYPATH_COMM_BROADCAST)
    return std::max<std::size_t>(bytes, 1);
  const bool is_of_parts = op == POLYPATH_COMM_ALL_GATHER || op == POLYPATH_COMM_ALL_TO_ALL;
  const std::size_t parts = is_of_parts ? ranks : 1;
  return std::max<std::size_t>(bytes / parts / kElement, 1) * kElement * parts;
}

/// One rank of one backend, with memory for `most` bytes. Collective, all of it.
class MeasuredBackend {
 public:
  MeasuredBackend() = default;
  virtual ~MeasuredBackend() = default;
  MeasuredBackend(const MeasuredBackend&) = delete;
  MeasuredBackend& operator=(const MeasuredBackend&) = delete;

  /// POLYPATH_BACKEND_...
  [[nodiscard]] virtual int number() const = 0;
  [[nodiscard]] virtual const Gpu& gpu() const = 0;
  /// One call. A post goes from each rank to the next, in one group.
  virtual void run(int op, std::size_t bytes) = 0;
  /// One call of random contents; whether every byte of this rank is right.
  virtual bool is_right(int op, std::size_t bytes, std::uint64_t seed) = 0;
};

template <typename B>
class MeasuredBy final : public MeasuredBackend {
 public:
  MeasuredBy(const uc::Bootstrap& meeting, int device, std::size_t most)
      : meeting_(meeting), env_(meeting, device), calls_(gpu_.stream) {
    send_ = uc::Memory<B>::template Alloc<std::byte>(most);
    recv_ = uc::Memory<B>::template Alloc<std::byte>(most);
    word_ = uc::Memory<B>::template Alloc<std::uint64_t>(1);
    gpu_.zero(word_, sizeof *word_);
    gpu_.synchronize();
    meet();
  }
  ~MeasuredBy() override {
    try {
      uc::Memory<B>::Free(send_);
      uc::Memory<B>::Free(recv_);
      uc::Memory<B>::Free(word_);
    } catch (const std::exception&) {  // a rank failed, and the others with it
    }
  }

  [[nodiscard]] int number() const override {
    const auto& names = uc::detail::library_names;
    return static_cast<int>(std::ranges::find(names, std::string(B::kName)) - names.begin());
  }
  [[nodiscard]] const Gpu& gpu() const override { return gpu_; }

  void run(int op, std::size_t bytes) override {
    const std::size_t part = bytes / static_cast<std::size_t>(ranks());
    const auto floats = [](std::byte* memory) { return reinterpret_cast<float*>(memory); };
    const std::size_t elements = bytes / sizeof(float);
    switch (op) {
      case POLYPATH_COMM_POST:
        ++posted_;
        calls_.CommStart();
        calls_.Post(send_, recv_, bytes, word_, posted_, next(), &comm_);
        calls_.Acknowledge(recv_, bytes, word_, posted_, last(), &comm_);
        calls_.CommEnd();
        break;
      case POLYPATH_COMM_ALLREDUCE:
        calls_.template AllReduce<kSum>(floats(send_), floats(recv_), elements, &comm_);
        break;
      case POLYPATH_COMM_REDUCE:
        calls_.template Reduce<kSum>(floats(send_), floats(recv_), elements, 0, &comm_);
        break;
      case POLYPATH_COMM_ALL_GATHER: calls_.AllGather(send_, recv_, part, &comm_); break;
      case POLYPATH_COMM_ALL_TO_ALL: calls_.AlltoAll(send_, recv_, part, &comm_); break;
      case POLYPATH_COMM_BROADCAST: calls_.Broadcast(recv_, bytes, 0, &comm_); break;
      default: throw std::runtime_error("there is no such operation");
    }
  }

  bool is_right(int op, std::size_t bytes, std::uint64_t seed) override {
    const bool is_source = op == POLYPATH_COMM_BROADCAST && own() == 0;
    gpu_.poison(recv_, bytes);
    const Bytes sent = contents_of(op, seed, own(), bytes);
    gpu_.write(is_source ? recv_ : send_, sent.data(), sent.size());
    meet();
    run(op, bytes);
    Bytes received(bytes);
    gpu_.synchronize();
    gpu_.read(received.data(), recv_, bytes);
    // No rank sends the next message before all have checked this one.
    meet();
    return received == expected(op, bytes, seed);
  }

 private:
  using Bytes = std::vector<std::byte>;
  static constexpr auto kSum = uc::ReductionOperator::SUM;

  /// With its GPU, before anything that needs a context is made.
  struct Ready {
    Ready(const uc::Bootstrap& meeting, int device) : environment(meeting) {
      environment.SetDevice(device);
    }
    uc::Environment<B> environment;
  };

  void meet() const { static_cast<void>(meeting_.gather(char{})); }
  [[nodiscard]] int own() const { return meeting_.rank(); }
  [[nodiscard]] int ranks() const { return meeting_.size(); }
  [[nodiscard]] int next() const { return (own() + 1) % ranks(); }
  [[nodiscard]] int last() const { return (own() + ranks() - 1) % ranks(); }

  /// The data of rank `rank`: for reductions, floats whose sums are exact in any order.
  static Bytes contents_of(int op, std::uint64_t seed, int rank, std::size_t bytes) {
    const auto words =
        uniconn_example::contents(seed * 64 + static_cast<std::uint64_t>(rank) + 1, bytes);
    Bytes contents(bytes);
    std::memcpy(contents.data(), words.data(), bytes);
    if (op != POLYPATH_COMM_ALLREDUCE && op != POLYPATH_COMM_REDUCE) return contents;
    for (std::size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
      std::uint32_t word = 0;
      std::memcpy(&word, contents.data() + at, sizeof word);
      const auto value = static_cast<float>(word % 100'000) - 50'000.0F;
      std::memcpy(contents.data() + at, &value, sizeof value);
    }
    return contents;
  }
  [[nodiscard]] Bytes expected(int op, std::size_t bytes, std::uint64_t seed) const {
    const auto contents = [&](int rank) { return contents_of(op, seed, rank, bytes); };
    const std::size_t part = bytes / static_cast<std::size_t>(ranks());
    Bytes all(bytes);
    switch (op) {
      case POLYPATH_COMM_POST: return contents(last());
      case POLYPATH_COMM_BROADCAST: return contents(0);
      case POLYPATH_COMM_REDUCE:
        if (own() != 0) return Bytes(bytes, kPoison);
        [[fallthrough]];
      case POLYPATH_COMM_ALLREDUCE: {
        std::vector<float> sum(bytes / sizeof(float), 0);
        std::vector<float> values(sum.size());
        for (int rank = 0; rank < ranks(); ++rank) {
          std::memcpy(values.data(), contents(rank).data(), bytes);
          std::ranges::transform(sum, values, sum.begin(), std::plus());
        }
        std::memcpy(all.data(), sum.data(), bytes);
        return all;
      }
      default:
        for (int rank = 0; rank < ranks(); ++rank) {
          // For AllGather the part that it gives, for AlltoAll the part for this rank.
          const Bytes piece = contents(rank);
          const std::size_t from = op == POLYPATH_COMM_ALL_GATHER ? 0 : part * at(own());
          std::memcpy(all.data() + part * at(rank), piece.data() + from, part);
        }
        return all;
    }
  }
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  static constexpr std::byte kPoison{0x5A};  // Gpu's
  uc::Bootstrap meeting_;
  Ready env_;
  Gpu gpu_;
  uc::Communicator<B> comm_;
  uc::Coordinator<B> calls_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::uint64_t* word_ = nullptr;
  std::uint64_t posted_ = 0;
};

}  // namespace uniconn_bench
