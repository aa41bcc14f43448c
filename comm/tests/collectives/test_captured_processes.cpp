// Captured collectives by copies, of ranks that are processes: graphs launched again and again
// among other calls, what shows when a graph's signals are broken, and what the others say when a
// rank is killed in the midst of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/kernels/stream_wait_args.h"
#include "driver/check.hpp"
#include "process_group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

constexpr int kRanks = 4;

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

AlgorithmOverride chosen() { return parse_collective_choice(setting("POLYPATH_TEST_ALGORITHM")); }

constexpr const char* kNoFault = "none";
/// Ranks that lose count of each other may wait in vain.
constexpr std::chrono::seconds kLimitOfFaults{30};

/// Mutants of the kernel by which graphs signal and wait.
struct GraphFault {
  const char* name;
  void (*plant)(StreamSignalArgs& args);
};

bool begins(const StreamSignalArgs& args) { return args.begins_epoch; }
bool ends(const StreamSignalArgs& args) {
  return !args.begins_epoch && args.signal_count > 0 && args.awaited_count > 0;
}

constexpr std::array kGraphFaults{
    GraphFault{kNoFault, [](StreamSignalArgs&) {}},
    GraphFault{"no_meeting_before",
               [](StreamSignalArgs& args) {
                 if (begins(args)) args.awaited_count = 0;
               }},
    GraphFault{"no_meeting_behind",
               [](StreamSignalArgs& args) {
                 if (ends(args)) args.awaited_count = 0;
               }},
    GraphFault{"epoch_not_counted", [](StreamSignalArgs& args) { args.begins_epoch = false; }},
    GraphFault{"no_wait_for_data",
               [](StreamSignalArgs& args) {
                 if (args.signal_count == 0) args.awaited_count = 0;
               }},
    GraphFault{"steps_told_too_early",  // all of a stream with the first
               [](StreamSignalArgs& args) {
                 for (std::uint32_t i = 0; args.awaited_count == 0 && i < args.signal_count; ++i)
                   args.signals[i].value |= 0xFFFF;
               }},
};

/// A driver whose graphs have a fault; on one rank many copies, also those of graphs, take long, so
/// it is after the others. One a process.
struct Planting {
  static constexpr std::uint64_t kSlowBytes = 8 << 20;
  static constexpr unsigned kSlowOneOf = 8;
  static constexpr unsigned kSlowOneOfCaptured = 3;  // each launch has the same ones
  static constexpr int kSlowCopies = 12;

  const CudaDriver* driver = nullptr;
  const GraphFault* fault = nullptr;
  CUfunction signals = nullptr;
  CUdeviceptr slow = 0;  // null: no copy takes long
  Random random;
};
Planting& planting() {
  static Planting instance;
  return instance;
}

bool is_captured(const CudaDriver& driver, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  POLYPATH_CHECK(driver, stream_is_capturing(stream, &status));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::shared_ptr<const CudaDriver> driver_with(const CudaDriver& driver, const std::string& fault) {
  const auto* const fault_entry = std::ranges::find(kGraphFaults, fault, &GraphFault::name);
  if (fault_entry == kGraphFaults.end()) throw InvalidArgument("no fault " + fault);
  planting().driver = &driver;
  planting().fault = fault_entry;
  const auto table = std::make_shared<CudaDriver>(driver);
  table->module_get_function = [](CUfunction* function, CUmodule module, const char* name) {
    Planting& all = planting();
    const CUresult result = all.driver->module_get_function(function, module, name);
    if (std::string_view(name) == "polypath_stream_signals") all.signals = *function;
    return result;
  };
  table->launch_kernel = [](CUfunction kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                            unsigned by, unsigned bz, unsigned shared, CUstream stream,
                            void** parameters, void** extra) {
    const Planting& all = planting();
    if (kernel == all.signals) all.fault->plant(*static_cast<StreamSignalArgs*>(parameters[0]));
    return all.driver->launch_kernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, parameters,
                                     extra);
  };
  table->memcpy_async = [](CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream) {
    Planting& all = planting();
    // Few that take long: longer than the pauses of the other ranks between their rows.
    const unsigned one_of =
        is_captured(*all.driver, stream) ? Planting::kSlowOneOfCaptured : Planting::kSlowOneOf;
    if (all.slow != 0 && all.random() % one_of == 0) {
      constexpr std::uint64_t kHalf = Planting::kSlowBytes / 2;
      for (int i = 0; i < Planting::kSlowCopies; ++i) {
        const CUresult result = all.driver->memcpy_async(all.slow, all.slow + kHalf, kHalf, stream);
        if (result != CUDA_SUCCESS) return result;
      }
    }
    return all.driver->memcpy_async(dst, src, bytes, stream);
  };
  return table;
}

/// So many turns, or until something is wrong on some rank.
RANK_PROGRAM(graphs_among_other_calls) {
  const std::string fault = setting("POLYPATH_TEST_FAULT");
  const auto comm = self.create(driver_with(*self.source().driver, fault));
  const CurrentContext current(comm->driver(), comm->context());
  if (fault != kNoFault) comm->set_time_limit(kLimitOfFaults);
  const DeviceBytes slow(comm->driver(), Planting::kSlowBytes);
  if (self.rank() == 2) planting().slow = slow.address();
  GraphGame game(*comm, chosen());
  for (int turn = std::stoi(setting("POLYPATH_TEST_TURNS")); turn > 0; --turn) {
    const std::string wrong = game.turn();
    const std::array local{static_cast<char>(wrong.empty() ? 0 : 1)};
    std::array<char, kRanks> all{};
    comm->exchange(std::as_bytes(std::span(local)), std::as_writable_bytes(std::span(all)));
    if (std::ranges::find(all, 1) != all.end())
      throw Error(fmt::format("an element is wrong, {} turns before the end: {}", turn, wrong));
  }
  game.expect_counts();
  comm->exchange({}, {});
}

void set(AlgorithmOverride choice, const std::string& fault, int turns) {
  ::setenv("POLYPATH_TEST_ALGORITHM", std::string(to_string(choice)).c_str(), 1);
  ::setenv("POLYPATH_TEST_FAULT", fault.c_str(), 1);
  ::setenv("POLYPATH_TEST_TURNS", std::to_string(turns).c_str(), 1);
}

class GraphsOf : public testing::TestWithParam<AlgorithmOverride> {};

TEST_P(GraphsOf, RunAmongOtherCalls) {
  NEEDS_GPUS(kRanks);
  set(GetParam(), kNoFault, random_rows(6));
  expect_all_well("graphs_among_other_calls", kRanks);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, GraphsOf,
                         testing::Values(AlgorithmOverride::pairwise,
                                         AlgorithmOverride::hierarchical,
                                         AlgorithmOverride::published, AlgorithmOverride::ring,
                                         AlgorithmOverride::host, AlgorithmOverride::host_trees),
                         [](const auto& param_info) {
                           return as_name(std::string(to_string(param_info.param)));
                         });

class GraphsWith : public testing::TestWithParam<const char*> {};

TEST_P(GraphsWith, Fault_IsReported) {
  NEEDS_GPUS(kRanks);
  // Some faults show in one of 20 or so: where two rows and a slow copy meet as it needs them to.
  constexpr int kMaxRounds = 500;
  set(AlgorithmOverride::pairwise, GetParam(), kMaxRounds);
  ProcessGroup group("graphs_among_other_calls", kRanks);
  for (int rank = 0; rank < kRanks; ++rank)
    EXPECT_THAT(group.result(rank),
                AnyOf(HasSubstr("an element is wrong"), HasSubstr("past the time limit")))
        << "rank " << rank;
}

INSTANTIATE_TEST_SUITE_P(Faults, GraphsWith,
                         testing::Values("no_meeting_before", "no_meeting_behind",
                                         "epoch_not_counted", "no_wait_for_data",
                                         "steps_told_too_early"),
                         [](const auto& param_info) { return std::string(param_info.param); });

constexpr const char* kInTheMidst = "in the midst of a launch";

/// Rank 1 stops at the stage POLYPATH_TEST_STAGE, and is killed there. In the midst of a launch:
/// rank 0 does not launch before, so that no rank can have ended its own.
RANK_PROGRAM(one_is_killed_among_graphs) {
  const auto comm = self.create();
  const CurrentContext current(comm->driver(), comm->context());
  GraphGame game(*comm, chosen());
  try {
    self.at("behind its capture");
    EXPECT_EQ(game.turn(), "");
    self.at("between launches");
    game.prepare();
    if (self.rank() == 0 && self.ends_at(kInTheMidst)) self.reached(kInTheMidst);
    game.launch(0);
    self.at(kInTheMidst);
    game.call_by_copies();
    game.launch(1);
    game.launch(0);
    self.at("behind all launches");
    EXPECT_EQ(game.finish(), "");
    comm->exchange({}, {});
  } catch (const CommunicatorError&) {
    // Unusable from now on: no call is taken, and what was captured ends.
    EXPECT_THROW(comm->check(), CommunicatorError);
    EXPECT_THROW(game.call_by_copies(), CommunicatorError);
    EXPECT_THROW(game.call_by_kernels(), CommunicatorError);
    game.launch(1);
    EXPECT_THROW(game.finish(), CommunicatorError);
    throw;
  }
}

using KilledAt = std::pair<AlgorithmOverride, const char*>;
class ARankIsKilledAmongGraphs : public testing::TestWithParam<KilledAt> {};

TEST_P(ARankIsKilledAmongGraphs, AndAllOthersSaySo) {
  NEEDS_GPUS(kRanks);
  const auto& [choice, stage] = GetParam();
  set(choice, kNoFault, 0);
  const std::vector<int> held(std::string_view(stage) == kInTheMidst ? 1 : 0, 0);
  const auto results = results_of_kill("one_is_killed_among_graphs", kRanks, stage, held);
  // Long before the time limit, by that its process has ended.
  for (const std::size_t rank : {0, 2, 3})
    EXPECT_THAT(results[rank],
                AllOf(HasSubstr("unusable: rank 1 (process"), HasSubstr("has ended")))
        << "rank " << rank;
}

std::vector<KilledAt> all_stages() {
  std::vector<KilledAt> all;
  for (const AlgorithmOverride choice :
       {AlgorithmOverride::hierarchical, AlgorithmOverride::host_trees})
    for (const char* const stage :
         {"behind its capture", "between launches", kInTheMidst, "behind all launches"})
      all.emplace_back(choice, stage);
  return all;
}

INSTANTIATE_TEST_SUITE_P(InEveryStage, ARankIsKilledAmongGraphs, testing::ValuesIn(all_stages()),
                         [](const auto& param_info) {
                           return as_name(fmt::format("{} {}", to_string(param_info.param.first),
                                                      param_info.param.second));
                         });

}  // namespace
}  // namespace polypath::test
