// A small linear program: maximise an objective under "row . x <= bound", x >= 0, bound >= 0.
#pragma once

#include <vector>

namespace polypath {

struct LinearProgram {
  int variables = 0;
  std::vector<std::vector<double>> rows;  ///< each of `variables` coefficients
  std::vector<double> bounds;             ///< one a row, not negative
  /// Objectives by importance: among the optima of the first, the best of the second is taken, and
  /// so on.
  std::vector<std::vector<double>> objectives;
};

/// The optimal x. The dense tableau method with Bland's rule (R. G. Bland, "New finite pivoting
/// rules for the simplex method", 1977), which cannot cycle and breaks ties by the lowest index:
/// the same program gives the same x everywhere. x = 0 is feasible by construction; the problem
/// must be bounded.
std::vector<double> solve(const LinearProgram& program);

}  // namespace polypath
