#include "norm_case.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/plan/request.hpp"
#include "polypath/device/detail/half.cuh"

namespace polypath::test {
namespace {

constexpr std::uint64_t kGuard = 64;

float widened(DataType type, const unsigned char* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return type == DataType::float16 ? device::to_float(device::float16{bits})
                                   : device::to_float(device::bfloat16{bits});
}

float rounded(DataType type, float value) {
  return type == DataType::float16 ? device::to_float(device::to_float16(value))
                                   : device::to_float(device::to_bfloat16(value));
}

void put(DataType type, float value, unsigned char* to) {
  const std::uint16_t bits =
      type == DataType::float16 ? device::to_float16(value).bits : device::to_bfloat16(value).bits;
  std::memcpy(to, &bits, sizeof bits);
}

/// The value of each e4m3 without a sign, by its bits; 0x7F is a NaN.
std::array<double, 127> float8_values() {
  std::array<double, 127> values{};
  for (int bits = 0; bits < 127; ++bits) {
    const int exponent = bits >> 3;
    const int fraction = bits & 7;
    values[static_cast<std::size_t>(bits)] =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  }
  return values;
}

/// The nearest one, and of two the even one.
unsigned char float8_of(float value) {
  static const std::array<double, 127> values = float8_values();
  if (std::isnan(value)) return 0x7F;
  const double magnitude = std::min(std::abs(static_cast<double>(value)), values.back());
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double gain = std::abs(values[best] - magnitude) - std::abs(values[i] - magnitude);
    if (gain > 0 || (gain == 0 && i % 2 == 0)) best = i;
  }
  return static_cast<unsigned char>(best | (std::signbit(value) ? 0x80U : 0U));
}

/// In the order that kernels/rms_norm.cuh documents.
float sum_of_squares(const std::vector<float>& row) {
  const auto square = [&](std::size_t at) {
    const volatile float product = at < row.size() ? row[at] * row[at] : 0.0F;
    return static_cast<float>(product);
  };
  float sum = 0;
  for (std::size_t unit = 0; unit * 384 < row.size(); ++unit) {
    std::array<float, 32> lanes{};
    for (std::size_t lane = 0; lane < 32; ++lane)
      for (std::size_t k = 0; k < 3; ++k)
        for (std::size_t e = 0; e < 4; ++e)
          lanes[lane] += square(unit * 384 + k * 128 + lane * 4 + e);
    for (std::size_t half = 16; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    sum = unit == 0 ? lanes[0] : sum + lanes[0];
  }
  return sum;
}

/// Random bytes that are no poison of others.
void poison(Random& random, Bytes& bytes) {
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random() | 1);
}

Bytes random_elements(Random& random, DataType type, std::uint64_t count) {
  CollectiveCase like;
  like.type = type;
  like.count = count;
  return random_input(random, like);
}

/// In some places ranks give a large number of either sign, the same on all, so that the order of
/// the sum is seen after it was rounded.
void put_large(Random& random, const NormCase& what, std::vector<Bytes>& inputs) {
  const float large = what.type == DataType::float16 ? 4096.0F : 0x1p30F;
  for (std::uint64_t at = 0; at < what.bytes(); at += 2 * (1 + random() % 16))
    for (Bytes& input : inputs)
      if (random() % 2 == 0) put(what.type, random() % 2 == 0 ? large : -large, &input[at]);
}

/// In few places a type's smallest and largest numbers and, in some calls, infinities: two of them
/// make a NaN.
void put_extremes(Random& random, const NormCase& what, Bytes& elements, bool has_infinities) {
  const bool is_float16 = what.type == DataType::float16;
  const std::uint16_t infinity = is_float16 ? 0x7C00 : 0x7F80;
  for (std::uint64_t at = 0; at < elements.size(); at += 2 * (1 + random() % 64)) {
    const std::uint64_t bits = random();
    std::uint16_t element = 0;
    switch (bits % 4) {
      case 0: break;
      case 1: element = (bits >> 8) % (is_float16 ? 0x400 : 0x80); break;  // subnormal
      case 2: element = infinity - 1; break;
      default: element = has_infinities ? infinity : 1; break;
    }
    element = static_cast<std::uint16_t>(element | (bits >> 32) % 2 << 15);
    std::memcpy(&elements[at], &element, sizeof element);
  }
}

float scale_of(Random& random) {
  // Some so small that rows saturate.
  constexpr std::array kScales{1.0F, 0.0371F, 0.00051F, 3.7F};
  return kScales[random() % kScales.size()];
}

/// In rank order, rounded; of several nodes in each of them first.
float sum_of_ranks(const NormCase& what, const std::vector<Bytes>& inputs, std::uint64_t at) {
  std::vector<std::vector<std::uint32_t>> nodes = what.nodes;
  if (nodes.empty()) {
    nodes.emplace_back();
    for (std::uint32_t rank = 0; rank < what.ranks; ++rank) nodes.front().push_back(rank);
  }
  float sum = 0;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    float of_node = widened(what.type, &inputs[nodes[node].front()][at]);
    for (std::size_t i = 1; i < nodes[node].size(); ++i)
      of_node += widened(what.type, &inputs[nodes[node][i]][at]);
    of_node = rounded(what.type, of_node);
    sum = node == 0 ? of_node : sum + of_node;
  }
  return rounded(what.type, sum);
}

void expect_rows(const NormCase& what, const std::vector<Bytes>& inputs, const NormImage& before,
                 Bytes& after) {
  const std::uint64_t row_bytes = std::uint64_t{what.hidden} * 2;
  std::vector<float> row(what.hidden);
  for (std::uint32_t r = 0; r < what.rows; ++r) {
    for (std::uint32_t i = 0; i < what.hidden; ++i) {
      const std::uint64_t at = r * row_bytes + i * 2;
      row[i] = sum_of_ranks(what, inputs, at);
      if (what.has_residual)
        row[i] = rounded(what.type,
                         row[i] + widened(what.type, &before.before[before.residual_at + at]));
      put(what.type, row[i], &after[before.residual_out_at + at]);
    }
    const volatile float inverse_hidden = 1.0F / static_cast<float>(what.hidden);
    const volatile float mean = sum_of_squares(row) * inverse_hidden;
    const volatile float factor = 1.0F / std::sqrt(mean + what.epsilon);
    float scale = 1;
    std::memcpy(&scale, &before.before[before.scale_at], sizeof scale);
    const volatile float inverse = 1.0F / scale;
    for (std::uint32_t i = 0; i < what.hidden; ++i) {
      const volatile float normal = row[i] * factor;
      const float y =
          rounded(what.type, normal * widened(what.type, &before.before[before.weight_at + i * 2]));
      const std::uint64_t at = std::uint64_t{r} * what.hidden + i;
      if (what.to_float8)
        after[before.out_at + at] = float8_of(y * inverse);
      else
        put(what.type, y, &after[before.out_at + at * 2]);
    }
  }
}

}  // namespace

std::uint32_t NormCase::blocks_of(std::uint32_t rank) const {
  return rank_blocks.empty() ? blocks : rank_blocks[rank];
}

std::string NormCase::text() const {
  return "norm of " + std::to_string(rows) + " x " + std::to_string(hidden) + " " +
         std::string(to_string(type)) + (to_float8 ? " to float8" : "") + ", " +
         std::to_string(ranks) + " ranks, " + std::to_string(blocks) + " blocks in teams of " +
         std::to_string(team) +
         (has_residual ? residual_in_place ? ", residual in place" : "" : ", no residual") +
         (in_place ? ", in place" : "") + ", epsilon " + std::to_string(epsilon);
}

NormCase random_norm(Random& random, std::uint32_t ranks, std::uint32_t max_hidden,
                     std::uint64_t max_bytes, std::uint32_t max_blocks) {
  NormCase what;
  what.type = random() % 2 == 0 ? DataType::float16 : DataType::bfloat16;
  what.ranks = ranks;
  what.hidden = static_cast<std::uint32_t>(8 * (1 + random() % (max_hidden / 8)));
  const std::uint64_t most = std::max<std::uint64_t>(1, max_bytes / (what.hidden * 2));
  what.rows = static_cast<std::uint32_t>(1 + random() % std::min<std::uint64_t>(most, 9));
  what.epsilon = random() % 4 == 0 ? 0.25F : 1e-6F;
  what.to_float8 = random() % 3 == 0;
  what.has_residual = random() % 5 != 0;
  what.in_place = !what.to_float8 && random() % 2 == 0;
  what.residual_in_place = random() % 2 == 0;
  what.blocks = static_cast<std::uint32_t>(1 + random() % max_blocks);
  what.team = static_cast<std::uint32_t>(1 + random() % what.blocks);
  if (random() % 2 == 0)
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      what.rank_blocks.push_back(static_cast<std::uint32_t>(1 + random() % what.blocks));
  return what;
}

std::vector<NormImage> norm_images(Random& random, const NormCase& what) {
  const std::uint64_t elements = std::uint64_t{what.rows} * what.hidden;
  std::vector<Bytes> inputs;
  for (std::uint32_t rank = 0; rank < what.ranks; ++rank)
    inputs.push_back(random_elements(random, what.type, elements));
  put_large(random, what, inputs);
  Bytes residual = random_elements(random, what.type, elements);
  if (random() % 4 == 0) {
    const bool has_infinities = random() % 2 == 0;
    for (Bytes& input : inputs) put_extremes(random, what, input, has_infinities);
    put_extremes(random, what, residual, has_infinities);
  }
  const Bytes weight = random_elements(random, what.type, what.hidden);
  const float scale = scale_of(random);

  std::vector<NormImage> images(what.ranks);
  for (std::uint32_t rank = 0; rank < what.ranks; ++rank) {
    NormImage& image = images[rank];
    std::uint64_t end = kGuard;
    const auto place = [&](std::uint64_t bytes) {
      const std::uint64_t at = end;
      end = (at + bytes + kGuard + 15) / 16 * 16;
      return at;
    };
    image.in_at = place(what.bytes());
    image.residual_at = place(what.bytes());
    image.residual_out_at = what.residual_in_place ? image.residual_at : place(what.bytes());
    image.weight_at = place(weight.size());
    image.scale_at = place(sizeof scale);
    image.out_at = what.in_place ? image.in_at : place(what.bytes() / (what.to_float8 ? 2 : 1));
    image.before.resize(end);
    poison(random, image.before);
    const auto put_at = [&](std::uint64_t at, const void* from, std::size_t bytes) {
      std::memcpy(image.before.data() + at, from, bytes);
    };
    put_at(image.in_at, inputs[rank].data(), inputs[rank].size());
    put_at(image.residual_at, residual.data(), residual.size());
    put_at(image.weight_at, weight.data(), weight.size());
    put_at(image.scale_at, &scale, sizeof scale);
    image.after = image.before;
    expect_rows(what, inputs, image, image.after);
  }
  return images;
}

NormArgs norm_args_of(const NormCase& what, const ScratchShape& shape, std::uint32_t rank) {
  NormArgs args{};
  args.call.op = CollectiveOp::allreduce;
  args.call.type = what.type;
  args.call.reduction = Operator::sum;
  args.call.rank = static_cast<std::uint8_t>(rank);
  args.call.stages = 1;
  args.call.count = std::uint64_t{what.rows} * what.hidden;
  args.call.shape = shape;
  args.call.mark =
      norm_mark(what.type, what.to_float8, what.rows, what.hidden,
                hash_with(what.team << 16 | what.blocks << 1 | (what.has_residual ? 1 : 0),
                          std::bit_cast<std::uint32_t>(what.epsilon)));
  args.rows = what.rows;
  args.hidden = what.hidden;
  args.epsilon = what.epsilon;
  args.inverse_hidden = 1.0F / static_cast<float>(what.hidden);
  args.team = std::min(what.team, what.blocks_of(rank));
  return args;
}

}  // namespace polypath::test
