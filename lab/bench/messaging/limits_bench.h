// What the kernels of limits_bench.cu are told.
#pragma once

#include <cstdint>

namespace messaging_bench {

struct LimitRun {
  unsigned char* memory;
  std::uint64_t bytes;
  std::uint32_t times;
  std::uint32_t* result;
};

}  // namespace messaging_bench
