#include "cuda/program_memory.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cuda/intercepted.hpp"
#include "gate/process.hpp"

namespace polypath::preload {
namespace {

/// GPUs that the table has room for; of others nothing is kept, and the driver answers.
constexpr int kMaxGpus = 64;

/// A growing array in the order of `key`. For trivial types; not thread-safe.
template <typename Entry, auto key>
class SortedArray {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  Entry& operator[](std::size_t i) noexcept { return entries_[i]; }
  /// The first that does not come before.
  [[nodiscard]] std::size_t lower_bound(unsigned long long value) const noexcept {
    return static_cast<std::size_t>(std::lower_bound(entries_, entries_ + size_, value,
                                                     [](const Entry& entry, unsigned long long at) {
                                                       return entry.*key < at;
                                                     }) -
                                    entries_);
  }
  /// False: no memory.
  bool insert(const Entry& entry) noexcept {
    if (size_ == capacity_ && !grow()) return false;
    const std::size_t at = lower_bound(entry.*key);
    std::memmove(static_cast<void*>(entries_ + at + 1), entries_ + at,
                 (size_ - at) * sizeof(Entry));
    entries_[at] = entry;
    ++size_;
    return true;
  }
  void erase(std::size_t at) noexcept {
    --size_;
    std::memmove(static_cast<void*>(entries_ + at), entries_ + at + 1,
                 (size_ - at) * sizeof(Entry));
  }
  /// Without freeing: a child may have come in the middle of a change.
  void forget() noexcept {
    entries_ = nullptr;
    size_ = capacity_ = 0;
  }

 private:
  bool grow() noexcept {
    const std::size_t capacity = capacity_ == 0 ? 64 : 2 * capacity_;
    auto* const entries =
        static_cast<Entry*>(std::realloc(static_cast<void*>(entries_), capacity * sizeof(Entry)));
    if (entries == nullptr) return false;
    entries_ = entries;
    capacity_ = capacity;
    return true;
  }

  Entry* entries_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// Memory on a GPU that the program allocated.
struct OwnMemory {
  unsigned long long handle;
  int gpu;
};

struct Mapping {
  unsigned long long begin;
  unsigned long long end;
  int gpu;                     ///< of memory that the program allocated; -1: of other memory
  bool is_told;                ///< the engine knows
  bool is_leaving;             ///< the program's cuMemUnmap is under way
  int changes;                 ///< calls under way that may take access away
  std::uint64_t readable;      ///< GPUs that the program lets read it, by bits,
  std::uint64_t writable = 0;  ///< and write as well

  [[nodiscard]] bool may_be_shared() const noexcept {
    return gpu >= 0 && !is_leaving && changes == 0 && (writable >> gpu & 1) != 0;
  }
  [[nodiscard]] unsigned long long access_of(int other) const noexcept {
    if ((writable >> other & 1) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (readable >> other & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                        : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
};

/// Held while the engine is told: what one thread takes back is not told late by another one. The
/// engine holds it up for no longer than one cuMemSetAccess.
constinit pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;
/// Guards what follows; held for moments.
constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
constinit SortedArray<OwnMemory, &OwnMemory::handle> own_memory;
constinit SortedArray<Mapping, &Mapping::begin> mappings;
/// Mappings in the table.
constinit std::atomic<std::size_t> count{0};

bool is_on() noexcept {
  static constinit std::atomic<int> known{-1};
  int on = known.load(std::memory_order_relaxed);
  if (on < 0) {
    on = is_set_to("POLYPATH_SHARE_MAPPINGS", "off") ? 0 : 1;
    known.store(on, std::memory_order_relaxed);
  }
  return on != 0;
}

bool is_empty() noexcept { return count.load(std::memory_order_acquire) == 0; }

/// Whether a call is kept: the engine's own are not the program's.
bool is_kept() noexcept { return is_on() && !is_inside_engine(); }

bool names_gpu(const CUmemLocation& location) noexcept {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 && location.id < kMaxGpus;
}

// With the lock held:

/// The first mapping that ends after the address; leaving ones, which may lie at the addresses of
/// new ones, included.
std::size_t first_after(unsigned long long address) noexcept {
  std::size_t i = mappings.lower_bound(address);
  while (i > 0 && mappings[i - 1].end > address) --i;
  return i;
}

template <typename Visit>
void for_each_in(unsigned long long begin, unsigned long long end, Visit&& visit) noexcept {
  for (std::size_t i = first_after(begin); i < mappings.size() && mappings[i].begin < end; ++i)
    if (!mappings[i].is_leaving && mappings[i].end > begin) visit(mappings[i]);
}

/// Null: none that the table knows.
const Mapping* find(unsigned long long address) noexcept {
  const Mapping* match = nullptr;
  for_each_in(address, address + 1, [&](const Mapping& mapping) { match = &mapping; });
  return match;
}

void set(Mapping& mapping, int gpu, CUmemAccess_flags flags) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << gpu;
  mapping.readable =
      flags != CU_MEM_ACCESS_FLAGS_PROT_NONE ? mapping.readable | bit : mapping.readable & ~bit;
  mapping.writable = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? mapping.writable | bit
                                                                 : mapping.writable & ~bit;
}

// Without:

void keep_handle(CUmemGenericAllocationHandle handle, const CUmemAllocationProp& properties) {
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED || !names_gpu(properties.location)) return;
  const Lock lock(mutex);
  own_memory.insert({handle, properties.location.id});
}

/// The driver may give the number to memory that is imported.
void forget_handle(CUmemGenericAllocationHandle handle) noexcept {
  const Lock lock(mutex);
  const std::size_t at = own_memory.lower_bound(handle);
  if (at < own_memory.size() && own_memory[at].handle == handle) own_memory.erase(at);
}

void keep_mapping(CUdeviceptr address, std::size_t bytes, CUmemGenericAllocationHandle handle) {
  const Lock lock(mutex);
  const std::size_t at = own_memory.lower_bound(handle);
  const bool is_own = at < own_memory.size() && own_memory[at].handle == handle;
  if (mappings.insert(
          {address, address + bytes, is_own ? own_memory[at].gpu : -1, false, false, 0, 0, 0}))
    count.fetch_add(1, std::memory_order_release);
}

/// No GPU is being given access to these mappings when it returns.
void unshare(CUdeviceptr address, std::size_t bytes) noexcept {
  const ApiScope engine(ApiScope::Start::no);
  const Lock turn(telling);
  bool was_told = false;
  {
    const Lock lock(mutex);
    for_each_in(address, address + bytes, [&](Mapping& mapping) {
      was_told = was_told || mapping.is_told;
      mapping.is_told = false;
    });
  }
  if (was_told && engine)
    engine->unshare_mapping(engine->context, reinterpret_cast<void*>(address), bytes);
}

/// Keeps access from being given while it lives.
class AccessChange {
 public:
  AccessChange(CUdeviceptr address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {
    add(1);
    unshare(address, bytes);
  }
  ~AccessChange() { add(-1); }
  AccessChange(const AccessChange&) = delete;
  AccessChange& operator=(const AccessChange&) = delete;

 private:
  void add(int change) const noexcept {
    const Lock lock(mutex);
    for_each_in(address_, address_ + bytes_,
                [&](Mapping& mapping) { mapping.changes = std::max(0, mapping.changes + change); });
  }

  CUdeviceptr address_;
  std::size_t bytes_;
};

bool takes_away(const CUmemAccessDesc& access) noexcept {
  return names_gpu(access.location) && access.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/// Whether the GPU has access to some of these mappings that the program did not give.
bool was_given(CUdeviceptr address, std::size_t bytes, const CUmemLocation& location) noexcept {
  for (CUdeviceptr at = address; at < address + bytes;) {
    CUdeviceptr next = address + bytes;
    bool is_less = false;
    {
      const Lock lock(mutex);
      for_each_in(at, next, [&](const Mapping& mapping) {
        if (mapping.begin > at) {
          next = std::min<CUdeviceptr>(next, mapping.begin);
          return;
        }
        next = mapping.end;
        is_less = mapping.access_of(location.id) != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      });
    }
    unsigned long long access = 0;
    CUmemLocation asked = location;
    if (is_less && call_driver(Symbol::cuMemGetAccess, &access, &asked, at) == CUDA_SUCCESS &&
        access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return true;
    at = next;
  }
  return false;
}

void keep_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* accesses,
                 std::size_t number) noexcept {
  const Lock lock(mutex);
  for_each_in(address, address + bytes, [&](Mapping& mapping) {
    for (std::size_t i = 0; i < number; ++i)
      if (names_gpu(accesses[i].location)) set(mapping, accesses[i].location.id, accesses[i].flags);
  });
}

/// The program's call, but for access that the engine gave: copies that are under way may use it,
/// and the program, which never gave it, need not wait for them.
CUresult take_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* accesses,
                     std::size_t number) noexcept {
  const AccessChange change(address, bytes);
  auto* const kept = static_cast<CUmemAccessDesc*>(std::malloc(number * sizeof(CUmemAccessDesc)));
  bool is_any = false;
  for (std::size_t i = 0; i < number && kept != nullptr; ++i) {
    kept[i] = accesses[i];
    if (!takes_away(accesses[i]) || !was_given(address, bytes, accesses[i].location)) continue;
    kept[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    is_any = true;
  }
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (is_any) result = call_driver(Symbol::cuMemSetAccess, address, bytes, kept, number);
  std::free(kept);
  // An error is the program's own call's.
  if (result != CUDA_SUCCESS)
    result = call_driver(Symbol::cuMemSetAccess, address, bytes, accesses, number);
  if (result == CUDA_SUCCESS) keep_access(address, bytes, accesses, number);
  return result;
}

CUresult set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* accesses,
                    std::size_t number) noexcept {
  const bool is_known =
      is_kept() && !is_empty() && accesses != nullptr && bytes <= ~CUdeviceptr{0} - address;
  if (is_known && std::any_of(accesses, accesses + number, takes_away))
    return take_access(address, bytes, accesses, number);
  const CUresult result = call_driver(Symbol::cuMemSetAccess, address, bytes, accesses, number);
  if (result == CUDA_SUCCESS && is_known) keep_access(address, bytes, accesses, number);
  return result;
}

CUresult unmap(CUdeviceptr address, std::size_t bytes) noexcept {
  if (!is_kept() || is_empty() || bytes > ~CUdeviceptr{0} - address)
    return call_driver(Symbol::cuMemUnmap, address, bytes);
  unshare(address, bytes);
  {
    const Lock lock(mutex);
    for_each_in(address, address + bytes, [](Mapping& mapping) { mapping.is_leaving = true; });
  }
  const CUresult result = call_driver(Symbol::cuMemUnmap, address, bytes);
  const Lock lock(mutex);
  // What another thread has mapped there meanwhile is not leaving.
  for (std::size_t i = first_after(address);
       i < mappings.size() && mappings[i].begin < address + bytes;) {
    Mapping& mapping = mappings[i];
    if (mapping.is_leaving && result == CUDA_SUCCESS) {
      mappings.erase(i);
      count.fetch_sub(1, std::memory_order_relaxed);
      continue;
    }
    mapping.is_leaving = false;
    ++i;
  }
  return result;
}

/// What the program itself gave the GPU, which is no more than the driver says.
template <typename Flags>
void correct(Flags& flags, int gpu, CUdeviceptr address) noexcept {
  if (gpu < 0 || gpu >= kMaxGpus) return;
  const Lock lock(mutex);
  const Mapping* const mapping = find(address);
  if (mapping == nullptr) return;
  if (const unsigned long long own = mapping->access_of(gpu); own < flags)
    flags = static_cast<Flags>(own);
}

bool asks_for_access(CUpointer_attribute attribute) noexcept {
  return attribute == CU_POINTER_ATTRIBUTE_ACCESS_FLAGS && !is_empty() && is_kept();
}

/// The attribute has the values of access flags, for the GPU of the current context.
void correct_attribute(void* data, CUdeviceptr address) noexcept {
  CUdevice gpu = -1;
  if (driver::ctx_get_device(&gpu) == CUDA_SUCCESS)
    correct(*static_cast<unsigned int*>(data), gpu, address);
}

}  // namespace

void MappingSharer::share(CUdeviceptr address, std::size_t bytes) noexcept {
  if (is_empty() || (begin_ <= address && address < end_ && bytes <= end_ - address)) return;
  const Lock turn(telling);
  for (CUdeviceptr at = address; at - address < bytes;) {
    Mapping match{};
    {
      const Lock lock(mutex);
      begin_ = at;
      end_ = ~CUdeviceptr{0};
      for (std::size_t i = first_after(at); i < mappings.size(); ++i) {
        Mapping& mapping = mappings[i];
        if (mapping.is_leaving) continue;
        if (mapping.begin > at) {
          end_ = mapping.begin;
          break;
        }
        begin_ = mapping.begin;
        end_ = mapping.end;
        if (!mapping.is_told && mapping.may_be_shared()) {
          mapping.is_told = true;
          match = mapping;
        }
        break;
      }
    }
    if (match.end != 0)
      engine_.share_mapping(engine_.context, reinterpret_cast<void*>(match.begin),
                            match.end - match.begin);
    at = end_;
  }
}

void unshare_all_mappings() noexcept {
  const Lock lock(mutex);
  for (std::size_t i = 0; i < mappings.size(); ++i) mappings[i].is_told = false;
}

void forget_mappings() noexcept {
  // There is no other thread, also where one held a lock in the parent.
  telling = PTHREAD_MUTEX_INITIALIZER;
  mutex = PTHREAD_MUTEX_INITIALIZER;
  own_memory.forget();
  mappings.forget();
  count.store(0);
}

}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_INTERCEPTOR(cuMemCreate)
(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
 unsigned long long flags) {
  init_process();
  const CUresult result = call_driver(Symbol::cuMemCreate, handle, bytes, properties, flags);
  if (result == CUDA_SUCCESS && is_kept()) keep_handle(*handle, *properties);
  return result;
}

POLYPATH_INTERCEPTOR(cuMemRelease)(CUmemGenericAllocationHandle handle) {
  if (is_kept()) forget_handle(handle);
  return call_driver(Symbol::cuMemRelease, handle);
}

POLYPATH_INTERCEPTOR(cuMemMap)
(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
 unsigned long long flags) {
  init_process();
  const CUresult result = call_driver(Symbol::cuMemMap, address, bytes, offset, handle, flags);
  if (result == CUDA_SUCCESS && is_kept()) keep_mapping(address, bytes, handle);
  return result;
}

POLYPATH_INTERCEPTOR(cuMemUnmap)(CUdeviceptr address, size_t bytes) {
  return unmap(address, bytes);
}

POLYPATH_INTERCEPTOR(cuMemSetAccess)
(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses, size_t number) {
  return set_access(address, bytes, accesses, number);
}

POLYPATH_INTERCEPTOR(cuMemGetAccess)
(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  const CUresult result = call_driver(Symbol::cuMemGetAccess, flags, location, address);
  if (result == CUDA_SUCCESS && !is_empty() && is_kept() &&
      location->type == CU_MEM_LOCATION_TYPE_DEVICE)
    correct(*flags, location->id, address);
  return result;
}

POLYPATH_INTERCEPTOR(cuPointerGetAttribute)
(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const CUresult result = call_driver(Symbol::cuPointerGetAttribute, data, attribute, address);
  if (asks_for_access(attribute) && result == CUDA_SUCCESS) correct_attribute(data, address);
  return result;
}

POLYPATH_INTERCEPTOR(cuPointerGetAttributes)
(unsigned int number, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  const CUresult result =
      call_driver(Symbol::cuPointerGetAttributes, number, attributes, data, address);
  for (unsigned int i = 0; result == CUDA_SUCCESS && i < number; ++i)
    if (asks_for_access(attributes[i])) correct_attribute(data[i], address);
  return result;
}
