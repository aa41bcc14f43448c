// The machine of simulated GPUs that the processes of one test share.
#pragma once

#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>

namespace polypath::sim::test {

/// Sets POLYPATH_SIM_MACHINE, for this process and its children, to a name that no other run has.
inline std::string own_machine() {
  std::string name = "test-" + std::to_string(std::random_device{}());
  if (setenv("POLYPATH_SIM_MACHINE", name.c_str(), 1) != 0) throw std::runtime_error("setenv");
  return name;
}

}  // namespace polypath::sim::test
