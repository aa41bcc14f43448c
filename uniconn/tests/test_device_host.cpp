// What kernels call over polypath's backend, on the host: rows of calls of threads, warps and
// blocks over hostile schedules, every byte compared; what happens when a rank does not come; and
// what the tests here are worth: each defect of mutants.hpp is found.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "device_case.hpp"
#include "polypath/device/detail/rank_barrier.cuh"
#include "polypath/uniconn/device/mutants.hpp"
#include "polypath/uniconn/device/polypath_view.hpp"
#include "polypath/uniconn/enums.hpp"
#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::test {

namespace uc = polypath::uniconn;

/// As the host of a rank does: once a kernel of it timed out, aborts on all ranks.
struct HostArgs {
  device::wait_error* status;
  std::uint32_t* abort_words[8];
  std::int32_t ranks;
};
SIMT_KERNEL(uniconn_test_host, 32, HostArgs args) {
  if (simt::thread_index() != 0) return;
  while (simt::load_volatile(&args.status->given_up) == 0) simt::spin_pause();
  for (int rank = 0; rank < args.ranks; ++rank) simt::store_volatile(args.abort_words[rank], 1U);
}

namespace {

using device::collective_mutant;
using uc::detail::device_mutant;

/// What one rank has, next to what a row brings.
struct Rank {
  uc::detail::PolypathView view{};
  uc::detail::DeviceWords words{};
  std::uint32_t abort_flag = 0;
  std::uint32_t reports = 0;
  device::wait_error status{};
};

/// Bytes that begin at a multiple of 256, as memory of a GPU does.
class Aligned {
 public:
  explicit Aligned(const DeviceBytes& bytes) : all_(bytes.size() + 256), size_(bytes.size()) {
    std::ranges::copy(bytes, get());
  }
  [[nodiscard]] std::byte* get() {
    const auto begin = reinterpret_cast<std::uintptr_t>(all_.data());
    return all_.data() + (256 - begin % 256);
  }
  [[nodiscard]] std::uint64_t address() { return reinterpret_cast<std::uint64_t>(get()); }
  [[nodiscard]] DeviceBytes bytes() { return {get(), get() + size_}; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  DeviceBytes all_;
  std::size_t size_;
};

class Ranks {
 public:
  explicit Ranks(int size) : ranks_(static_cast<std::size_t>(size)), rows_(ranks_.size()) {
    for (std::size_t own = 0; own < ranks_.size(); ++own) {
      Rank& rank = ranks_[own];
      rank.view.wait_ctx = {&rank.abort_flag, 1'000'000'000, &rank.status, &rank.reports,
                            device::wait_error::kProgram};
      rank.view.rank = static_cast<std::int32_t>(own);
      rank.view.size = size;
      for (std::size_t r = 0; r < ranks_.size(); ++r) rank.view.words[r] = &ranks_[r].words;
      options_.memory.push_back({&rank, sizeof rank, static_cast<int>(own)});
    }
  }

  Rank& at(std::size_t rank) { return ranks_[rank]; }

  /// Memory of all ranks, as Memory::Alloc gives it.
  void add_piece(const std::vector<std::byte*>& of_ranks, std::size_t bytes) {
    for (std::size_t own = 0; own < ranks_.size(); ++own) {
      uc::detail::PolypathView& view = ranks_[own].view;
      const std::uint64_t piece = view.count++;
      const auto begin = reinterpret_cast<std::uint64_t>(of_ranks[own]);
      view.pieces.begin[piece] = begin;
      view.pieces.bytes[piece] = bytes;
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        view.pieces.shift[r][piece] = reinterpret_cast<std::uint64_t>(of_ranks[r]) - begin;
      options_.memory.push_back({of_ranks[own], bytes, static_cast<int>(own)});
    }
  }
  void launch(std::size_t rank, const DeviceCall* calls, std::size_t count, unsigned blocks = 1) {
    rows_[rank].push_back(simt::launch("uniconn_device_row", static_cast<int>(rank), blocks, 64,
                                       DeviceRow{&ranks_[rank].view, calls, count}));
  }
  /// On a stream of its own, the host of `rank`.
  void launch_host(std::size_t rank) {
    HostArgs args{};
    args.status = &ranks_[rank].status;
    args.ranks = static_cast<std::int32_t>(ranks_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) args.abort_words[r] = &ranks_[r].abort_flag;
    rows_.push_back({simt::launch("uniconn_test_host", static_cast<int>(rank), 1, 32, args)});
  }
  std::string run(std::uint64_t seed) {
    options_.seed = seed;
    options_.max_steps = 5'000'000;
    return simt::run(rows_, options_);
  }

 private:
  std::deque<Rank> ranks_;
  std::vector<std::vector<simt::Launch>> rows_;
  simt::RunOptions options_;
};

/// Empty, or what was wrong.
std::string run_row(const DeviceRowCase& row, std::uint64_t seed) {
  const auto size = static_cast<std::size_t>(row.ranks);
  Ranks ranks(row.ranks);
  // Other memory before that of the row: more of it than threads look at side by side, for some.
  std::deque<Aligned> others;
  for (std::uint64_t i = 0; i < seed % 4 * 14; ++i) {
    std::vector<std::byte*> of_ranks;
    for (std::size_t rank = 0; rank < size; ++rank)
      of_ranks.push_back(others.emplace_back(DeviceBytes(16)).get());
    ranks.add_piece(of_ranks, 16);
  }
  std::deque<std::array<std::unique_ptr<Aligned>, kDevicePieces>> pieces(size);
  for (std::size_t piece = 0; piece < kDevicePieces; ++piece) {
    std::vector<std::byte*> of_ranks;
    for (std::size_t rank = 0; rank < size; ++rank) {
      pieces[rank][piece] = std::make_unique<Aligned>(row.before[rank][piece]);
      of_ranks.push_back(pieces[rank][piece]->get());
    }
    ranks.add_piece(of_ranks, pieces[0][piece]->size());
  }
  std::vector<std::uint64_t> words;
  for (std::size_t rank = 0; rank < size; ++rank) words.push_back(pieces[rank][0]->address());
  std::deque<Aligned> packed;
  for (std::size_t rank = 0; rank < size; ++rank) {
    std::array<std::uint64_t, kDevicePieces> own{};
    for (std::size_t piece = 0; piece < kDevicePieces; ++piece)
      own[piece] = pieces[rank][piece]->address();
    const int number = static_cast<int>(rank);
    Aligned& packed_calls = packed.emplace_back(pack(row, number, 0, own, words));
    std::ranges::copy(pack(row, number, packed_calls.address(), own, words), packed_calls.get());
    ranks.launch(rank, reinterpret_cast<const DeviceCall*>(packed_calls.get()),
                 row.calls[rank].size(), row.blocks);
  }
  if (const std::string error = ranks.run(seed); !error.empty()) return error;
  for (std::size_t rank = 0; rank < size; ++rank) {
    if (ranks.at(rank).status.given_up != 0)
      return "rank " + std::to_string(rank) + " gave up, reason " +
             std::to_string(ranks.at(rank).status.reason);
    std::array<DeviceBytes, kDevicePieces> actual;
    for (std::size_t piece = 0; piece < kDevicePieces; ++piece)
      actual[piece] = pieces[rank][piece]->bytes();
    const std::string wrong =
        wrong_bytes(row, static_cast<int>(rank), packed[rank].bytes(), actual);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

class DeviceRows : public testing::TestWithParam<int> {};
TEST_P(DeviceRows, MoveWhatTheySay) {
  DeviceRandom random(static_cast<std::uint64_t>(GetParam()));
  for (int i = 0; i < 12; ++i) {
    DeviceRowOptions options;
    options.ranks = GetParam();
    options.max_bytes = i == 11 ? 100'000 : 8 * 1024;
    const std::uint64_t seed = random();
    ASSERT_EQ("", run_row(make_device_row(random, options), seed)) << "row " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Of, DeviceRows, testing::Values(1, 2, 3, 4, 8), [](const auto& test_info) {
  return std::to_string(test_info.param) + "Ranks";
});

// ---- A rank that does not come
// -------------------------------------------------------------------

DeviceCall one_call(DeviceOp op, uc::ThreadGroup group) {
  DeviceCall call{};
  call.op = op;
  call.group = static_cast<std::uint32_t>(group);
  call.element_bytes = 1;
  call.sum = DeviceSum::float32_sum;
  return call;
}

constexpr std::array kGroups{uc::ThreadGroup::THREAD, uc::ThreadGroup::WARP,
                             uc::ThreadGroup::BLOCK};

/// All of four ranks but rank 2 make the call, on their own memory.
struct Deserted {
  std::deque<Aligned> memory;
  Ranks ranks{4};
  std::deque<std::array<DeviceCall, 3>> calls;

  Deserted() {
    std::vector<std::byte*> of_ranks;
    for (int rank = 0; rank < 4; ++rank)
      of_ranks.push_back(memory.emplace_back(DeviceBytes(4096)).get());
    ranks.add_piece(of_ranks, 4096);
  }
  DeviceCall* call(std::size_t rank, DeviceCall args) {
    args.send = memory[rank].get() + 1024;
    args.recv = memory[rank].get() + 2048;
    args.signal = reinterpret_cast<std::uint64_t*>(memory[rank].get());
    return calls.emplace_back(std::array{args, args, args}).data();
  }
};

TEST(DeviceWaits, EndWithTheTimeLimitInACollective) {
  for (const auto group : kGroups)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Deserted deserted;
      DeviceCall call = one_call(DeviceOp::all_reduce, group);
      call.count = 100;
      for (const std::size_t rank : {0U, 1U, 3U})
        deserted.ranks.launch(rank, deserted.call(rank, call), 3);
      deserted.ranks.launch_host(0);
      ASSERT_EQ("", deserted.ranks.run(seed));
      const device::wait_error& status = deserted.ranks.at(0).status;
      EXPECT_EQ(1U, status.given_up);
      EXPECT_EQ(device::wait_error::kProgram, status.kernel);
      EXPECT_EQ(2U, status.waited_for_rank);
      EXPECT_EQ(device::wait_error::time_limit, status.reason);
      EXPECT_EQ(1U, status.expected);
      EXPECT_EQ(0U, status.seen);
      EXPECT_EQ(0U, status.bytes);
    }
}

TEST(DeviceWaits, EndWithTheTimeLimitForASignal) {
  for (const auto group : kGroups) {
    Deserted deserted;
    DeviceCall call = one_call(DeviceOp::acknowledge, group);
    call.root = 2;
    call.value = 7;
    deserted.ranks.launch(1, deserted.call(1, call), 3);
    deserted.ranks.launch_host(1);
    ASSERT_EQ("", deserted.ranks.run(1));
    const device::wait_error& status = deserted.ranks.at(1).status;
    EXPECT_EQ(device::wait_error::time_limit, status.reason);
    EXPECT_EQ(2U, status.waited_for_rank);
    EXPECT_EQ(7U, status.expected);
    EXPECT_EQ(deserted.memory[1].address(), status.offset);
    EXPECT_EQ(8U, status.bytes);
  }
}

TEST(DeviceWaits, EndWithAnAbort) {
  for (const auto group : kGroups) {
    Deserted deserted;
    for (const std::size_t rank : {0U, 1U, 3U}) {
      deserted.ranks.at(rank).view.wait_ctx.time_limit_ns = ~std::uint64_t{0};
      deserted.ranks.at(rank).abort_flag = 1;
      deserted.ranks.launch(rank, deserted.call(rank, one_call(DeviceOp::barrier, group)), 3);
    }
    ASSERT_EQ("", deserted.ranks.run(3));
    for (const std::size_t rank : {0U, 1U, 3U})
      EXPECT_EQ(device::wait_error::aborted, deserted.ranks.at(rank).status.reason);
  }
}

TEST(DeviceCalls, WrongArguments_AreReported) {
  for (const auto group : kGroups)
    for (const int wrong : {0, 1, 2, 3, 4}) {
      Deserted deserted;
      DeviceCall call = one_call(DeviceOp::post, group);
      call.root = wrong == 0 ? 4 : wrong == 1 ? -1 : 1;
      call.count = wrong == 2 ? 2049 : 16;
      DeviceCall* const prepared = deserted.call(0, call);
      Aligned foreign(DeviceBytes(64));
      if (wrong == 3) prepared->recv = foreign.get();
      if (wrong == 4) prepared->signal = reinterpret_cast<std::uint64_t*>(foreign.get());
      std::memset(deserted.memory[0].get() + 1024, 0x5A, 1024);
      deserted.ranks.launch(0, prepared, 1);
      ASSERT_EQ("", deserted.ranks.run(1));
      const device::wait_error& status = deserted.ranks.at(0).status;
      EXPECT_EQ(1U, status.given_up);
      if (wrong < 2) {
        EXPECT_EQ(device::wait_error::bad_rank, status.reason);
        EXPECT_EQ(4U, status.expected);
        EXPECT_EQ(call.root, static_cast<std::int64_t>(status.seen));
      } else {
        EXPECT_EQ(device::wait_error::bad_memory, status.reason);
        EXPECT_EQ(wrong == 2 ? 2049U : wrong == 3 ? 16U : 8U, status.bytes);
      }
      for (std::size_t rank = 1; rank < 4; ++rank)
        for (std::size_t at = 0; at < 4096; ++at) {
          const bool is_sent = wrong == 4 && rank == 1 && at >= 2048 && at < 2064;
          ASSERT_EQ(is_sent ? std::byte{0x5A} : std::byte{0}, deserted.memory[rank].get()[at]);
        }
      EXPECT_EQ(DeviceBytes(64), foreign.bytes());
    }
}

// ---- What the tests are worth
// ---------------------------------------------------------------------

struct MutantCase {
  device_mutant fault;
  collective_mutant below;  ///< of polypath/device
  const char* name;
};
void PrintTo(const MutantCase& has_mutant, std::ostream* to) { *to << has_mutant.name; }

/// The number of the row that was found wrong; 0: none of them.
int first_wrong_row(int rows) {
  DeviceRandom random(1);
  for (int row = 1; row <= rows; ++row) {
    DeviceRowOptions options;
    options.ranks = 3 + row % 2;
    options.rounds = 12;
    options.max_bytes = row % 3 == 0 ? 200 : 4096;
    const std::uint64_t seed = random();
    if (!run_row(make_device_row(random, options), seed).empty()) return row;
  }
  return 0;
}

class DeviceMutant : public testing::TestWithParam<MutantCase> {
 protected:
  void TearDown() override {
    active_mutant<device_mutant> = device_mutant::none;
    active_mutant<collective_mutant> = collective_mutant::none;
  }
};
TEST_P(DeviceMutant, MakesRunsFail) {
  active_mutant<device_mutant> = GetParam().fault;
  active_mutant<collective_mutant> = GetParam().below;
  EXPECT_NE(0, first_wrong_row(60));
}

#define MUTANT(name) \
  MutantCase { device_mutant::name, collective_mutant::none, #name }
#define MUTANT_BELOW(name) \
  MutantCase { device_mutant::none, collective_mutant::name, #name }
INSTANTIATE_TEST_SUITE_P(
    Of, DeviceMutant,
    testing::Values(MUTANT(no_first_barrier), MUTANT(no_last_barrier), MUTANT(wrong_slot),
                    MUTANT(data_before_the_group), MUTANT(signal_before_data),
                    MUTANT(signal_before_the_group), MUTANT(signal_without_release),
                    MUTANT_BELOW(exact_value), MUTANT_BELOW(word_loaded_plainly),
                    MUTANT(group_ahead_of_its_leader), MUTANT(wrong_rank),
                    MUTANT(wait_without_fence), MUTANT_BELOW(barrier_without_release),
                    MUTANT_BELOW(barrier_of_neighbours), MUTANT_BELOW(barrier_not_counted),
                    MUTANT_BELOW(group_ahead_of_its_barrier), MUTANT_BELOW(own_part_first),
                    MUTANT_BELOW(slices_overlap)),
    [](const auto& test_info) { return std::string(test_info.param.name); });

TEST(WithoutAFault, NothingIsFound) { EXPECT_EQ(0, first_wrong_row(60)); }

}  // namespace
}  // namespace polypath::test
