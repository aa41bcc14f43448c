// PolypathBackend: UNICONN over polypath's communicators (comm.h): posts go over all paths of the
// node. Link with libpolypath. Ranks: up to eight GPUs of one node that reach each other's memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "polypath/comm.hpp"
#include "polypath/uniconn/backend/polypath_device.hpp"
#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/region_map.hpp"

namespace polypath::uniconn {

struct PolypathBackend {
  static constexpr const char* kName = "polypath";
  static constexpr bool kOneSided = true;
  static constexpr bool launches(LaunchMode) { return true; }
  static Bootstrap bootstrap(int, char**) { return Bootstrap::environment(); }

  class World;
  class Ranks;
  class Group;
};

class PolypathBackend::World {
 public:
  World(const Bootstrap& bootstrap, polypath_context* engine, const detail::Cuda& cuda,
        const detail::Device& gpu)
      : cuda_(cuda) {
    polypath_comm* comm = nullptr;
    polypath::detail::check(polypath_comm_create(engine, bootstrap.rank(), bootstrap.size(),
                                                 gpu.number(), bootstrap.function(),
                                                 bootstrap.user(), nullptr, &comm));
    comm_ = std::make_shared<communicator>(comm);
  }

  void* allocate(std::size_t bytes) {
    const symmetric_memory memory = comm_->alloc(bytes);
    void* const address = memory.address(comm_->rank());
    pieces_.add(address, bytes, memory.get());
    for (const Viewed& entry : views())
      entry.view->add(bytes, addresses_of(memory.get(), entry.in_world));
    return address;
  }
  void release(void* address) {
    polypath_symmetric* const memory = pieces_.take(address);
    for (const Viewed& entry : views()) entry.view->remove(address);
    comm_->free(symmetric_memory(memory));
  }
  void synchronize(Stream stream) const { comm_->synchronize(stream); }
  /// As this rank numbers GPUs.
  [[nodiscard]] int gpu_of(int rank) const { return polypath_comm_gpu(comm_->get(), rank); }
  /// Throws unless all of it is memory of Memory.
  void require(const void* address, std::size_t bytes, const char* what) const {
    static_cast<void>(pieces_.at(address, bytes, what));
  }
  Ranks ranks();

 private:
  friend class Ranks;
  friend class Group;

  /// What kernels have of a communicator, and its ranks' numbers in the world.
  struct Viewed {
    std::shared_ptr<detail::DeviceView> view;
    std::vector<int> in_world;
  };
  static std::vector<void*> addresses_of(const polypath_symmetric* memory,
                                         const std::vector<int>& in_world) {
    std::vector<void*> all;
    for (const int rank : in_world) all.push_back(polypath_symmetric_address(memory, rank));
    return all;
  }
  /// The views of communicators that still exist.
  std::vector<Viewed> views() {
    std::vector<Viewed> all;
    std::erase_if(views_, [&](const auto& known) {
      Viewed entry{known.first.lock(), known.second};
      if (entry.view != nullptr) all.push_back(std::move(entry));
      return known.first.expired();
    });
    return all;
  }
  std::shared_ptr<detail::DeviceView> make_view(communicator& ranks,
                                                const std::vector<int>& in_world) {
    auto view = std::make_shared<detail::DeviceView>(cuda_, ranks);
    for (const auto& piece : pieces_.all())
      view->add(piece.bytes, addresses_of(piece.handle, in_world));
    views_.emplace_back(view, in_world);
    return view;
  }

  const detail::Cuda& cuda_;
  std::shared_ptr<communicator> comm_;
  detail::Pieces<polypath_symmetric*> pieces_;
  std::vector<std::pair<std::weak_ptr<detail::DeviceView>, std::vector<int>>> views_;
};

/// Signals and posts go by the communicator of all, whose memory it is; collectives and barriers
/// by one of these ranks.
class PolypathBackend::Ranks {
 public:
  Ranks(World* world, std::shared_ptr<communicator> comm, std::vector<int> in_world)
      : world_(world), comm_(std::move(comm)), in_world_(std::move(in_world)) {
    // Loading kernels may wait for those that run: it is done before any of them waits for a rank.
    const polypath_status prepared = polypath_comm_prepare(comm_->get());
    if (prepared != POLYPATH_NOT_SUPPORTED) polypath::detail::check(prepared);
  }

  [[nodiscard]] int rank() const noexcept { return comm_->rank(); }
  [[nodiscard]] int size() const noexcept { return comm_->size(); }

  /// Null for a negative color.
  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    auto part = std::make_shared<communicator>(comm_->split(color, key));
    if (part->get() == nullptr) return nullptr;
    const int own_rank = in_world_[static_cast<std::size_t>(rank())];
    std::vector<int> all(static_cast<std::size_t>(part->size()));
    part->exchange(std::as_bytes(std::span(&own_rank, 1)), std::as_writable_bytes(std::span(all)));
    return std::make_unique<Ranks>(world_, std::move(part), std::move(all));
  }

  /// For kernels; collective, the first time.
  [[nodiscard]] void* to_device() {
    if (view_ == nullptr) view_ = world_->make_view(*comm_, in_world_);
    return view_->get();
  }

  void barrier(Stream stream) { comm_->barrier(stream); }
  /// On the host: `bytes` of every rank, in rank order, into `all`.
  void exchange(const void* own, void* all, std::size_t bytes) {
    polypath::detail::check(polypath_comm_host_all_gather(comm_->get(), own, all, bytes));
  }

  void all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    polypath::detail::check(
        polypath_all_gather(comm_->get(), send, recv, bytes, POLYPATH_UINT8, stream));
  }
  void all_to_all(const void* send, void* recv, std::size_t bytes, Stream stream) {
    polypath::detail::check(
        polypath_all_to_all(comm_->get(), send, recv, bytes, POLYPATH_UINT8, stream));
  }
  void broadcast(void* buffer, std::size_t bytes, int root, Stream stream) {
    polypath::detail::check(
        polypath_broadcast(comm_->get(), buffer, buffer, bytes, POLYPATH_UINT8, root, stream));
  }

  static constexpr bool reduces(Element element, ReductionOperator op) {
    return is_native(element) && is_native(op);
  }
  void all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    polypath::detail::check(polypath_all_reduce(comm_->get(), send, recv, count, type_of(element),
                                                operator_of(op), stream));
  }
  void reduce(const void* send, void* recv, std::size_t count, Element element,
              ReductionOperator op, int root, Stream stream) {
    polypath::detail::check(polypath_reduce(comm_->get(), send, rank() == root ? recv : nullptr,
                                            count, type_of(element), operator_of(op), root,
                                            stream));
  }

 private:
  friend class Group;

  // reduces() refused all others.
  static constexpr polypath_data_type type_of(Element element) {
    return static_cast<polypath_data_type>(element);
  }
  static constexpr polypath_reduce_op operator_of(ReductionOperator op) {
    return static_cast<polypath_reduce_op>(op);
  }

  World* world_;  // outlives it: the RankSession holds both
  std::shared_ptr<communicator> comm_;
  std::vector<int> in_world_;  // by rank
  std::shared_ptr<detail::DeviceView> view_;
};

inline PolypathBackend::Ranks PolypathBackend::World::ranks() {
  std::vector<int> all(static_cast<std::size_t>(comm_->size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = static_cast<int>(rank);
  return {this, comm_, std::move(all)};
}

/// Posts of a group are put together, at its end, and its acknowledges come after them.
class PolypathBackend::Group {
 public:
  explicit Group(World& world) : world_(world) {}

  void start(Stream) { is_open_ = true; }

  void post(const Ranks& ranks, const PostArgs& posted, Stream stream) {
    polypath_put put{};
    polypath_signal signal{};
    put.to = ranks.in_world_[static_cast<std::size_t>(posted.to)];
    if (posted.bytes > 0) {
      const auto& piece = world_.pieces_.at(posted.dst, posted.bytes, "Post: dest");
      put.memory = piece.handle;
      put.offset = piece.offset_of(posted.dst);
      put.src = posted.src;
      put.bytes = posted.bytes;
    }
    if (posted.signal != nullptr) signal = signal_of(posted.signal, posted.value, "Post: signal");
    if (put.memory == nullptr && signal.memory == nullptr) return;
    if (is_open_) {
      puts_.push_back(put);
      signals_.push_back(signal);
    } else {
      issue(put, signal, stream);
    }
  }

  void acknowledge(const Ranks&, const AcknowledgeArgs& acknowledged, Stream stream) {
    const polypath_signal signal =
        signal_of(acknowledged.signal, acknowledged.value, "Acknowledge: signal");
    if (is_open_) {
      awaited_.push_back(signal);
    } else {
      wait(signal, stream);
    }
  }

  void end(Stream stream) {
    is_open_ = false;
    // The next group begins empty, also if this one fails.
    const struct Clear {
      Group& group;
      ~Clear() {
        group.puts_.clear();
        group.signals_.clear();
        group.awaited_.clear();
      }
    } clear{*this};
    if (puts_.empty() && awaited_.empty()) return;
    for (std::size_t i = 0; i < puts_.size(); ++i) {
      if (signals_[i].memory != nullptr) puts_[i].signal = &signals_[i];
      // A signal alone: after the data of a kernel.
      if (puts_[i].memory == nullptr) puts_[i].memory = signals_[i].memory;
    }
    polypath::detail::check(polypath_comm_put_and_wait(
        world_.comm_->get(), puts_.data(), puts_.size(), awaited_.data(), awaited_.size(), stream));
  }

 private:
  [[nodiscard]] polypath_signal signal_of(const std::uint64_t* word, std::uint64_t value,
                                          const char* what) const {
    const auto& piece = world_.pieces_.at(word, sizeof *word, what);
    return {piece.handle, piece.offset_of(word), value};
  }
  void issue(const polypath_put& put, const polypath_signal& signal, Stream stream) const {
    polypath_comm* const comm = world_.comm_->get();
    if (put.bytes == 0 && signal.memory != nullptr) {
      polypath::detail::check(polypath_comm_signal(comm, put.to, &signal, stream));
    } else if (signal.memory != nullptr) {
      polypath::detail::check(polypath_comm_put_signal(comm, put.to, put.memory, put.offset,
                                                       put.src, put.bytes, &signal, stream));
    } else if (put.bytes > 0) {
      polypath::detail::check(
          polypath_comm_put(comm, put.to, put.memory, put.offset, put.src, put.bytes, stream));
    }
  }
  void wait(const polypath_signal& signal, Stream stream) const {
    polypath::detail::check(polypath_comm_wait_signal(world_.comm_->get(), &signal, stream));
  }

  World& world_;
  bool is_open_ = false;
  std::vector<polypath_put> puts_;
  std::vector<polypath_signal> signals_;  // of each put; without memory: none
  std::vector<polypath_signal> awaited_;
};

}  // namespace polypath::uniconn
