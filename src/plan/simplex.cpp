#include "plan/simplex.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/error.hpp"

namespace polypath {
namespace {

constexpr double kTolerance = 1e-9;

class Tableau {
 public:
  explicit Tableau(const LinearProgram& program)
      : variables_(static_cast<std::size_t>(program.variables)),
        columns_(variables_ + program.rows.size()),
        basis_(program.rows.size()) {
    for (std::size_t r = 0; r < program.rows.size(); ++r) {
      auto row = program.rows[r];
      row.resize(columns_ + 1, 0.0);
      row[variables_ + r] = 1.0;
      row[columns_] = program.bounds[r];
      rows_.push_back(std::move(row));
    }
    for (auto objective : program.objectives) {
      objective.resize(columns_ + 1, 0.0);
      objectives_.push_back(std::move(objective));
    }
    std::iota(basis_.begin(), basis_.end(), variables_);
  }

  std::vector<double> run() {
    // Bland's rule ends; the limit turns a defect of the arithmetic into an error.
    for (int pivots = 0; pivots < 100000; ++pivots) {
      const std::size_t column = entering();
      if (column == columns_) return solution();
      pivot(leaving(column), column);
    }
    throw Error("the flow of this node could not be computed: the simplex method did not end");
  }

 private:
  /// The first column that improves the most important objective that can still be improved.
  [[nodiscard]] std::size_t entering() const {
    for (std::size_t c = 0; c < columns_; ++c) {
      for (const auto& objective : objectives_) {
        if (objective[c] > kTolerance) return c;
        if (objective[c] < -kTolerance) break;
      }
    }
    return columns_;
  }

  [[nodiscard]] std::size_t leaving(std::size_t column) const {
    std::size_t best = rows_.size();
    double best_ratio = 0;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r][column] <= kTolerance) continue;
      const double ratio = rows_[r][columns_] / rows_[r][column];
      const bool tie = best != rows_.size() && std::abs(ratio - best_ratio) <= kTolerance;
      if (best == rows_.size() || (tie ? basis_[r] < basis_[best] : ratio < best_ratio)) {
        best = r;
        best_ratio = ratio;
      }
    }
    if (best == rows_.size()) throw Error("the flow of this node is unbounded");
    return best;
  }

  void pivot(std::size_t row, std::size_t column) {
    auto& source = rows_[row];
    const double scale = 1.0 / source[column];
    for (double& value : source) value *= scale;
    const auto eliminate = [&](std::vector<double>& target) {
      const double factor = target[column];
      if (factor == 0) return;
      for (std::size_t c = 0; c <= columns_; ++c) target[c] -= factor * source[c];
      target[column] = 0;
    };
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (r != row) eliminate(rows_[r]);
    for (auto& objective : objectives_) eliminate(objective);
    basis_[row] = column;
  }

  [[nodiscard]] std::vector<double> solution() const {
    std::vector<double> x(variables_, 0.0);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (basis_[r] < variables_) x[basis_[r]] = std::max(0.0, rows_[r][columns_]);
    return x;
  }

  std::size_t variables_;
  std::size_t columns_;
  std::vector<std::size_t> basis_;
  std::vector<std::vector<double>> rows_;
  std::vector<std::vector<double>> objectives_;
};

}  // namespace

std::vector<double> solve(const LinearProgram& program) { return Tableau(program).run(); }

}  // namespace polypath
