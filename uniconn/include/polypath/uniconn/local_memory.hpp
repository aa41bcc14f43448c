// Memory of one GPU that no other addresses: for backends that send and receive.
#pragma once

#include <algorithm>
#include <vector>

#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/region_map.hpp"

namespace polypath::uniconn::detail {

class LocalMemory {
 public:
  LocalMemory(const Bootstrap& bootstrap, const Cuda& cuda) : bootstrap_(bootstrap), cuda_(cuda) {}
  ~LocalMemory() {
    for (const auto& piece : pieces_.all()) cuda_.free(static_cast<DevicePointer>(piece.begin));
  }
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;

  /// On all ranks, or on none.
  void* allocate(std::size_t bytes) {
    DevicePointer memory = 0;
    const int result = cuda_.alloc(&memory, bytes);
    const std::vector<int> all = bootstrap_.gather(result);
    const auto failed = std::ranges::find_if(all, [](int each) { return each != 0; });
    if (failed != all.end()) {
      if (result == 0) cuda_.free(memory);
      cuda_.check(*failed, ("Memory::Alloc of " + std::to_string(bytes) + " bytes on rank " +
                            std::to_string(failed - all.begin()))
                               .c_str());
    }
    void* const address = reinterpret_cast<void*>(memory);
    pieces_.add(address, bytes, Nothing{});
    return address;
  }
  void release(void* address) {
    pieces_.take(address);
    cuda_.check(cuda_.free(device(address)), "cuMemFree");
  }
  /// Throws unless it is memory of a GPU, and, of Memory, all of it.
  void require(const void* address, std::size_t bytes, const char* what) const {
    if (bytes > 0 && !pieces_.holds(address, bytes, what))
      require_device_memory(cuda_, address, what);
  }

 private:
  struct Nothing {};
  Bootstrap bootstrap_;
  const Cuda& cuda_;
  Pieces<Nothing> pieces_;
};

}  // namespace polypath::uniconn::detail
