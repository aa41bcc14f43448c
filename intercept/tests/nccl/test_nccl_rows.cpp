// Rows of random calls: groups and calls of several communicators, taken ones and others, messages
// between them. Each rank puts what is taken on a stream of its own choice. Every byte of every
// buffer is compared, and the number of calls by each library with what the choice says.
#include <gmock/gmock.h>

#include <algorithm>
#include <barrier>
#include <functional>

#include "nccl/offload_policy.hpp"
#include "nccl_ranks.hpp"
#include "polypath/uniconn/reduction.hpp"

namespace polypath::test {
namespace {

using nccl::Operation;
using testing::Each;

constexpr int kRanks = 4;
constexpr int kMessage = nccl::kOperationCount;  // next to the operations: a ring of messages

/// One call, the same on all ranks.
struct Step {
  int what = 0;
  int comm = 0;  ///< 0: all ranks; 1: two halves
  std::size_t count = 0;
  int type = 0;
  int reduction = 0;
  int root = 0;
  bool in_place = false;
  int starts = 0;  ///< groups that begin before it
  int ends = 0;    ///< groups that end after it
  unsigned seed = 0;

  [[nodiscard]] bool is_message() const { return what == kMessage; }
  [[nodiscard]] Operation operation() const { return static_cast<Operation>(what); }
};

int pick(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

std::vector<Step> steps_of(unsigned seed, int length) {
  constexpr std::array kTypes{0, 2, 4, 6, 7, 8, 9};
  std::mt19937 random(seed);
  std::vector<Step> steps(static_cast<std::size_t>(length));
  int left = 0;  // in the group
  for (Step& step : steps) {
    step.comm = pick(random, 0, 1);
    step.what = pick(random, 0, kMessage);
    step.type = kTypes.at(static_cast<std::size_t>(pick(random, 0, kTypes.size() - 1)));
    step.reduction = pick(random, 0, 4);
    step.root = pick(random, 0, step.comm == 0 ? 3 : 1);
    step.count = static_cast<std::size_t>(pick(random, 0, 5) == 0 ? pick(random, 1, 9000)
                                                                  : pick(random, 1, 70));
    step.in_place = pick(random, 0, 1) == 1 && step.what != 5;
    step.seed = random();
    if (left == 0 && pick(random, 0, 1) == 1) {
      left = pick(random, 1, 5);
      step.starts = 1;
    } else if (left > 0 && pick(random, 0, 4) == 0) {
      step.starts = step.ends = 1;  // one within the other
    }
    if (left > 0 && (--left == 0 || &step == &steps.back())) {
      ++step.ends;
      left = 0;
    }
  }
  return steps;
}

/// Small whole numbers, which all types hold and all operators give exactly.
Bytes content(const Step& step, int rank, std::size_t count) {
  using namespace polypath::device;
  std::mt19937 random(step.seed * 7 + static_cast<unsigned>(rank));
  Bytes bytes;
  const auto add = [&](const auto value) {
    const auto* const first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const int value = pick(random, -3, 3);
    switch (step.type) {
      case 0: add(static_cast<std::int8_t>(value)); break;
      case 2: add(static_cast<std::int32_t>(value)); break;
      case 4: add(static_cast<std::int64_t>(value)); break;
      case 6: add(to_float16(static_cast<float>(value))); break;
      case 7: add(static_cast<float>(value)); break;
      case 8: add(static_cast<double>(value)); break;
      default: add(to_bfloat16(static_cast<float>(value))); break;
    }
  }
  return bytes;
}

template <typename T, typename Wide = T, typename Widen = std::identity,
          typename Narrow = std::identity>
void combine(Bytes& result, const std::vector<Bytes>& parts, int reduction, Widen widen = {},
             Narrow narrow = {}) {
  for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
    Wide all{};
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      T value{};
      std::memcpy(&value, &parts[rank][at], sizeof value);
      const Wide wide = widen(value);
      if (rank == 0) {
        all = wide;
      } else if (reduction == 1) {
        all = static_cast<Wide>(all * wide);
      } else if (reduction == 2) {
        all = std::max(all, wide);
      } else if (reduction == 3) {
        all = std::min(all, wide);
      } else {
        all = static_cast<Wide>(all + wide);
      }
    }
    if (reduction == 4) all = static_cast<Wide>(all / static_cast<Wide>(parts.size()));
    const T value = narrow(all);
    std::memcpy(&result[at], &value, sizeof value);
  }
}

Bytes combined(const Step& step, const std::vector<Bytes>& parts) {
  using namespace polypath::device;
  Bytes result = parts.front();
  switch (step.type) {
    case 0: combine<std::int8_t>(result, parts, step.reduction); break;
    case 2: combine<std::int32_t>(result, parts, step.reduction); break;
    case 4: combine<std::int64_t>(result, parts, step.reduction); break;
    case 6:
      combine<float16, float>(
          result, parts, step.reduction, [](float16 value) { return to_float(value); },
          &to_float16);
      break;
    case 7: combine<float>(result, parts, step.reduction); break;
    case 8: combine<double>(result, parts, step.reduction); break;
    default:
      combine<bfloat16, float>(
          result, parts, step.reduction, [](bfloat16 value) { return to_float(value); },
          &to_bfloat16);
      break;
  }
  return result;
}

/// One rank's part of a step, with its buffers.
class Part {
 public:
  /// `shift`: where in their allocations this rank has its buffers.
  Part(const Step& step, const NcclRank& member, std::size_t shift)
      : step_(step),
        member_(member),
        one_(step.count * nccl::bytes_of_type(step.type)),
        size_(static_cast<std::size_t>(member.size)),
        rank_(static_cast<std::size_t>(member.rank)),
        sent_(one_ * (is(Operation::reduce_scatter) || is(Operation::all_to_all) ? size_ : 1)),
        received_(one_ * (is(Operation::all_gather) || is(Operation::all_to_all) ? size_ : 1)),
        send_(step.in_place ? std::max(sent_, received_) : sent_, shift),
        recv_(received_, shift) {
    const std::size_t at = step.in_place && is(Operation::all_gather) ? one_ * rank_ : 0;
    send_at_ = at;
    send_.put(at, content(step, member.rank, sent_ / nccl::bytes_of_type(step.type)));
  }

  void call(CUstream stream) const {
    const NcclApi& nccl = member_.nccl;
    const void* const from = send_.get(send_at_);
    void* const to = !step_.in_place                 ? recv_.get()
                     : is(Operation::reduce_scatter) ? send_.get(one_ * rank_)
                                                     : send_.get();
    const auto count = step_.count;
    if (step_.is_message()) {
      const int next = (member_.rank + 1) % member_.size;
      const int before = (member_.rank + member_.size - 1) % member_.size;
      NCCL_OK(nccl.ncclGroupStart());
      NCCL_OK(nccl.ncclSend(from, one_, 0, next, member_.comm, stream));
      NCCL_OK(nccl.ncclRecv(recv_.get(), one_, 0, before, member_.comm, stream));
      NCCL_OK(nccl.ncclGroupEnd());
      return;
    }
    switch (step_.operation()) {
      case Operation::all_reduce:
        return NCCL_OK(
            nccl.ncclAllReduce(from, to, count, step_.type, step_.reduction, member_.comm, stream));
      case Operation::reduce_scatter:
        return NCCL_OK(nccl.ncclReduceScatter(from, to, count, step_.type, step_.reduction,
                                              member_.comm, stream));
      case Operation::reduce:
        return NCCL_OK(nccl.ncclReduce(from, to, count, step_.type, step_.reduction, step_.root,
                                       member_.comm, stream));
      case Operation::all_gather:
        return NCCL_OK(nccl.ncclAllGather(from, to, count, step_.type, member_.comm, stream));
      case Operation::broadcast:
        return NCCL_OK(
            nccl.ncclBroadcast(from, to, count, step_.type, step_.root, member_.comm, stream));
      case Operation::all_to_all:
        return NCCL_OK(nccl.ncclAlltoAll(from, to, count, step_.type, member_.comm, stream));
    }
  }

  /// Every byte of both buffers.
  void check() const {
    Bytes send(step_.in_place ? std::max(sent_, received_) : sent_, kPoison);
    Bytes recv(received_, kPoison);
    const Bytes contents = content(step_, member_.rank, sent_ / nccl::bytes_of_type(step_.type));
    std::ranges::copy(contents, send.begin() + static_cast<std::ptrdiff_t>(send_at_));
    const bool in_place = step_.in_place && !step_.is_message();
    Bytes& image = in_place ? send : recv;
    const std::size_t at = in_place && is(Operation::reduce_scatter) ? one_ * rank_ : 0;
    const Bytes result = expected();
    std::ranges::copy(result, image.begin() + static_cast<std::ptrdiff_t>(at));
    const std::string where =
        "operation " + std::to_string(step_.what) + ", type " + std::to_string(step_.type) +
        ", operator " + std::to_string(step_.reduction) + ", " + std::to_string(step_.count) +
        " elements, rank " + std::to_string(member_.rank) + " of " + std::to_string(member_.size);
    if (send_.all() != send) throw std::runtime_error("what is sent is wrong: " + where);
    if (recv_.all() != recv) throw std::runtime_error("what is received is wrong: " + where);
    if (!send_.is_guarded() || !recv_.is_guarded()) throw std::runtime_error("beside: " + where);
  }

 private:
  [[nodiscard]] bool is(Operation operation) const {
    return !step_.is_message() && step_.operation() == operation;
  }
  /// What this rank gets; empty: nothing.
  [[nodiscard]] Bytes expected() const {
    std::vector<Bytes> all;
    for (int rank = 0; rank < member_.size; ++rank)
      all.push_back(content(step_, rank, sent_ / nccl::bytes_of_type(step_.type)));
    const auto part = [&](const Bytes& bytes, std::size_t index) {
      const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(one_ * index);
      return Bytes(first, first + static_cast<std::ptrdiff_t>(one_));
    };
    if (step_.is_message()) return all[(rank_ + size_ - 1) % size_];
    Bytes whole;
    switch (step_.operation()) {
      case Operation::all_reduce: return combined(step_, all);
      case Operation::reduce_scatter: return part(combined(step_, all), rank_);
      case Operation::reduce: return step_.root == member_.rank ? combined(step_, all) : Bytes();
      case Operation::broadcast: return all[static_cast<std::size_t>(step_.root)];
      case Operation::all_gather:
        for (const Bytes& contents : all)
          whole.insert(whole.end(), contents.begin(), contents.end());
        return whole;
      case Operation::all_to_all:
        for (const Bytes& contents : all) {
          const Bytes own_part = part(contents, rank_);
          whole.insert(whole.end(), own_part.begin(), own_part.end());
        }
        return whole;
    }
    return whole;
  }

  const Step& step_;
  const NcclRank& member_;
  std::size_t one_;
  std::size_t size_;
  std::size_t rank_;
  std::size_t sent_;
  std::size_t received_;
  std::size_t send_at_ = 0;
  DeviceBytes send_;
  DeviceBytes recv_;
};

/// As the ranks agreed: reproducible, and nothing measured.
bool is_taken(const Step& step, int ranks) {
  nccl::Policy policy;
  policy.reproducible = true;
  return !step.is_message() && nccl::choose(policy, step.operation(), step.count, step.type,
                                            step.reduction, ranks) == nccl::DeclineReason::taken;
}

void run_row(NcclRank& all, NcclRank& half, unsigned seed, int length) {
  const std::vector<Step> steps = steps_of(seed, length);
  std::mt19937 own(seed * 31 + static_cast<unsigned>(all.rank));  // this rank's choices
  std::vector<std::unique_ptr<Part>> parts;
  const auto rank_of = [&](const Step& step) -> NcclRank& { return step.comm == 0 ? all : half; };
  for (const Step& step : steps) {
    // Addresses are a rank's own; now and then they are none that kernels could have.
    const auto shift = static_cast<std::size_t>(pick(own, 0, 15) * 16 + (pick(own, 0, 7) == 0));
    parts.push_back(std::make_unique<Part>(step, rank_of(step), shift));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    for (int group = 0; group < step.starts; ++group) NCCL_OK(all.nccl.ncclGroupStart());
    // What stands in for NCCL has no order between streams.
    const bool taken = is_taken(step, rank_of(step).size);
    parts[i]->call(all.streams[static_cast<std::size_t>(taken ? pick(own, 0, 1) : 0)]);
    for (int group = 0; group < step.ends; ++group) NCCL_OK(all.nccl.ncclGroupEnd());
  }
  all.synchronize();
  for (const auto& part : parts) part->check();
}

TEST(NcclRows, RandomCallsInRandomGroups) {
  const char* const requested = std::getenv("POLYPATH_TEST_ROWS");
  const unsigned rows = requested != nullptr ? static_cast<unsigned>(std::atoi(requested)) : 6;
  constexpr int kLength = 20;
  std::map<std::string, std::pair<int, int>> expected;  // taken, NCCL's
  for (unsigned row = 1; row <= rows; ++row)
    for (const Step& step : steps_of(row, kLength)) {
      const int ranks = step.comm == 0 ? kRanks : kRanks / 2;
      if (step.is_message()) continue;
      auto& [taken, by_nccl] = expected[nccl::name_of(step.operation())];
      (is_taken(step, ranks) ? taken : by_nccl) += kRanks;
    }
  std::map<std::string, CountsOf> counts;
  for (const auto& [function, calls] : expected) counts.emplace(function, function);
  int gathers = 0;
  std::barrier together(kRanks);
  EXPECT_THAT(on_nccl_ranks(kRanks,
                            [&](NcclRank& all) {
                              NcclRank half = all;
                              NCCL_OK(all.nccl.ncclCommSplit(all.comm, all.rank % 2, all.rank,
                                                             &half.comm, nullptr));
                              half.rank = all.rank / 2;
                              half.size = 2;
                              // The ranks agreed by some NCCL copies.
                              together.arrive_and_wait();
                              if (all.rank == 0) gathers = counts.at("ncclAllGather").by_nccl();
                              together.arrive_and_wait();
                              for (unsigned row = 1; row <= rows; ++row)
                                run_row(all, half, row, kLength);
                              NCCL_OK(all.nccl.ncclCommDestroy(half.comm));
                            }),
              Each(""));
  for (const auto& [function, calls] : expected) {
    EXPECT_EQ(counts.at(function).taken(), calls.first) << function;
    const int before = function == "ncclAllGather" ? gathers : 0;
    EXPECT_EQ(counts.at(function).by_nccl() - before, calls.second) << function;
  }
}

}  // namespace
}  // namespace polypath::test
