#include "messaging/host_queue_side.hpp"

#include "base/error.hpp"
#include "polypath/messaging/host_spsc_queue.hpp"

namespace polypath {
namespace {

using messaging::detail::AnyBytes;
using messaging::detail::bytes_of;
using messaging::detail::FixedBytes;

template <typename Bytes>
class QueueEnd : public HostQueueSide {
 public:
  QueueEnd(const device::queue_view& view, Bytes item) : queue_(view, item) {}
  device::status push(const void* items, std::size_t count, std::uint64_t& awaited) override {
    return queue_.push(bytes_of(items), count, &awaited);
  }
  device::status try_push(const void* items, std::size_t count) override {
    return queue_.try_push(bytes_of(items), count);
  }
  device::status pop(void* items, std::size_t count, std::size_t& got,
                     std::uint64_t& awaited) override {
    return queue_.pop(bytes_of(items), count, got, &awaited);
  }
  device::status try_pop(void* items, std::size_t count, std::size_t& got) override {
    return queue_.try_pop(bytes_of(items), count, got);
  }
  void close() override { queue_.close(); }

 private:
  messaging::detail::HostQueue<Bytes> queue_;
};

/// One of the two sides.
class PairEnd : public HostQueueSide {
 public:
  device::status push(const void*, std::size_t, std::uint64_t&) override { throw wrong_side(); }
  device::status try_push(const void*, std::size_t) override { throw wrong_side(); }
  device::status pop(void*, std::size_t, std::size_t&, std::uint64_t&) override {
    throw wrong_side();
  }
  device::status try_pop(void*, std::size_t, std::size_t&) override { throw wrong_side(); }
  void close() override { throw wrong_side(); }

 private:
  static InvalidArgument wrong_side() {
    return InvalidArgument("the CPU is on the other side of queue");
  }
};

template <typename Bytes>
class PairPushes : public PairEnd {
 public:
  PairPushes(const device::spsc_view& view, Bytes item) : pair_(view, item) {}
  device::status push(const void* items, std::size_t count, std::uint64_t& awaited) override {
    const device::status status = pair_.push(bytes_of(items), count);
    awaited = pair_.turn();
    return status;
  }
  device::status try_push(const void* items, std::size_t count) override {
    return pair_.try_push(bytes_of(items), count);
  }

 private:
  messaging::detail::HostPairProducer<Bytes> pair_;
};

template <typename Bytes>
class PairPops : public PairEnd {
 public:
  PairPops(const device::spsc_view& view, Bytes item) : pair_(view, item) {}
  device::status pop(void* items, std::size_t count, std::size_t& got,
                     std::uint64_t& awaited) override {
    const device::status status = pair_.pop(bytes_of(items), count, got);
    awaited = pair_.turn();
    return status;
  }
  device::status try_pop(void* items, std::size_t count, std::size_t& got) override {
    return pair_.try_pop(bytes_of(items), count, got);
  }

 private:
  messaging::detail::HostPairConsumer<Bytes> pair_;
};

/// `make(Bytes)`: common sizes are known to the compiler.
template <typename Make>
std::unique_ptr<HostQueueSide> for_bytes(std::size_t item_bytes, const Make& make) {
  if (item_bytes == 8) return make(FixedBytes<8>{});
  if (item_bytes == 12) return make(FixedBytes<12>{});
  return make(AnyBytes{item_bytes});
}

}  // namespace

std::unique_ptr<HostQueueSide> HostQueueSide::make(const device::queue_view& view,
                                                   std::size_t item_bytes) {
  return for_bytes(item_bytes, [&](auto bytes) -> std::unique_ptr<HostQueueSide> {
    return std::make_unique<QueueEnd<decltype(bytes)>>(view, bytes);
  });
}

std::unique_ptr<HostQueueSide> HostQueueSide::make(const device::spsc_view& view,
                                                   polypath_queue_side side,
                                                   std::size_t item_bytes) {
  return for_bytes(item_bytes, [&](auto bytes) -> std::unique_ptr<HostQueueSide> {
    if (side == POLYPATH_QUEUE_PRODUCER)
      return std::make_unique<PairPushes<decltype(bytes)>>(view, bytes);
    return std::make_unique<PairPops<decltype(bytes)>>(view, bytes);
  });
}

}  // namespace polypath
