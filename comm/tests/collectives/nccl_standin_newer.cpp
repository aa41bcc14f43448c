// The library that stands in for NCCL: ends and beginnings of communicators as versions from 2.24
// on have them, for ranks that are threads of this process, and calls with a configuration.
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "nccl_standin_ranks.hpp"

using namespace nccl_standin;

namespace {

std::mutex of_shrinks;
std::condition_variable arrival;
struct Shrunk {
  int id = 0;
  int have_come = 0;
};
std::map<std::pair<int, int>, Shrunk> shrunk;  // communicator, number of its call
std::map<void*, int> shrinks_of;               // by rank

}  // namespace

extern "C" {

int ncclCommInitRank(void** comm, int nodes, Id id, int node);
int ncclCommAbort(void* comm);
int ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, void* comm,
                  CUstream stream);
int ncclReduceScatter(const void* send, void* recv, std::size_t count, int type, int op, void* comm,
                      CUstream stream);
int ncclReduce(const void* send, void* recv, std::size_t count, int type, int op, int root,
               void* comm, CUstream stream);
int ncclAllGather(const void* send, void* recv, std::size_t count, int type, void* comm,
                  CUstream stream);
int ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root, void* comm,
                  CUstream stream);
int ncclAlltoAll(const void* send, void* recv, std::size_t count, int type, void* comm,
                 CUstream stream);

int ncclAllReduceConfig(const void* send, void* recv, std::size_t count, int type, int op,
                        void* comm, CUstream stream, const void*) {
  note("ncclAllReduceConfig");
  return ncclAllReduce(send, recv, count, type, op, comm, stream);
}
int ncclReduceScatterConfig(const void* send, void* recv, std::size_t count, int type, int op,
                            void* comm, CUstream stream, const void*) {
  note("ncclReduceScatterConfig");
  return ncclReduceScatter(send, recv, count, type, op, comm, stream);
}
int ncclReduceConfig(const void* send, void* recv, std::size_t count, int type, int op, int root,
                     void* comm, CUstream stream, const void*) {
  note("ncclReduceConfig");
  return ncclReduce(send, recv, count, type, op, root, comm, stream);
}
int ncclAllGatherConfig(const void* send, void* recv, std::size_t count, int type, void* comm,
                        CUstream stream, const void*) {
  note("ncclAllGatherConfig");
  return ncclAllGather(send, recv, count, type, comm, stream);
}
int ncclBroadcastConfig(const void* send, void* recv, std::size_t count, int type, int root,
                        void* comm, CUstream stream, const void*) {
  note("ncclBroadcastConfig");
  return ncclBroadcast(send, recv, count, type, root, comm, stream);
}
int ncclAlltoAllConfig(const void* send, void* recv, std::size_t count, int type, void* comm,
                       CUstream stream, const void*) {
  note("ncclAlltoAllConfig");
  return ncclAlltoAll(send, recv, count, type, comm, stream);
}

/// By the first of the ids.
int ncclCommInitRankScalable(void** comm, int nodes, int node, int, Id* ids, void*) {
  note("ncclCommInitRankScalable");
  return ncclCommInitRank(comm, nodes, ids[0], node);
}

int ncclCommShrink(void* comm, int* excluded, int count, void** part, void*, int flags) {
  note("ncclCommShrink");
  constexpr int kAbort = 1;
  if ((flags & kAbort) != 0) ncclCommAbort(comm);
  const Comm& state = *static_cast<Comm*>(comm);
  int before = 0;
  for (int i = 0; i < count; ++i) before += excluded[i] < state.node ? 1 : 0;
  std::unique_lock lock(of_shrinks);
  Shrunk& entry = shrunk[{state.id, ++shrinks_of[comm]}];
  if (entry.have_come++ == 0) entry.id = new_id();
  arrival.notify_all();
  arrival.wait(lock, [&] { return entry.have_come == state.nodes - count; });
  Comm* const created = make_comm(entry.id, state.node - before, state.nodes - count);
  created->gpu = state.gpu;
  *part = created;
  return 0;
}

int ncclCommRevoke(void* comm, int) {
  note("ncclCommRevoke");
  return ncclCommAbort(comm);
}

}  // extern "C"
