// A defect that a kernel's host build has (polypath/device/detail/mutants.hpp) for as long as this lives.
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace polypath::test {

template <typename Fault>
struct Planting {
  explicit Planting(Fault fault) { active_mutant<Fault> = fault; }
  ~Planting() { active_mutant<Fault> = Fault::none; }
  Planting(const Planting&) = delete;
  Planting& operator=(const Planting&) = delete;
};

}  // namespace polypath::test
