#include "device_case.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "polypath/device/detail/half.cuh"
#include "polypath/uniconn/enums.hpp"

namespace polypath::test {
namespace {

constexpr std::size_t kWordsOfBlock = 16;  // signals; 8 of ranks that are `post`ed by, 8 by `tell`
constexpr std::size_t kSignalBytes = 2 * kWordsOfBlock * 8;
constexpr std::size_t kGuard = 64;

std::size_t below(DeviceRandom& random, std::size_t end) { return random() % end; }

DeviceBytes random_bytes(DeviceRandom& random, std::size_t count) {
  DeviceBytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::size_t bytes_of(DeviceSum sum) {
  switch (sum) {
    case DeviceSum::float64_prod:
    case DeviceSum::uint64_bxor: return 8;
    case DeviceSum::float32_sum:
    case DeviceSum::int32_max: return 4;
    case DeviceSum::float16_sum:
    case DeviceSum::bfloat16_min:
    case DeviceSum::uint16_land: return 2;
    case DeviceSum::int8_avg: break;
  }
  return 1;
}

template <typename T>
T at(const DeviceBytes& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}
template <typename T>
void put(DeviceBytes& bytes, std::size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
}

/// Elements of which any order but the right one gives another result, mostly; `whole`: floats are
/// integers, whose sums any order gives.
DeviceBytes random_elements(DeviceRandom& random, DeviceSum sum, std::size_t count, bool whole) {
  DeviceBytes bytes = random_bytes(random, count * bytes_of(sum));
  std::uniform_real_distribution<float> any(-3.0F, 3.0F);
  const auto some = [&] { return whole ? std::round(any(random)) : any(random); };
  for (std::size_t i = 0; i < count; ++i) {
    switch (sum) {
      case DeviceSum::float32_sum: put(bytes, i, some()); break;
      case DeviceSum::float64_prod: put(bytes, i, static_cast<double>(some())); break;
      case DeviceSum::float16_sum: put(bytes, i, device::to_float16(some())); break;
      case DeviceSum::bfloat16_min: put(bytes, i, device::to_bfloat16(some())); break;
      case DeviceSum::uint16_land:
        put(bytes, i, static_cast<std::uint16_t>(random() % 4 == 0 ? 0 : random()));
        break;
      case DeviceSum::int32_max:
      case DeviceSum::int8_avg:
      case DeviceSum::uint64_bxor: break;
    }
  }
  return bytes;
}

/// `parts` in rank order, one after another.
DeviceBytes combined(DeviceSum sum, const std::vector<DeviceBytes>& parts, std::size_t count) {
  DeviceBytes result(count * bytes_of(sum));
  const auto fold = [&]<typename T>(std::size_t i, T, auto widen, auto combine) {
    auto so_far = widen(at<T>(parts[0], i));
    for (std::size_t r = 1; r < parts.size(); ++r)
      so_far = combine(so_far, widen(at<T>(parts[r], i)));
    return so_far;
  };
  const auto same = [](auto value) { return value; };
  const auto wide = [](auto value) { return device::to_float(value); };
  for (std::size_t i = 0; i < count; ++i) {
    switch (sum) {
      case DeviceSum::float32_sum: put(result, i, fold(i, 0.0F, same, std::plus<>())); break;
      case DeviceSum::float64_prod: put(result, i, fold(i, 0.0, same, std::multiplies<>())); break;
      case DeviceSum::float16_sum:
        put(result, i, device::to_float16(fold(i, device::float16{}, wide, std::plus<>())));
        break;
      case DeviceSum::bfloat16_min:
        put(result, i, device::to_bfloat16(fold(i, device::bfloat16{}, wide, [](float a, float b) {
              return std::min(a, b);
            })));
        break;
      case DeviceSum::int32_max:
        put(result, i,
            fold(i, std::int32_t{}, same, [](auto a, auto b) { return std::max(a, b); }));
        break;
      case DeviceSum::int8_avg: {
        const int all =
            fold(i, std::int8_t{}, [](std::int8_t value) { return int{value}; }, std::plus<>());
        const auto wrapped = static_cast<std::int8_t>(all);
        put(result, i, static_cast<std::int8_t>(wrapped / static_cast<int>(parts.size())));
        break;
      }
      case DeviceSum::uint16_land:
        put(result, i,
            fold(
                i, std::uint16_t{}, [](std::uint16_t value) -> std::uint16_t { return value != 0; },
                [](std::uint16_t a, std::uint16_t b) -> std::uint16_t { return a & b; }));
        break;
      case DeviceSum::uint64_bxor:
        put(result, i, fold(i, std::uint64_t{}, same, std::bit_xor<>()));
        break;
    }
  }
  return result;
}

/// Makes a row, round by round, and carries on what each rank has.
class Maker {
 public:
  Maker(DeviceRandom& random, const DeviceRowOptions& options)
      : random_(random), options_(options), ranks_(static_cast<std::size_t>(options.ranks)) {
    row_.ranks = options.ranks;
    row_.blocks = options.blocks;
    row_.calls.resize(ranks_);
    slot_ = ranks_ * (options.max_bytes + 64) + 64;
    // For each piece of data two slots that are used repeatedly, and room for what is posted.
    const std::size_t bytes = 2 * (slot_ + kGuard) + options.rounds * 2 * (options.max_bytes + 128);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      auto& pieces = row_.before.emplace_back();
      pieces[0].resize(kSignalBytes);
      pieces[1] = random_bytes(random_, bytes);
      pieces[2] = random_bytes(random_, bytes);
    }
    row_.after = row_.before;
  }

  DeviceRowCase make() {
    for (std::size_t round = 0; round < options_.rounds; ++round)
      if (below(random_, 3) == 0) {
        post_round();
      } else {
        collective_round();
      }
    return std::move(row_);
  }

 private:
  using Each = std::vector<DeviceCallCase>;  // by rank

  DeviceBytes& now(std::size_t rank, const DeviceRegion& where) {
    return row_.after[rank][where.piece];
  }
  DeviceBytes read(std::size_t rank, const DeviceRegion& where, std::size_t bytes) {
    const auto begin = now(rank, where).begin() + static_cast<std::ptrdiff_t>(where.at);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
  }
  void write(std::size_t rank, const DeviceRegion& where, const DeviceBytes& bytes) {
    std::ranges::copy(bytes, now(rank, where).begin() + static_cast<std::ptrdiff_t>(where.at));
  }
  static DeviceRegion later(DeviceRegion where, std::size_t bytes) {
    where.at += bytes;
    return where;
  }

  std::size_t any_count(std::size_t element_bytes) {
    const std::size_t most = options_.max_bytes / element_bytes;
    switch (below(random_, 6)) {
      case 0: return 0;
      case 1: return 1;
      case 2: return std::min<std::size_t>(most, 1 + below(random_, 70));
      case 3: return most;
      default: return below(random_, most + 1);
    }
  }
  /// A slot, mostly not aligned to more than an element of it.
  DeviceRegion any_slot(std::size_t number, std::size_t element_bytes) {
    const std::size_t grain = element_bytes == 12 ? 4 : element_bytes;
    const std::size_t off = below(random_, 2) == 0 ? 0 : below(random_, 32 / grain) * grain;
    return {1 + number % 2, (number / 2 % 2) * (slot_ + kGuard) + off};
  }
  /// Memory that is used once.
  DeviceRegion once(std::size_t bytes, std::size_t element_bytes) {
    const std::size_t piece = 1 + below(random_, 2);
    std::size_t& next = posted_[piece];
    const std::size_t grain = element_bytes == 12 ? 4 : element_bytes;
    const DeviceRegion where{piece,
                             2 * (slot_ + kGuard) + next + below(random_, 16 / grain) * grain};
    next = (where.at - 2 * (slot_ + kGuard) + bytes + 15) / 16 * 16 + 16;
    return where;
  }

  DeviceCallCase blank(DeviceOp op) const {
    DeviceCallCase call_case;
    call_case.call.op = op;
    call_case.call.group = group_;
    call_case.call.element_bytes = 1;
    call_case.call.block = block_;
    return call_case;
  }
  void any_place() {
    group_ = static_cast<std::uint32_t>(below(random_, 3));
    block_ = static_cast<std::uint32_t>(below(random_, options_.blocks));
  }
  void finish(Each each) {
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      row_.calls[rank].push_back(std::move(each[rank]));
  }
  void look_at(std::size_t rank, DeviceCallCase& call_case, const DeviceRegion& where,
               std::size_t bytes) {
    call_case.look = where;
    call_case.expected = read(rank, where, bytes);
  }
  void fill(std::size_t rank, DeviceCallCase& call_case, const DeviceRegion& where,
            DeviceBytes bytes) {
    call_case.fill = where;
    call_case.in = std::move(bytes);
    write(rank, where, call_case.in);
  }

  // ---- From rank to rank
  // --------------------------------------------------------------------------

  /// Every rank posts once or twice to the rank `shift` after it, and then takes what came: by
  /// signals, after a Wait that it tells of itself, or after a barrier.
  void post_round() {
    any_place();
    const std::size_t shift = below(random_, ranks_);
    std::size_t kind = below(random_, 4);
    if (kind == 2 && !options_.tells) kind = 3;
    if (kind == 3) block_ = 0;  // barriers are of one block
    const std::size_t element = std::array<std::size_t, 3>{1, 8, 12}[below(random_, 3)];
    const std::size_t posts = kind < 2 ? 1 + below(random_, 2) : 1;
    struct PostArgs {
      DeviceRegion source, dest, word;
      std::uint64_t value;
      std::size_t count;
    };
    std::vector<PostArgs> all;
    for (std::size_t i = 0; i < posts; ++i) {
      const std::size_t count = any_count(element) / 2;
      const std::size_t word = block_ * kWordsOfBlock + (kind == 2 ? 8 : 0) + shift;
      values_[word] += 1 + below(random_, 5);
      all.push_back({once(count * element, element),
                     once(count * element, element),
                     {0, word * 8},
                     values_[word],
                     count});
    }
    std::vector<std::vector<DeviceBytes>> sent(posts, std::vector<DeviceBytes>(ranks_));
    for (std::size_t i = 0; i < posts; ++i) {
      const PostArgs& post_args = all[i];
      Each each(ranks_, blank(kind < 2 ? DeviceOp::post : DeviceOp::post_quietly));
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        DeviceCallCase& call_case = each[rank];
        sent[i][rank] = random_bytes(random_, post_args.count * element);
        fill(rank, call_case, post_args.source, sent[i][rank]);
        call_case.send = post_args.source;
        call_case.recv = post_args.dest;
        call_case.signal = post_args.word;
        call_case.call.value = post_args.value;
        call_case.call.root = static_cast<std::int32_t>((rank + shift) % ranks_);
        call_case.call.count = post_args.count;
        call_case.call.element_bytes = static_cast<std::uint32_t>(element);
      }
      finish(each);
    }
    if (kind == 2) {
      finish(Each(ranks_, blank(DeviceOp::wait)));
      Each each(ranks_, blank(DeviceOp::tell));
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        each[rank].signal = all[0].word;
        each[rank].call.value = all[0].value;
        each[rank].call.root = static_cast<std::int32_t>((rank + shift) % ranks_);
      }
      finish(each);
    }
    for (std::size_t i = 0; i < posts; ++i) {
      const PostArgs& post_args = all[i];
      Each each(ranks_, blank(kind == 3 ? DeviceOp::barrier : DeviceOp::acknowledge));
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        const std::size_t from = (rank + ranks_ - shift) % ranks_;
        DeviceCallCase& call_case = each[rank];
        call_case.recv = post_args.dest;
        call_case.signal = post_args.word;
        call_case.call.value = post_args.value;
        call_case.call.root = static_cast<std::int32_t>(from);
        call_case.call.count = post_args.count;
        write(rank, post_args.dest, sent[i][from]);
        if (kind != 3) {
          DeviceBytes word(8);
          std::memcpy(word.data(), &post_args.value, 8);
          write(rank, post_args.word, word);
        }
        look_at(rank, call_case, post_args.dest, post_args.count * element);
      }
      finish(each);
    }
  }

  // ---- Collectives
  // --------------------------------------------------------------------------------

  /// Parts of each rank, in a row with gaps.
  struct Parts {
    std::vector<std::size_t> counts, displs;
    std::size_t end = 0;
  };
  Parts any_parts(std::size_t element) {
    Parts parts;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      parts.counts.push_back(below(random_, 4) == 0 ? 0 : any_count(element));
    place(parts, element);
    return parts;
  }
  void place(Parts& parts, std::size_t element) {
    std::vector<std::size_t> order(ranks_);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random_);
    parts.displs.resize(ranks_);
    for (const std::size_t rank : order) {
      parts.displs[rank] = parts.end + below(random_, 2) * (32 / std::max<std::size_t>(element, 8));
      parts.end = parts.displs[rank] + parts.counts[rank];
    }
  }
  Parts even_parts(std::size_t count) const {
    Parts parts;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      parts.counts.push_back(count);
      parts.displs.push_back(rank * count);
    }
    parts.end = ranks_ * count;
    return parts;
  }

  void collective_round() {
    any_place();
    block_ = 0;
    constexpr std::array kAll{DeviceOp::all_gather, DeviceOp::all_gatherv, DeviceOp::all_reduce,
                              DeviceOp::reduce,     DeviceOp::all_to_all,  DeviceOp::all_to_allv,
                              DeviceOp::broadcast,  DeviceOp::gather,      DeviceOp::gatherv,
                              DeviceOp::scatter,    DeviceOp::scatterv};
    const DeviceOp op = kAll[below(random_, kAll.size())];
    const bool may_be_in_place = op != DeviceOp::all_to_all && op != DeviceOp::all_to_allv;
    in_place_ = op == DeviceOp::broadcast || (may_be_in_place && below(random_, 2) == 0);
    root_ = below(random_, ranks_);
    const std::size_t slot = below(random_, 4);
    if (op == DeviceOp::all_reduce || op == DeviceOp::reduce) return reduction(op, slot);
    element_ = std::array<std::size_t, 3>{1, 8, 12}[below(random_, 3)];
    send_ = any_slot(slot, element_);
    recv_ = in_place_ ? send_ : any_slot(slot + 1, element_);
    switch (op) {
      case DeviceOp::all_gather: return gathered(op, even_parts(any_count(element_)), true);
      case DeviceOp::all_gatherv: return gathered(op, any_parts(element_), true);
      case DeviceOp::gather: return gathered(op, even_parts(any_count(element_)), false);
      case DeviceOp::gatherv: return gathered(op, any_parts(element_), false);
      case DeviceOp::scatter: return scattered(op, even_parts(any_count(element_)));
      case DeviceOp::scatterv: return scattered(op, any_parts(element_));
      case DeviceOp::all_to_all: return all_to_all(op, true);
      case DeviceOp::all_to_allv: return all_to_all(op, false);
      case DeviceOp::broadcast: return broadcast();
      case DeviceOp::post:
      case DeviceOp::acknowledge:
      case DeviceOp::post_quietly:
      case DeviceOp::wait:
      case DeviceOp::tell:
      case DeviceOp::barrier:
      case DeviceOp::all_reduce:
      case DeviceOp::reduce: return;
    }
  }

  Each all_blank(DeviceOp op, const Parts& parts) {
    Each each(ranks_, blank(op));
    for (DeviceCallCase& call_case : each) {
      call_case.send = send_;
      call_case.recv = recv_;
      call_case.call.element_bytes = static_cast<std::uint32_t>(element_);
      call_case.call.is_in_place = in_place_ ? 1 : 0;
      call_case.call.root = static_cast<std::int32_t>(root_);
      call_case.call.count = parts.counts[0];
      call_case.counts = parts.counts;
      call_case.displs = parts.displs;
    }
    return each;
  }
  void look_at_all(Each& each, std::size_t bytes) {
    for (std::size_t rank = 0; rank < ranks_; ++rank) look_at(rank, each[rank], recv_, bytes);
    finish(each);
  }

  void gathered(DeviceOp op, const Parts& parts, bool to_all) {
    Each each = all_blank(op, parts);
    std::vector<DeviceBytes> own(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t bytes = parts.counts[rank] * element_;
      fill(rank, each[rank], send_,
           random_bytes(random_, in_place_ ? parts.end * element_ : bytes));
      own[rank] =
          read(rank, in_place_ ? later(recv_, parts.displs[rank] * element_) : send_, bytes);
    }
    for (std::size_t to = 0; to < ranks_; ++to)
      for (std::size_t from = 0; from < ranks_ && (to_all || to == root_); ++from)
        write(to, later(recv_, parts.displs[from] * element_), own[from]);
    look_at_all(each, parts.end * element_);
  }

  void scattered(DeviceOp op, const Parts& parts) {
    Each each = all_blank(op, parts);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      fill(rank, each[rank], send_, random_bytes(random_, parts.end * element_));
    std::vector<DeviceBytes> all;
    for (std::size_t to = 0; to < ranks_; ++to)
      all.push_back(
          read(root_, later(send_, parts.displs[to] * element_), parts.counts[to] * element_));
    for (std::size_t to = 0; to < ranks_; ++to)
      write(to, in_place_ ? later(recv_, parts.displs[to] * element_) : recv_, all[to]);
    look_at_all(each, parts.end * element_);
  }

  void all_to_all(DeviceOp op, bool is_even) {
    const std::size_t count = any_count(element_);
    std::vector<Parts> sent;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      sent.push_back(is_even ? even_parts(count) : any_parts(element_));
    Each each = all_blank(op, sent[0]);
    std::size_t end = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      Parts received;
      for (std::size_t from = 0; from < ranks_; ++from)
        received.counts.push_back(sent[from].counts[rank]);
      if (is_even)
        received = even_parts(count);
      else
        place(received, element_);
      each[rank].counts = sent[rank].counts;
      each[rank].displs = sent[rank].displs;
      each[rank].rdispls = received.displs;
      each[rank].call.count = count;
      end = std::max(end, received.end);
      fill(rank, each[rank], send_, random_bytes(random_, sent[rank].end * element_));
    }
    for (std::size_t to = 0; to < ranks_; ++to)
      for (std::size_t from = 0; from < ranks_; ++from)
        write(to, later(recv_, each[to].rdispls[from] * element_),
              read(from, later(send_, sent[from].displs[to] * element_),
                   sent[from].counts[to] * element_));
    look_at_all(each, end * element_);
  }

  void broadcast() {
    Parts parts = even_parts(any_count(element_));
    Each each = all_blank(DeviceOp::broadcast, parts);
    const std::size_t bytes = parts.counts[0] * element_;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      fill(rank, each[rank], send_, random_bytes(random_, bytes));
    const DeviceBytes roots = read(root_, send_, bytes);
    for (std::size_t to = 0; to < ranks_; ++to) write(to, recv_, roots);
    look_at_all(each, bytes);
  }

  void reduction(DeviceOp op, std::size_t slot) {
    constexpr std::array kFew{DeviceSum::float32_sum, DeviceSum::float16_sum,
                              DeviceSum::uint64_bxor};
    auto sum = options_.has_all_sums ? static_cast<DeviceSum>(below(random_, kDeviceSums))
                                     : kFew[below(random_, kFew.size())];
    if (group_ != static_cast<std::uint32_t>(uniconn::ThreadGroup::BLOCK))
      sum = DeviceSum::float32_sum;
    element_ = bytes_of(sum);
    send_ = any_slot(slot, element_);
    recv_ = in_place_ ? send_ : any_slot(slot + 1, element_);
    const Parts parts = even_parts(any_count(element_));
    const std::size_t count = parts.counts[0];
    Each each = all_blank(op, parts);
    std::vector<DeviceBytes> all;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      each[rank].call.sum = sum;
      all.push_back(random_elements(random_, sum, count, options_.sums_in_any_order));
      fill(rank, each[rank], send_, all.back());
    }
    const DeviceBytes result = combined(sum, all, count);
    for (std::size_t to = 0; to < ranks_; ++to)
      if (op == DeviceOp::all_reduce || to == root_) write(to, recv_, result);
    look_at_all(each, result.size());
  }

  DeviceRandom& random_;
  const DeviceRowOptions& options_;
  std::size_t ranks_;
  DeviceRowCase row_;
  std::size_t slot_ = 0;
  std::array<std::size_t, kDevicePieces> posted_{};
  std::array<std::uint64_t, 2 * kWordsOfBlock> values_{};
  // For the round.
  std::uint32_t group_ = 0;
  std::uint32_t block_ = 0;
  bool in_place_ = false;
  std::size_t root_ = 0;
  std::size_t element_ = 1;
  DeviceRegion send_, recv_;
};

/// Where things lie in what a rank's kernel has of its own.
struct Packed {
  std::size_t counts, displs, rdispls, in, out;
};
std::size_t aligned(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
std::vector<Packed> places(const std::vector<DeviceCallCase>& calls, std::size_t& end) {
  std::vector<Packed> all;
  end = aligned(calls.size() * sizeof(DeviceCall));
  const auto take = [&end](std::size_t bytes) {
    const std::size_t begin = end;
    end = aligned(end + bytes);
    return begin;
  };
  for (const DeviceCallCase& call_case : calls)
    all.push_back({take(call_case.counts.size() * 8), take(call_case.displs.size() * 8),
                   take(call_case.rdispls.size() * 8), take(call_case.in.size()),
                   take(call_case.expected.size())});
  return all;
}

constexpr std::byte kPoison{0xA7};

}  // namespace

std::string DeviceRowCase::text(std::size_t call) const {
  const DeviceCall& device_call = calls[0][call].call;
  return "call " + std::to_string(call) + ": operation " +
         std::to_string(static_cast<unsigned>(device_call.op)) + " of group " +
         std::to_string(device_call.group) + ", " + std::to_string(device_call.count) + " x " +
         std::to_string(device_call.element_bytes) + " B, root " +
         std::to_string(device_call.root) + (device_call.is_in_place != 0 ? ", in place" : "") +
         ", sum " + std::to_string(static_cast<unsigned>(device_call.sum));
}

DeviceRowCase make_device_row(DeviceRandom& random, const DeviceRowOptions& options) {
  return Maker(random, options).make();
}

DeviceBytes pack(const DeviceRowCase& row, int rank, std::uint64_t begin,
                 const std::array<std::uint64_t, kDevicePieces>& own,
                 const std::vector<std::uint64_t>& remote_signals) {
  const auto& calls = row.calls[static_cast<std::size_t>(rank)];
  std::size_t end = 0;
  const std::vector<Packed> all = places(calls, end);
  DeviceBytes bytes(end, kPoison);
  const auto inside = [&](std::size_t at) { return reinterpret_cast<void*>(begin + at); };
  const auto list = [&](std::size_t at, const std::vector<std::size_t>& from) {
    std::ranges::copy(std::as_bytes(std::span(from)),
                      bytes.begin() + static_cast<std::ptrdiff_t>(at));
    return static_cast<const std::size_t*>(inside(at));
  };
  const auto place = [&](const DeviceRegion& where) {
    return reinterpret_cast<void*>(own[where.piece] + where.at);
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const DeviceCallCase& call_case = calls[i];
    DeviceCall device_call = call_case.call;
    device_call.send = place(call_case.send);
    device_call.recv = place(call_case.recv);
    device_call.signal = static_cast<std::uint64_t*>(place(call_case.signal));
    if (device_call.op == DeviceOp::tell)
      device_call.recv = reinterpret_cast<void*>(
          remote_signals[static_cast<std::size_t>(device_call.root)] + call_case.signal.at);
    device_call.counts = list(all[i].counts, call_case.counts);
    device_call.displs = list(all[i].displs, call_case.displs);
    device_call.rdispls = list(all[i].rdispls, call_case.rdispls);
    device_call.in = inside(all[i].in);
    device_call.in_bytes = call_case.in.size();
    device_call.fill = place(call_case.fill);
    device_call.look = place(call_case.look);
    device_call.out = inside(all[i].out);
    device_call.out_bytes = call_case.expected.size();
    std::ranges::copy(call_case.in, bytes.begin() + static_cast<std::ptrdiff_t>(all[i].in));
    std::memcpy(bytes.data() + i * sizeof device_call, &device_call, sizeof device_call);
  }
  return bytes;
}

std::string wrong_bytes(const DeviceRowCase& row, int rank, const DeviceBytes& packed,
                        const std::array<DeviceBytes, kDevicePieces>& pieces) {
  const auto at = static_cast<std::size_t>(rank);
  const auto& calls = row.calls[at];
  std::size_t end = 0;
  const std::vector<Packed> all = places(calls, end);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const DeviceBytes& expected = calls[i].expected;
    for (std::size_t b = 0; b < expected.size(); ++b)
      if (packed[all[i].out + b] != expected[b])
        return "rank " + std::to_string(rank) + ", " + row.text(i) + ": byte " + std::to_string(b) +
               " of " + std::to_string(expected.size());
  }
  for (std::size_t piece = 0; piece < kDevicePieces; ++piece)
    for (std::size_t b = 0; b < pieces[piece].size(); ++b)
      if (pieces[piece][b] != row.after[at][piece][b])
        return "rank " + std::to_string(rank) + ": byte " + std::to_string(b) + " of piece " +
               std::to_string(piece) + " in the end";
  return {};
}

}  // namespace polypath::test
