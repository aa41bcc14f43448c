#include "cuda/program_memory.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <iterator>

#include "cuda/engine.hpp"
#include "cuda/intercepted.hpp"
#include "gate/process.hpp"

namespace polypath::preload {
namespace {

/// From work of one context to memory of another one. By the driver's numbers of contexts: an
/// address may become another one's.
struct Access {
  unsigned long long from;
  unsigned long long to;
  Access* next;
};

constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  ///< guards the list
constinit Access* first = nullptr;                            ///< that the program has enabled

unsigned long long number_of(CUcontext context) noexcept {
  unsigned long long number = 0;
  if (driver::ctx_get_id(context, &number) == CUDA_SUCCESS) return number;
  return reinterpret_cast<unsigned long long>(context);  // a driver before CUDA 12
}

bool is_context(CUcontext context) noexcept {
  unsigned long long number = 0;
  const CUresult result = driver::ctx_get_id(context, &number);
  return context != nullptr && (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_SUPPORTED);
}

Access access_to(CUcontext peer) noexcept {
  CUcontext current = nullptr;
  driver::ctx_get_current(&current);
  return {number_of(current), number_of(peer), nullptr};
}

/// With the lock held: where it is linked in, or the end.
Access** find(const Access& access) noexcept {
  Access** link = &first;
  while (*link != nullptr && ((*link)->from != access.from || (*link)->to != access.to))
    link = &(*link)->next;
  return link;
}

/// Whether it is new.
bool add(const Access& access) noexcept {
  const Lock lock(mutex);
  Access** const link = find(access);
  if (*link != nullptr) return false;
  auto* const entry = static_cast<Access*>(std::malloc(sizeof(Access)));
  if (entry != nullptr) *entry = access;
  *link = entry;
  return true;
}

/// Whether it was there.
bool remove(const Access& access) noexcept {
  const Lock lock(mutex);
  Access** const link = find(access);
  Access* const known = *link;
  if (known == nullptr) return false;
  *link = known->next;
  std::free(known);
  return true;
}

}  // namespace

void forget_peer_access_of(CUdevice gpu) noexcept {
  const PrimaryContext primary(gpu);
  if (primary.get() == nullptr) return;
  const unsigned long long gone = number_of(primary.get());
  const Lock lock(mutex);
  for (Access** link = &first; *link != nullptr;) {
    Access* const entry = *link;
    if (entry->from == gone || entry->to == gone) {
      *link = entry->next;
      std::free(entry);
    } else {
      link = &entry->next;
    }
  }
}

namespace {

/// References of the program to the primary contexts of GPUs, by ordinal.
constinit std::atomic<int> references[64]{};

std::atomic<int>* references_of(CUdevice gpu) noexcept {
  return gpu >= 0 && static_cast<std::size_t>(gpu) < std::size(references) ? &references[gpu]
                                                                           : nullptr;
}

}  // namespace

void forget_peer_access() noexcept {
  mutex = PTHREAD_MUTEX_INITIALIZER;  // also if a thread held it in the parent
  first = nullptr;
}

}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_INTERCEPTOR(cuCtxEnablePeerAccess)(CUcontext peer, unsigned int flags) {
  init_process();
  const CUresult result = call_driver(Symbol::cuCtxEnablePeerAccess, peer, flags);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return result;
  return add(access_to(peer)) ? CUDA_SUCCESS : result;
}

POLYPATH_INTERCEPTOR(cuCtxDisablePeerAccess)(CUcontext peer) {
  init_process();
  const Access access = access_to(peer);
  const bool was_there = remove(access);
  // The engine goes on using it. What is no context the driver says.
  if (access.from != 0 && is_context(peer) && may_have_engine())
    return was_there ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  return call_driver(Symbol::cuCtxDisablePeerAccess, peer);
}

POLYPATH_INTERCEPTOR(cuDevicePrimaryCtxRetain)(CUcontext* context, CUdevice gpu) {
  init_process();
  const CUresult result = call_driver(Symbol::cuDevicePrimaryCtxRetain, context, gpu);
  std::atomic<int>* const references = references_of(gpu);
  if (result == CUDA_SUCCESS && references != nullptr) references->fetch_add(1);
  return result;
}

/// With the program's last one its context is gone to it, and its peer access with that; the engine
/// may hold the context.
POLYPATH_INTERCEPTOR(cuDevicePrimaryCtxRelease_v2)(CUdevice gpu) {
  init_process();
  const CUresult result = call_driver(Symbol::cuDevicePrimaryCtxRelease_v2, gpu);
  std::atomic<int>* const references = references_of(gpu);
  if (result != CUDA_SUCCESS || references == nullptr) return result;
  // Some may have been taken past the shim.
  int before = references->load();
  while (before > 0 && !references->compare_exchange_weak(before, before - 1)) {
  }
  if (before <= 1) forget_peer_access_of(gpu);
  return result;
}
