#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "call.hpp"
#include "device_traits.hpp"
#include "failure.hpp"
#include "ipc.hpp"
#include "shadow.hpp"

namespace polypath::sim {
namespace {

constexpr std::uint64_t kMagic = 0x50502d53494d3031;  // "PP-SIM01"
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;

struct Content {
  std::uint64_t magic;
  std::uint64_t process_id;
  std::uint64_t buffer_id;
  std::uint64_t bytes;
  std::int32_t pid;
  std::int32_t file;
  std::int32_t device;
  std::array<unsigned char, 20> unused;  // zero
};
static_assert(sizeof(Content) == sizeof(CUipcMemHandle));

}  // namespace

CUipcMemHandle encode(const SharedMemory& memory) {
  const Content content{kMagic,
                        memory.process.id,
                        memory.buffer_id,
                        memory.bytes,
                        memory.process.pid,
                        memory.file,
                        memory.device,
                        {}};
  CUipcMemHandle handle{};
  std::memcpy(&handle, &content, sizeof content);
  return handle;
}

SharedMemory decode(const CUipcMemHandle& handle) {
  Content content{};
  std::memcpy(&content, &handle, sizeof content);
  require(content.magic == kMagic && content.unused == decltype(content.unused){},
          CUDA_ERROR_INVALID_HANDLE);
  require(content.bytes > 0 && content.bytes <= kMaxBytes, CUDA_ERROR_INVALID_HANDLE);
  return {{content.pid, content.process_id},
          content.file,
          content.device,
          content.buffer_id,
          content.bytes};
}

std::string file_name(const Process& process) {
  return fmt::format("polypath-sim-{}-{:016x}", process.pid, process.id);
}

const Process& this_process() {
  static const Process self = [] {
    std::random_device random;
    return Process{::getpid(), std::uint64_t{random()} << 32 | random()};
  }();
  return self;
}

}  // namespace polypath::sim

using namespace polypath::sim;

// Device memory of other processes (functional mode only).
//
// As with the real driver: the process that made a handle cannot open it; memory is imported once
// for each context, and belongs to that context, wherever it lies.

namespace {

void require_functional(Driver& driver, const char* what) {
  if (!driver.mode.is_functional) fail_not_supported(what);
}

/// The import of this memory by the context; null when there is none.
AllocationPtr find_import(Driver& driver, const SharedMemory& memory, CUcontext context) {
  return driver.memory().find_if([&](const Allocation& allocation) {
    return allocation.import && allocation.context == context &&
           allocation.import->process_id == memory.process.id &&
           allocation.import->buffer_id == memory.buffer_id;
  });
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return call([&](Driver& driver) {
    require_functional(driver, "cuIpcGetMemHandle but with POLYPATH_SIM_MODE=functional");
    driver.contexts().current();
    CUipcMemHandle& result = out(handle);
    const AllocationPtr allocation = driver.memory().find(address);
    // Neither pool memory nor what was imported can be passed on.
    require(allocation && allocation->kind == Allocation::Kind::device, CUDA_ERROR_INVALID_VALUE);
    auto& shadow = static_cast<SharedShadow&>(*allocation->shadow);
    result = encode({this_process(), shadow.export_file(), allocation->device,
                     allocation->buffer_id, allocation->bytes});
  });
}

// A second import by the same context gives the same address; each has to be closed.
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return call([&](Driver& driver) {
    require_functional(driver, "cuIpcOpenMemHandle but with POLYPATH_SIM_MODE=functional");
    const Context& context = driver.contexts().current();
    driver.captures().require_unsafe_calls_allowed();
    CUdeviceptr& result = out(address);
    require(flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
    const SharedMemory shared = decode(handle);
    require(shared.process.id != this_process().id, CUDA_ERROR_INVALID_CONTEXT);
    const auto gpus = static_cast<int>(driver.node.gpus.size());
    require(shared.device >= 0 && shared.device < gpus, CUDA_ERROR_INVALID_HANDLE);
    auto shadow = SharedShadow::open(shared.process.pid, shared.file,
                                     {shared.buffer_id, shared.bytes, shared.device},
                                     file_name(shared.process));
    require(shadow != nullptr, CUDA_ERROR_INVALID_HANDLE);
    require(shared.device == context.device ||
                has_peer_link(driver.node, context.device, shared.device),
            CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    if (const AllocationPtr known = find_import(driver, shared, context.handle)) {
      ++known->import->opened;
      result = known->base;
      return;
    }
    Allocation allocation;
    allocation.kind = Allocation::Kind::imported;
    allocation.bytes = shared.bytes;
    allocation.device = context.device;  // not the one that holds it
    allocation.location = polypath::MemoryId::gpu(shared.device);
    allocation.context = context.handle;
    allocation.import = std::make_shared<Import>(Import{shared.process.id, shared.buffer_id, 1});
    allocation.shadow = std::move(shadow);
    result = driver.memory().add(std::move(allocation))->base;
  });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}

// Waits for the work of its context and for all other work that uses it, as cuMemFree does.
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return call([&](Driver& driver) {
    require_functional(driver, "cuIpcCloseMemHandle but with POLYPATH_SIM_MODE=functional");
    driver.contexts().current();
    AllocationPtr allocation =
        driver.memory().find_base(address, {Allocation::Kind::imported}, CUDA_ERROR_INVALID_VALUE);
    driver.captures().require_unsafe_calls_allowed();
    if (--allocation->import->opened == 0) driver.deallocator().free(std::move(allocation));
  });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle*, CUevent) {
  return call([](Driver&) { fail_not_supported("cuIpcGetEventHandle"); });
}

CUresult cuIpcOpenEventHandle(CUevent*, CUipcEventHandle) {
  return call([](Driver&) { fail_not_supported("cuIpcOpenEventHandle"); });
}
