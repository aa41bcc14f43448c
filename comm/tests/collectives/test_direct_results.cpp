// Results of large collectives that other ranks store straight into recv: which memory that is, and
// every byte of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <optional>

#include "call_rows.hpp"
#include "collectives/result_windows.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

std::uint32_t direct_ranks() { return static_cast<std::uint32_t>(gpus_up_to(4)); }
/// The size of a message, and four times that of a part, and blocks: so they go by channels, in more
/// tiles than the lag. Two ranks have larger cells.
std::uint64_t direct_bytes() { return std::uint64_t{direct_ranks() == 2 ? 7U : 3U} << 20; }
CollectivesOptions direct_options() {
  return {.max_blocks = direct_ranks() == 2 ? 24 : 8, .check = false, .direct_results = true};
}

/// By channels, with buffers that are apart and aligned unless the test says otherwise.
PlannedCall large_call(Random& random, CollectiveOp op, DataType type,
                       const std::function<void(CollectiveCase&)>& alter = {}) {
  PlannedCall call;
  call.what.op = op;
  call.what.type = type;
  call.what.ranks = direct_ranks();
  call.what.root = static_cast<std::uint32_t>(random() % direct_ranks());
  const bool is_of_parts = op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter ||
                           op == CollectiveOp::all_to_all;
  // A few elements past whole tiles; parts are such that places are aligned.
  call.what.count = direct_bytes() / size_of(type) / (is_of_parts && direct_ranks() > 2 ? 4 : 1) +
                    kWindowAlignment;
  if (alter) alter(call.what);
  call.images = images_of(random, call.what);
  return call;
}

/// Whether others store results of this call into recv of the rank, where memory is plain. Sums of
/// few ranks take one hop: each rank stores the sum into its own recv.
bool is_direct(const CollectiveCase& what, int rank) {
  const bool is_root = what.root == static_cast<std::uint32_t>(rank);
  switch (what.op) {
    case CollectiveOp::allreduce: return direct_ranks() > 2;
    case CollectiveOp::all_gather: return true;
    case CollectiveOp::reduce_scatter: return false;
    case CollectiveOp::all_to_all: return what.placement == Placement::apart;
    case CollectiveOp::broadcast: return !is_root;
    case CollectiveOp::reduce: return is_root && direct_ranks() > 3;
  }
  return false;
}

constexpr CollectiveOp kOps[] = {CollectiveOp::allreduce,      CollectiveOp::all_gather,
                                 CollectiveOp::reduce_scatter, CollectiveOp::all_to_all,
                                 CollectiveOp::broadcast,      CollectiveOp::reduce};

class DirectResults : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_GPUS(2);
    group_.emplace(gpus_up_to(4));
    if (!(*group_)[0].has_peer_access()) GTEST_SKIP() << "needs peer access";
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  /// Makes the calls on all ranks, twice, with other buffers the second time; `alter`: the options
  /// of a rank. Expects that those are direct which `expected` says.
  void expect_calls(const std::vector<PlannedCall>& row,
                    const std::function<bool(const CollectiveCase&, int)>& expected,
                    const std::function<void(CollectivesOptions&, int)>& alter = {}) {
    group_->run([&](Communicator& comm) {
      CollectivesOptions options = direct_options();
      if (alter) alter(options, comm.rank());
      Collectives collectives(comm, options);
      const Stream stream(driver(), comm.context());
      std::uint64_t direct = 0;
      std::vector<std::unique_ptr<CallRow>> rows;
      for (int turn = 0; turn < 2; ++turn) {
        const CallRow& memory =
            *rows.emplace_back(std::make_unique<CallRow>(driver(), row, comm.rank()));
        for (std::size_t i = 0; i < row.size(); ++i) {
          collectives.run(memory.call(row, i), stream.get(), AlgorithmOverride::uneven);
          direct += expected(row[i].what, comm.rank()) ? 1 : 0;
          EXPECT_EQ(direct, collectives.counts().direct)
              << "rank " << comm.rank() << ": " << row[i].what.text();
        }
      }
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      for (const auto& memory : rows) memory->expect_done(row);
      EXPECT_EQ(2 * row.size(), collectives.counts().channels);
      comm.exchange({}, {});
    });
  }

  std::optional<Group> group_;
};

TEST_F(DirectResults, EveryOperation_IsDirectAndRight) {
  Random random(1);
  std::vector<PlannedCall> row;
  for (const CollectiveOp op : kOps)
    row.push_back(large_call(random, op,
                             op == CollectiveOp::reduce ? DataType::float16
                             : row.size() % 2 == 0      ? DataType::bfloat16
                                                        : DataType::float32));
  expect_calls(row, is_direct);
}

TEST_F(DirectResults, BySetting_RanksOfAProcessDo) {
  group_->run([](Communicator& comm) {
    for (const bool stands_in : {false, true}) {
      EXPECT_EQ(!stands_in, has_direct_results(DirectResultsSetting::automatic, comm, stands_in));
      EXPECT_TRUE(has_direct_results(DirectResultsSetting::on, comm, stands_in));
      EXPECT_FALSE(has_direct_results(DirectResultsSetting::off, comm, stands_in));
    }
  });
  EXPECT_EQ(DirectResultsSetting::automatic, Options{}.direct_results);
}

TEST_F(DirectResults, InPlace_IsRight) {
  Random random(2);
  std::vector<PlannedCall> row;
  for (const CollectiveOp op : kOps)
    row.push_back(large_call(random, op, DataType::float32, [&](CollectiveCase& what) {
      const bool has_parts = op == CollectiveOp::all_gather || op == CollectiveOp::reduce_scatter;
      what.placement = has_parts ? Placement::own_part : Placement::in_place;
    }));
  expect_calls(row, is_direct);
}

TEST_F(DirectResults, Misaligned_GoBySlots) {
  Random random(3);
  std::vector<PlannedCall> row;
  for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::broadcast})
    for (const std::uint32_t shift : {1U, 7U, 16U, 64U})
      row.push_back(large_call(random, op, DataType::uint8, [&](CollectiveCase& what) {
        what.out_shifts = {0, shift, 0, shift};
        what.out_shifts.resize(direct_ranks());
        what.in_shift = 64 - shift;
      }));
  expect_calls(row, [](const CollectiveCase& what, int rank) {
    return is_direct(what, rank) && what.out_shifts[static_cast<unsigned>(rank)] == 0;
  });
}

TEST_F(DirectResults, UnevenParts_AreRight) {
  Random random(4);
  std::vector<PlannedCall> row;
  for (const std::uint64_t odd : {0, 1})
    row.push_back(
        large_call(random, CollectiveOp::all_gather, DataType::bfloat16, [&](CollectiveCase& what) {
          what.parts = {what.count + odd, what.count / 2, 0, what.count};
          what.parts.resize(direct_ranks());
          what.count += odd;
        }));
  // The first part is aligned in any case, but of no other rank for rank 0 if the rest is odd.
  expect_calls(row, [&](const CollectiveCase& what, int rank) {
    return rank != 0 || what.parts[0] % 64 == 0;
  });
}

TEST_F(DirectResults, RanksThatDoNot_GoBySlots) {
  Random random(5);
  std::vector<PlannedCall> row;
  for (const CollectiveOp op : kOps) row.push_back(large_call(random, op, DataType::float32));
  expect_calls(
      row,
      [](const CollectiveCase& what, int rank) { return rank % 2 == 0 && is_direct(what, rank); },
      [](CollectivesOptions& options, int rank) { options.direct_results = rank % 2 == 0; });
}

TEST_F(DirectResults, CapturedCalls_AreDirectAtEachLaunch) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(6);
  std::vector<PlannedCall> row;
  for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::all_gather})
    row.push_back(large_call(random, op, DataType::bfloat16));
  const std::vector<PlannedCall> last{row.back()};
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, direct_options());
    const Stream stream(driver(), comm.context());
    const CallRow captured(driver(), row, comm.rank());
    const CapturedRow graph(driver(), stream.get(), [&] {
      for (std::size_t i = 0; i < row.size(); ++i)
        collectives.run(captured.call(row, i), stream.get(), AlgorithmOverride::uneven);
    });
    const auto direct = static_cast<std::uint64_t>(std::ranges::count_if(
        row, [&](const PlannedCall& call) { return is_direct(call.what, comm.rank()); }));
    EXPECT_EQ(direct, collectives.counts().direct);
    for (int turn = 0; turn < 3; ++turn) {
      captured.reset(row);
      const CallRow between(driver(), last, comm.rank());
      comm.exchange({}, {});
      graph.launch(stream.get());
      collectives.run(between.call(last, 0), stream.get(), AlgorithmOverride::uneven);
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      captured.expect_done(row);
      between.expect_done(last);
    }
    EXPECT_EQ(direct + 3, collectives.counts().direct);
    comm.exchange({}, {});
  });
}

/// Memory that other ranks reach, or not, apart from what cuMemAlloc gave.
struct OtherMemory {
  const char* name;
  bool is_direct;
  std::function<CUdeviceptr(Communicator&, std::uint64_t, CUstream)> alloc;
};

TEST_F(DirectResults, OtherMemory_IsDirectWhereItIsSymmetric) {
  Random random(7);
  const PlannedCall planned =
      large_call(random, direct_ranks() > 2 ? CollectiveOp::allreduce : CollectiveOp::all_gather,
                 DataType::float32);
  const std::uint64_t bytes = planned.images[0].before.size();
  const std::vector<OtherMemory> all{
      {"symmetric", true,
       [](Communicator& comm, std::uint64_t size, CUstream) { return comm.alloc(size).local(); }},
      {"symmetric, and none of transfers", true,
       [](Communicator& comm, std::uint64_t size, CUstream) {
         return comm.alloc(size, SymmetricUse::direct).local();
       }},
      {"symmetric, of this rank alone", true,  // but of cuMemAlloc
       [](Communicator& comm, std::uint64_t size, CUstream) {
         return comm.alloc(size, SymmetricUse::local).local();
       }},
      {"of a pool", false,
       [](Communicator& comm, std::uint64_t size, CUstream stream) {
         CUdeviceptr address = 0;
         POLYPATH_CHECK(comm.driver(), mem_alloc_async(&address, size, stream));
         return address;
       }},
  };
  for (const OtherMemory& memory : all)
    group_->run([&](Communicator& comm) {
      Collectives collectives(comm, direct_options());
      const Stream stream(driver(), comm.context());
      const Image& image = planned.images[static_cast<std::size_t>(comm.rank())];
      const CUdeviceptr address = memory.alloc(comm, bytes, stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      POLYPATH_CHECK(driver(), memcpy_sync(address, std::bit_cast<CUdeviceptr>(image.before.data()),
                                           image.before.size()));
      POLYPATH_CHECK(driver(), stream_synchronize(nullptr));
      collectives.run(call_on(planned, comm.rank(), address), stream.get(),
                      AlgorithmOverride::uneven);
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      Bytes result(image.before.size());
      POLYPATH_CHECK(
          driver(), memcpy_sync(std::bit_cast<CUdeviceptr>(result.data()), address, result.size()));
      EXPECT_EQ("", difference(image, result.data())) << memory.name;
      EXPECT_EQ(memory.is_direct ? 1U : 0U, collectives.counts().direct) << memory.name;
      comm.exchange({}, {});
    });
}

}  // namespace
}  // namespace polypath::test
