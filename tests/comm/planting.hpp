// A defect that a kernel's twin has (polypath/device/planted.hpp) for as long as this lives.
#pragma once

#include "polypath/device/planted.hpp"

namespace polypath::test {

template <typename Fault>
struct Planting {
  explicit Planting(Fault fault) { planted_fault<Fault> = fault; }
  ~Planting() { planted_fault<Fault> = Fault::none; }
  Planting(const Planting&) = delete;
  Planting& operator=(const Planting&) = delete;
};

}  // namespace polypath::test
