// MPIBackend: UNICONN over the MPI of the program that includes it; any MPI 3.1. The host waits in
// every call that ends communication.
//
// What MPI does with memory of GPUs it is asked: an MPI that says that it takes it gets it. Any
// other gets pinned host memory, which is copied to and fro, unless POLYPATH_UNICONN_MPI=messages
// says that it sends and receives GPU memory (as Open MPI does by UCX, and does not say).
#pragma once

#include <mpi.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "polypath/uniconn/backend/mpi_library.hpp"
#include "polypath/uniconn/local_memory.hpp"

namespace polypath::uniconn {

/// The ranks of an MPI communicator, for any backend. It must outlive the Environment.
inline Bootstrap mpi_bootstrap(MPI_Comm ranks) {
  return detail::bootstrap_of(std::make_shared<detail::MpiRun>(ranks));
}

struct MPIBackend {
  static constexpr const char* kName = "mpi";
  static constexpr bool kOneSided = false;
  static constexpr bool launches(LaunchMode mode) { return mode == LaunchMode::PureHost; }
  /// Initialises MPI if the program has not, and then finalises it, too.
  static Bootstrap bootstrap(int argc, char** argv) {
    return detail::bootstrap_of(std::make_shared<detail::MpiRun>(&argc, &argv));
  }

  class World;
  class Ranks;
  class Group;
};

class MPIBackend::World {
 public:
  World(const Bootstrap& bootstrap, polypath_context*, const detail::Cuda& cuda,
        const detail::Device&)
      : cuda_(cuda),
        takes_(detail::detect_mpi_gpu_support()),
        memory_(bootstrap, cuda),
        pinned_(cuda) {
    if (bootstrap.function() != &detail::mpi_exchange)
      throw error(POLYPATH_INVALID_ARGUMENT,
                  "the ranks of MPIBackend are MPI's: Environment(argc, argv), or mpi_bootstrap()");
    MPI_Comm own = MPI_COMM_NULL;
    detail::check_mpi(MPI_Comm_dup(static_cast<detail::MpiRun*>(bootstrap.user())->ranks, &own),
                      "MPI_Comm_dup");
    comm_ = std::make_shared<detail::MpiComm>(own);
  }

  void* allocate(std::size_t bytes) { return memory_.allocate(bytes); }
  void release(void* address) { memory_.release(address); }
  void synchronize(Stream stream) const {
    cuda_.check(cuda_.synchronize(stream), "cuStreamSynchronize");
  }
  Ranks ranks();

 private:
  friend class Ranks;
  friend class Group;

  /// The host goes on when what is on the stream is done.
  void settle(Stream stream) const {
    const int state = cuda_.query(stream);
    if (state == detail::Cuda::kNotReady) return synchronize(stream);
    cuda_.check(state, "cuStreamQuery");
  }

  const detail::Cuda& cuda_;
  detail::MpiGpuSupport takes_;
  detail::LocalMemory memory_;
  detail::PinnedPool pinned_;
  std::shared_ptr<detail::MpiComm> comm_;
};

class MPIBackend::Ranks {
 public:
  Ranks(World* world, std::shared_ptr<detail::MpiComm> comm)
      : world_(world), comm_(std::move(comm)) {
    detail::check_mpi(MPI_Comm_rank(comm_->get(), &rank_), "MPI_Comm_rank");
    detail::check_mpi(MPI_Comm_size(comm_->get(), &size_), "MPI_Comm_size");
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  [[nodiscard]] std::unique_ptr<Ranks> split(int color, int key) {
    MPI_Comm part = MPI_COMM_NULL;
    detail::check_mpi(MPI_Comm_split(comm_->get(), color < 0 ? MPI_UNDEFINED : color, key, &part),
                      "MPI_Comm_split");
    if (part == MPI_COMM_NULL) return nullptr;
    return std::make_unique<Ranks>(world_, std::make_shared<detail::MpiComm>(part));
  }

  void barrier(Stream stream) {
    world_->settle(stream);
    detail::check_mpi(MPI_Barrier(comm_->get()), "MPI_Barrier");
  }

  // What MPI does itself with memory of GPUs, when it says so: blocking forms alone. False: no.

  bool all_gather(const void* send, void* recv, std::size_t bytes, Stream stream) {
    if (!takes(bytes)) return false;
    require(send, bytes, recv, bytes * static_cast<std::size_t>(size_));
    world_->settle(stream);
    const auto count = static_cast<int>(bytes);
    const bool in_place =
        send == static_cast<std::byte*>(recv) + static_cast<std::size_t>(rank_) * bytes;
    detail::check_mpi(MPI_Allgather(in_place ? MPI_IN_PLACE : send, count, MPI_BYTE, recv, count,
                                    MPI_BYTE, comm_->get()),
                      "MPI_Allgather");
    return true;
  }
  bool all_to_all(const void* send, void* recv, std::size_t bytes, Stream stream) {
    if (!takes(bytes)) return false;
    const std::size_t all = bytes * static_cast<std::size_t>(size_);
    require(send, all, recv, all);
    world_->settle(stream);
    const auto count = static_cast<int>(bytes);
    detail::check_mpi(MPI_Alltoall(send, count, MPI_BYTE, recv, count, MPI_BYTE, comm_->get()),
                      "MPI_Alltoall");
    return true;
  }
  bool broadcast(void* buffer, std::size_t bytes, int root, Stream stream) {
    if (!takes(bytes)) return false;
    require(buffer, bytes, buffer, bytes);
    world_->settle(stream);
    detail::check_mpi(MPI_Bcast(buffer, static_cast<int>(bytes), MPI_BYTE, root, comm_->get()),
                      "MPI_Bcast");
    return true;
  }

  static constexpr bool reduces(Element element, ReductionOperator op) {
    if (element == Element::float32 || element == Element::float64)
      return op <= ReductionOperator::MAX;
    return is_integer(element) && op != ReductionOperator::AVG;
  }
  bool all_reduce(const void* send, void* recv, std::size_t count, Element element,
                  ReductionOperator op, Stream stream) {
    return reduce(send, recv, count, element, op, -1, stream);
  }
  /// To all for a negative root. Where MPI does not take memory of GPUs, in pinned memory.
  bool reduce(const void* send, void* recv, std::size_t count, Element element,
              ReductionOperator op, int root, Stream stream) {
    const bool gets = root < 0 || root == rank_;
    const std::size_t size = bytes_of(element);
    require(send, count * size, gets ? recv : send, count * size);
    world_->settle(stream);
    const bool is_staged = world_->takes_ != detail::MpiGpuSupport::gpu_memory;
    const std::size_t most = std::max<std::size_t>(
        std::min(is_staged ? kStage : detail::mpi_piece, detail::mpi_piece) / size, 1);
    detail::PinnedPool::Lent lent{0, nullptr};
    if (is_staged) lent = world_->pinned_.lend(std::min(count, most) * size);
    for (std::size_t at = 0; at < count; at += most) {
      const std::size_t now = std::min(most, count - at);
      const auto* const from = static_cast<const std::byte*>(send) + at * size;
      auto* const to = gets ? static_cast<std::byte*>(recv) + at * size : nullptr;
      if (is_staged) {
        copy(lent.second, from, now * size, stream);
        reduce_piece(lent.second, gets ? lent.second : nullptr, now, element, op, root);
        if (gets) copy(to, lent.second, now * size, stream);
      } else {
        reduce_piece(from, to, now, element, op, root);
      }
    }
    if (is_staged) world_->pinned_.release(lent);
    return true;
  }

 private:
  friend class Group;
  /// Bytes of host memory at a time.
  static constexpr std::size_t kStage = std::size_t{4} << 20U;

  [[nodiscard]] bool takes(std::size_t bytes) const noexcept {
    return world_->takes_ == detail::MpiGpuSupport::gpu_memory && bytes <= detail::mpi_piece;
  }
  void require(const void* send, std::size_t bytes, const void* recv, std::size_t of_recv) const {
    world_->memory_.require(send, bytes, "send");
    world_->memory_.require(recv, of_recv, "recv");
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) const {
    const detail::Cuda& cuda = world_->cuda_;
    cuda.check(cuda.copy(detail::device(to), detail::device(from), bytes, stream), "cuMemcpyAsync");
    world_->synchronize(stream);
  }
  void reduce_piece(const void* send, void* recv, std::size_t count, Element element,
                    ReductionOperator op, int root) const {
    const bool in_place = send == recv;
    const auto number = static_cast<int>(count);
    if (root < 0) {
      detail::check_mpi(MPI_Allreduce(in_place ? MPI_IN_PLACE : send, recv, number,
                                      type_of(element), operator_of(op), comm_->get()),
                        "MPI_Allreduce");
    } else {
      detail::check_mpi(MPI_Reduce(in_place ? MPI_IN_PLACE : send, recv, number, type_of(element),
                                   operator_of(op), root, comm_->get()),
                        "MPI_Reduce");
    }
  }

  static MPI_Datatype type_of(Element element) {
    switch (element) {
      case Element::int8: return MPI_INT8_T;
      case Element::uint8: return MPI_UINT8_T;
      case Element::int16: return MPI_INT16_T;
      case Element::uint16: return MPI_UINT16_T;
      case Element::int32: return MPI_INT32_T;
      case Element::uint32: return MPI_UINT32_T;
      case Element::int64: return MPI_INT64_T;
      case Element::uint64: return MPI_UINT64_T;
      case Element::float32: return MPI_FLOAT;
      case Element::float64: return MPI_DOUBLE;
      case Element::float16:
      case Element::bfloat16:
      case Element::none: break;
    }
    return MPI_DATATYPE_NULL;  // reduces() refused it
  }
  static MPI_Op operator_of(ReductionOperator op) {
    switch (op) {
      case ReductionOperator::SUM: return MPI_SUM;
      case ReductionOperator::PROD: return MPI_PROD;
      case ReductionOperator::MIN: return MPI_MIN;
      case ReductionOperator::MAX: return MPI_MAX;
      case ReductionOperator::LAND: return MPI_LAND;
      case ReductionOperator::LOR: return MPI_LOR;
      case ReductionOperator::LXOR: return MPI_LXOR;
      case ReductionOperator::BAND: return MPI_BAND;
      case ReductionOperator::BOR: return MPI_BOR;
      case ReductionOperator::BXOR: return MPI_BXOR;
      case ReductionOperator::AVG: break;
    }
    return MPI_OP_NULL;
  }

  World* world_;  // outlives it: the RankSession holds both
  std::shared_ptr<detail::MpiComm> comm_;
  int rank_ = 0;
  int size_ = 1;
};

inline MPIBackend::Ranks MPIBackend::World::ranks() { return {this, comm_}; }

/// Messages of a group are begun one by one and waited for at its end. Without a group they are
/// blocking sends and receives.
class MPIBackend::Group {
 public:
  explicit Group(World& world) : world_(world) {}
  /// A group that was not ended: its messages are abandoned.
  ~Group() {
    for (Message& message : messages_) {
      if (message.to_gpu != nullptr || message.bytes == 0) MPI_Cancel(&message.request);
      MPI_Request_free(&message.request);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  /// From here to the end nothing but communication comes on the stream.
  void start(Stream stream) {
    world_.settle(stream);
    is_open_ = true;
  }

  void post(const Ranks& ranks, const PostArgs& posted, Stream stream) {
    world_.memory_.require(posted.src, posted.bytes, "Post: src");
    if (!is_open_) world_.settle(stream);
    each_piece(posted.bytes, [&](std::size_t at, std::size_t bytes) {
      const void* from = static_cast<const std::byte*>(posted.src) + at;
      Message& message = add(nullptr, bytes);
      if (is_staged()) {
        message.lent = world_.pinned_.lend(bytes);
        copy(message.lent.second, from, bytes, stream);
        world_.synchronize(stream);
        from = message.lent.second;
      }
      begun(MPI_Isend(from, static_cast<int>(bytes), MPI_BYTE, posted.to,
                      tag_of(posted.of_collective), ranks.comm_->get(), &message.request),
            "MPI_Isend");
    });
    if (!is_open_) finish(stream);
  }

  void acknowledge(const Ranks& ranks, const AcknowledgeArgs& acknowledged, Stream stream) {
    world_.memory_.require(acknowledged.dst, acknowledged.bytes, "Acknowledge: dest");
    if (!is_open_) world_.settle(stream);
    each_piece(acknowledged.bytes, [&](std::size_t at, std::size_t bytes) {
      void* to = static_cast<std::byte*>(acknowledged.dst) + at;
      Message& message = add(to, bytes);
      if (is_staged()) {
        message.lent = world_.pinned_.lend(bytes);
        to = message.lent.second;
      }
      begun(MPI_Irecv(to, static_cast<int>(bytes), MPI_BYTE, acknowledged.from,
                      tag_of(acknowledged.of_collective), ranks.comm_->get(), &message.request),
            "MPI_Irecv");
    });
    if (!is_open_) finish(stream);
  }

  void end(Stream stream) {
    is_open_ = false;
    finish(stream);
  }

 private:
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    void* to_gpu = nullptr;  ///< of a receive
    std::size_t bytes = 0;
    detail::PinnedPool::Lent lent{0, nullptr};
  };

  [[nodiscard]] bool is_staged() const noexcept {
    return world_.takes_ == detail::MpiGpuSupport::host_memory;
  }
  static int tag_of(bool of_collective) { return of_collective ? 3 : 2; }

  /// Empty messages are not sent.
  template <typename Body>
  static void each_piece(std::size_t bytes, const Body& body) {
    for (std::size_t at = 0; at < bytes; at += detail::mpi_piece)
      body(at, std::min(detail::mpi_piece, bytes - at));
  }
  Message& add(void* to_gpu, std::size_t bytes) {
    Message message;
    message.to_gpu = to_gpu;
    message.bytes = bytes;
    return messages_.emplace_back(message);
  }
  void begun(int result, const char* call) {
    if (result == MPI_SUCCESS) return;
    messages_.pop_back();
    detail::check_mpi(result, call);
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) const {
    const detail::Cuda& cuda = world_.cuda_;
    cuda.check(cuda.copy(detail::device(to), detail::device(from), bytes, stream), "cuMemcpyAsync");
  }

  void finish(Stream stream) {
    requests_.clear();
    for (const Message& message : messages_) requests_.push_back(message.request);
    const int result =
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    bool has_copies = false;
    for (const Message& message : messages_) {
      if (message.lent.second == nullptr || message.to_gpu == nullptr) continue;
      copy(message.to_gpu, message.lent.second, message.bytes, stream);
      has_copies = true;
    }
    if (has_copies) world_.synchronize(stream);
    for (const Message& message : messages_)
      if (message.lent.second != nullptr) world_.pinned_.release(message.lent);
    messages_.clear();
    detail::check_mpi(result, "MPI_Waitall");
  }

  World& world_;
  bool is_open_ = false;
  std::vector<Message> messages_;
  std::vector<MPI_Request> requests_;
};

}  // namespace polypath::uniconn
