// What a backend's library does not offer, made of the five verbs (types.hpp), once for all.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/reduction.hpp"

namespace polypath::uniconn::detail {

/// `bytes` of this GPU, from one place to another: nothing where they are the same.
inline void copy_own(const Cuda& cuda, void* to, const void* from, std::size_t bytes,
                     Stream stream) {
  if (to == from || bytes == 0) return;
  cuda.check(cuda.copy(device(to), device(from), bytes, stream), "cuMemcpyAsync");
}

/// Each rank sends to each: `send(r)` gives the PostArgs to rank r, `receive(r)` the
/// AcknowledgeArgs of rank r, without signals, and of 0 bytes where there is nothing. One-sided,
/// others may still use what is written to: all ranks have to come to it first, and no rank goes
/// on before all is there. Into `group`, which is begun and ended here, or else is open already
/// (`joins`; two-sided alone). What is wrong with an argument is found before anything is issued; a
/// group that was begun here is of no use then.
template <BackendLibrary B, typename Send, typename Receive>
void exchange(const Cuda& cuda, typename B::Ranks& ranks, typename B::Group& group, bool joins,
              Stream stream, const Send& send, const Receive& receive) {
  const int own = ranks.rank();
  const bool one_sided = is_one_sided<B>(ranks);
  RangeCheck sent(cuda, "send");
  RangeCheck received(cuda, "recv");
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const PostArgs posted = send(rank);
    sent.require(posted.src, posted.bytes);
    const AcknowledgeArgs acknowledged = receive(rank);
    received.require(acknowledged.dst, acknowledged.bytes);
  }
  if (!joins) group.start(stream);
  // Others first, each beginning after itself, so that not all send to one at once.
  for (int step = 1; step < ranks.size(); ++step) {
    const int to = (own + step) % ranks.size();
    const int from = (own - step + ranks.size()) % ranks.size();
    PostArgs posted = send(to);
    posted.to = to;
    posted.of_collective = true;
    if (posted.bytes > 0) group.post(ranks, posted, stream);
    if (!one_sided) {
      AcknowledgeArgs acknowledged = receive(from);
      acknowledged.from = from;
      acknowledged.of_collective = true;
      if (acknowledged.bytes > 0) group.acknowledge(ranks, acknowledged, stream);
    }
  }
  // A group's posts go at its end.
  if (one_sided) ranks.barrier(stream);
  const PostArgs to_self = send(own);
  copy_own(cuda, receive(own).dst, to_self.src, to_self.bytes, stream);
  if (!joins) group.end(stream);
  if (one_sided) ranks.barrier(stream);
}

/// Where a rank's contributions to a reduction lie while the host combines them. Made when first
/// needed; for one thread at a time.
class Scratch {
 public:
  /// Bytes of each rank, at a time.
  static constexpr std::size_t kChunk = std::size_t{1} << 18;

  explicit Scratch(const Cuda& cuda) : cuda_(cuda) {}
  ~Scratch() {
    if (done_ != nullptr) cuda_.event_destroy(done_);
    if (on_gpu_ != 0) cuda_.free(on_gpu_);
    if (on_host_ != nullptr) cuda_.host_free(on_host_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Room for the chunks of `ranks`, once what used it last is done.
  void take(int ranks, Stream stream) {
    const std::size_t needed = kChunk * static_cast<std::size_t>(ranks);
    if (done_ == nullptr) cuda_.check(cuda_.event_create(&done_, kNoTiming), "cuEventCreate");
    if (needed > bytes_) {
      // The driver frees device memory after work that uses it, but not host memory.
      if (bytes_ > 0) cuda_.check(cuda_.synchronize(last_), "cuStreamSynchronize");
      if (on_gpu_ != 0) cuda_.free(std::exchange(on_gpu_, 0));
      if (on_host_ != nullptr) cuda_.host_free(std::exchange(on_host_, nullptr));
      bytes_ = 0;
      cuda_.check(cuda_.alloc(&on_gpu_, needed), "cuMemAlloc");
      cuda_.check(cuda_.host_alloc(&on_host_, needed, 0), "cuMemHostAlloc");
      bytes_ = needed;
    } else if (stream != last_) {
      cuda_.check(cuda_.wait_event(stream, done_, 0), "cuStreamWaitEvent");
    }
    last_ = stream;
  }
  void release(Stream stream) const {
    cuda_.check(cuda_.event_record(done_, stream), "cuEventRecord");
  }

  [[nodiscard]] void* on_gpu() const noexcept { return reinterpret_cast<void*>(on_gpu_); }
  [[nodiscard]] std::byte* on_host() const noexcept { return static_cast<std::byte*>(on_host_); }

 private:
  static constexpr unsigned kNoTiming = 2;

  const Cuda& cuda_;
  CUevent_st* done_ = nullptr;
  DevicePointer on_gpu_ = 0;
  void* on_host_ = nullptr;
  std::size_t bytes_ = 0;
  Stream last_ = nullptr;
};

/// One chunk of a reduction, for the thread of the driver that combines it.
struct Combining {
  CombineFunction combine = nullptr;
  std::byte* parts = nullptr;
  int ranks = 0;
  std::size_t count = 0;

  static void run(void* data) {
    const std::unique_ptr<Combining> combining(static_cast<Combining*>(data));
    combining->combine(combining->parts, combining->ranks, combining->count, combining->parts);
  }
};

/// To every rank, or to `root` alone when it is not negative: chunk by chunk, `gather(from, to,
/// bytes)` brings all ranks' elements together, and the host combines them after it on the stream.
template <typename Gather>
void reduce_on_host(const Cuda& cuda, Scratch& scratch, int rank, int ranks, int root,
                    CombineFunction combine, std::size_t element_bytes, const void* send,
                    void* recv, std::size_t count, Stream stream, const Gather& gather) {
  if (count == 0) return;
  scratch.take(ranks, stream);
  const std::size_t most = Scratch::kChunk / element_bytes;
  for (std::size_t at = 0; at < count; at += most) {
    const std::size_t now = std::min(most, count - at);
    const std::size_t bytes = now * element_bytes;
    const std::size_t offset = at * element_bytes;
    gather(static_cast<const std::byte*>(send) + offset, scratch.on_gpu(), bytes);
    if (root >= 0 && root != rank) continue;
    cuda.check(cuda.copy(device(scratch.on_host()), device(scratch.on_gpu()),
                         bytes * static_cast<std::size_t>(ranks), stream),
               "cuMemcpyAsync");
    auto chunk = std::make_unique<Combining>(Combining{combine, scratch.on_host(), ranks, now});
    cuda.check(cuda.host_function(stream, &Combining::run, chunk.get()), "cuLaunchHostFunc");
    static_cast<void>(chunk.release());
    cuda.check(cuda.copy(device(static_cast<std::byte*>(recv) + offset), device(scratch.on_host()),
                         bytes, stream),
               "cuMemcpyAsync");
  }
  scratch.release(stream);
}

}  // namespace polypath::uniconn::detail
