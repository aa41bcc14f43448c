// GpucclBackend: UNICONN over NCCL, found at run time (libnccl.so.2, 2.18 and newer): neither its
// headers nor its library are needed to build. POLYPATH_NOT_SUPPORTED from SetDevice: it is not
// there, with how to get it. Kernels that communicate: device/gpuccl.cuh.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "polypath/uniconn/backend/nccl_library.hpp"
#include "polypath/uniconn/backend/nccl_windows.hpp"
#include "polypath/uniconn/local_memory.hpp"

namespace polypath::uniconn {
struct GpucclBackend {
  static constexpr const char* kName = "gpuccl";
  static constexpr bool kOneSided = false;
  /// Others than PureHost in programs with device/gpuccl.cuh, which World::require sees to.
  static constexpr bool launches(LaunchMode) { return true; }
  static Bootstrap bootstrap(int, char**) { return Bootstrap::environment(); }

  class World;
  class Ranks;
  class Group;
};

class GpucclBackend::World {
 public:
  World(const Bootstrap& bootstrap, polypath_context*, const detail::Cuda& cuda,
        const detail::Device&)
      : nccl_(detail::Nccl::get()), cuda_(cuda), memory_(bootstrap, cuda) {
    // What goes wrong on one rank must not leave the others waiting for it in NCCL.
    struct Offer {
      detail::Nccl::Id id;
      int result = 0;
    } offer;
    if (bootstrap.rank() == 0) offer.result = nccl_.unique_id(&offer.id);
    const Offer first = bootstrap.gather(offer).front();
    nccl_.check(first.result, "ncclGetUniqueId");
    void* comm = nullptr;
    nccl_.check(nccl_.init_rank(&comm, bootstrap.size(), first.id, bootstrap.rank()),
                "ncclCommInitRank");
    comm_ = owned(comm);
    windows_.emplace(bootstrap, nccl_, cuda_, comm_);
    cuda_.check(cuda_.alloc(&byte_, 2), "cuMemAlloc");
    cuda_.check(cuda_.set(byte_, 0, 2, nullptr), "cuMemsetD8Async");
    cuda_.check(cuda_.synchronize(nullptr), "cuStreamSynchronize");
  }
  ~World() {
    if (byte_ != 0) cuda_.free(byte_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// In a program whose kernels communicate it is a window, where NCCL has windows.
  void* allocate(std::size_t bytes) {
    void* const window = windows_->allocate(bytes);
    return window == nullptr ? memory_.allocate(bytes) : window;
  }
  void release(void* address) {
    if (!windows_->release(address)) memory_.release(address);
  }
  void synchronize(Stream stream) const {
    cuda_.check(cuda_.synchronize(stream), "cuStreamSynchronize");
    int happened = 0;
    nccl_.check(nccl_.async_error(comm_.get(), &happened), "ncclCommGetAsyncError");
    nccl_.check(happened, "NCCL, meanwhile");
  }
  Ranks ranks();

  /// POLYPATH_NOT_SUPPORTED: this program has no device code over NCCL.
  static void require(LaunchMode mode) {
    if (mode != LaunchMode::PureHost) detail::NcclWindows::require_device_code(name_of(mode));
  }

 private:
  friend class Ranks;
  friend class Group;

  /// Throws unless it is memory of a GPU, and, of Memory, all of it.
  void require_memory(const void* address, std::size_t bytes, const char* what) const {
    if (!windows_->holds(address, bytes, what)) memory_.require(address, bytes, what);
  }
  [[nodiscard]] std::shared_ptr<void> owned(void* comm) const {
    return {comm, [&nccl = nccl_](void* handle) { nccl.destroy(handle); }};
  }

  const detail::Nccl& nccl_;
  const detail::Cuda& cuda_;
  detail::LocalMemory memory_;
  std::shared_ptr<void> comm_;
  std::optional<detail::NcclWindows> windows_;
  detail::DevicePointer byte_ =
      0;  // what a barrier sums, and tells of kernels; one that takes that
};

class GpucclBackend::Ranks {
 public:
  Ranks(World* world, std::shared_ptr<void> comm) : world_(world), comm_(std::move(comm)) {
    check(nccl().user_rank(comm_.get(), &rank_), "ncclCommUserRank");
    check(nccl().count(comm_.get(), &size_), "ncclCommCount");
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    void* part = nullptr;
    check(nccl().split(comm_.get(), std::max(color, -1), key, &part, nullptr), "ncclCommSplit");
    return part == nullptr ? nullptr : std::make_unique<Ranks>(world_, world_->owned(part));
  }

  /// For kernels; collective, the first time. POLYPATH_NOT_SUPPORTED: what is missing for it.
  [[nodiscard]] void* to_device() {
    if (view_ == nullptr)
      view_ = std::make_shared<detail::NcclView>(*world_->windows_, comm_, rank_, size_);
    return view_->get();
  }

  void barrier(Stream stream) {
    void* const byte = reinterpret_cast<void*>(world_->byte_);
    check(nccl().all_reduce(byte, byte, 1, detail::Nccl::kBytes, detail::Nccl::kSum, comm_.get(),
                            stream),
          "ncclAllReduce");
  }

  void all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    world_->require_memory(send, bytes, "send");
    world_->require_memory(recv, bytes * static_cast<std::size_t>(size_), "recv");
    check(nccl().all_gather(send, recv, bytes, detail::Nccl::kBytes, comm_.get(), stream),
          "ncclAllGather");
  }
  void broadcast(void* buffer, std::size_t bytes, int root, Stream stream) {
    world_->require_memory(buffer, bytes, "buf");
    check(nccl().broadcast(buffer, buffer, bytes, detail::Nccl::kBytes, root, comm_.get(), stream),
          "ncclBroadcast");
  }

  static constexpr bool reduces(Element element, ReductionOperator op) {
    // Its average of integers is of another rounding.
    return type_of(element) >= 0 && operator_of(op) >= 0 &&
           (op != ReductionOperator::AVG || !is_integer(element));
  }
  void all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    require(send, recv, count * bytes_of(element));
    check(nccl().all_reduce(send, recv, count, type_of(element), operator_of(op), comm_.get(),
                            stream),
          "ncclAllReduce");
  }
  void reduce(const void* send, void* recv, std::size_t count, Element element,
              ReductionOperator op, int root, Stream stream) {
    require(send, rank_ == root ? recv : send, count * bytes_of(element));
    check(nccl().reduce(send, recv, count, type_of(element), operator_of(op), root, comm_.get(),
                        stream),
          "ncclReduce");
  }

 private:
  friend class Group;

  static constexpr int type_of(Element element) {
    return nccl::number_of_type(static_cast<int>(element));
  }
  static constexpr int operator_of(ReductionOperator op) {
    return nccl::number_of_op(static_cast<int>(op));
  }

  [[nodiscard]] const detail::Nccl& nccl() const noexcept { return world_->nccl_; }
  void check(int result, const char* call) const { nccl().check(result, call); }
  void require(const void* send, const void* recv, std::size_t bytes) const {
    world_->require_memory(send, bytes, "send");
    world_->require_memory(recv, bytes, "recv");
  }

  World* world_;  // outlives it: the RankSession holds both
  std::shared_ptr<void> comm_;
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<detail::NcclView> view_;
};

inline GpucclBackend::Ranks GpucclBackend::World::ranks() { return {this, comm_}; }

/// Sends and receives in a group become one NCCL group, at its end; outside of one they are
/// kernels, one after another. NCCL matches messages of two ranks by their order alone: those of
/// collectives come after the program's.
class GpucclBackend::Group {
 public:
  explicit Group(World& world) : world_(world) {}

  void start(Stream) { is_open_ = true; }
  void post(const Ranks& ranks, const PostArgs& posted, Stream stream) {
    if (posted.bytes == 0 && !posted.of_kernel) return;
    world_.require_memory(posted.src, posted.bytes, "Post: src");
    add(ranks, posted, const_cast<void*>(posted.src), posted.to, true, stream);
  }
  void acknowledge(const Ranks& ranks, const AcknowledgeArgs& acknowledged, Stream stream) {
    if (acknowledged.bytes == 0 && !acknowledged.of_kernel) return;
    world_.require_memory(acknowledged.dst, acknowledged.bytes, "Acknowledge: dest");
    add(ranks, acknowledged, acknowledged.dst, acknowledged.from, false, stream);
  }
  void end(Stream stream) {
    is_open_ = false;
    if (messages_.empty() && of_collectives_.empty()) return;
    const struct Clear {
      Group& group;
      ~Clear() {
        group.messages_.clear();
        group.of_collectives_.clear();
      }
    } clear{*this};
    const detail::Nccl& nccl = world_.nccl_;
    nccl.check(nccl.group_start(), "ncclGroupStart");
    // Every group that was started is ended, also after an error: it gives the error again.
    std::exception_ptr thrown;
    try {
      for (const Message& message : messages_) issue(message, stream);
      for (const Message& message : of_collectives_) issue(message, stream);
    } catch (...) {
      thrown = std::current_exception();
    }
    const int result = nccl.group_end();
    if (thrown) std::rethrow_exception(thrown);
    nccl.check(result, "ncclGroupEnd");
  }

 private:
  struct Message {
    void* memory = nullptr;
    std::size_t bytes = 0;
    int rank = 0;
    void* comm = nullptr;
    bool is_sent = false;
  };
  /// A byte after the kernel tells of what the kernel has sent. `Args`: PostArgs or
  /// AcknowledgeArgs.
  template <typename Args>
  void add(const Ranks& ranks, const Args& args, void* memory, int rank, bool is_sent,
           Stream stream) {
    Message alone;
    // Written where it stays: a copy of what was stored a moment ago, in wider words, has to wait.
    Message& message =
        is_open_ ? (args.of_collective ? of_collectives_ : messages_).emplace_back() : alone;
    message.memory = args.of_kernel
                         ? reinterpret_cast<void*>(is_sent ? world_.byte_ : world_.byte_ + 1)
                         : memory;
    message.bytes = args.of_kernel ? 1 : args.bytes;
    message.rank = rank;
    message.comm = ranks.comm_.get();
    message.is_sent = is_sent;
    if (!is_open_) issue(message, stream);
  }
  void issue(const Message& message, Stream stream) const {
    const detail::Nccl& nccl = world_.nccl_;
    if (message.is_sent) {
      nccl.check(nccl.send(message.memory, message.bytes, detail::Nccl::kBytes, message.rank,
                           message.comm, stream),
                 "ncclSend");
    } else {
      nccl.check(nccl.recv(message.memory, message.bytes, detail::Nccl::kBytes, message.rank,
                           message.comm, stream),
                 "ncclRecv");
    }
  }

  World& world_;
  bool is_open_ = false;
  std::vector<Message> messages_;
  std::vector<Message> of_collectives_;
};

}  // namespace polypath::uniconn
