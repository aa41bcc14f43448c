// Modules and functions: kernels by their names. Code for a GPU is not looked into; what runs is
// the host build of that name, which is in this library.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

// What images begin with: a fat binary, an ELF file, PTX, or what stands for an image in a build
// without a CUDA compiler.
constexpr std::array<std::string_view, 4> kImages{"\x50\xED\x55\xBA",
                                                  "\x7F"
                                                  "ELF",
                                                  "//", "polypath: "};

bool is_image(const void* image) {
  return std::ranges::any_of(kImages, [image](std::string_view begin) {
    return std::strncmp(static_cast<const char*>(image), begin.data(), begin.size()) == 0;
  });
}

int attribute(Driver& driver, const Function& function, CUfunction_attribute name) {
  const int device = driver.contexts().get(function.context).device;
  const polypath::Gpu& gpu = driver.node.gpus[static_cast<std::size_t>(device)];
  const DeviceTraits& traits = device_traits(gpu.name);
  const auto threads = static_cast<int>(function.host_kernel->max_threads);
  switch (static_cast<int>(name)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return threads;
    // As many as such a block leaves to each thread: what launch bounds allow.
    case CU_FUNC_ATTRIBUTE_NUM_REGS: return std::min(255, (64 << 10) / threads);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return 0;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: return traits.compute_major * 10 + traits.compute_minor;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return function.dynamic_shared_bytes;
  }
  fail_not_supported("cuFuncGetAttribute of this attribute");
}

}  // namespace

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return call([&](Driver& driver) {
    CUmodule& result = out(module);
    require(image != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(is_image(image), CUDA_ERROR_INVALID_IMAGE);
    Context& context = driver.contexts().current();
    driver.captures().require_unsafe_calls_allowed();
    result = driver.kernels().load_module(context);
  });
}

CUresult cuModuleUnload(CUmodule handle) {
  return call([&](Driver& driver) { driver.kernels().unload_module(handle); });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  return call([&](Driver& driver) {
    CUfunction& result = out(function);
    require(name != nullptr, CUDA_ERROR_INVALID_VALUE);
    result = driver.kernels().find_function(handle, name);
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute name, CUfunction handle) {
  return call([&](Driver& driver) {
    out(value) = attribute(driver, driver.kernels().function(handle), name);
  });
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute name, int value) {
  return call([&](Driver& driver) {
    Function& function = driver.kernels().function(handle);
    if (name == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return;  // a hint
    if (name != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
      fail_not_supported("cuFuncSetAttribute of this attribute");
    const int device = driver.contexts().get(function.context).device;
    const polypath::Gpu& gpu = driver.node.gpus[static_cast<std::size_t>(device)];
    require(value >= 0 && value <= device_traits(gpu.name).shared_bytes_of_block,
            CUDA_ERROR_INVALID_VALUE);
    function.dynamic_shared_bytes = value;
  });
}

// One block a multiprocessor, as the simulated devices run them.
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t dynamic_shared_bytes) {
  return call([&](Driver& driver) {
    const Function& function = driver.kernels().function(handle);
    require(threads > 0, CUDA_ERROR_INVALID_VALUE);
    const bool fits =
        static_cast<unsigned>(threads) <= function.host_kernel->max_threads &&
        dynamic_shared_bytes <= static_cast<std::size_t>(function.dynamic_shared_bytes);
    out(blocks) = fits ? 1 : 0;
  });
}
