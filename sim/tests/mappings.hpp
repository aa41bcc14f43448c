// What a program may do with an address.
#pragma once

#include <cuda.h>

#include <fstream>
#include <sstream>
#include <string>

namespace polypath::sim::test {

/// The access of the mapping that holds the address, "rw-p" for example.
inline std::string access_of(CUdeviceptr address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    CUdeviceptr begin = 0;
    CUdeviceptr end = 0;
    char dash = 0;
    std::string access;
    fields >> std::hex >> begin >> dash >> end >> access;
    if (begin <= address && address < end) return access;
  }
  return "unmapped";
}

}  // namespace polypath::sim::test
