// The library that stands in for NCCL: ends and beginnings of communicators as versions from 2.24
// on have them, for ranks that are threads of this process.
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
