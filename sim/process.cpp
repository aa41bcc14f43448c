#include "process.hpp"

#include <unistd.h>

#include <random>

namespace polypath::sim {

const Process& this_process() {
  static const Process self = [] {
    std::random_device random;
    return Process{::getpid(), std::uint64_t{random()} << 32 | random()};
  }();
  return self;
}

}  // namespace polypath::sim
