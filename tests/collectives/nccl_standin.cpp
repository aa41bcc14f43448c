// What stands in for NCCL in tests without GPUs: the functions that exchanges between nodes use,
// for ranks that are threads of this process, over the simulated driver. As there, what is sent and
// received happens on the stream, and waits for the other side without a limit until an abort.
#include "nccl_standin.h"

#include <cuda.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

namespace {

using Bytes = std::vector<unsigned char>;

struct Id {
  std::array<char, 128> bytes;
};

struct Message {
  bool is_send;
  void* device;
  std::size_t bytes;
  int node;
  unsigned char* pinned = nullptr;
};

struct Comm {
  int id = 0;
  int node = 0;
  int nodes = 0;
  bool is_aborted = false;
};

/// What one group of one communicator sends and receives.
struct Work {
  Comm* comm = nullptr;
  std::vector<Message> messages;
};

std::mutex mutex;
std::condition_variable changed;
std::multimap<std::tuple<int, int, int>, Bytes> under_way;  // communicator, from, to: in order
std::map<int, int> have_come;
std::set<int> lost;
std::set<int> gave_up;
int ids = 0;
// Streams may come to them until the end.
std::vector<std::unique_ptr<Comm>> comms;
std::vector<std::unique_ptr<Work>> works;

struct Group {
  bool is_open = false;
  Comm* comm = nullptr;
  CUstream stream = nullptr;
  std::vector<Message> messages;
};
thread_local Group group;

void post(void* data) {
  const Work& work = *static_cast<Work*>(data);
  const std::lock_guard lock(mutex);
  for (const Message& message : work.messages) {
    if (!message.is_send || lost.contains(work.comm->node)) continue;
    Bytes bytes(message.pinned, message.pinned + message.bytes);
    if (message.bytes == sizeof(std::uint64_t) && gave_up.contains(work.comm->node)) bytes[0] = 1;
    under_way.emplace(std::tuple(work.comm->id, work.comm->node, message.node), std::move(bytes));
  }
  changed.notify_all();
}

void take(void* data) {
  const Work& work = *static_cast<Work*>(data);
  std::unique_lock lock(mutex);
  for (const Message& message : work.messages) {
    if (message.is_send) continue;
    const std::tuple key(work.comm->id, message.node, work.comm->node);
    changed.wait(lock, [&] { return work.comm->is_aborted || under_way.contains(key); });
    const auto first = under_way.lower_bound(key);
    if (work.comm->is_aborted) return;
    if (first->second.size() == message.bytes)
      std::memcpy(message.pinned, first->second.data(), message.bytes);
    under_way.erase(first);
  }
}

int add(bool is_send, void* device, std::size_t bytes, int node, void* comm, CUstream stream) {
  if (!group.is_open) return 5;  // ncclInvalidUsage
  group.comm = static_cast<Comm*>(comm);
  group.stream = stream;
  group.messages.push_back({is_send, device, bytes, node});
  return 0;
}

int unused(...) { return 5; }

}  // namespace

extern "C" {

void nccl_standin_lose_those_of(int node) {
  const std::lock_guard lock(mutex);
  lost.insert(node);
}
void nccl_standin_gives_up(int node) {
  const std::lock_guard lock(mutex);
  gave_up.insert(node);
}
void nccl_standin_reset() {
  const std::lock_guard lock(mutex);
  lost.clear();
  gave_up.clear();
}

int ncclGetVersion(int* version) { return *version = 22809, 0; }
const char* ncclGetErrorString(int) { return "stand-in"; }

int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(mutex);
  *id = {};
  const int number = ++ids;
  std::memcpy(id->bytes.data(), &number, sizeof number);
  return 0;
}

int ncclCommInitRank(void** comm, int nodes, Id id, int node) {
  auto owned = std::make_unique<Comm>();
  Comm* const made = owned.get();
  made->node = node;
  made->nodes = nodes;
  std::memcpy(&made->id, id.bytes.data(), sizeof made->id);
  std::unique_lock lock(mutex);
  comms.push_back(std::move(owned));
  ++have_come[made->id];
  changed.notify_all();
  changed.wait(lock, [&] { return have_come[made->id] == nodes; });
  *comm = made;
  return 0;
}

int ncclCommAbort(void* comm) {
  const std::lock_guard lock(mutex);
  static_cast<Comm*>(comm)->is_aborted = true;
  changed.notify_all();
  return 0;
}
int ncclCommDestroy(void*) { return 0; }

int ncclGroupStart() {
  group = {};
  group.is_open = true;
  return 0;
}
int ncclSend(const void* from, std::size_t bytes, int, int node, void* comm, CUstream stream) {
  return add(true, const_cast<void*>(from), bytes, node, comm, stream);
}
int ncclRecv(void* to, std::size_t bytes, int, int node, void* comm, CUstream stream) {
  return add(false, to, bytes, node, comm, stream);
}

int ncclGroupEnd() {
  group.is_open = false;
  if (group.messages.empty()) return 0;
  auto made = std::make_unique<Work>();
  Work* const work = made.get();
  work->comm = group.comm;
  work->messages = std::move(group.messages);
  bool is_well = true;
  for (Message& message : work->messages) {
    void* pinned = nullptr;
    is_well = is_well && cuMemHostAlloc(&pinned, message.bytes, 0) == CUDA_SUCCESS;
    message.pinned = static_cast<unsigned char*>(pinned);
    const auto device = reinterpret_cast<CUdeviceptr>(message.device);
    if (is_well && message.is_send)
      is_well = cuMemcpyDtoHAsync(pinned, device, message.bytes, group.stream) == CUDA_SUCCESS;
  }
  is_well = is_well && cuLaunchHostFunc(group.stream, &post, work) == CUDA_SUCCESS &&
            cuLaunchHostFunc(group.stream, &take, work) == CUDA_SUCCESS;
  for (const Message& message : work->messages)
    if (is_well && !message.is_send)
      is_well = cuMemcpyHtoDAsync(reinterpret_cast<CUdeviceptr>(message.device), message.pinned,
                                  message.bytes, group.stream) == CUDA_SUCCESS;
  const std::lock_guard lock(mutex);
  works.push_back(std::move(made));
  return is_well ? 0 : 1;
}

// Exchanges do not use them, but a library without them is none.
int ncclAllReduce() { return unused(); }
int ncclReduceScatter() { return unused(); }
int ncclReduce() { return unused(); }
int ncclAllGather() { return unused(); }
int ncclBroadcast() { return unused(); }

}  // extern "C"
