// The C API of queues (messaging/queue.h), a thin shell around QueueSet.
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/comm_handle.hpp"
#include "comm/rank_threads.hpp"
#include "core/c_boundary.hpp"
#include "messaging/queue_set.hpp"
#include "polypath/messaging/queue.h"

struct polypath_queue {
  std::unique_ptr<polypath::QueueSet> set;
};

using namespace polypath;

namespace {

QueueSet& queues_of(const polypath_queue* queue) {
  require(queue != nullptr, "queue is null");
  return *queue->set;
}

polypath_queue* queue_handle_of(std::unique_ptr<QueueSet> set) {
  auto handle = std::make_unique<polypath_queue>();
  handle->set = std::move(set);
  return handle.release();
}

/// A handle for each rank, or none and what the first of them threw.
template <typename Make>
void make_all(polypath_comm* const* comms, int ranks, polypath_queue** queues, const Make& make) {
  require_all(comms, ranks);
  require(queues != nullptr, "queues is null");
  std::vector<std::unique_ptr<QueueSet>> created(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](std::size_t i) { created[i] = make(communicator_of(comms[i])); });
  for (std::size_t i = 0; i < created.size(); ++i)
    queues[i] = queue_handle_of(std::move(created[i]));
}

void destroy_queue(polypath_queue* queue) {
  const std::unique_ptr<polypath_queue> handle(queue);
  handle->set->release();
}

/// Throws if a wait of the CPU failed: by an abort, or, in a wait for `turn`, at the time limit.
void require_came(device::status status, QueueSet& set, int index, polypath_queue_side side,
                  std::uint64_t turn = 0) {
  if (status != device::status::aborted) return;
  Communicator& communicator = set.communicator();
  if (!communicator.aborted())
    communicator.abort("rank " + std::to_string(communicator.rank()) +
                       ": the CPU waited past the time limit at " +
                       set.record_cpu_timeout(index, side, turn));
  communicator.check();
}

polypath_queue_side side_of(int number, const char* otherwise) {
  require(number == POLYPATH_QUEUE_PRODUCER || number == POLYPATH_QUEUE_CONSUMER, otherwise);
  return number == POLYPATH_QUEUE_PRODUCER ? POLYPATH_QUEUE_PRODUCER : POLYPATH_QUEUE_CONSUMER;
}

template <typename T>
void require_items(const T* items, std::size_t count, const void* result) {
  require(items != nullptr || count == 0, "items is null");
  require(result != nullptr, "where the number of items is to be is null");
}

}  // namespace

polypath_status polypath_queue_create(polypath_comm* comm, const polypath_queue_options* options,
                                      int count, polypath_queue** queue) {
  return guarded([&] {
    require(queue != nullptr, "queue is null");
    *queue = queue_handle_of(QueueSet::local(communicator_of(comm), shape_of(options), count));
  });
}

polypath_status polypath_queue_connect(polypath_comm* comm, const polypath_queue_options* options,
                                       int from, int to, int count, polypath_queue** queue) {
  return guarded([&] {
    require(queue != nullptr, "queue is null");
    *queue = queue_handle_of(
        QueueSet::connected(communicator_of(comm), shape_of(options), from, to, count));
  });
}

polypath_status polypath_queue_connect_mesh(polypath_comm* comm,
                                            const polypath_queue_options* options,
                                            polypath_queue** queue) {
  return guarded([&] {
    require(queue != nullptr, "queue is null");
    *queue = queue_handle_of(QueueSet::connected_each(communicator_of(comm), shape_of(options)));
  });
}

polypath_status polypath_queue_connect_all(polypath_comm* const* comms, int ranks,
                                           const polypath_queue_options* options, int from, int to,
                                           int count, polypath_queue** queues) {
  return guarded([&] {
    const QueueShape shape = shape_of(options);
    make_all(comms, ranks, queues, [&](Communicator& communicator) {
      return QueueSet::connected(communicator, shape, from, to, count);
    });
  });
}

polypath_status polypath_queue_connect_mesh_all(polypath_comm* const* comms, int ranks,
                                                const polypath_queue_options* options,
                                                polypath_queue** queues) {
  return guarded([&] {
    const QueueShape shape = shape_of(options);
    make_all(comms, ranks, queues, [&](Communicator& communicator) {
      return QueueSet::connected_each(communicator, shape);
    });
  });
}

polypath_status polypath_queue_create_host(polypath_comm* comm,
                                           const polypath_queue_options* options, int host,
                                           int count, polypath_queue** queue) {
  return guarded([&] {
    require(queue != nullptr, "queue is null");
    *queue = queue_handle_of(QueueSet::with_host(communicator_of(comm), shape_of(options),
                                                 side_of(host, "host is none"), count));
  });
}

polypath_status polypath_queue_destroy(polypath_queue* queue) {
  return guarded([&] {
    require(queue != nullptr, "queue is null");
    destroy_queue(queue);
  });
}

polypath_status polypath_queue_destroy_all(polypath_queue* const* queues, int ranks) {
  return guarded([&] {
    require_handles(queues, ranks, "queues");
    on_threads(ranks, [&](std::size_t i) { destroy_queue(queues[i]); });
  });
}

int polypath_queue_count(const polypath_queue* queue) {
  return queue == nullptr ? -1 : queue->set->count();
}

size_t polypath_queue_view_bytes(const polypath_queue* queue) {
  return queue == nullptr ? 0 : queue->set->view_bytes();
}

polypath_status polypath_queue_view(const polypath_queue* queue, int index, int side, void* view,
                                    size_t bytes) {
  return guarded([&] {
    const QueueSet& set = queues_of(queue);
    require(view != nullptr, "view is null");
    set.view(index, side_of(side, "side is none"), view, bytes);
  });
}

polypath_status polypath_queue_report(polypath_queue* queue, char** json) {
  return guarded([&] { give(queues_of(queue).report(), json); });
}

polypath_status polypath_queue_push(polypath_queue* queue, int index, const void* items,
                                    size_t count) {
  return guarded([&] {
    QueueSet& set = queues_of(queue);
    HostQueueSide& end = set.host_end(index, POLYPATH_QUEUE_PRODUCER);
    require_items(items, count, &end);
    std::uint64_t turn = 0;
    const device::status status = end.push(items, count, turn);
    require_came(status, set, index, POLYPATH_QUEUE_PRODUCER, turn);
  });
}

polypath_status polypath_queue_try_push(polypath_queue* queue, int index, const void* items,
                                        size_t count, size_t* pushed) {
  return guarded([&] {
    QueueSet& set = queues_of(queue);
    HostQueueSide& end = set.host_end(index, POLYPATH_QUEUE_PRODUCER);
    require_items(items, count, pushed);
    const device::status status = end.try_push(items, count);
    require(status != device::status::too_many_items, "count is more than a segment");
    *pushed = status == device::status::done ? count : 0;
    require_came(status, set, index, POLYPATH_QUEUE_PRODUCER);
  });
}

polypath_status polypath_queue_pop(polypath_queue* queue, int index, void* items, size_t count,
                                   size_t* popped) {
  return guarded([&] {
    QueueSet& set = queues_of(queue);
    HostQueueSide& end = set.host_end(index, POLYPATH_QUEUE_CONSUMER);
    require_items(items, count, popped);
    std::uint64_t turn = 0;
    const device::status status = end.pop(items, count, *popped, turn);
    require_came(status, set, index, POLYPATH_QUEUE_CONSUMER, turn);
  });
}

polypath_status polypath_queue_try_pop(polypath_queue* queue, int index, void* items, size_t count,
                                       size_t* popped, int* closed) {
  return guarded([&] {
    QueueSet& set = queues_of(queue);
    HostQueueSide& end = set.host_end(index, POLYPATH_QUEUE_CONSUMER);
    require_items(items, count, popped);
    const device::status status = end.try_pop(items, count, *popped);
    if (closed != nullptr) *closed = status == device::status::closed ? 1 : 0;
    require_came(status, set, index, POLYPATH_QUEUE_CONSUMER);
  });
}

polypath_status polypath_queue_close(polypath_queue* queue, int index) {
  return guarded([&] {
    QueueSet& set = queues_of(queue);
    require(!set.shape().is_pair, "queue is of pairs: they are not closed");
    HostQueueSide& end = set.host_end(index, POLYPATH_QUEUE_PRODUCER);
    set.communicator().check();
    end.close();
  });
}
