#include "collective_case.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <ranges>
#include <type_traits>

#include "collectives/plan/request.hpp"
#include "polypath/device/detail/half.cuh"

namespace polypath::test {
namespace {

const char* name_of(Placement placement) {
  switch (placement) {
    case Placement::apart: return "";
    case Placement::in_place: return " in place";
    case Placement::own_part: return " in place, by its own part";
  }
  return "?";
}

float widened(device::float16 value) { return device::to_float(value); }
float widened(device::bfloat16 value) { return device::to_float(value); }
template <typename T>
T widened(T value) {
  return value;
}

template <typename T, typename Sum>
T narrowed(Sum sum) {
  if constexpr (std::is_same_v<T, device::float16>)
    return device::to_float16(sum);
  else if constexpr (std::is_same_v<T, device::bfloat16>)
    return device::to_bfloat16(sum);
  else
    return sum;
}

/// Integers wrap: their arithmetic is that of the unsigned type.
template <typename Sum, typename Operation>
Sum arithmetic(Sum a, Sum b, const Operation& operation) {
  if constexpr (std::is_integral_v<Sum>) {
    using Wide = std::uint64_t;
    return static_cast<Sum>(operation(static_cast<Wide>(a), static_cast<Wide>(b)));
  } else {
    return operation(a, b);
  }
}

template <typename Sum>
Sum combined(Operator reduction, Sum a, Sum b) {
  switch (reduction) {
    case Operator::sum:
    case Operator::avg: return arithmetic(a, b, [](auto x, auto y) { return x + y; });
    case Operator::product: return arithmetic(a, b, [](auto x, auto y) { return x * y; });
    case Operator::min: return b < a ? b : a;
    case Operator::max: return a < b ? b : a;
  }
  return a;
}

/// `count` elements, combined as a tree: the first half are the largest power of 2 of them.
template <typename T>
T tree_of(Operator reduction, const T* elements, std::size_t count) {
  if (count == 1) return elements[0];
  const std::size_t half = std::bit_floor(count - 1);
  const T left = tree_of(reduction, elements, half);
  const T right = tree_of(reduction, elements + half, count - half);
  return narrowed<T>(combined(reduction, widened(left), widened(right)));
}

/// Element `index` of the elementwise combination of all inputs.
template <typename T>
void combine(const CollectiveCase& what, const std::vector<Bytes>& inputs, std::uint64_t first,
             Bytes& result) {
  for (std::uint64_t i = 0; i < result.size() / sizeof(T); ++i) {
    using Sum = decltype(widened(T{}));
    const auto sum_of = [&](const auto& ranks) {
      Sum sum{};
      bool is_first = true;
      for (const std::uint32_t rank : ranks) {
        T element;
        std::memcpy(&element, inputs[rank].data() + (first + i) * sizeof(T), sizeof(T));
        sum = is_first ? widened(element) : combined(what.reduction, sum, widened(element));
        is_first = false;
      }
      return sum;
    };
    Sum sum{};
    if (what.order == SumOrder::tree) {
      std::vector<T> elements(what.ranks);
      for (std::uint32_t rank = 0; rank < what.ranks; ++rank)
        std::memcpy(&elements[rank], inputs[rank].data() + (first + i) * sizeof(T), sizeof(T));
      sum = widened(tree_of(what.reduction, elements.data(), elements.size()));
    } else if (what.nodes.empty()) {
      sum = sum_of(std::views::iota(0U, what.ranks));
    }
    const std::size_t nodes = what.order == SumOrder::tree ? 0 : what.nodes.size();
    for (std::size_t node = 0; node < nodes; ++node) {
      const Sum node_sum = widened(narrowed<T>(sum_of(what.nodes[node])));
      sum = node == 0 ? node_sum : combined(what.reduction, sum, node_sum);
    }
    if (what.reduction == Operator::avg) sum = static_cast<Sum>(sum / static_cast<Sum>(what.ranks));
    const T element = narrowed<T>(sum);
    std::memcpy(result.data() + i * sizeof(T), &element, sizeof(T));
  }
}

/// What memory holds: much of it, so made faster than choices are (splitmix64).
class Contents {
 public:
  explicit Contents(Random& random) : state_(random()) {}
  std::uint64_t operator()() {
    std::uint64_t value = state_ += 0x9E3779B97F4A7C15U;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
    value = (value ^ value >> 27) * 0x94D049BB133111EBU;
    return value ^ value >> 31;
  }

 private:
  std::uint64_t state_;
};

template <typename T>
void put_random(Contents& random, unsigned char* to) {
  // +- 1 to 2, times a power of 2 from 1/8 to 4: sums round, products of eight stay finite but for
  // float16, and nothing becomes a NaN.
  const std::uint64_t bits = random();
  const auto fraction = 1.0F + static_cast<float>(bits % (1U << 20)) / static_cast<float>(1U << 20);
  const auto scale = static_cast<float>(1U << ((bits >> 20) % 6)) / 8.0F;
  const float value = ((bits >> 32) & 1U) != 0 ? -fraction * scale : fraction * scale;
  T element;
  if constexpr (std::is_same_v<T, device::float16>)
    element = device::to_float16(value);
  else if constexpr (std::is_same_v<T, device::bfloat16>)
    element = device::to_bfloat16(value);
  else
    element = static_cast<T>(value) * static_cast<T>(1.0 + 1e-9 * static_cast<double>(bits >> 44));
  std::memcpy(to, &element, sizeof(T));
}

/// Eight bytes at a time, each with the bits of `always` besides.
void fill(Contents random, Bytes& bytes, unsigned char always = 0) {
  constexpr std::uint64_t kEachByte = 0x0101010101010101;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t bits = random() | kEachByte * always;
    std::memcpy(&bytes[at], &bits, std::min(sizeof bits, bytes.size() - at));
  }
}

/// One of them.
template <typename T, std::size_t kCount>
T one_of(Random& random, const std::array<T, kCount>& choices) {
  return choices[random() % kCount];
}

}  // namespace

Bytes combined_inputs(const CollectiveCase& what, const std::vector<Bytes>& inputs,
                      std::uint64_t first, std::uint64_t count) {
  Bytes result(count * size_of(what.type));
  switch (what.type) {
    case DataType::int8: combine<std::int8_t>(what, inputs, first, result); break;
    case DataType::uint8: combine<std::uint8_t>(what, inputs, first, result); break;
    case DataType::int32: combine<std::int32_t>(what, inputs, first, result); break;
    case DataType::uint32: combine<std::uint32_t>(what, inputs, first, result); break;
    case DataType::int64: combine<std::int64_t>(what, inputs, first, result); break;
    case DataType::uint64: combine<std::uint64_t>(what, inputs, first, result); break;
    case DataType::float16: combine<device::float16>(what, inputs, first, result); break;
    case DataType::bfloat16: combine<device::bfloat16>(what, inputs, first, result); break;
    case DataType::float32: combine<float>(what, inputs, first, result); break;
    case DataType::float64: combine<double>(what, inputs, first, result); break;
  }
  return result;
}

std::uint64_t CollectiveCase::part_begin(std::uint32_t rank) const {
  return parts.empty() ? rank * count
                       : std::accumulate(parts.begin(), parts.begin() + rank, std::uint64_t{0});
}

std::uint64_t CollectiveCase::in_bytes(std::uint32_t rank) const {
  const bool many = op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_to_all;
  return (many ? part_begin(ranks) : part_count(rank)) * size_of(type);
}

std::uint64_t CollectiveCase::out_bytes(std::uint32_t rank) const {
  const bool many = op == CollectiveOp::all_gather || op == CollectiveOp::all_to_all;
  return (many ? part_begin(ranks) : part_count(rank)) * size_of(type);
}

std::uint64_t CollectiveCase::part_offset(std::uint32_t rank) const {
  return placement == Placement::own_part ? part_begin(rank) * size_of(type) : 0;
}

std::uint32_t CollectiveCase::blocks_of(std::uint32_t rank) const {
  return rank_blocks.empty() ? blocks : std::min(blocks, rank_blocks[rank]);
}

std::string CollectiveCase::text() const {
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  return std::string(to_string(op)) + " of " + number(count) + " " + std::string(to_string(type)) +
         (combines(op) ? " " + std::string(to_string(reduction)) : "") + ", " + number(ranks) +
         " ranks, root " + number(root) + ", " + to_string(family) +
         (family == KernelFamily::channels
              ? ", tiles of " + number(tile_bytes) + ", lag " + number(lag)
              : "") +
         ", " + number(static_cast<std::uint64_t>(stages)) + " stages, " + number(blocks) +
         " blocks" + name_of(placement) + ", shifted by " + number(in_shift) + " and " +
         number(out_shift) + windows_text() + (order == SumOrder::tree ? ", as a tree" : "") +
         parts_text() + blocks_text();
}

std::string CollectiveCase::windows_text() const {
  std::string text;
  for (const std::uint32_t shift : out_shifts)
    text += (text.empty() ? " (by rank " : " ") + std::to_string(shift);
  if (!text.empty()) text += ")";
  if (is_relayed) text += ", over relays";
  if (!has_windows) return text + ", without windows";
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    if ((windows >> rank & 1U) == 0) text += ", none into rank " + std::to_string(rank);
  return text;
}

std::string CollectiveCase::blocks_text() const {
  std::string text;
  for (std::uint32_t rank = 0; rank < rank_blocks.size(); ++rank)
    text += (text.empty() ? ", of the ranks " : " ") + std::to_string(blocks_of(rank));
  return text;
}

std::string CollectiveCase::parts_text() const {
  std::string text;
  for (const std::uint64_t part : parts)
    text += (text.empty() ? ", parts of " : " ") + std::to_string(part);
  return text;
}

CollectiveCase random_case(Random& random, const ScratchShape& shape, std::uint64_t max_bytes,
                           std::uint32_t max_blocks) {
  constexpr std::array kOps{CollectiveOp::allreduce,  CollectiveOp::allreduce,
                            CollectiveOp::allreduce,  CollectiveOp::reduce_scatter,
                            CollectiveOp::all_gather, CollectiveOp::broadcast,
                            CollectiveOp::reduce,     CollectiveOp::all_to_all};
  CollectiveCase what;
  what.family = random() % 2 == 0       ? KernelFamily::channels
                : shape.line_bytes == 0 ? KernelFamily::cells
                : random() % 2 == 0     ? KernelFamily::cells
                                        : KernelFamily::lines;
  what.op = one_of(random, kOps);
  what.type = static_cast<DataType>(random() % 10);
  what.reduction = static_cast<Operator>(random() % 5);
  what.ranks = shape.ranks;
  what.root = static_cast<std::uint32_t>(random() % shape.ranks);
  what.stages = random() % 2 == 0 ? 1 : 2;
  what.blocks = static_cast<std::uint32_t>(
      1 + random() % (what.family == KernelFamily::channels ? std::min(max_blocks, shape.channels)
                                                            : max_blocks));
  if (random() % 2 == 0) make_blocks_unlike(random, what);
  what.tile_bytes = static_cast<std::uint32_t>(
      kScratchGranule * (1 + random() % (shape.slot_bytes / kScratchGranule)));
  what.lag = static_cast<std::uint32_t>(2 + random() % (shape.slots - 3));

  std::uint64_t most = max_bytes / size_of(what.type);
  if (what.family == KernelFamily::cells)
    most = std::min(most, max_by_cells(shape, what.op, what.type, what.stages));
  if (what.family == KernelFamily::lines)
    most = std::min(most, max_by_lines(shape, what.op, what.type, what.stages));
  what.count = 1;
  const std::uint64_t parts = std::max(what.in_bytes(), what.out_bytes()) / size_of(what.type);
  most = std::max<std::uint64_t>(most / parts, 1);
  switch (random() % 4) {
    case 0: what.count = random() % std::min<std::uint64_t>(most, 2 * shape.ranks); break;
    case 1: what.count = random() % std::min<std::uint64_t>(most, 2000); break;
    default: what.count = random() % (most + 1); break;
  }

  if (random() % 2 == 0) {
    const bool has_parts =
        what.op == CollectiveOp::reduce_scatter || what.op == CollectiveOp::all_gather;
    what.placement = has_parts && random() % 4 != 0 ? Placement::own_part : Placement::in_place;
    if (what.op == CollectiveOp::all_gather) what.placement = Placement::own_part;
  }
  if (random() % 2 == 0) {
    what.in_shift = static_cast<std::uint32_t>(random() % 16);
    what.out_shift = what.placement == Placement::apart ? static_cast<std::uint32_t>(random() % 16)
                                                        : what.in_shift;
  }
  if (what.family == KernelFamily::channels) make_windows_unlike(random, what);
  return what;
}

void make_uneven(Random& random, CollectiveCase& what) {
  what.parts.assign(what.ranks, 0);
  const std::uint64_t most = what.count;
  for (std::uint64_t& part : what.parts)
    part = random() % 4 == 0 ? 0 : random() % 4 == 0 ? most : random() % (most + 1);
  what.count = *std::ranges::max_element(what.parts);
}

void make_windows_unlike(Random& random, CollectiveCase& what) {
  what.has_windows = random() % 4 != 0;
  // The parts of all ranks are aligned, and not that of the first one alone.
  if (random() % 2 == 0 && what.parts.empty()) what.count -= what.count % kWindowAlignment;
  if (random() % 2 == 0) what.windows = static_cast<std::uint32_t>(random());
  if (random() % 2 == 0 || what.placement != Placement::apart) return;
  what.out_shifts.resize(what.ranks);
  for (std::uint32_t& shift : what.out_shifts) shift = static_cast<std::uint32_t>(random() % 16);
}

void make_blocks_unlike(Random& random, CollectiveCase& what) {
  what.rank_blocks.resize(what.ranks);
  for (std::uint32_t& blocks : what.rank_blocks)
    blocks = static_cast<std::uint32_t>(1 + random() % what.blocks);
}

void take_other_family(const ScratchShape& shape, CollectiveCase& what) {
  if (collective_kernel(what.family, what.op, what.type, what.form()).name != nullptr) return;
  what.family = KernelFamily::channels;
  what.blocks = std::min(what.blocks, shape.channels);
}

Bytes random_input(Random& random, const CollectiveCase& what, std::uint32_t rank) {
  Bytes input(what.in_bytes(rank));
  Contents contents(random);
  const auto put_each = [&]<typename T>(T) {
    for (std::size_t at = 0; at < input.size(); at += sizeof(T))
      put_random<T>(contents, &input[at]);
  };
  switch (what.type) {
    case DataType::float16: put_each(device::float16{}); break;
    case DataType::bfloat16: put_each(device::bfloat16{}); break;
    case DataType::float32: put_each(float{}); break;
    case DataType::float64: put_each(double{}); break;
    case DataType::int8:
    case DataType::uint8:
    case DataType::int32:
    case DataType::uint32:
    case DataType::int64:
    case DataType::uint64: fill(contents, input); break;
  }
  return input;
}

Bytes expected_output(const CollectiveCase& what, const std::vector<Bytes>& inputs,
                      std::uint32_t rank) {
  const std::uint64_t part = what.count * size_of(what.type);  // of all_to_all
  Bytes result;
  const auto append = [&](const Bytes& from, std::uint64_t offset) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(offset);
    result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(part));
  };
  switch (what.op) {
    case CollectiveOp::allreduce: return combined_inputs(what, inputs, 0, what.count);
    case CollectiveOp::reduce_scatter:
      return combined_inputs(what, inputs, what.part_begin(rank), what.part_count(rank));
    case CollectiveOp::reduce:
      return rank == what.root ? combined_inputs(what, inputs, 0, what.count) : Bytes{};
    case CollectiveOp::broadcast: return inputs[what.root];
    case CollectiveOp::all_gather:
      for (const Bytes& input : inputs) result.insert(result.end(), input.begin(), input.end());
      return result;
    case CollectiveOp::all_to_all:
      for (const Bytes& input : inputs) append(input, rank * part);
      return result;
  }
  return result;
}

std::vector<Image> images_of(Random& random, const CollectiveCase& what) {
  constexpr std::uint64_t kGuard = kWindowAlignment;
  const std::size_t element = size_of(what.type);
  std::vector<Bytes> inputs = what.inputs;
  for (auto rank = static_cast<std::uint32_t>(inputs.size()); rank < what.ranks; ++rank)
    inputs.push_back(random_input(random, what, rank));

  std::vector<Image> images(what.ranks);
  Bytes expected;
  for (std::uint32_t rank = 0; rank < what.ranks; ++rank) {
    Image& image = images[rank];
    const std::uint64_t first = kGuard + what.in_shift * element;
    std::uint64_t end = 0;
    if (what.placement == Placement::apart) {
      image.in_at = first;
      const std::uint64_t next =
          (first + what.in_bytes(rank) + kGuard + kGuard - 1) / kGuard * kGuard;
      const std::uint32_t shift = what.out_shifts.empty() ? what.out_shift : what.out_shifts[rank];
      image.out_at = next + shift * element;
      end = image.out_at + what.out_bytes(rank);
    } else {
      const bool in_is_part = what.op == CollectiveOp::all_gather;
      image.in_at = first + (in_is_part ? what.part_offset(rank) : 0);
      image.out_at = first + (in_is_part ? 0 : what.part_offset(rank));
      end = first + std::max(what.in_bytes(rank), what.out_bytes(rank));
    }
    image.before.resize((end + kGuard + 15) / 16 * 16);
    fill(Contents(random), image.before, 1);
    std::ranges::copy(inputs[rank],
                      image.before.begin() + static_cast<std::ptrdiff_t>(image.in_at));
    image.after = image.before;
    // All ranks receive the same of an allreduce.
    if (rank == 0 || what.op != CollectiveOp::allreduce)
      expected = expected_output(what, inputs, rank);
    std::ranges::copy(expected, image.after.begin() + static_cast<std::ptrdiff_t>(image.out_at));
  }
  return images;
}

std::string difference(const Image& image, const unsigned char* result) {
  std::uint64_t wrong = 0;
  std::uint64_t first = 0;
  if (std::memcmp(image.after.data(), result, image.after.size()) == 0) return {};
  for (std::uint64_t i = image.after.size(); i-- > 0;)
    if (image.after[i] != result[i]) {
      first = i;
      ++wrong;
    }
  return std::to_string(wrong) + " of " + std::to_string(image.after.size()) +
         " bytes are wrong, the first at offset " + std::to_string(first) + " (in at " +
         std::to_string(image.in_at) + ", out at " + std::to_string(image.out_at) +
         "): " + std::to_string(result[first]) + " instead of " +
         std::to_string(image.after[first]) + ", before the call " +
         std::to_string(image.before[first]);
}

UnevenArgs args_of(const CollectiveCase& what, const ScratchShape& shape, std::uint32_t rank) {
  UnevenArgs args{};
  args.is_uneven = !what.parts.empty();
  if (args.is_uneven)
    for (std::uint32_t part = 0; part <= what.ranks; ++part)
      args.begins[part] = what.part_begin(part) * size_of(what.type);
  args.op = what.op;
  args.type = what.type;
  args.reduction = what.reduction;
  args.rank = static_cast<std::uint8_t>(rank);
  args.root = static_cast<std::uint8_t>(what.root);
  args.stages = static_cast<std::uint8_t>(what.stages);
  args.lag = static_cast<std::uint8_t>(what.lag);
  args.tile_bytes = what.tile_bytes;
  args.channels = what.blocks;
  args.count = what.count;
  args.shape = shape;
  args.mark = call_mark(what.op, what.type, what.reduction, what.root, what.count,
                        hash_with(what.blocks << 2 | static_cast<std::uint32_t>(what.family),
                                  std::uint64_t{what.tile_bytes} << 32 | args.stages));
  return args;
}

}  // namespace polypath::test
