#include <memory>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "driver/pointer_attributes.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kPointers = "pointers";
constexpr std::uint64_t kAllocated = 4 * kMiB;
/// What no driver answers: shows an answer that was not written.
constexpr std::size_t kUnwritten = 12345;

using Owner = std::unique_ptr<void, std::function<void(void*)>>;

CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUmemoryPool describe(const CudaDriver& driver, Report& report, const std::string& memory,
                      CUdeviceptr address) {
  PointerAttributes attributes;
  attributes.bytes = kUnwritten;
  attributes.ask(driver, address);
  const std::pair<const char*, int> answers[] = {
      {"CUmemorytype", attributes.type},
      {"device ordinal", attributes.ordinal},
      {"has a context", attributes.context != nullptr},
      {"managed", attributes.managed},
      {"of a pool", attributes.pool != nullptr},
      {"legacy IPC", attributes.legacy_ipc},
      {"range answered", attributes.bytes != kUnwritten}};
  for (const auto& [what, value] : answers)
    report.figure(kPointers, fmt::format("{}: {}", memory, what), value, "");
  return attributes.pool;
}

void describe_pool(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  const CUstream stream = bench.stream(0, 0);
  CUdeviceptr address = 0;
  if (driver.mem_alloc_async == nullptr || driver.mem_pool_get_access == nullptr ||
      driver.mem_alloc_async(&address, kAllocated, stream) != CUDA_SUCCESS)
    return report.skipped(kPointers, "pool memory", "this driver has none");
  const Owner owner(reinterpret_cast<void*>(address), [&](void* pointer) {
    POLYPATH_WARN(driver, mem_free_async(address_of(pointer), stream));
    POLYPATH_WARN(driver, stream_synchronize(stream));
  });
  const CUmemoryPool pool = describe(driver, report, "pool memory of gpu0", address);
  for (int gpu = 0; gpu < bench.gpus(); ++gpu) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = gpu;
    CUmemAccess_flags access{};
    POLYPATH_CHECK(driver, mem_pool_get_access(&access, pool, &location));
    report.figure(kPointers, fmt::format("pool memory of gpu0: access of gpu{}", gpu), access,
                  "CUmemAccess_flags");
  }
}

void describe_managed(const CudaDriver& driver, Report& report) {
  CUdeviceptr address = 0;
  if (driver.mem_alloc_managed == nullptr ||
      driver.mem_alloc_managed(&address, kAllocated, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS)
    return report.skipped(kPointers, "managed memory", "this driver has none");
  const Owner owner(reinterpret_cast<void*>(address),
                    [&](void* pointer) { POLYPATH_WARN(driver, mem_free(address_of(pointer))); });
  describe(driver, report, "managed memory", address);
}

}  // namespace

void pointer_facts(Workbench& bench, Report& report) {
  const CudaDriver& driver = bench.driver();
  const int last = bench.gpus() - 1;
  const CurrentContext current(driver, bench.context(0));
  const TestBuffer device = bench.buffer(MemoryId::gpu(last), kAllocated);
  describe(driver, report, fmt::format("device memory of gpu{}", last), device.address() + 1);

  void* pinned = nullptr;
  {
    const CurrentContext allocating(driver, bench.context(last));
    POLYPATH_CHECK(driver, mem_host_alloc(&pinned, kAllocated, CU_MEMHOSTALLOC_PORTABLE));
  }
  const Owner owner(pinned, [&](void* host) { POLYPATH_WARN(driver, mem_free_host(host)); });
  describe(driver, report, fmt::format("pinned by gpu{}", last), address_of(pinned));

  const std::vector<std::byte> pageable(kAllocated);
  describe(driver, report, "pageable memory", address_of(pageable.data()));
  describe_pool(bench, report);
  describe_managed(driver, report);
}

}  // namespace polypath::facts
