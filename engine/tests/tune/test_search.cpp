// The search on functions whose best choice is known: no node, no driver.
#include "lab/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/units.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kBytes = 64 * kMiB;

/// A mesh made up: what each kind of route carries, what a chunk costs, which rings are too small.
struct Mesh {
  double direct_gbps = 90;
  double gpu_gbps = 80;
  double host_gbps = 20;
  double chunk_us = 3;
  int best_slots = 6;
  double slot_us = 0;  ///< for each slot more or fewer than the best

  /// Each route ends when its share has passed, and a chunk more for the second leg; the last one
  /// counts.
  [[nodiscard]] double us(const TransferConfig& choice) const {
    double last = 0;
    for (const RouteConfig& route : choice.routes) {
      const double gbps = route.kind == RouteKind::direct    ? direct_gbps
                          : route.kind == RouteKind::via_gpu ? gpu_gbps
                                                             : host_gbps;
      const double share_us = route.share * static_cast<double>(choice.bytes) / (gbps * 1e3);
      const bool staged = route.kind != RouteKind::direct;
      last = std::max(
          last, staged ? share_us * (1 + 1.0 / route.chunks) + chunk_us * route.chunks : share_us);
    }
    return last + slot_us * std::abs(choice.slots - best_slots);
  }
};

TransferConfig start(double gpu, double host, int chunks) {
  TransferConfig choice{kBytes, {{RouteKind::direct, 1 - 2 * gpu - host, 1}}, 0};
  choice.routes.push_back({RouteKind::via_gpu, gpu, chunks});
  choice.routes.push_back({RouteKind::via_gpu, gpu, chunks});
  if (host > 0) choice.routes.push_back({RouteKind::via_host, host, chunks});
  return choice;
}

/// The best of all choices like `start`, by trying them in steps of 0.2 % of the message.
double min_us(const Mesh& mesh) {
  double least = 1e9;
  for (int chunks = 1; chunks <= 64; ++chunks)
    for (double gpu = 0.1; gpu < 0.45; gpu += 0.002)
      for (double host = 0.002; 2 * gpu + host < 0.99; host += 0.002)
        least = std::min(least, mesh.us(start(gpu, host, chunks)));
  return least;
}

/// Answers with a function, and checks what is asked: shares that add up to 1, and nothing twice.
class Asked {
 public:
  explicit Asked(std::function<std::optional<double>(const TransferConfig&)> answer)
      : measure([this, answer = std::move(answer)](const TransferConfig& choice) {
          double sum = 0;
          for (const RouteConfig& route : choice.routes) {
            EXPECT_GT(route.share, 0);
            EXPECT_GE(route.chunks, 1);
            sum += route.share;
          }
          EXPECT_NEAR(sum, 1, 1e-9);
          EXPECT_EQ(std::ranges::find(all, choice), all.end()) << "asked twice";
          all.push_back(choice);
          return answer(choice);
        }) {}

  std::vector<TransferConfig> all;
  MeasureFunction measure;
};

TEST(LocalSearch, FindsTheSharesAndChunksOfAMesh) {
  const Mesh mesh;
  const double best_us = min_us(mesh);
  // Starts on both sides: too little and too much by the staged routes, too few and too many
  // chunks. The last one ends on all routes at once, so that neither a share nor the chunks alone
  // can gain.
  for (const TransferConfig& from : {start(.26, .05, 4), start(.33, .09, 4), start(.26, .05, 18),
                                     start(.33, .09, 18), start(.254, .063, 2)}) {
    Asked asked([&](const TransferConfig& choice) { return mesh.us(choice); });
    const SearchResult result = local_search({&from, 1}, asked.measure, {});
    ASSERT_TRUE(result.best);
    EXPECT_EQ(result.us, mesh.us(*result.best));
    EXPECT_LT(result.us, 1.04 * best_us) << mesh.us(from) << " us at the start";
    EXPECT_EQ(result.tried, static_cast<int>(asked.all.size()));
    EXPECT_LE(result.tried, 60);
  }
}

TEST(LocalSearch, FindsThemThroughNoise) {
  const Mesh mesh;
  const double best_us = min_us(mesh);
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> noise(0.997, 1.003);
    const TransferConfig from = start(.26, .05, 4);
    const SearchResult result = local_search(
        {&from, 1}, [&](const TransferConfig& choice) { return mesh.us(choice) * noise(random); },
        {});
    ASSERT_TRUE(result.best);
    EXPECT_LT(mesh.us(*result.best), 1.05 * best_us) << "seed " << seed;
  }
}

TEST(LocalSearch, EqualEnds_ChangesChunksWithShares) {
  // With two chunks a route by a GPU gives 80 / 1.5 GB/s, that by the host 20 / 1.5, after 2 x 3
  // us: these shares all end at once, and neither more chunks nor another share gains anything
  // alone.
  const Mesh mesh;
  const double gpu = 80e3 / 1.5;
  const double host = 20e3 / 1.5;
  const double end_us = (kBytes + 6 * (2 * gpu + host)) / (90e3 + 2 * gpu + host);
  const TransferConfig from = start((end_us - 6) * gpu / kBytes, (end_us - 6) * host / kBytes, 2);
  ASSERT_NEAR(mesh.us(from), end_us, 1e-6);
  const SearchResult result =
      local_search({&from, 1}, [&](const TransferConfig& choice) { return mesh.us(choice); }, {});
  EXPECT_LT(result.us, .95 * end_us);
}

TEST(LocalSearch, EqualEndsOfTwoKinds_TakesFromBoth) {
  // The host route has room; what it takes must come from the direct route and from those by GPUs.
  const auto us = [](const TransferConfig& choice) {
    double last = 0;
    for (const RouteConfig& route : choice.routes)
      last = std::max(last, route.share / (route.kind == RouteKind::direct    ? 90
                                           : route.kind == RouteKind::via_gpu ? 80
                                                                              : 60));
    return 1e6 * last;
  };
  const TransferConfig from = start(80. / 260, 10. / 260, 4);
  ASSERT_NEAR(us(from), 1e6 / 260, 1e-6);
  const SearchResult result = local_search({&from, 1}, us, {});
  EXPECT_LT(result.us, 1.03 * 1e6 / 310);
}

TEST(LocalSearch, TakesTheSlotsThatAreFastest) {
  Mesh mesh;
  mesh.slot_us = 20;
  const TransferConfig from = start(.3, .07, 8);
  const SearchResult result =
      local_search({&from, 1}, [&](const TransferConfig& choice) { return mesh.us(choice); }, {});
  EXPECT_EQ(result.best->slots, 6);
}

TEST(LocalSearch, ClimbsFromTheBestStart) {
  Mesh mesh;
  mesh.host_gbps = 2;  // a host route is a loss: the start without it is the better one
  const std::vector<TransferConfig> from = {start(.25, .15, 4), start(.3, 0, 4),
                                            native_choice(kBytes)};
  const SearchResult result =
      local_search(from, [&](const TransferConfig& choice) { return mesh.us(choice); }, {});
  EXPECT_EQ(result.best->routes.size(), 3u);
  EXPECT_LT(result.us, mesh.us(from[1]));
}

TEST(LocalSearch, GainBelowMinimum_IsIgnored) {
  const TransferConfig from = start(.3, .07, 8);
  // Each other choice is 0.4 % faster than the start: less than what counts.
  const auto measure = [&](const TransferConfig& choice) { return choice == from ? 1000 : 996; };
  EXPECT_EQ(local_search({&from, 1}, measure, {}).best, from);
  EXPECT_NE(local_search({&from, 1}, measure, {.min_gain = 0.003}).best, from);
}

TEST(LocalSearch, ImpossibleConfig_IsSkipped) {
  const Mesh mesh;
  const std::vector<TransferConfig> from = {start(.25, .05, 4), start(.3, 0, 4)};
  Asked asked([&](const TransferConfig& choice) -> std::optional<double> {
    if (choice.routes.size() == 4) return std::nullopt;
    return mesh.us(choice);
  });
  const SearchResult result = local_search(from, asked.measure, {});
  EXPECT_EQ(result.best->routes.size(), 3u);
  EXPECT_EQ(result.tried, static_cast<int>(asked.all.size()) - 1)
      << "only what was measured counts";

  const SearchResult none = local_search(
      from, [](const TransferConfig&) -> std::optional<double> { return std::nullopt; }, {});
  EXPECT_FALSE(none.best);
  EXPECT_EQ(none.tried, 0);
}

TEST(LocalSearch, NativeCopy_HasNothingToClimb) {
  const TransferConfig native = native_choice(kBytes);
  Asked alone([](const TransferConfig&) { return 700.0; });
  EXPECT_EQ(local_search({&native, 1}, alone.measure, {}).best, native);
  EXPECT_EQ(alone.all.size(), 1u);

  // It is the faster of two: the other is measured once and not climbed from.
  const std::vector<TransferConfig> from = {start(.3, .07, 8), native};
  Asked both([](const TransferConfig& choice) { return choice.native() ? 700.0 : 800.0; });
  EXPECT_EQ(local_search(from, both.measure, {}).best, native);
  EXPECT_EQ(both.all.size(), 2u);
}

TEST(Search, EndsWhenAskedWithTheBestSoFar) {
  const Mesh mesh;
  const TransferConfig from = start(.2, .02, 2);
  for (const auto search : {local_search, exhaustive_search}) {
    Asked asked([&](const TransferConfig& choice) { return mesh.us(choice); });
    SearchOptions options;
    options.stop = [&] { return asked.all.size() >= 5; };
    const SearchResult result = search({&from, 1}, asked.measure, options);
    EXPECT_EQ(asked.all.size(), 5u);
    EXPECT_EQ(result.tried, 5);
    for (const TransferConfig& config : asked.all) EXPECT_GE(mesh.us(config) * 1.006, result.us);

    options.stop = [] { return true; };
    Asked nothing([&](const TransferConfig& choice) { return mesh.us(choice); });
    EXPECT_FALSE(search({&from, 1}, nothing.measure, options).best);
    EXPECT_TRUE(nothing.all.empty());
  }
}

TEST(ExhaustiveSearch, FindsTheOnePointOfTheGrid) {
  const std::vector<TransferConfig> from = {start(.2, .1, 4), start(.3, 0, 4),
                                            native_choice(kBytes)};
  TransferConfig needle = with_chunks(
      *with_share(*with_share(from[0], RouteKind::via_gpu, 1.2), RouteKind::via_host, 0.8), 2);
  needle.slots = 5;
  // No slope leads there: a climb cannot find it.
  const auto measure = [&](const TransferConfig& choice) {
    return choice == needle ? 500.0 : 700.0;
  };
  Asked asked(measure);
  const SearchResult result = exhaustive_search(from, asked.measure, {});
  EXPECT_EQ(result.best, needle);
  EXPECT_EQ(result.us, 500);
  // 7 x 7 shares, 5 chunks, 3 slots of the first start, without those that leave the direct route
  // nothing; 7 x 5 x 3 of the second; the starts themselves.
  EXPECT_EQ(asked.all.size(), 49u * 15 + 7 * 15 + 3);
  EXPECT_NE(local_search(from, measure, {}).best, needle);
}

TEST(ExhaustiveSearch, SkipsSharesThatLeaveDirectNothing) {
  const TransferConfig from = start(.4, 0, 4);  // times 1.4 is more than the message
  Asked asked([](const TransferConfig&) { return 1.0; });
  exhaustive_search({&from, 1}, asked.measure, {});
  // 0.6, 0.8, 0.9, 1, 1.1 and 1.2 of 0.8 leave 4 % and more.
  EXPECT_EQ(asked.all.size(), 6u * 15 + 1);
}

TEST(Steps, ShareGrowsAtTheCostOfTheFirstRoute) {
  const TransferConfig choice = start(.2, .1, 4);
  const auto more = with_share(choice, RouteKind::via_gpu, 1.5);
  ASSERT_TRUE(more);
  EXPECT_NEAR(more->routes[0].share, .3, 1e-12);
  EXPECT_NEAR(more->routes[1].share, .3, 1e-12);
  EXPECT_NEAR(more->routes[2].share, .3, 1e-12);
  EXPECT_NEAR(more->routes[3].share, .1, 1e-12);
  EXPECT_FALSE(with_share(choice, RouteKind::via_gpu, 2.25))
      << "nothing is left for the direct one";
  EXPECT_FALSE(with_share(choice, RouteKind::direct, 1.1));
  EXPECT_FALSE(with_share(start(.2, 0, 4), RouteKind::via_host, 1.1)) << "no such route";
}

TEST(Steps, ShareGrowsAtTheCostOfAllOthers) {
  const auto more = with_share_of_all(start(.2, .1, 4), RouteKind::via_host, 4);
  ASSERT_TRUE(more);
  EXPECT_NEAR(more->routes[0].share, .5 * .6 / .9, 1e-12);
  EXPECT_NEAR(more->routes[1].share, .2 * .6 / .9, 1e-12);
  EXPECT_NEAR(more->routes[2].share, .2 * .6 / .9, 1e-12);
  EXPECT_NEAR(more->routes[3].share, .4, 1e-12);
  EXPECT_FALSE(with_share_of_all(start(.2, .1, 4), RouteKind::via_host, 10));
  EXPECT_FALSE(with_share_of_all(start(.2, 0, 4), RouteKind::via_host, 2)) << "no such route";
}

TEST(Steps, ChunksStayPositiveAndDirectUnchanged) {
  const TransferConfig halves = with_chunks(start(.2, .1, 1), 0.25);
  for (const RouteConfig& route : halves.routes) EXPECT_EQ(route.chunks, 1);
  const TransferConfig twice = with_chunks(start(.2, .1, 5), 2);
  EXPECT_EQ(twice.routes[0].chunks, 1);
  EXPECT_EQ(twice.routes[1].chunks, 10);
  EXPECT_EQ(twice.routes[3].chunks, 10);
}

}  // namespace
}  // namespace polypath
