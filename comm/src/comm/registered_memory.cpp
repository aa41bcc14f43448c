#include "comm/registered_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

std::size_t page_multiple(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

RegisteredMemory::RegisteredMemory(const CudaDriver& driver,
                                   std::shared_ptr<const PrimaryContext> context, std::size_t bytes)
    : driver_(driver),
      context_(std::move(context)),
      bytes_(page_multiple(bytes)),
      // Shared: after a fork, a write would give this process another page than the GPU has.
      pages_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  if (pages_ == MAP_FAILED)
    throw Error(fmt::format("{} bytes of host memory cannot be mapped: {}", bytes_,
                            std::generic_category().message(errno)));
  const auto register_pages = [&] {
    const CurrentContext current(driver_, context_->get());
    POLYPATH_CHECK(driver_,
                   mem_host_register(pages_, bytes_,
                                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  };
  try {
    register_pages();
  } catch (...) {
    ::munmap(pages_, bytes_);
    throw;
  }
}

RegisteredMemory::~RegisteredMemory() {
  const CurrentContext current(driver_, context_->get(), std::nothrow);
  const CUresult result = driver_.mem_host_unregister(pages_);
  if (result != CUDA_SUCCESS)
    warn_driver_error(driver_, result,
                      "mem_host_unregister(pages)");  // the GPU may still have them
  else
    ::munmap(pages_, bytes_);
}

}  // namespace polypath
