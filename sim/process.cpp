#include "process.hpp"

#include <fmt/format.h>
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

std::string shared_name(const Process& process, std::uint64_t buffer_id) {
  return fmt::format("polypath-sim-{}-{:016x}-{}", process.pid, process.id, buffer_id);
}

}  // namespace polypath::sim
