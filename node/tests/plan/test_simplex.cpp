// The simplex method against all vertices of small programs, and on programs on which it could
// cycle or last.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "plan/simplex.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The point where all these rows hold with equality; nothing where they do not fix one.
std::optional<Vector> intersection(std::vector<Vector> rows, Vector bounds) {
  const std::size_t n = rows.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i; r < n; ++r)
      if (std::abs(rows[r][i]) > std::abs(rows[pivot][i])) pivot = r;
    if (std::abs(rows[pivot][i]) < 1e-9) return std::nullopt;
    std::swap(rows[i], rows[pivot]);
    std::swap(bounds[i], bounds[pivot]);
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = rows[r][i] / rows[i][i];
      for (std::size_t c = 0; c < n; ++c) rows[r][c] -= factor * rows[i][c];
      bounds[r] -= factor * bounds[i];
    }
  }
  for (std::size_t i = 0; i < n; ++i) bounds[i] /= rows[i][i];
  return bounds;
}

bool is_feasible(const LinearProgram& program, const Vector& x) {
  for (const double value : x)
    if (value < -1e-7) return false;
  for (std::size_t r = 0; r < program.rows.size(); ++r)
    if (dot(program.rows[r], x) > program.bounds[r] + 1e-7) return false;
  return true;
}

Vector values_at(const LinearProgram& program, const Vector& x) {
  Vector values;
  for (const Vector& objective : program.objectives) values.push_back(dot(objective, x));
  return values;
}

/// The objectives at the best vertex: every choice of as many bounds as there are variables.
Vector best_of_vertices(const LinearProgram& program) {
  const auto n = static_cast<std::size_t>(program.variables);
  std::vector<Vector> rows = program.rows;
  Vector bounds = program.bounds;
  for (std::size_t v = 0; v < n; ++v) {
    rows.emplace_back(n, 0.0)[v] = -1;
    bounds.push_back(0);
  }
  std::vector<bool> chosen(rows.size(), false);
  std::fill(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(n), true);
  Vector best;
  do {
    std::vector<Vector> tight;
    Vector at;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (!chosen[r]) continue;
      tight.push_back(rows[r]);
      at.push_back(bounds[r]);
    }
    const auto x = intersection(std::move(tight), std::move(at));
    if (!x || !is_feasible(program, *x)) continue;
    const Vector values = values_at(program, *x);
    const auto is_better = [&] {
      for (std::size_t o = 0; o < values.size(); ++o)
        if (std::abs(values[o] - best[o]) > 1e-7) return values[o] > best[o];
      return false;
    };
    if (best.empty() || is_better()) best = values;
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return best;
}

/// Small whole numbers, with many bounds of zero and rows that are alike: many vertices coincide.
LinearProgram random_program(Random& random) {
  LinearProgram program;
  program.variables = pick(random, 1, 4);
  const auto n = static_cast<std::size_t>(program.variables);
  const int rows = pick(random, 1, 5);
  for (int r = 0; r < rows; ++r) {
    Vector& row = program.rows.emplace_back();
    for (std::size_t v = 0; v < n; ++v) row.push_back(pick(random, -2, 3));
    program.bounds.push_back(std::max(0, pick(random, -3, 4)));
  }
  if (pick(random, 0, 2) == 0) {
    program.rows.push_back(program.rows.front());
    program.bounds.push_back(program.bounds.front());
  }
  program.rows.emplace_back(n, 1.0);  // so that it is bounded
  program.bounds.push_back(pick(random, 0, 9));
  for (int o = 0; o < 2; ++o) {
    Vector& objective = program.objectives.emplace_back();
    for (std::size_t v = 0; v < n; ++v) objective.push_back(pick(random, -2, 2));
  }
  return program;
}

TEST(Simplex, RandomPrograms_BestOfAllVertices) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const LinearProgram program = random_program(random);
    const Vector best = best_of_vertices(program);
    for (const SimplexRules rules : {SimplexRules::by_index, SimplexRules::by_gain}) {
      const Vector x = solve(program, rules);
      EXPECT_TRUE(is_feasible(program, x));
      const Vector values = values_at(program, x);
      for (std::size_t o = 0; o < best.size(); ++o) EXPECT_NEAR(values[o], best[o], 1e-6);
    }
  }
}

/// E. M. L. Beale's program (1955), on which the largest gain with the first row cycles.
TEST(Simplex, BealesProgram_Ends) {
  LinearProgram program;
  program.variables = 4;
  program.rows = {{0.25, -60, -1.0 / 25, 9}, {0.5, -90, -1.0 / 50, 3}, {0, 0, 1, 0}};
  program.bounds = {0, 0, 1};
  program.objectives = {{0.75, -150, 0.02, -6}};
  for (const SimplexRules rules : {SimplexRules::by_index, SimplexRules::by_gain})
    EXPECT_NEAR(dot(program.objectives.front(), solve(program, rules)), 0.05, 1e-9);
}

/// The cube of V. Klee and G. J. Minty (1972): 2^n vertices, and some rules pass all of them.
TEST(Simplex, KleeMintyCube_Ends) {
  LinearProgram program;
  program.variables = 9;
  const auto n = static_cast<std::size_t>(program.variables);
  Vector& objective = program.objectives.emplace_back();
  for (std::size_t i = 0; i < n; ++i) {
    Vector& row = program.rows.emplace_back(n, 0.0);
    for (std::size_t j = 0; j < i; ++j) row[j] = std::pow(2.0, static_cast<double>(i - j + 1));
    row[i] = 1;
    program.bounds.push_back(std::pow(5.0, static_cast<double>(i + 1)));
    objective.push_back(std::pow(2.0, static_cast<double>(n - 1 - i)));
  }
  EXPECT_NEAR(dot(objective, solve(program)), std::pow(5.0, static_cast<double>(n)), 1e-3);
}

}  // namespace
}  // namespace polypath
