#include "plan/simplex.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/error.hpp"

namespace polypath {
namespace {

constexpr double kTolerance = 1e-9;
/// What elimination leaves of an exact zero is smaller than this. Coefficients are near 1.
constexpr double kRoundedZero = 1e-11;
/// So many pivots a row or column at most; programs of known nodes take less than two.
constexpr std::size_t kPivotsByIndex = 4;
constexpr std::size_t kPivotsByGain = 100;

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

  std::vector<double> run(SimplexRules rules) {
    const std::size_t size = rows_.size() + columns_;
    const std::size_t by_index = rules == SimplexRules::by_index ? kPivotsByIndex * size : 0;
    for (std::size_t pivots = 0; pivots < by_index; ++pivots) {
      const std::size_t column = first_improving();
      if (column == columns_) return solution();
      pivot(leaving(column), column);
    }
    order_rows();
    // The limit turns a defect of the arithmetic into an error.
    for (std::size_t pivots = 0; pivots < kPivotsByGain * size; ++pivots) {
      const std::size_t column = entering_column();
      if (column == columns_) return solution();
      pivot(lexicographically_leaving(column), column);
      drop_rounding();
    }
    throw Error("the flow of this node could not be computed: the simplex method did not end");
  }

 private:
  // ---- Bland's rule ---------------------------------------------------------------------------

  /// The first column that improves the most important objective that can still be improved.
  [[nodiscard]] std::size_t first_improving() const {
    for (std::size_t c = 0; c < columns_; ++c)
      if (improved_by(c) < objectives_.size()) return c;
    return columns_;
  }

  /// The most important objective that the column changes, if for the better; else how many there
  /// are.
  [[nodiscard]] std::size_t improved_by(std::size_t column) const {
    for (std::size_t o = 0; o < objectives_.size(); ++o) {
      if (objectives_[o][column] > kTolerance) return o;
      if (objectives_[o][column] < -kTolerance) break;
    }
    return objectives_.size();
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

  // ---- The largest gain, and the lexicographic rule -------------------------------------------

  /// The column that improves most per unit the most important objective that can still be
  /// improved.
  [[nodiscard]] std::size_t entering_column() const {
    std::size_t best = columns_;
    std::size_t best_objective = objectives_.size();
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::size_t o = improved_by(c);
      const bool is_better = o < best_objective || (o == best_objective && best != columns_ &&
                                                    objectives_[o][c] > objectives_[o][best]);
      if (!is_better) continue;
      best = c;
      best_objective = o;
    }
    return best;
  }

  /// The order in which rows are compared: the basis of now, of which each row has a 1 in a column
  /// of its own. So all rows are lexicographically positive, and stay so.
  void order_rows() {
    order_ = basis_;
    for (std::size_t c = 0; c < columns_; ++c)
      if (std::ranges::find(basis_, c) == basis_.end()) order_.push_back(c);
  }

  /// The row whose ratios, of the bound and then column after column in that order, are the least.
  /// No two rows are alike, so no basis comes twice.
  [[nodiscard]] std::size_t lexicographically_leaving(std::size_t column) const {
    std::size_t best = rows_.size();
    const auto is_less = [&](std::size_t a, std::size_t b) {
      const double of_a = 1 / rows_[a][column];
      const double of_b = 1 / rows_[b][column];
      const auto difference = [&](std::size_t c) {
        return rows_[a][c] * of_a - rows_[b][c] * of_b;
      };
      if (std::abs(difference(columns_)) > kTolerance) return difference(columns_) < 0;
      for (const std::size_t c : order_)
        if (std::abs(difference(c)) > kTolerance) return difference(c) < 0;
      return false;
    };
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r][column] > kTolerance && (best == rows_.size() || is_less(r, best))) best = r;
    if (best == rows_.size()) throw Error("the flow of this node is unbounded");
    return best;
  }

  void drop_rounding() {
    for (auto* rows : {&rows_, &objectives_})
      for (auto& row : *rows)
        for (double& value : row)
          if (std::abs(value) < kRoundedZero) value = 0;
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
  std::vector<std::size_t> order_;  // of columns, for the lexicographic rule
  std::vector<std::vector<double>> rows_;
  std::vector<std::vector<double>> objectives_;
};

}  // namespace

std::vector<double> solve(const LinearProgram& program, SimplexRules rules) {
  return Tableau(program).run(rules);
}

}  // namespace polypath
