// A small linear program: maximise an objective under "row . x <= bound", x >= 0, bound >= 0.
#pragma once

#include <cstdint>
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

/// Which column enters, and which row leaves.
enum class SimplexRules : std::uint8_t {
  by_index,  ///< Bland's; by_gain where that lasts
  by_gain,   ///< the largest gain, and the lexicographic rule
};

/// The optimal x: the same program gives the same x everywhere. x = 0 is feasible by construction;
/// the problem must be bounded.
///
/// The dense tableau method with Bland's rule (R. G. Bland, "New finite pivoting rules for the
/// simplex method", 1977), which breaks ties by the lowest index. It cannot cycle, but large
/// programs may take it thousands of pivots; then the column of the largest gain enters, and the
/// lexicographic rule (G. B. Dantzig, A. Orden, P. Wolfe, 1955) keeps it from cycling.
std::vector<double> solve(const LinearProgram& program,
                          SimplexRules rules = SimplexRules::by_index);

}  // namespace polypath
