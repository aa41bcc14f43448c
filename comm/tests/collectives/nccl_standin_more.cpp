// The library that stands in for NCCL: functions that programs know and the exchanges between nodes
// do not use. With NCCL_STANDIN_VERSION below 22800 it lacks those that are newer than that.
#include <cstring>

#include "nccl_standin_ranks.hpp"

using namespace nccl_standin;

extern "C" {

int ncclCommInitRank(void** comm, int nodes, Id id, int node);
int ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root, void* comm,
                  CUstream stream);

int ncclReduceScatter(const void* send, void* recv, std::size_t count, int type, int op, void* comm,
                      CUstream stream) {
  note("ncclReduceScatter");
  Comm* const state = static_cast<Comm*>(comm);
  const std::size_t bytes = count * bytes_of(type);
  std::vector<Message> messages;
  for (int node = 0; node < state->nodes; ++node) {
    const auto* const part =
        static_cast<const unsigned char*>(send) + bytes * static_cast<std::size_t>(node);
    messages.push_back({true, const_cast<unsigned char*>(part), bytes, node, state});
    messages.push_back({false, nullptr, bytes, node, state});
  }
  return issue(std::move(messages), Combine{type, op, count}, recv, bytes, stream);
}

int ncclBcast(void* buffer, std::size_t count, int type, int root, void* comm, CUstream stream) {
  note("ncclBcast");
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

/// The configuration's `blocking` is at the same place in all versions.
int ncclCommInitRankConfig(void** comm, int nodes, Id id, int node, void*) {
  note("ncclCommInitRankConfig");
  return ncclCommInitRank(comm, nodes, id, node);
}

int ncclCommInitAll(void** comms, int count, const int* gpus) {
  note("ncclCommInitAll");
  const int id = new_id();
  for (int node = 0; node < count; ++node) {
    Comm* const created = make_comm(id, node, count);
    created->gpu = gpus != nullptr ? gpus[node] : node;
    comms[node] = created;
  }
  return 0;
}

int ncclCommFinalize(void*) { return note("ncclCommFinalize"), 0; }
const char* ncclGetLastError(void*) { return "nothing"; }
int ncclMemAlloc(void** memory, std::size_t bytes) {
  note("ncclMemAlloc");
  CUdeviceptr address = 0;
  const int failed = cuMemAlloc(&address, bytes) == CUDA_SUCCESS ? 0 : 1;
  *memory = reinterpret_cast<void*>(address);
  return failed;
}
int ncclMemFree(void* memory) {
  return cuMemFree(reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS ? 0 : 1;
}
int ncclCommRegister(void*, void* memory, std::size_t, void** handle) {
  return note("ncclCommRegister"), *handle = memory, 0;
}
int ncclCommDeregister(void*, void*) { return 0; }
int ncclRedOpCreatePreMulSum(int* op, void*, int, int, void*) { return *op = 5, 0; }
int ncclRedOpDestroy(int, void*) { return 0; }
void ncclResetDebugInit() {}

#if !defined(NCCL_STANDIN_VERSION) || NCCL_STANDIN_VERSION >= 22800
int ncclAlltoAll(const void* send, void* recv, std::size_t count, int type, void* comm,
                 CUstream stream) {
  note("ncclAlltoAll");
  Comm* const state = static_cast<Comm*>(comm);
  const std::size_t bytes = count * bytes_of(type);
  std::vector<Message> messages;
  for (int node = 0; node < state->nodes; ++node) {
    const std::size_t at = bytes * static_cast<std::size_t>(node);
    messages.push_back({true,
                        const_cast<unsigned char*>(static_cast<const unsigned char*>(send) + at),
                        bytes, node, state});
    messages.push_back({false, static_cast<unsigned char*>(recv) + at, bytes, node, state});
  }
  return issue(std::move(messages), {}, nullptr, 0, stream);
}

int ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, void* comm,
                  CUstream stream);
int pncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, void* comm,
                   CUstream stream) {
  return ncclAllReduce(send, recv, count, type, op, comm, stream);
}

/// As in an unknown version: arguments of all kinds, in registers and on the stack.
double ncclOfTheFuture(int a, double b, Id id, const char* c, float d, int e, int f, int g, int h) {
  note("ncclOfTheFuture");
  return a + b + static_cast<unsigned char>(id.bytes[0]) + static_cast<double>(std::strlen(c)) +
         static_cast<double>(d) + e + f + g + h;
}
#endif

}  // extern "C"
