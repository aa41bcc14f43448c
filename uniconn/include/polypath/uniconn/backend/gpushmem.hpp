// GpushmemBackend: UNICONN over NVSHMEM's host API, found at run time (libnvshmem_host.so.3):
// neither its headers nor its library are needed to build. POLYPATH_NOT_SUPPORTED from SetDevice:
// it is not there, with how to get it. One rank a process, and one Environment in its life. Kernels
// that communicate: device/gpushmem.cuh.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "polypath/uniconn/backend/nvshmem_library.hpp"
#include "polypath/uniconn/composed_collectives.hpp"
#include "polypath/uniconn/region_map.hpp"

namespace polypath::uniconn {

struct GpushmemBackend {
  static constexpr const char* kName = "gpushmem";
  static constexpr bool kOneSided = true;
  /// Others than PureHost in programs with device/gpushmem.cuh, which World::require sees to.
  static constexpr bool launches(LaunchMode) { return true; }
  static Bootstrap bootstrap(int, char**) { return Bootstrap::environment(); }

  class World;
  class Ranks;
  class Group;
};

class GpushmemBackend::World {
 public:
  World(const Bootstrap& bootstrap, polypath_context*, const detail::Cuda& cuda,
        const detail::Device&)
      : nvshmem_(detail::Nvshmem::get()),
        cuda_(cuda),
        rank_(bootstrap.rank()),
        size_(bootstrap.size()) {
    if (!nvshmem_.has_threads) begin_once(bootstrap);
    struct Offer {
      detail::Nvshmem::Id id;
      int result = 0;
    } offer;
    if (rank_ == 0) offer.result = nvshmem_.unique_id(&offer.id);
    const Offer first = bootstrap.gather(offer).front();
    nvshmem_.check(first.result, "nvshmemx_get_uniqueid");
    detail::Nvshmem::Id id = first.id;
    detail::Nvshmem::Attributes attributes;
    nvshmem_.check(nvshmem_.set_id(rank_, size_, &id, &attributes),
                   "nvshmemx_set_attr_uniqueid_args");
    // With device code the program has a part of NVSHMEM of its own, which begins with it.
    if (const auto* const of_program = detail::nvshmem_of_program) {
      nvshmem_.check(of_program->init(detail::Nvshmem::kWithId, &attributes), "nvshmemx_init_attr");
    } else {
      nvshmem_.check(nvshmem_.init(detail::Nvshmem::kWithId, &attributes),
                     "nvshmemx_hostlib_init_attr");
    }
    const auto ranks = static_cast<std::size_t>(size_);
    words_ = static_cast<std::uint64_t*>(zeroed(2 * kMaxParts * ranks * sizeof *words_));
    mailboxes_ = static_cast<std::byte*>(zeroed(kLetter * ranks));
    stage_ = static_cast<std::byte*>(zeroed(detail::Scratch::kChunk * (ranks + 1)));
    cuda_.check(cuda_.event_create(&staged_, kNoTiming), "cuEventCreate");
  }
  ~World() {
    if (staged_ != nullptr) cuda_.event_destroy(staged_);
    for (const auto& piece : pieces_.all()) nvshmem_.free(reinterpret_cast<void*>(piece.begin));
    for (void* const own : {static_cast<void*>(words_), static_cast<void*>(mailboxes_),
                            static_cast<void*>(stage_), signals_})
      if (own != nullptr) nvshmem_.free(own);
    detail::nvshmem_of_program == nullptr ? nvshmem_.finalize()
                                          : detail::nvshmem_of_program->finalize();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void* allocate(std::size_t bytes) {
    void* const address = nvshmem_.allocate(bytes);
    if (address == nullptr)
      throw error(POLYPATH_DRIVER_ERROR, ("nvshmem_malloc of " + std::to_string(bytes) +
                                          " bytes: NVSHMEM_SYMMETRIC_SIZE says how much there is")
                                             .c_str());
    pieces_.add(address, bytes, Nothing{});
    return address;
  }
  void release(void* address) {
    pieces_.take(address);
    nvshmem_.free(address);
  }
  void synchronize(Stream stream) const {
    cuda_.check(cuda_.synchronize(stream), "cuStreamSynchronize");
  }
  /// Throws unless all of it is memory of Memory.
  void require(const void* address, std::size_t bytes, const char* what) const {
    static_cast<void>(pieces_.at(address, bytes, what));
  }
  Ranks ranks();

  /// POLYPATH_NOT_SUPPORTED: this program has no device code of NVSHMEM's.
  static void require(LaunchMode mode) {
    if (mode != LaunchMode::PureHost && detail::nvshmem_of_program == nullptr)
      throw error(POLYPATH_NOT_SUPPORTED, (std::string(name_of(mode)) + kNeedsDeviceCode).c_str());
  }
  static void launch_together(const void* kernel, const std::array<unsigned, 3>& grid,
                              const std::array<unsigned, 3>& block, void** args,
                              std::size_t shared_bytes, Stream stream) {
    detail::Nvshmem::check(detail::nvshmem_of_program->launch(kernel, grid.data(), block.data(),
                                                              args, shared_bytes, stream),
                           "nvshmemx_collective_launch");
  }

 private:
  friend class Ranks;
  friend class Group;
  struct Nothing {};
  static constexpr const char* kNeedsDeviceCode =
      " over NVSHMEM: include polypath/uniconn/device/gpushmem.cuh where the kernels are, compile "
      "with -rdc=true, and link with -lnvshmem_device";
  static constexpr unsigned kNoTiming = 2;
  /// Communicators in the life of a rank: each has words of its own.
  static constexpr std::size_t kMaxParts = 256;
  /// Bytes that ranks of a communicator exchange at a time.
  static constexpr std::size_t kLetter = 4096;

  /// It keeps its first bootstrap until the process ends.
  static void begin_once(const Bootstrap& bootstrap) {
    static bool has_begun = false;
    if (bootstrap.is_thread())
      throw error(POLYPATH_INVALID_ARGUMENT, "NVSHMEM has one rank a process: no threads");
    if (std::exchange(has_begun, true))
      throw error(POLYPATH_INVALID_ARGUMENT, "NVSHMEM cannot begin again in a process");
    // On one node it needs no network; memory by CUDA IPC is what all paths can carry.
    if (detail::node_place(bootstrap).size == bootstrap.size()) {
      setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
      setenv("NVSHMEM_DISABLE_CUDA_VMM", "1", 0);
    }
  }
  void* zeroed(std::size_t bytes) const {
    void* const address = nvshmem_.allocate(bytes);
    if (address == nullptr)
      throw error(POLYPATH_DRIVER_ERROR, "nvshmem_malloc failed in the beginning");
    cuda_.check(cuda_.set(detail::device(address), 0, bytes, nullptr), "cuMemsetD8Async");
    cuda_.check(cuda_.synchronize(nullptr), "cuStreamSynchronize");
    nvshmem_.barrier_all(nullptr);
    cuda_.check(cuda_.synchronize(nullptr), "cuStreamSynchronize");
    return address;
  }
  /// For kernels: words by which ranks tell each other numbers. Collective, the first time.
  void* signals() {
    if (detail::nvshmem_of_program == nullptr)
      throw error(POLYPATH_NOT_SUPPORTED, (std::string("toDevice") + kNeedsDeviceCode).c_str());
    if (signals_ == nullptr)
      signals_ = zeroed(static_cast<std::size_t>(size_) * sizeof(std::uint64_t));
    return signals_;
  }

  const detail::Nvshmem& nvshmem_;
  const detail::Cuda& cuda_;
  int rank_;
  int size_;
  detail::Pieces<Nothing> pieces_;
  std::uint64_t* words_ = nullptr;  // of barriers: by communicator, then by rank of the world
  std::byte* mailboxes_ = nullptr;  // by rank of the world
  std::byte* stage_ = nullptr;      // a chunk of each rank, and one that goes
  CUevent_st* staged_ = nullptr;    // after the last use of the stage
  void* signals_ = nullptr;         // for kernels
  std::size_t next_part_ = 1;       // 0: all
};

/// NVSHMEM's teams are of ranks in regular steps; these are of any. So their barriers are signals,
/// and what is NVSHMEM's own is that of all ranks alone.
class GpushmemBackend::Ranks {
 public:
  Ranks(World* world, std::size_t number, std::vector<int> in_world, int rank)
      : world_(world), number_(number), in_world_(std::move(in_world)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(in_world_.size()); }

  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    struct Wish {
      int color;
      int key;
      int rank;
      std::size_t next;
    };
    const Wish own_wish{color, key, rank_, world_->next_part_};
    std::vector<Wish> all(in_world_.size());
    exchange(&own_wish, all.data(), sizeof own_wish);
    std::erase_if(all, [color](const Wish& wish) { return wish.color != color; });
    if (color < 0) return nullptr;
    std::ranges::sort(all, {}, [](const Wish& wish) { return std::pair(wish.key, wish.rank); });
    std::size_t number = 0;  // that none of them has used
    std::vector<int> members;
    int own = 0;
    for (const Wish& wish : all) {
      number = std::max(number, wish.next);
      if (wish.rank == rank_) own = static_cast<int>(members.size());
      members.push_back(in_world_[static_cast<std::size_t>(wish.rank)]);
    }
    if (number >= World::kMaxParts)
      throw error(POLYPATH_NOT_SUPPORTED, "Split: too many communicators on NVSHMEM");
    world_->next_part_ = number + 1;
    return std::make_unique<Ranks>(world_, number, std::move(members), own);
  }

  /// POLYPATH_NOT_SUPPORTED: kernels name ranks as NVSHMEM does, and these have other numbers.
  [[nodiscard]] void* to_device() {
    for (int rank = 0; rank < world_->size_; ++rank)
      if (size() != world_->size_ || in_world_[static_cast<std::size_t>(rank)] != rank)
        throw error(
            POLYPATH_NOT_SUPPORTED,
            "toDevice over NVSHMEM: kernels communicate among all ranks of the Environment, "
            "in its order, not among a part; those over polypath and NCCL can");
    return world_->signals();
  }

  void barrier(Stream stream) {
    if (number_ == 0) return world_->nvshmem_.barrier_all(stream);
    meet(2 * number_, ++barriers_, stream);
  }

  /// On the host, over memory that all ranks have for it.
  void exchange(const void* own, void* all, std::size_t bytes) {
    const detail::Cuda& cuda = world_->cuda_;
    for (std::size_t at = 0; at < bytes; at += World::kLetter) {
      const std::size_t now = std::min(World::kLetter, bytes - at);
      // By words of its own: barriers may be under way on streams of the program.
      meet(2 * number_ + 1, ++mailboxes_, nullptr);
      std::byte* const letter =
          world_->mailboxes_ + World::kLetter * static_cast<std::size_t>(world_->rank_);
      cuda.check(cuda.copy(detail::device(letter),
                           detail::device(static_cast<const std::byte*>(own) + at), now, nullptr),
                 "cuMemcpyAsync");
      for (const int to : in_world_)
        if (to != world_->rank_) world_->nvshmem_.put(letter, letter, now, to, nullptr);
      meet(2 * number_ + 1, ++mailboxes_, nullptr);
      for (std::size_t i = 0; i < in_world_.size(); ++i)
        cuda.check(
            cuda.copy(detail::device(static_cast<std::byte*>(all) + i * bytes + at),
                      detail::device(world_->mailboxes_ +
                                     World::kLetter * static_cast<std::size_t>(in_world_[i])),
                      now, nullptr),
            "cuMemcpyAsync");
      cuda.check(cuda.synchronize(nullptr), "cuStreamSynchronize");
    }
  }

  /// False: composed. To memory that is not Memory's: by the stage.
  bool all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    const std::size_t all = bytes * in_world_.size();
    const bool is_symmetric = world_->pieces_.holds(recv, all, "recv");
    const bool in_place =
        send == static_cast<std::byte*>(recv) + bytes * static_cast<std::size_t>(rank_);
    if (is_symmetric && number_ == 0 && !in_place && world_->pieces_.holds(send, bytes, "send")) {
      detail::Nvshmem::check(
          world_->nvshmem_.all_gather(detail::Nvshmem::kTeamWorld, recv, send, bytes, stream),
          "nvshmemx_fcollectmem_on_stream");
      return true;
    }
    if (is_symmetric) return false;
    gather_by_stage(static_cast<const std::byte*>(send), static_cast<std::byte*>(recv), bytes,
                    stream);
    return true;
  }
  bool all_to_all(const void* send, void* recv, std::size_t bytes, Stream stream) {
    const std::size_t all = bytes * in_world_.size();
    if (number_ != 0 || !world_->pieces_.holds(send, all, "send") ||
        !world_->pieces_.holds(recv, all, "recv"))
      return false;
    detail::Nvshmem::check(
        world_->nvshmem_.all_to_all(detail::Nvshmem::kTeamWorld, recv, send, bytes, stream),
        "nvshmemx_alltoallmem_on_stream");
    return true;
  }

  /// Which of them its library has, it says itself.
  static constexpr bool reduces(Element, ReductionOperator) { return true; }
  bool all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    const std::size_t bytes = count * bytes_of(element);
    const auto function = world_->nvshmem_.reduction(element, op);
    if (function == nullptr || number_ != 0) return false;
    static_cast<void>(world_->pieces_.at(send, bytes, "send"));
    static_cast<void>(world_->pieces_.at(recv, bytes, "recv"));
    detail::Nvshmem::check(function(detail::Nvshmem::kTeamWorld, recv, send, count, stream),
                           "nvshmemx_reduce_on_stream");
    return true;
  }
  /// It has none to one rank.
  bool reduce(const void*, void*, std::size_t, Element, ReductionOperator, int, Stream) {
    return false;
  }

 private:
  friend class Group;

  /// The stream goes on when those of all ranks have given the row of words this value.
  void meet(std::size_t row, std::uint64_t value, Stream stream) const {
    const detail::Nvshmem& nvshmem = world_->nvshmem_;
    nvshmem.quiet(stream);
    std::uint64_t* const words = world_->words_ + row * static_cast<std::size_t>(world_->size_);
    for (const int to : in_world_)
      if (to != world_->rank_)
        nvshmem.signal(words + world_->rank_, value, detail::Nvshmem::kSet, to, stream);
    for (const int from : in_world_)
      if (from != world_->rank_)
        nvshmem.wait(words + from, detail::Nvshmem::kAtLeast, value, stream);
  }
  void gather_by_stage(const std::byte* send, std::byte* recv, std::size_t bytes, Stream stream) {
    const detail::Cuda& cuda = world_->cuda_;
    constexpr std::size_t kChunk = detail::Scratch::kChunk;
    cuda.check(cuda.wait_event(stream, world_->staged_, 0), "cuStreamWaitEvent");
    std::byte* const place = world_->stage_ + kChunk * static_cast<std::size_t>(world_->rank_);
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      const std::size_t now = std::min(kChunk, bytes - at);
      barrier(stream);
      detail::copy_own(cuda, place, send + at, now, stream);
      for (const int to : in_world_)
        if (to != world_->rank_) world_->nvshmem_.put(place, place, now, to, stream);
      barrier(stream);
      for (std::size_t i = 0; i < in_world_.size(); ++i)
        detail::copy_own(cuda, recv + i * bytes + at,
                         world_->stage_ + kChunk * static_cast<std::size_t>(in_world_[i]), now,
                         stream);
    }
    cuda.check(cuda.event_record(world_->staged_, stream), "cuEventRecord");
  }

  World* world_;  // outlives it: the RankSession holds both
  std::size_t number_;
  std::vector<int> in_world_;
  int rank_;
  std::uint64_t barriers_ = 0;
  std::uint64_t mailboxes_ = 0;
};

inline GpushmemBackend::Ranks GpushmemBackend::World::ranks() {
  std::vector<int> all;
  for (int rank = 0; rank < size_; ++rank) all.push_back(rank);
  return {this, 0, std::move(all), rank_};
}

/// Puts with signals, on the stream itself and not next to it, so that the stream is past them when
/// their sources have been read. Those of a group come at its end, its waits after them.
class GpushmemBackend::Group {
 public:
  explicit Group(World& world) : world_(world) {}

  void start(Stream) { is_open_ = true; }
  void post(const Ranks& ranks, const PostArgs& posted, Stream stream) {
    if (posted.bytes > 0)
      static_cast<void>(world_.pieces_.at(posted.dst, posted.bytes, "Post: dest"));
    if (posted.signal != nullptr)
      static_cast<void>(world_.pieces_.at(posted.signal, sizeof *posted.signal, "Post: signal"));
    PostArgs alone;
    // Written where it stays: a copy of what was stored a moment ago, in wider words, has to wait.
    PostArgs& post = is_open_ ? posts_.emplace_back() : alone;
    post.src = posted.src;
    post.dst = posted.dst;
    post.bytes = posted.bytes;
    post.signal = posted.signal;
    post.value = posted.value;
    post.to = ranks.in_world_[static_cast<std::size_t>(posted.to)];
    post.of_kernel = posted.of_kernel;
    if (is_open_) return;
    quiet(post.of_kernel, stream);
    issue(post, stream);
  }
  void acknowledge(const Ranks&, const AcknowledgeArgs& acknowledged, Stream stream) {
    static_cast<void>(
        world_.pieces_.at(acknowledged.signal, sizeof *acknowledged.signal, "Acknowledge: signal"));
    wait_target alone;
    wait_target& target = is_open_ ? awaited_.emplace_back() : alone;
    target.signal = acknowledged.signal;
    target.value = acknowledged.value;
    if (!is_open_) wait(target, stream);
  }
  void end(Stream stream) {
    is_open_ = false;
    quiet(std::ranges::any_of(posts_, &PostArgs::of_kernel), stream);
    for (const PostArgs& posted : posts_) issue(posted, stream);
    for (const wait_target& awaited : awaited_) wait(awaited, stream);
    posts_.clear();
    awaited_.clear();
  }

 private:
  struct wait_target {
    std::uint64_t* signal = nullptr;
    std::uint64_t value = 0;
  };
  /// What kernels have put goes before what tells of it.
  void quiet(bool has_kernels, Stream stream) const {
    if (has_kernels) world_.nvshmem_.quiet(stream);
  }
  void issue(const PostArgs& post, Stream stream) const {
    const detail::Nvshmem& nvshmem = world_.nvshmem_;
    if (post.signal == nullptr) {
      nvshmem.put(post.dst, post.src, post.bytes, post.to, stream);
    } else if (post.bytes == 0) {
      nvshmem.signal(post.signal, post.value, detail::Nvshmem::kSet, post.to, stream);
    } else {
      nvshmem.put_signal(post.dst, post.src, post.bytes, post.signal, post.value,
                         detail::Nvshmem::kSet, post.to, stream);
    }
  }
  void wait(const wait_target& target, Stream stream) const {
    world_.nvshmem_.wait(target.signal, detail::Nvshmem::kAtLeast, target.value, stream);
  }

  World& world_;
  bool is_open_ = false;
  std::vector<PostArgs> posts_;
  std::vector<wait_target> awaited_;
};

}  // namespace polypath::uniconn
