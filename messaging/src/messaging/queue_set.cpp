#include "messaging/queue_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "comm/ll128_probe.hpp"
#include "comm/rank_error.hpp"
#include "driver/check.hpp"
#include "polypath/messaging/host_ll_packet.hpp"

namespace polypath {
namespace {

/// The most queues of one handle: more are requested by mistake.
constexpr int kMaxQueues = 4096;

template <typename T>
T* pointer(CUdeviceptr at) {
  return reinterpret_cast<T*>(at);
}

/// Arguments that must be alike on all ranks.
struct Wish {
  QueueShape shape;
  int from;
  int to;
  int count;
  bool operator==(const Wish&) const = default;
};

void require_count(int count) {
  if (count < 1 || count > kMaxQueues)
    throw InvalidArgument(fmt::format("count is {}: it is to be 1 to {}", count, kMaxQueues));
}

void require_rank(const Communicator& communicator, int rank, const char* what) {
  if (rank < 0 || rank >= communicator.size())
    throw InvalidArgument(
        fmt::format("{} is {}: there is no such rank of {}", what, rank, communicator.size()));
}

std::string name_of_rank(int rank) {
  return rank == QueueSet::kHost ? "host" : fmt::format("rank {}", rank);
}

nlohmann::json json_of_rank(int rank) {
  return rank == QueueSet::kHost ? nlohmann::json("host") : nlohmann::json(rank);
}

}  // namespace

/// Waits of kernels and of the CPU that timed out, by side of a queue. A separate object, because
/// the communicator may ask for it at any time.
struct QueueSet::Said {
  std::mutex mutex;
  std::vector<std::string> names;  // of both sides of each queue
  std::vector<std::string> timed_out_waits;
  bool is_pair = false;
  std::uint32_t capacity_log2 = 0;

  std::string describe(const wait_error& status, std::uint32_t index) {
    const std::lock_guard lock(mutex);
    const bool pushes = index % 2 == POLYPATH_QUEUE_PRODUCER;
    const std::uint64_t turn = status.expected;
    std::string what;
    if (is_pair && pushes)
      what = fmt::format("room: {} turns to have been read, {} have", turn, status.seen);
    else if (is_pair)
      what = fmt::format("the item of turn {} (lap {})", turn, turn >> capacity_log2);
    else if (pushes)
      what = fmt::format("room for turn {} (lap {})", turn, turn >> capacity_log2);
    else
      what = fmt::format("the item of turn {} (lap {}): producers had taken {} turns", turn,
                         turn >> capacity_log2, status.seen);
    return say(index, what);
  }
  std::string describe(std::uint32_t index, std::uint64_t turn) {
    const std::lock_guard lock(mutex);
    const bool pushes = index % 2 == POLYPATH_QUEUE_PRODUCER;
    return say(index, fmt::format("{} turn {} (lap {})", pushes ? "room for" : "the item of", turn,
                                  turn >> capacity_log2));
  }

 private:
  std::string say(std::uint32_t index, const std::string& what) {
    timed_out_waits.at(index) = names.at(index) + ", " + what;
    return timed_out_waits.at(index);
  }
};

QueueSet::QueueSet(Communicator& communicator, const QueueShape& shape, int count)
    : communicator_(communicator),
      shape_(shape),
      count_(static_cast<std::size_t>(count)),
      producers_(count_),
      consumers_(count_),
      said_(std::make_shared<Said>()),
      stream_(communicator.driver(), communicator.context()) {
  communicator.check();
}

QueueSet::~QueueSet() {
  if (first_number_ != 0) communicator_.unregister_waits(first_number_);
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context(), std::nothrow);
  if (device_ != 0) POLYPATH_WARN(driver, mem_free(device_));
}

void QueueSet::release() {
  if (symmetric_) communicator_.free(std::exchange(symmetric_, {}));
}

QueueSet::Places QueueSet::places_of(CUdeviceptr producer, CUdeviceptr consumer) const {
  Places places;
  places.tail = producer + shape_.ticket_offset();
  places.credit = producer + shape_.credit_offset();
  places.head = consumer + shape_.head_offset();
  places.closed = consumer + shape_.closed_offset();
  places.read = consumer + shape_.read_offset();
  places.cells = consumer + shape_.cells_offset();
  return places;
}

CUdeviceptr QueueSet::alloc(std::uint64_t bytes) {
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context());
  POLYPATH_CHECK(driver, mem_alloc(&device_, bytes));
  POLYPATH_CHECK(driver, memset_d8_async(device_, 0, bytes, stream_.get()));
  return device_;
}

/// Words of this GPU; nothing is under way after it.
void QueueSet::open(const std::vector<CUdeviceptr>& closed) {
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context());
  for (const CUdeviceptr word : closed)
    POLYPATH_CHECK(driver, memset_d8_async(word, 0xFF, sizeof(std::uint64_t), stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
}

void QueueSet::number() {
  said_->is_pair = shape_.is_pair;
  said_->capacity_log2 = shape_.capacity_log2;
  for (std::size_t i = 0; i < count_; ++i) {
    const char* const what = shape_.is_pair ? "pair" : "queue";
    const auto name = [&](const End& end, const char* word, int other) {
      return fmt::format("{} {} {} {}", what, i, word, name_of_rank(other)) +
             (end.from == end.to ? " (itself)" : "");
    };
    said_->names.push_back(name(producers_[i], "to", producers_[i].to));
    said_->names.push_back(name(consumers_[i], "from", consumers_[i].from));
  }
  said_->timed_out_waits.resize(said_->names.size());
  first_number_ =
      communicator_.register_waits(static_cast<std::uint32_t>(said_->names.size()),
                                   [waits = said_](const wait_error& status, std::uint32_t index) {
                                     return waits->describe(status, index);
                                   });
}

std::unique_ptr<QueueSet> QueueSet::local(Communicator& communicator, const QueueShape& shape,
                                          int count) {
  require_count(count);
  if (shape.is_line)
    probe_ll128(communicator, {{communicator.rank(), communicator.rank()}}, ProbeCall::alone);
  std::unique_ptr<QueueSet> queues(new QueueSet(communicator, shape, count));
  const std::uint64_t bytes = shape.producer_bytes() + shape.consumer_bytes();
  CUdeviceptr at = queues->alloc(bytes * queues->count_);
  std::vector<CUdeviceptr> closed;
  for (std::size_t i = 0; i < queues->count_; ++i, at += bytes) {
    const Places places = queues->places_of(at, at + shape.producer_bytes());
    queues->producers_[i] = {communicator.rank(), communicator.rank(), places, true, nullptr};
    queues->consumers_[i] = {communicator.rank(), communicator.rank(), places, true, nullptr};
    if (!shape.is_pair) closed.push_back(places.closed);
  }
  queues->open(closed);
  queues->number();
  return queues;
}

/// `parts` of each side in the symmetric memory of each rank.
void QueueSet::connect(const std::vector<std::pair<int, int>>& paths, std::uint64_t parts,
                       const std::function<void(SymmetricMemory&)>& place) {
  const Wish own_wish{shape_, paths.front().first, paths.front().second, count()};
  std::vector<Wish> all(static_cast<std::size_t>(communicator_.size()), own_wish);
  communicator_.exchange(std::as_bytes(std::span(&own_wish, 1)),
                         std::as_writable_bytes(std::span(all)));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (!(all[rank] == all.front()))
      throw CommunicatorError(fmt::format(
          "the queues of rank 0 and rank {} are not the same: options, ranks or count differ",
          rank));
  if (shape_.is_line) probe_ll128(communicator_, paths, ProbeCall::together);
  symmetric_ = communicator_.alloc((shape_.producer_bytes() + shape_.consumer_bytes()) * parts,
                                   SymmetricUse::peers);
  place(symmetric_);
  Opened opened;
  opened.problem.catch_from([&] {
    std::vector<CUdeviceptr> closed;
    for (const End& end : consumers_)
      if (end.is_here && !shape_.is_pair) closed.push_back(end.places.closed);
    open(closed);
  });
  // No rank pushes before all are open.
  std::vector<Opened> others(all.size());
  communicator_.exchange(std::as_bytes(std::span(&opened, 1)),
                         std::as_writable_bytes(std::span(others)));
  throw_first_error(others, "queues");
  number();
}

std::unique_ptr<QueueSet> QueueSet::connected(Communicator& communicator, const QueueShape& shape,
                                              int from, int to, int count) {
  require_count(count);
  require_rank(communicator, from, "from");
  require_rank(communicator, to, "to");
  std::unique_ptr<QueueSet> queues(new QueueSet(communicator, shape, count));
  queues->connect({{from, to}}, queues->count_, [&](SymmetricMemory& memory) {
    for (std::size_t i = 0; i < queues->count_; ++i) {
      const Places places =
          queues->places_of(memory.address(from) + i * shape.producer_bytes(),
                            memory.address(to) + queues->count_ * shape.producer_bytes() +
                                i * shape.consumer_bytes());
      queues->producers_[i] = {from, to, places, communicator.rank() == from, nullptr};
      queues->consumers_[i] = {from, to, places, communicator.rank() == to, nullptr};
    }
  });
  return queues;
}

std::unique_ptr<QueueSet> QueueSet::connected_each(Communicator& communicator,
                                                   const QueueShape& shape) {
  const int ranks = communicator.size();
  const int rank = communicator.rank();
  std::unique_ptr<QueueSet> queues(new QueueSet(communicator, shape, ranks));
  std::vector<std::pair<int, int>> paths;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) paths.emplace_back(from, to);
  const auto parts = static_cast<std::uint64_t>(ranks);
  queues->connect(paths, parts, [&](SymmetricMemory& memory) {
    const auto places = [&](int from, int to) {
      return queues->places_of(
          memory.address(from) + static_cast<std::uint64_t>(to) * shape.producer_bytes(),
          memory.address(to) + parts * shape.producer_bytes() +
              static_cast<std::uint64_t>(from) * shape.consumer_bytes());
    };
    for (int other = 0; other < ranks; ++other) {
      const auto at = static_cast<std::size_t>(other);
      queues->producers_[at] = {rank, other, places(rank, other), true, nullptr};
      queues->consumers_[at] = {other, rank, places(other, rank), true, nullptr};
    }
  });
  return queues;
}

std::unique_ptr<QueueSet> QueueSet::with_host(Communicator& communicator, const QueueShape& shape,
                                              polypath_queue_side host, int count) {
  require_count(count);
  if (shape.is_line)
    throw InvalidArgument(
        "options->layout is line: lines come torn through host memory; packets do not");
  if (!messaging::has_atomic_16_byte_access())
    throw NotSupported(
        "this CPU does not promise that 16 bytes come together (x86-64 with AVX and AArch64 with "
        "LSE2 do), so it has no side of a queue");
  std::unique_ptr<QueueSet> queues(new QueueSet(communicator, shape, count));
  // Both have all places; each uses those that are near to it.
  const std::uint64_t host_bytes = shape.producer_bytes() + shape.consumer_bytes();
  const std::uint64_t gpu_bytes = shape.producer_bytes() + shape.cells_offset();
  queues->host_ = std::make_unique<RegisteredMemory>(
      communicator.driver(), communicator.primary_context(), host_bytes * queues->count_);
  CUdeviceptr gpu = queues->alloc(gpu_bytes * queues->count_);
  queues->open({});
  auto near = reinterpret_cast<CUdeviceptr>(queues->host_->get());
  for (std::size_t i = 0; i < queues->count_; ++i, gpu += gpu_bytes, near += host_bytes) {
    const Places on_host = queues->places_of(near, near + shape.producer_bytes());
    const Places on_gpu = queues->places_of(gpu, gpu + shape.producer_bytes());
    Places of_gpu = on_host;
    const bool gpu_pushes = host == POLYPATH_QUEUE_CONSUMER;
    if (gpu_pushes) {
      of_gpu.tail = on_gpu.tail;
      if (!shape.is_pair) {
        of_gpu.credit = on_gpu.credit;
        of_gpu.credit_source = on_host.credit;
      }
    } else {
      of_gpu.head = on_gpu.head;
      of_gpu.read = on_gpu.read;
    }
    if (!shape.is_pair) *pointer<std::uint64_t>(on_host.closed) = device::queue_view::kOpen;
    End of_host{gpu_pushes ? communicator.rank() : kHost, gpu_pushes ? kHost : communicator.rank(),
                on_host, true, nullptr};
    queues->producers_[i] = {of_host.from, of_host.to, gpu_pushes ? of_gpu : on_host, true,
                             nullptr};
    queues->consumers_[i] = {of_host.from, of_host.to, gpu_pushes ? on_host : of_gpu, true,
                             nullptr};
  }
  queues->number();
  for (std::size_t i = 0; i < queues->count_; ++i) {
    End& queue_end =
        host == POLYPATH_QUEUE_PRODUCER ? queues->producers_[i] : queues->consumers_[i];
    if (shape.is_pair) {
      device::spsc_view view{};
      queues->view(static_cast<int>(i), host, &view, sizeof view);
      queue_end.host = HostQueueSide::make(view, host, shape.item_bytes);
    } else {
      device::queue_view view{};
      queues->view(static_cast<int>(i), host, &view, sizeof view);
      queue_end.host = HostQueueSide::make(view, shape.item_bytes);
    }
  }
  return queues;
}

const QueueSet::End& QueueSet::end(int index, polypath_queue_side side) const {
  if (index < 0 || index >= count())
    throw InvalidArgument(fmt::format("index is {}: there are {} queues", index, count_));
  return (side == POLYPATH_QUEUE_PRODUCER ? producers_
                                          : consumers_)[static_cast<std::size_t>(index)];
}

std::size_t QueueSet::view_bytes() const noexcept {
  return shape_.is_pair ? sizeof(device::spsc_view) : sizeof(device::queue_view);
}

void QueueSet::view(int index, polypath_queue_side side, void* view, std::size_t bytes) const {
  const End& queue_end = end(index, side);
  if (!queue_end.is_here)
    throw InvalidArgument(fmt::format("queue {} goes from {} to {}: rank {} is not on that side",
                                      index, name_of_rank(queue_end.from),
                                      name_of_rank(queue_end.to), communicator_.rank()));
  const std::size_t expected_bytes = view_bytes();
  if (bytes != expected_bytes)
    throw InvalidArgument(fmt::format(
        "bytes is {}, not the {} of polypath::device::{}: it is of another kind of queue, or the "
        "headers are of another version",
        bytes, expected_bytes, shape_.is_pair ? "spsc_view" : "queue_view"));
  wait_context wait_ctx = communicator_.program_wait_context();
  if (shape_.timeout_ms != 0) wait_ctx.time_limit_ns = std::uint64_t{shape_.timeout_ms} * 1'000'000;
  const std::uint32_t number =
      first_number_ + 2 * static_cast<std::uint32_t>(index) + static_cast<std::uint32_t>(side);
  const Places& at = queue_end.places;
  if (shape_.is_pair) {
    device::spsc_view typed_view{};
    typed_view.credit = pointer<std::uint64_t>(at.credit);
    typed_view.sent = pointer<std::uint64_t>(at.tail);
    typed_view.cells = pointer<unsigned char>(at.cells);
    typed_view.received = pointer<std::uint64_t>(at.head);
    typed_view.capacity_log2 = shape_.capacity_log2;
    typed_view.segment_log2 = shape_.segment_log2;
    typed_view.number = number;
    typed_view.wait_ctx = wait_ctx;
    std::memcpy(view, &typed_view, sizeof typed_view);
  } else {
    device::queue_view typed_view{};
    typed_view.tail = pointer<std::uint64_t>(at.tail);
    typed_view.credit = pointer<std::uint32_t>(at.credit);
    typed_view.credit_source = pointer<const std::uint32_t>(at.credit_source);
    typed_view.cells = pointer<unsigned char>(at.cells);
    typed_view.head = pointer<std::uint64_t>(at.head);
    typed_view.read = pointer<std::uint32_t>(at.read);
    typed_view.closed = pointer<std::uint64_t>(at.closed);
    typed_view.capacity_log2 = shape_.capacity_log2;
    typed_view.segment_log2 = shape_.segment_log2;
    typed_view.number = number;
    typed_view.wait_ctx = wait_ctx;
    std::memcpy(view, &typed_view, sizeof typed_view);
  }
}

std::string QueueSet::record_cpu_timeout(int index, polypath_queue_side side, std::uint64_t turn) {
  return said_->describe(2 * static_cast<std::uint32_t>(index) + static_cast<std::uint32_t>(side),
                         turn);
}

HostQueueSide& QueueSet::host_end(int index, polypath_queue_side side) {
  const End& queue_end = end(index, side);
  if (queue_end.host == nullptr)
    throw InvalidArgument(fmt::format("queue {} goes from {} to {}: the CPU is not on that side",
                                      index, name_of_rank(queue_end.from),
                                      name_of_rank(queue_end.to)));
  return *queue_end.host;
}

std::uint64_t QueueSet::word_at(CUdeviceptr at) {
  const CudaDriver& driver = communicator_.driver();
  std::uint64_t word = 0;
  POLYPATH_CHECK(
      driver, memcpy_async(reinterpret_cast<CUdeviceptr>(&word), at, sizeof word, stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
  return word;
}

nlohmann::json QueueSet::report() {
  const CurrentContext current(communicator_.driver(), communicator_.context());
  nlohmann::json queues = nlohmann::json::array();
  const auto add = [&](std::size_t number, const End& pushes, const End& pops) {
    const std::uint64_t tail = word_at(pushes.places.tail);
    // In queues a consumer that waits for an item has its turn already, and so has a producer that
    // waits for room.
    const std::uint64_t popped = std::min(word_at(pops.places.head), tail);
    const std::uint64_t room = popped - popped % shape_.segment() + shape_.capacity();
    const std::uint64_t pushed = shape_.is_pair ? tail : std::min(tail, room);
    const std::lock_guard lock(said_->mutex);
    const std::string& timed_out_wait = said_->timed_out_waits.at(number);
    const std::string& other = said_->timed_out_waits.at(number ^ 1U);
    const bool is_one = &pushes != &pops;
    queues.push_back(
        {{"number", first_number_ + number},
         {"kind", shape_.is_pair ? "pair" : "queue"},
         {"layout", shape_.is_line ? "line" : "packets"},
         {"item_bytes", shape_.item_bytes},
         {"capacity", shape_.capacity()},
         {"segment", shape_.segment()},
         {"from", json_of_rank(pushes.from)},
         {"to", json_of_rank(pushes.to)},
         {"pushed", pushed},
         {"popped", popped},
         {"generations", pushed >> shape_.capacity_log2},
         {"in_flight", pushed - popped},
         {"timed_out_wait", is_one && timed_out_wait.empty() ? other : timed_out_wait}});
  };
  for (std::size_t i = 0; i < count_; ++i) {
    const End& producer = producers_[i];
    const End& consumer = consumers_[i];
    if (producer.from == consumer.from && producer.to == consumer.to) {
      add(2 * i, producer, consumer);
    } else {  // from each rank to each: what goes is another queue than what comes
      add(2 * i, producer, producer);
      add(2 * i + 1, consumer, consumer);
    }
  }
  return {{"queues", queues}};
}

}  // namespace polypath
