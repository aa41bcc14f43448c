// Which backend carries what: the choice is a pure function of rows and sizes, rank 0's rows are on
// all ranks, and the C API keeps what was measured and says what would be taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "polypath/uniconn/backend/routing_table.hpp"
#include "profile_of_test.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using uc::detail::BackendRow;
using uc::detail::BackendTable;
using uc::detail::Routes;

constexpr int kPost = POLYPATH_COMM_POST;
constexpr int kPolypath = POLYPATH_BACKEND_POLYPATH;
constexpr int kGpuccl = POLYPATH_BACKEND_GPUCCL;
constexpr int kGpushmem = POLYPATH_BACKEND_GPUSHMEM;
constexpr int kMpi = POLYPATH_BACKEND_MPI;
constexpr uc::detail::LibrarySet kAll = 15;

BackendRow row(int op, std::size_t bytes, int backend, std::array<double, 4> us) {
  BackendRow result{};
  result.op = op;
  result.bytes = bytes;
  result.backend = backend;
  std::ranges::copy(us, result.us);
  return result;
}

// ---- The choice ---------------------------------------------------------------------------------

TEST(BackendTable, NearestSizeServesWithinFactorTwo) {
  const std::vector<BackendRow> rows{row(kPost, 64, kGpuccl, {2, 1, -1, -1}),
                                     row(kPost, 1024, kMpi, {2, -1, -1, 1})};
  const Routes routes(rows, kAll, kPolypath);
  for (const auto& [bytes, library] :
       std::initializer_list<std::pair<std::size_t, int>>{{0, kPolypath},
                                                          {1, kPolypath},
                                                          {31, kPolypath},
                                                          {32, kGpuccl},
                                                          {64, kGpuccl},
                                                          {128, kGpuccl},
                                                          {129, kPolypath},
                                                          {511, kPolypath},
                                                          {512, kMpi},
                                                          {2048, kMpi},
                                                          {2049, kPolypath},
                                                          {~std::size_t{0}, kPolypath}})
    EXPECT_EQ(routes.at(kPost, bytes), library) << bytes;
  EXPECT_EQ(routes.at(POLYPATH_COMM_REDUCE, 64), kPolypath) << "of another operation";
}

TEST(BackendTable, EquallyNear_SmallerSizeServes) {
  const Routes routes(std::vector<BackendRow>{row(kPost, 100, kGpuccl, {2, 1, -1, -1}),
                                              row(kPost, 400, kMpi, {2, -1, -1, 1})},
                      kAll, kPolypath);
  EXPECT_EQ(routes.at(kPost, 200), kGpuccl);
  EXPECT_EQ(routes.at(kPost, 201), kMpi);
}

TEST(BackendTable, UnusableBackend_IsReplacedByFastest) {
  const BackendRow entry = row(kPost, 64, kGpushmem, {4, 3, 1, 2});
  const auto taken = [&entry](uc::detail::LibrarySet usable, int first) {
    return uc::detail::library_of_row(entry, usable, first);
  };
  EXPECT_EQ(taken(kAll, kPolypath), kGpushmem);
  EXPECT_EQ(taken(0b1011, kPolypath), kMpi);
  EXPECT_EQ(taken(0b0011, kPolypath), kGpuccl);
  EXPECT_EQ(taken(0b0001, kPolypath), kPolypath);
  // From another version: unknown here.
  EXPECT_EQ(uc::detail::library_of_row(row(kPost, 64, -1, {4, 3, -1, -1}), 0b0011, kPolypath),
            kGpuccl);
  // Without figures, as a user wrote it.
  EXPECT_EQ(uc::detail::library_of_row(row(kPost, 64, kMpi, {-1, -1, -1, -1}), 0b0011, kPolypath),
            kPolypath);
  EXPECT_EQ(uc::detail::library_of_row(row(kPost, 64, kMpi, {-1, -1, -1, -1}), kAll, kPolypath),
            kMpi);
}

/// Against all rows, looked at one by one.
TEST(BackendTable, RandomTables_GiveTheNearestRow) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&random](int count) {
      return static_cast<int>(random() % static_cast<unsigned>(count));
    };
    std::vector<BackendRow> rows;
    for (int op = 0; op < POLYPATH_BACKEND_OP_COUNT; ++op) {
      std::size_t bytes = 0;
      for (int i = below(6); i > 0; --i) {
        bytes += 1 + random() % (std::size_t{1} << below(24));
        BackendRow entry = row(op, bytes, below(5) - 1, {});
        for (double& us : entry.us) us = below(4) == 0 ? -1 : below(1000);
        rows.push_back(entry);
      }
    }
    const auto usable = 1U | static_cast<unsigned>(below(16));
    const Routes routes(rows, usable, kPolypath);
    for (int i = 0; i < 200; ++i) {
      const int op = below(POLYPATH_BACKEND_OP_COUNT);
      const std::size_t bytes = random() % (std::size_t{1} << below(28));
      const BackendRow* nearest = nullptr;
      double least = std::log(2.0) + 1e-12;
      for (const BackendRow& entry : rows) {
        if (entry.op != op || bytes == 0) continue;
        const double far =
            std::abs(std::log(static_cast<double>(bytes) / static_cast<double>(entry.bytes)));
        if (far > least || (nearest != nullptr && far > least - 1e-12)) continue;
        nearest = &entry;
        least = far;
      }
      const int expected =
          nearest == nullptr ? kPolypath : uc::detail::library_of_row(*nearest, usable, kPolypath);
      const int actual = routes.at(op, bytes);
      EXPECT_EQ(actual, expected) << "seed " << seed << ", " << bytes << " bytes";
      EXPECT_TRUE(uc::detail::has(usable, actual));
      if (HasFailure()) return;
    }
  }
}

// ---- Rank 0's, on all ---------------------------------------------------------------------------

/// Rows from which the ranks and the owner can be told.
BackendTable::Rows rows_of(int owner, const std::vector<int>& ranks) {
  if (ranks == std::vector<int>{0, 2}) return {};
  BackendTable::Rows rows;
  // More than a block of what ranks tell each other.
  for (std::size_t i = 1; i <= 90; ++i)
    rows.push_back(row(kPost, i * 1000, owner, {1.5 * static_cast<double>(ranks.size()), 1, 2, 3}));
  return rows;
}

TEST(BackendTable, AllRanksHaveRankZeros) {
  for (const int size : {1, 2, 4, 9}) {
    const auto bootstraps = uc::Bootstrap::threads(size);
    std::vector<std::jthread> threads;
    for (const uc::Bootstrap& bootstrap : bootstraps)
      threads.emplace_back([&bootstrap, size] {
        // Each has other ones of its own; the last one none.
        const int own = bootstrap.rank();
        const BackendTable own_table(size, own + 1 < size || size == 1,
                                     [own](const auto& ranks) { return rows_of(own, ranks); });
        const BackendTable all = BackendTable::of_first(bootstrap, own_table);
        const auto expect = [&](const std::vector<int>& ranks, const std::vector<int>& asked) {
          const auto expected = rows_of(0, ranks);
          const auto actual = all.rows_for(asked);
          ASSERT_EQ(actual.size(), expected.size());
          for (std::size_t i = 0; i < actual.size(); ++i) {
            EXPECT_EQ(actual[i].bytes, expected[i].bytes);
            EXPECT_EQ(actual[i].backend, 0) << "another rank's";
            EXPECT_EQ(actual[i].us[0], expected[i].us[0]);
          }
        };
        std::vector<int> all_ranks(static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < all_ranks.size(); ++i) all_ranks[i] = static_cast<int>(i);
        expect(all_ranks, all_ranks);
        if (size == 4) {
          expect({1, 2, 3}, {3, 1, 2});
          expect({1, 3}, {3, 1});
          EXPECT_TRUE(all.rows_for({0, 2}).empty());
          EXPECT_TRUE(all.rows_for({3}).empty());
        }
        if (size > BackendTable::kMaxRanksByParts) {
          EXPECT_TRUE(all.rows_for({0, 1}).empty());
        }
      });
  }
}

TEST(BackendTable, EmptyTable_RequestsNothing) {
  const BackendTable none(4, false, [](const std::vector<int>&) -> BackendTable::Rows {
    ADD_FAILURE() << "it is asked";
    return {};
  });
  EXPECT_TRUE(none.empty());
  EXPECT_TRUE(none.rows_for({0, 1}).empty());
}

// ---- The profile --------------------------------------------------------------------------------

nlohmann::json json_of(const std::function<polypath_status(char**)>& call) {
  char* text = nullptr;
  polypath::detail::check(call(&text));
  const auto value = nlohmann::json::parse(text);
  polypath_free_string(text);
  return value;
}
nlohmann::json plan(polypath_context* engine, const char* op, std::size_t bytes, int ranks = 0,
                    bool with_mpi = false) {
  return json_of([&](char** text) {
    return polypath_plan_backend(engine, op, bytes, nullptr, ranks, with_mpi ? 1 : 0, text);
  });
}

TEST(BackendProfile, KeepsWhatWasMeasuredAndPlansByIt) {
  if (gpus() < 4) GTEST_SKIP() << "needs 4 GPUs";
  ProfileOfTest profile;
  {
    const auto engine = uc::detail::engine();
    const auto before = plan(engine.get(), "post", 65536);
    EXPECT_EQ(before["backend"], "polypath");
    EXPECT_TRUE(before["entry"].is_null());
    EXPECT_EQ(before["reason"], "nothing was measured of post on 4 ranks, nvlink x4");
    const auto kept =
        profile.keep(engine.get(), kPost, 4, 65536, {{kPolypath, 20}, {kMpi, 10}, {kGpuccl, 15}});
    EXPECT_EQ(kept["backend"], "mpi");
    EXPECT_EQ(kept["pairs"], 9);
    EXPECT_EQ(kept["times"][0]["us"], 20);
    profile.keep(engine.get(), kPost, 2, 65536, {{kPolypath, 20}, {kGpuccl, 19.9}});
    profile.keep(engine.get(), POLYPATH_COMM_ALLREDUCE, 4, 1 << 20, {{kPolypath, 7}});
  }
  // Another process would find it.
  const auto engine = uc::detail::engine();
  const auto with_mpi = plan(engine.get(), "post", 100'000, 4, true);
  EXPECT_EQ(with_mpi["backend"], "mpi");
  EXPECT_EQ(with_mpi["reason"], "it was measured to be fastest");
  EXPECT_EQ(with_mpi["entry"]["bytes"], 65536);
  EXPECT_EQ(with_mpi["backends"][3]["us"], 10);
  EXPECT_TRUE(with_mpi["backends"][2]["us"].is_null());
  EXPECT_FALSE(with_mpi["backends"][2]["serves"].get<bool>());
  const auto without = plan(engine.get(), "post", 100'000);
  EXPECT_THAT(without["backends"][3]["why"].get<std::string>(), HasSubstr("programs with MPI"));
  // NCCL is where what stands in for it is.
  const bool has_nccl = without["backends"][1]["serves"].get<bool>();
  EXPECT_EQ(without["backend"], has_nccl ? "gpuccl" : "polypath");
  EXPECT_THAT(without["reason"].get<std::string>(), HasSubstr("the choice was mpi"));
  const auto pair = plan(engine.get(), "post", 65536, 2, true);
  EXPECT_EQ(pair["backend"], "polypath") << "less than 1 % is noise";
  EXPECT_EQ(pair["reason"], "nothing else was faster beyond doubt");
  EXPECT_EQ(plan(engine.get(), "post", 1 << 20)["reason"], "no size near this one was measured");
  EXPECT_THROW(plan(engine.get(), "gossip", 8), polypath::error);
  EXPECT_THROW(plan(engine.get(), "post", 0), polypath::error);
  EXPECT_THROW(plan(engine.get(), "post", 8, 5), polypath::error);
}

TEST(BackendProfile, EditedEntry_Stays) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  ProfileOfTest profile;
  profile.keep(uc::detail::engine().get(), kPost, 2, 4096, {{kPolypath, 9}, {kGpuccl, 5}});
  profile.replace("backend = \"gpuccl\"", "backend = \"mpi\"");
  const auto engine = uc::detail::engine();
  const auto kept = profile.keep(engine.get(), kPost, 2, 4096, {{kPolypath, 9}, {kGpuccl, 5}});
  EXPECT_EQ(kept["backend"], "mpi");
  EXPECT_TRUE(kept["edited"].get<bool>());
  const auto planned = plan(engine.get(), "post", 4096, 2, true);
  EXPECT_EQ(planned["backend"], "mpi");
  EXPECT_EQ(planned["reason"], "edited in the profile");
}

TEST(BackendProfile, RefusesWhatCannotBeKept) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const auto engine = uc::detail::engine();
  const int gpus_of[] = {0, 99};
  const int backends[] = {0, 7};
  const double us[] = {1, 2};
  const polypath_backend_samples good{kPost, gpus_of, 1, 8, backends, 1, us, 1};
  const auto refused = [&](const char* what, auto change) {
    polypath_backend_samples wrong = good;
    change(wrong);
    char* text = nullptr;
    EXPECT_EQ(polypath_backend_save(engine.get(), &wrong, &text), POLYPATH_INVALID_ARGUMENT);
    EXPECT_THAT(polypath_last_error(), HasSubstr(what));
  };
  refused("operation", [](auto& samples) { samples.op = POLYPATH_BACKEND_OP_COUNT; });
  refused("operation", [](auto& samples) { samples.op = -1; });
  refused("no GPU 99", [](auto& samples) { samples.ranks = 2; });
  refused("gpus is null", [](auto& samples) { samples.gpus = nullptr; });
  refused("bytes is 0", [](auto& samples) { samples.bytes = 0; });
  refused("no such backend", [](auto& samples) { samples.backend_count = 2; });
  refused("nothing was measured", [](auto& samples) { samples.turns = 0; });
  refused("there are no backends", [](auto& samples) { samples.backends = nullptr; });
  std::size_t count = 0;
  EXPECT_EQ(polypath_backend_entries(engine.get(), gpus_of, 2, nullptr, 0, &count),
            POLYPATH_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace polypath::test
