// Schedules, run on memory: random contents, random order, every element compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"
#include "plan_inputs.hpp"
#include "reference_run.hpp"

namespace polypath {
namespace {

template <typename E>
constexpr DataType type_of() {
  if constexpr (std::is_same_v<E, Bfloat16>)
    return DataType::bfloat16;
  else if constexpr (std::is_same_v<typename E::Type, std::uint32_t>)
    return DataType::uint32;
  else if constexpr (std::is_same_v<typename E::Type, std::uint8_t>)
    return DataType::uint8;
  else if constexpr (std::is_same_v<typename E::Type, float>)
    return DataType::float32;
  else
    return DataType::float64;
}

template <typename E>
std::vector<typename E::Type> random_elements(Random& random, std::uint64_t count) {
  std::vector<typename E::Type> values(count);
  for (auto& value : values) {
    // Values of very different sizes, so that another order of a sum has other bits.
    const double scale = std::ldexp(1.0, pick(random, -20, 20));
    const double real = scale * (static_cast<double>(random() % 2000001) / 1e6 - 1);
    if constexpr (std::is_integral_v<typename E::Type> && !std::is_same_v<E, Bfloat16>)
      value = static_cast<typename E::Type>(random());
    else
      value = E::narrow(static_cast<typename E::Sum>(real));
  }
  return values;
}

/// The reduction of one element of every rank, in this order.
template <typename E>
typename E::Type reduced(const CollectiveRequest& request, const std::vector<int>& order,
                         const std::vector<std::vector<typename E::Type>>& inputs,
                         std::uint64_t element) {
  using Sum = typename E::Sum;
  Sum sum = E::widen(inputs[static_cast<std::size_t>(order.front())][element]);
  for (std::size_t i = 1; i < order.size(); ++i)
    sum = apply<Sum>(request.operation, sum,
                     E::widen(inputs[static_cast<std::size_t>(order[i])][element]));
  if (request.operation == Operator::avg)
    sum = static_cast<Sum>(sum / static_cast<Sum>(order.size()));
  return E::narrow(sum);
}

/// Every element of every rank is right; what is not to be written keeps its poison.
template <typename E>
void expect_right(const CollectiveRequest& request, const std::vector<int>& order,
                  const std::vector<std::vector<typename E::Type>>& inputs,
                  const ReferenceRun<E>& run, bool in_place) {
  const int ranks = request.ranks();
  const std::uint64_t count = request.count;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto out = run.output(rank);
    const auto me = static_cast<std::size_t>(rank);
    std::uint64_t wrong = 0;
    const auto expect = [&](std::uint64_t at, typename E::Type value) {
      wrong += std::memcmp(&out[at], &value, sizeof value) == 0 ? 0u : 1u;
    };
    for (std::uint64_t i = 0; i < count; ++i) {
      switch (request.op) {
        case CollectiveOp::allreduce: expect(i, reduced<E>(request, order, inputs, i)); break;
        case CollectiveOp::broadcast:
          expect(i, inputs[static_cast<std::size_t>(request.root)][i]);
          break;
        case CollectiveOp::reduce:
          if (rank == request.root)
            expect(i, reduced<E>(request, order, inputs, i));
          else if (in_place)
            expect(i, inputs[me][i]);
          break;
        case CollectiveOp::reduce_scatter:
          expect(i, reduced<E>(request, order, inputs, me * count + i));
          break;
        case CollectiveOp::all_gather:
          for (int other = 0; other < ranks; ++other)
            expect(static_cast<std::uint64_t>(other) * count + i,
                   inputs[static_cast<std::size_t>(other)][i]);
          break;
        case CollectiveOp::all_to_all:
          for (int other = 0; other < ranks; ++other)
            expect(static_cast<std::uint64_t>(other) * count + i,
                   inputs[static_cast<std::size_t>(other)][me * count + i]);
          break;
      }
    }
    EXPECT_EQ(wrong, 0u) << "rank " << rank;
    if (request.op == CollectiveOp::reduce && rank != request.root && !in_place && count > 0) {
      std::vector<typename E::Type> poison(count);
      std::memset(poison.data(), static_cast<int>(ReferenceRun<E>::kPoison),
                  count * sizeof(typename E::Type));
      EXPECT_EQ(std::memcmp(out.data(), poison.data(), count * sizeof(typename E::Type)), 0);
    }
  }
}

std::uint64_t input_elements(const CollectiveRequest& request) {
  const bool parts =
      request.op == CollectiveOp::reduce_scatter || request.op == CollectiveOp::all_to_all;
  return parts ? request.elements() : request.count;
}

std::uint64_t output_elements(const CollectiveRequest& request) {
  return request.op == CollectiveOp::reduce_scatter ? request.count : request.elements();
}

template <typename E>
void run_and_check(Random& random, const Node& node, const CollectiveSchedule& schedule,
                   const std::vector<int>& order) {
  const CollectiveRequest& request = schedule.request;
  const bool in_place = !request.by_parts() && random() % 2 == 0;
  std::vector<std::vector<typename E::Type>> inputs;
  for (int rank = 0; rank < request.ranks(); ++rank)
    inputs.push_back(random_elements<E>(random, input_elements(request)));
  ReferenceRun<E> run(node, schedule, inputs, output_elements(request), in_place);
  ASSERT_NO_FATAL_FAILURE(run.run(random));
  expect_right(request, order, inputs, run, in_place);
}

std::vector<int> shuffled(Random& random, int count) {
  std::vector<int> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  std::ranges::shuffle(values, random);
  return values;
}

template <typename E>
CollectiveRequest random_request(Random& random, const Node& node, CollectiveOp op) {
  CollectiveRequest request;
  request.op = op;
  request.type = type_of<E>();
  request.operation = static_cast<Operator>(pick(random, 0, 4));
  request.gpus = shuffled(random, static_cast<int>(node.gpus.size()));
  request.gpus.resize(
      static_cast<std::size_t>(pick(random, 2, static_cast<int>(node.gpus.size()))));
  request.count = static_cast<std::uint64_t>(pick(random, 0, pick(random, 1, 9000)));
  request.root = pick(random, 0, request.ranks() - 1);
  return request;
}

template <typename E>
class CollectiveSchedules : public ::testing::Test {};

using Types = ::testing::Types<Elements<float>, Elements<double>, Elements<std::uint32_t>,
                               Elements<std::uint8_t>, Bfloat16>;

constexpr CollectiveOp kOps[] = {CollectiveOp::allreduce,  CollectiveOp::reduce_scatter,
                                 CollectiveOp::all_gather, CollectiveOp::broadcast,
                                 CollectiveOp::reduce,     CollectiveOp::all_to_all};

class NamesOfTypes {
 public:
  template <typename E>
  static std::string GetName(int /*index*/) {
    return std::string(to_string(type_of<E>()));
  }
};
TYPED_TEST_SUITE(CollectiveSchedules, Types, NamesOfTypes);

TYPED_TEST(CollectiveSchedules, FlatInRankOrder) {
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const CollectiveOp op : kOps) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " " + std::string(to_string(op)));
      Random random(seed);
      const Node node = random_node(random);
      const auto request = random_request<TypeParam>(random, node, op);
      const auto schedule =
          flat_schedule(node, request, static_cast<std::uint64_t>(pick(random, 1, 4000)),
                        /*by_host=*/random() % 2 == 0);
      std::vector<int> order(request.gpus.size());
      std::iota(order.begin(), order.end(), 0);
      ASSERT_NO_FATAL_FAILURE(run_and_check<TypeParam>(random, node, schedule, order));
    }
}

/// What a step touches of a memory.
struct Touch {
  std::uint64_t begin = 0;  // bytes
  std::uint64_t end = 0;
  std::size_t step = 0;
  bool writes = false;
};

/// Two steps that touch the same bytes, one of which writes, with no order between them; empty: all
/// have one. In place: input and output are one memory.
std::string unordered_steps(const CollectiveSchedule& schedule) {
  const std::size_t count = schedule.steps.size();
  std::vector<std::vector<bool>> after(count, std::vector<bool>(count));
  std::vector<std::size_t> last(static_cast<std::size_t>(schedule.queues), count);
  std::map<std::pair<BufferKind, int>, std::vector<Touch>> touched;
  std::string pair;
  const auto follow = [&](std::size_t step, std::size_t other) {
    after[step][other] = true;
    for (std::size_t i = 0; i < other; ++i) after[step][i] = after[step][i] || after[other][i];
  };
  const auto touch = [&](const Place& place, std::uint64_t bytes, std::size_t step, bool writes) {
    const bool is_one = place.buffer == BufferKind::output && !schedule.request.by_parts();
    auto& all = touched[{is_one ? BufferKind::input : place.buffer, place.owner}];
    const Touch now{place.offset, place.offset + bytes, step, writes};
    for (const Touch& then : all)
      if (then.begin < now.end && now.begin < then.end && (then.writes || writes) &&
          then.step != step && !after[step][then.step])
        pair = std::to_string(then.step) + " and " + std::to_string(step) + " of " +
               std::to_string(count) + " steps";
    all.push_back(now);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = schedule.steps[i];
    std::size_t& before = last[static_cast<std::size_t>(step.queue)];
    if (before != count) follow(i, before);
    before = i;
    for (const int other : schedule.after(step)) follow(i, static_cast<std::size_t>(other));
    const bool is_kept = step.kind == StepKind::copy && step.from.buffer == BufferKind::input &&
                         step.to.buffer == BufferKind::output;
    if (is_kept) continue;  // nothing, in place
    for (const Place& place : schedule.reads(step))
      touch(place, bytes_of(schedule, step, place), i, false);
    touch(step.to, step.bytes, i, true);
  }
  return pair;
}

/// Chunks of which some are empty.
TEST(FlatSchedules, StepsOnSameBytes_HaveAnOrder) {
  const Node node = known_node("narval");
  for (const bool by_host : {false, true})
    for (const int ranks : {2, 3, 4})
      for (const CollectiveOp op : kOps)
        for (const std::uint64_t count : {1, 31, 100, 257, 1000, 3001, 9000})
          for (const std::uint64_t chunk : {128, 300, 1024, 4096}) {
            if (count * 4 / chunk > 60) continue;
            CollectiveRequest request;
            request.op = op;
            request.type = DataType::float32;
            request.count = count;
            request.root = ranks - 1;
            for (int gpu = 0; gpu < ranks; ++gpu) request.gpus.push_back(gpu);
            ASSERT_EQ(unordered_steps(flat_schedule(node, request, chunk, by_host)), "")
                << to_string(op) << " of " << ranks << ", " << count << " elements in chunks of "
                << chunk << " bytes" << (by_host ? ", by host memory" : "");
          }
}

TYPED_TEST(CollectiveSchedules, HostPartInRankOrder) {
  const Node two_hosts = known_node("marenostrum5");
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = seed % 2 == 0 ? two_hosts : random_node(random);
    const auto request = random_request<TypeParam>(random, node, CollectiveOp::allreduce);
    const auto schedule =
        host_part_schedule(node, request, static_cast<std::uint64_t>(pick(random, 1, 4000)));
    std::vector<int> order(request.gpus.size());
    std::iota(order.begin(), order.end(), 0);
    ASSERT_NO_FATAL_FAILURE(run_and_check<TypeParam>(random, node, schedule, order));
  }
}

TYPED_TEST(CollectiveSchedules, HierarchicalInTheOrderOfIslands) {
  for (std::uint64_t seed = 0; seed < 240; ++seed) {
    const CollectiveOp op = kOps[seed % 3];
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + std::string(to_string(op)));
    Random random(seed);
    const Node node = random_node(random);
    const auto request = random_request<TypeParam>(random, node, op);
    // Ranks in one to three islands of any size.
    const std::vector<int> order = shuffled(random, request.ranks());
    std::vector<std::vector<int>> islands(1);
    for (const int rank : order) {
      if (!islands.back().empty() && islands.size() < 3 && random() % 2 == 0)
        islands.emplace_back();
      islands.back().push_back(rank);
    }
    const int lanes = request.by_parts() ? request.ranks() : pick(random, 1, 3);
    const auto schedule = hierarchical_schedule(node, request, islands, lanes,
                                                static_cast<std::uint64_t>(pick(random, 1, 4000)));
    ASSERT_NO_FATAL_FAILURE(run_and_check<TypeParam>(random, node, schedule, order));
  }
}

/// By the largest, which has no order.
TEST(RingSchedule, SumsEverything) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Node node = random_node(random);
    using E = Elements<std::uint32_t>;
    auto request = random_request<E>(random, node, CollectiveOp::allreduce);
    request.operation = Operator::max;
    const auto ring = shuffled(random, request.ranks());
    const auto schedule =
        ring_schedule(node, request, ring, static_cast<std::uint64_t>(pick(random, 1, 4000)));
    ASSERT_NO_FATAL_FAILURE(run_and_check<E>(random, node, schedule, ring));
  }
}

/// A slice of the ring is summed from after its own place on, for any type.
TEST(RingSchedule, SumsASliceInTheOrderThatThePlanSays) {
  Random random(7);
  const Node node = mesh_node();
  CollectiveRequest request;
  request.gpus = {0, 1, 2, 3};
  request.count = 4 * 1024;
  const std::vector<int> ring = {2, 0, 3, 1};
  const auto schedule = ring_schedule(node, request, ring, 1 << 20);
  using E = Elements<float>;
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < 4; ++rank) inputs.push_back(random_elements<E>(random, request.count));
  ReferenceRun<E> run(node, schedule, inputs, request.count, false);
  ASSERT_NO_FATAL_FAILURE(run.run(random));
  for (int rank = 0; rank < 4; ++rank) {
    const auto out = run.output(rank);
    for (std::uint64_t i = 0; i < request.count; ++i) {
      const std::size_t slice = i / 1024;
      std::vector<int> order;
      for (std::size_t k = 1; k <= 4; ++k) order.push_back(ring[(slice + k) % 4]);
      ASSERT_EQ(out[i], reduced<E>(request, order, inputs, i)) << i;
    }
  }
}

TEST(Schedules, PartsCoverTheMessage) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const std::uint64_t elements = random() >> pick(random, 1, 63);
    const auto parts = static_cast<std::uint64_t>(pick(random, 1, 300));
    std::uint64_t next = 0;
    for (std::uint64_t i = 0; i < parts; ++i) {
      const ElementRange part = part_of(elements, parts, i, DataType::bfloat16);
      ASSERT_EQ(part.first, next);
      ASSERT_LE(part.count, elements / parts + 128);
      next += part.count;
    }
    ASSERT_EQ(next, elements);
  }
}

}  // namespace
}  // namespace polypath
