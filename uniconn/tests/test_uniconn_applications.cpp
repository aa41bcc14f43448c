// The applications of examples/uniconn on ranks that are threads: to the last bit what one host
// computes alone, over every backend and on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>

#include "cg.hpp"
#include "cg_alone.hpp"
#include "jacobi2d.hpp"
#include "ranks.hpp"

namespace uniconn_example {
namespace {

using testing::ElementsAreArray;

int gpus() {
  const auto engine = uc::detail::engine();
  int count = 0;
  uc::detail::Cuda(engine.get()).device_count(&count);
  return count;
}

/// The result of rank 0; all others must have the same.
template <uc::BackendLibrary B, typename Result, typename Body>
Result on_all(int ranks, const Body& body) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  EXPECT_TRUE(on_ranks<B>(ranks, [&](Rank<B>& rank) {
    results[static_cast<std::size_t>(rank.comm.GlobalRank())] = body(rank);
  }));
  for (const Result& each : results) EXPECT_EQ(each.residuals, results.front().residuals);
  return results.front();
}

/// The same with plain sums, over a matrix that is looked up element by element.
std::vector<double> cg_by_the_book(const Brick& brick, int iterations) {
  const Rows rows = rows_of(brick, 0, brick.rows());
  std::vector<double> residual = right_side(0, rows.count());
  std::vector<double> direction = residual;
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  std::vector<double> norms{std::sqrt(dot(residual, residual))};
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::vector<double> product(rows.count(), 0);
    for (std::uint64_t row = 0; row < rows.count(); ++row)
      for (std::uint64_t at = rows.offsets[row]; at < rows.offsets[row + 1]; ++at)
        product[row] += rows.values[at] * direction[static_cast<std::size_t>(rows.columns[at])];
    const double squared = dot(residual, residual);
    const double length = squared / dot(direction, product);
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] -= length * product[i];
    const double part = dot(residual, residual) / squared;
    for (std::size_t i = 0; i < residual.size(); ++i)
      direction[i] = residual[i] + part * direction[i];
    norms.push_back(std::sqrt(dot(residual, residual)));
  }
  return norms;
}

TEST(UniconnMatrix, SymmetricAndDiagonallyDominant) {
  for (const int points : {15, 27}) {
    const Brick brick{"test", 4, points};
    const Rows rows = rows_of(brick, 0, brick.rows());
    const std::size_t count = rows.count();
    std::vector<double> dense(count * count, 0);
    std::size_t most = 0;
    for (std::size_t row = 0; row < count; ++row) {
      most = std::max<std::size_t>(most, rows.offsets[row + 1] - rows.offsets[row]);
      double around = 0;
      for (std::uint64_t at = rows.offsets[row]; at < rows.offsets[row + 1]; ++at) {
        const auto column = static_cast<std::size_t>(rows.columns[at]);
        dense[row * count + column] = rows.values[at];
        if (column != row) around += std::abs(rows.values[at]);
      }
      EXPECT_GT(dense[row * count + row], around);
      EXPECT_LE(dense[row * count + row] + around, brick.norm());
    }
    EXPECT_EQ(static_cast<std::size_t>(3 * points), most);
    for (std::size_t row = 0; row < count; ++row)
      for (std::size_t column = 0; column < row; ++column)
        ASSERT_EQ(dense[row * count + column], dense[column * count + row]);
    // A part is that part of the whole.
    const Rows part = rows_of(brick, 50, 20);
    for (std::size_t row = 0; row <= 20; ++row)
      EXPECT_EQ(rows.offsets[50 + row] - rows.offsets[50], part.offsets[row]);
    EXPECT_TRUE(std::equal(part.values.begin(), part.values.end(),
                           rows.values.begin() + static_cast<std::ptrdiff_t>(rows.offsets[50])));
  }
}
TEST(UniconnMatrix, BricksHaveTheSizesOfTheirNames) {
  EXPECT_EQ(1'369'599U, brick("serena-like").rows());
  EXPECT_EQ(4'102'893U, brick("queen-like").rows());
  EXPECT_THROW(static_cast<void>(brick("serena")), std::runtime_error);
}

template <typename B>
class UniconnApplications : public testing::Test {};
using Backends =
    testing::Types<uc::PolypathBackend, uc::AnyBackend, uc::GpucclBackend, uc::GpushmemBackend>;
struct Names {
  template <typename B>
  static std::string GetName(int) {
    return B::kName;
  }
};
TYPED_TEST_SUITE(UniconnApplications, Backends, Names);

TYPED_TEST(UniconnApplications, JacobiIsThatOfOneHost) {
  constexpr int kIterations = 12;
  // Rows that do not divide; at four ranks one of them has a single row.
  for (const Grid grid : {Grid{37, 53}, Grid{5, 300}}) {
    const JacobiResult expected = jacobi2d_alone(grid, kIterations);
    for (int ranks = 1; ranks <= std::min(4, gpus()); ++ranks) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      const auto actual = on_all<TypeParam, JacobiResult>(ranks, [&](Rank<TypeParam>& rank) {
        const auto compute = sweeps("auto", rank.gpu);
        Jacobi2d<TypeParam> solver(rank.gpu, *compute, rank.comm, grid, kIterations);
        return solver.solve(kIterations, 3);
      });
      EXPECT_THAT(actual.residuals, ElementsAreArray(expected.residuals));
      EXPECT_EQ(actual.digest, expected.digest);
      EXPECT_GT(actual.iteration_us, 0);
    }
  }
}

TYPED_TEST(UniconnApplications, CgIsThatOfOneHost) {
  constexpr int kIterations = 25;
  const Brick small = brick("small");
  static const std::vector<double> expected = cg_alone(small, kIterations);
  for (int ranks = 1; ranks <= std::min(4, gpus()); ++ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const auto actual = on_all<TypeParam, CgResult>(ranks, [&](Rank<TypeParam>& rank) {
      const RowParts parts(small.rows(), ranks);
      const int own = rank.comm.GlobalRank();
      const Rows rows = rows_of(small, parts.first(own), parts.count(own));
      const auto steps = cg_steps("auto", rank.gpu, small, rows);
      ConjugateGradients<TypeParam> solver(rank.gpu, *steps, rank.comm, small, rows, kIterations);
      return solver.solve(kIterations);
    });
    EXPECT_THAT(actual.residuals, ElementsAreArray(expected));
    EXPECT_NEAR(actual.true_residual, expected.back(), 1e-9 * expected.front());
  }
}

template <typename B>
class UniconnApplicationModes : public testing::Test {};
using BackendsOfKernels = testing::Types<uc::PolypathBackend, uc::AnyBackend>;
TYPED_TEST_SUITE(UniconnApplicationModes, BackendsOfKernels, Names);

/// Kernels send, and the host tells, or kernels do both: the same bits.
TYPED_TEST(UniconnApplicationModes, JacobiIsThatOfOneHost) {
  constexpr int kIterations = 5;
  // Three blocks of rows, with more of them than threads load together, or at four ranks one with
  // fewer; a row of two blocks, and at four ranks one row each.
  for (const Grid grid : {Grid{27, 37}, Grid{4, 530}}) {
    const JacobiResult expected = jacobi2d_alone(grid, kIterations);
    for (const int ranks : {1, 2, 4}) {
      if (ranks > gpus() || (ranks != 2 && !std::is_same_v<TypeParam, uc::PolypathBackend>))
        continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      const auto in_mode = [&]<uc::LaunchMode M>() {
        const auto actual = on_all<TypeParam, JacobiResult>(ranks, [&](Rank<TypeParam>& rank) {
          const auto compute = sweeps("auto", rank.gpu);
          Jacobi2d<TypeParam, M> solver(rank.gpu, *compute, rank.comm, grid, kIterations);
          return solver.solve(kIterations, 1);
        });
        EXPECT_THAT(actual.residuals, ElementsAreArray(expected.residuals));
        EXPECT_EQ(actual.digest, expected.digest);
      };
      in_mode.template operator()<uc::LaunchMode::PartialDevice>();
      in_mode.template operator()<uc::LaunchMode::PureDevice>();
    }
  }
}

/// A few blocks of rows, the last one not whole; at four ranks one of them has none.
TYPED_TEST(UniconnApplicationModes, CgIsThatOfOneHost) {
  constexpr int kIterations = 4;
  const Brick bricks{"test", 9, 15};
  static const std::vector<double> expected = cg_alone(bricks, kIterations);
  for (const int ranks : {1, 2, 4}) {
    if (ranks > gpus() || (ranks != 2 && !std::is_same_v<TypeParam, uc::PolypathBackend>)) continue;
    const auto in_mode = [&]<uc::LaunchMode M>() {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + uc::name_of(M));
      const auto actual = on_all<TypeParam, CgResult>(ranks, [&](Rank<TypeParam>& rank) {
        const RowParts parts(bricks.rows(), ranks);
        const int own = rank.comm.GlobalRank();
        const Rows rows = rows_of(bricks, parts.first(own), parts.count(own));
        const auto steps = cg_steps("auto", rank.gpu, bricks, rows);
        ConjugateGradients<TypeParam, M> solver(rank.gpu, *steps, rank.comm, bricks, rows,
                                                kIterations);
        solver.iterate(2);
        solver.begin();  // and again
        return solver.solve(kIterations);
      });
      EXPECT_THAT(actual.residuals, ElementsAreArray(expected));
      EXPECT_NEAR(actual.true_residual, expected.back(), 1e-9 * expected.front());
    };
    in_mode.template operator()<uc::LaunchMode::PartialDevice>();
    in_mode.template operator()<uc::LaunchMode::PureDevice>();
  }
}

TEST(UniconnApplication, CgConvergesAsWithPlainSums) {
  constexpr int kIterations = 150;
  const Brick small = brick("small");
  const auto plain = cg_by_the_book(small, kIterations);
  const auto actual = cg_alone(small, kIterations);
  for (std::size_t i = 0; i < 60; ++i) EXPECT_NEAR(actual[i], plain[i], 1e-6 * plain[i]) << i;
  EXPECT_LT(actual.back(), 1e-9 * actual.front());
  EXPECT_LT(plain.back(), 1e-9 * plain.front());
}

/// A sum that is rounded does not depend on how it is put together, and one that is not does.
TEST(UniconnApplication, RoundedSumsAreExact) {
  const std::vector<double> values = right_side(0, 4096);
  const auto sum = [&values](bool forward, double magnet) {
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[forward ? i : values.size() - 1 - i] / 3;
      total += magnet == 0 ? value : cg::rounded(value, magnet);
    }
    return total;
  };
  EXPECT_NE(sum(true, 0), sum(false, 0));
  const double magnet = cg::magnet(1000);
  EXPECT_EQ(sum(true, magnet), sum(false, magnet));
  EXPECT_NEAR(sum(true, magnet), sum(true, 0), 1e-6);
  EXPECT_EQ(0, cg::rounded(0, cg::magnet(0)));
}

}  // namespace
}  // namespace uniconn_example
