#include "cuda/program_memory.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "cuda/intercepted.hpp"
#include "cuda/statistics.hpp"
#include "gate/process.hpp"

namespace polypath::preload {
namespace {

enum class Kind : std::uint8_t { exported, imported };
enum class State : std::uint8_t {
  untold,
  telling,  ///< one thread does
  registered,
  refused,  ///< the engine could not keep it
  closing,  ///< the program's call is under way
};

/// One call of the program that the engine must know.
struct Entry {
  Kind kind;
  State state;
  CUipcMemHandle handle;
  CUdeviceptr address;
  std::size_t bytes;
  CUcontext context;  ///< that was current
  CUdevice gpu;       ///< of the context
  Entry* next;
};

/// Guards the list and states; held for moments, never over a call of the driver or of the engine.
constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
constinit pthread_cond_t state_changed = PTHREAD_COND_INITIALIZER;
constinit Entry* first = nullptr;  ///< in the program's order
/// Imports that are not told.
constinit std::atomic<std::size_t> untold{0};
/// Out of memory once: what was imported then is not known.
constinit std::atomic<bool> is_incomplete{false};

// With the lock held:

void set(Entry& entry, State state) noexcept {
  if (entry.kind == Kind::imported) {
    if (entry.state == State::registered) untold.fetch_add(1, std::memory_order_relaxed);
    if (state == State::registered) untold.fetch_sub(1, std::memory_order_release);
  }
  if (entry.state == State::telling) pthread_cond_broadcast(&state_changed);
  entry.state = state;
}

Entry* add(const Entry& value) noexcept {
  auto* const entry = static_cast<Entry*>(std::malloc(sizeof(Entry)));
  if (entry == nullptr) {
    if (value.kind == Kind::imported) is_incomplete.store(true);
    return nullptr;
  }
  *entry = value;
  if (value.kind == Kind::imported) untold.fetch_add(1);
  Entry** last = &first;
  while (*last != nullptr) last = &(*last)->next;
  return *last = entry;
}

void remove(Entry* entry) noexcept {
  Entry** link = &first;
  while (*link != entry) link = &(*link)->next;
  *link = entry->next;
  set(*entry, State::registered);
  std::free(entry);
}

template <typename Which>
void remove_if(Which&& which) noexcept {
  for (Entry* entry = first; entry != nullptr;) {
    Entry* const next = entry->next;
    if (which(*entry)) remove(entry);
    entry = next;
  }
}

/// An import at the address that no thread has begun to close.
Entry* find_open(CUdeviceptr address) noexcept {
  for (Entry* entry = first; entry != nullptr; entry = entry->next)
    if (entry->kind == Kind::imported && entry->address == address &&
        entry->state != State::closing)
      return entry;
  return nullptr;
}

// Without:

void* pointer_to(CUdeviceptr address) noexcept { return reinterpret_cast<void*>(address); }

bool ask_to_keep(const Engine& engine, const Entry& entry) noexcept {
  const InContext context(entry.context);
  const bool is_import = entry.kind == Kind::imported;
  count(is_import ? ImportEvent::imported : ImportEvent::exported);
  const auto keep = is_import ? engine.ipc_register_import : engine.ipc_register_export;
  const bool is_kept = context.is_there() && keep(engine.context, &entry.handle,
                                                  pointer_to(entry.address)) == POLYPATH_SUCCESS;
  if (!is_kept) count(ImportEvent::refused);
  return is_kept;
}

/// Tells an entry that this thread has set to telling.
void tell(const Engine& engine, Entry* entry) noexcept {
  const bool is_kept = ask_to_keep(engine, *entry);
  const Lock lock(mutex);
  set(*entry, is_kept ? State::registered : State::refused);
  // Others find exported memory by what the engine has published, which stays when it goes.
  if (entry->kind == Kind::exported) remove(entry);
}

/// Tells the engine of the entry unless its maker did.
void tell_engine(Entry* entry) noexcept {
  const ApiScope engine(ApiScope::Start::yes);
  if (!engine) return;
  {
    // The thread that made the engine may have told it, and taken it out of the list.
    const Lock lock(mutex);
    const Entry* listed = first;
    while (listed != nullptr && listed != entry) listed = listed->next;
    if (listed == nullptr || entry->state != State::untold) return;
    set(*entry, State::telling);
  }
  tell(*engine, entry);
}

void keep(Kind kind, const CUipcMemHandle& handle, CUdeviceptr address) noexcept {
  if (!may_have_engine()) return;
  Entry value{kind, State::untold, handle, address, 0, nullptr, -1, nullptr};
  CUdeviceptr start = 0;
  driver::ctx_get_current(&value.context);
  driver::ctx_get_device(&value.gpu);
  if (kind == Kind::imported &&
      driver::mem_get_address_range(&start, &value.bytes, address) != CUDA_SUCCESS)
    value.bytes = SIZE_MAX - address;
  Entry* entry = nullptr;
  {
    const Lock lock(mutex);
    entry = add(value);
  }
  if (entry != nullptr) tell_engine(entry);
}

/// The engine's own imports of the memory go first: nothing uses it any more when the program's
/// goes.
CUresult close(CUdeviceptr address) noexcept {
  Entry* entry = nullptr;
  bool was_told = false;
  {
    const Lock lock(mutex);
    for (;;) {
      entry = find_open(address);
      if (entry == nullptr || entry->state != State::telling) break;
      pthread_cond_wait(&state_changed, &mutex);
    }
    if (entry != nullptr) {
      was_told = entry->state == State::registered;
      set(*entry, State::closing);
    }
  }
  if (was_told) {
    const ApiScope engine(ApiScope::Start::no);
    if (engine) {
      count(ImportEvent::closed);
      if (engine->ipc_unregister_import(engine->context, pointer_to(address)) != POLYPATH_SUCCESS)
        count(ImportEvent::refused);
    }
  }
  const CUresult result = call_driver(Symbol::cuIpcCloseMemHandle, address);
  if (entry == nullptr) return result;
  {
    const Lock lock(mutex);
    if (result == CUDA_SUCCESS) {
      remove(entry);
      return result;
    }
    set(*entry, State::untold);
  }
  // It is as open as before.
  tell_engine(entry);
  return result;
}

CUresult open_handle(Symbol symbol, CUdeviceptr* address, CUipcMemHandle handle,
                     unsigned flags) noexcept {
  init_process();
  count_call(symbol, 0);
  const CUresult result = call_driver(symbol, address, handle, flags);
  if (result == CUDA_SUCCESS) keep(Kind::imported, handle, *address);
  return result;
}

}  // namespace

void register_recorded_memory(const Engine& engine) noexcept {
  for (;;) {
    Entry* next = nullptr;
    {
      const Lock lock(mutex);
      for (next = first; next != nullptr && next->state != State::untold;) next = next->next;
      // With the lock held: what comes from now on finds the engine.
      if (next == nullptr) return publish_engine();
      set(*next, State::telling);
    }
    tell(engine, next);
  }
}

void keep_shared_memory() noexcept {
  const Lock lock(mutex);
  for (Entry* entry = first; entry != nullptr; entry = entry->next)
    if (entry->state == State::registered || entry->state == State::refused)
      set(*entry, State::untold);
}

void forget_shared_memory_of(CUdevice gpu) noexcept {
  const Lock lock(mutex);
  remove_if([&](const Entry& entry) {
    return entry.gpu == gpu && entry.kind == Kind::imported && entry.state != State::closing;
  });
}

void forget_shared_memory() noexcept {
  // There is no other thread, also where one held it in the parent, or was in the middle of a
  // change.
  mutex = PTHREAD_MUTEX_INITIALIZER;
  state_changed = PTHREAD_COND_INITIALIZER;
  first = nullptr;
  untold.store(0);
}

bool may_be_unregistered(CUdeviceptr address, std::size_t bytes) noexcept {
  if (is_incomplete.load(std::memory_order_relaxed)) return true;
  if (untold.load(std::memory_order_acquire) == 0) return false;
  const Lock lock(mutex);
  for (const Entry* entry = first; entry != nullptr; entry = entry->next)
    if (entry->kind == Kind::imported && entry->state != State::registered &&
        address < entry->address + entry->bytes && entry->address < address + bytes)
      return true;
  return false;
}

}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_INTERCEPTOR(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr address) {
  init_process();
  count_call(Symbol::cuIpcGetMemHandle, 0);
  const CUresult result = call_driver(Symbol::cuIpcGetMemHandle, handle, address);
  if (result == CUDA_SUCCESS) keep(Kind::exported, *handle, address);
  return result;
}

POLYPATH_INTERCEPTOR(cuIpcOpenMemHandle)
(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(Symbol::cuIpcOpenMemHandle, address, handle, flags);
}

POLYPATH_INTERCEPTOR(cuIpcOpenMemHandle_v2)
(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return open_handle(Symbol::cuIpcOpenMemHandle_v2, address, handle, flags);
}

POLYPATH_INTERCEPTOR(cuIpcCloseMemHandle)(CUdeviceptr address) {
  init_process();
  count_call(Symbol::cuIpcCloseMemHandle, 0);
  return close(address);
}
