#include "messages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "base/error.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kLargestGap = 300;
constexpr std::uint64_t kSmall = std::uint64_t{64} << 10;
constexpr std::uint64_t kBatch = 200;  // random messages of a phase

/// The same numbers on every rank (the distributions of the standard library need not be).
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t word() { return engine_(); }
  /// 0 to bound - 1.
  std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }

 private:
  std::mt19937_64 engine_;
};

/// Builds phases, one message after another.
class Builder {
 public:
  Builder(int ranks, std::uint64_t seed) : ranks_(ranks), random_(seed) {}

  void begin(Way way) {
    phases.push_back({way, {}});
    from_end_.clear();
    to_end_.clear();
  }

  void add(int from, int to, std::uint64_t bytes) {
    Message message{
        from, to, bytes, random_.word(), place(from_end_[from], bytes), place(to_end_[to], bytes)};
    phases.back().messages.push_back(message);
  }

  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  Random& random() noexcept { return random_; }
  [[nodiscard]] bool is_empty() const { return phases.back().messages.empty(); }

  std::vector<Phase> phases;

 private:
  std::uint64_t place(std::uint64_t& end, std::uint64_t bytes) {
    const std::uint64_t offset = end + random_.below(kLargestGap);
    end = offset + bytes;
    return offset;
  }

  int ranks_;
  Random random_;
  std::map<int, std::uint64_t> from_end_;  // by rank: how much of its memory is given out
  std::map<int, std::uint64_t> to_end_;
};

void pairs(Builder& builder, std::uint64_t bytes, int) {
  builder.begin(Way::blocking);
  for (int from = 0; from < builder.ranks(); ++from)
    for (int to = 0; to < builder.ranks(); ++to)
      if (from != to) builder.add(from, to, bytes);
}

void window(Builder& builder, std::uint64_t bytes, int window) {
  builder.begin(Way::nonblocking);
  for (int i = 0; i < window; ++i)
    for (int from = 0; from + 1 < builder.ranks(); from += 2) builder.add(from, from + 1, bytes);
}

void both(Builder& builder, std::uint64_t bytes, int window) {
  builder.begin(Way::nonblocking);
  for (int i = 0; i < window; ++i)
    for (int from = 0; from + 1 < builder.ranks(); from += 2) {
      builder.add(from, from + 1, bytes);
      builder.add(from + 1, from, bytes);
    }
}

void ring(Builder& builder, std::uint64_t bytes, int window) {
  const int ranks = builder.ranks();
  for (const int step : {1, ranks - 1})
    for (int i = 0; i < window; ++i) {
      builder.begin(Way::sendrecv);
      for (int from = 0; from < ranks; ++from) builder.add(from, (from + step) % ranks, bytes);
    }
}

void all(Builder& builder, std::uint64_t bytes, int window) {
  builder.begin(Way::nonblocking);
  for (int i = 0; i < window; ++i)
    for (int from = 0; from < builder.ranks(); ++from)
      for (int to = 0; to < builder.ranks(); ++to)
        if (from != to) builder.add(from, to, bytes);
}

/// Seven of eight messages have at most kSmall bytes. Both kinds are spread evenly over the powers
/// of two.
std::uint64_t random_size(Random& random, std::uint64_t least, std::uint64_t largest) {
  std::uint64_t bound = random.below(8) == 0 ? largest : std::min(largest, kSmall);
  for (std::uint64_t halvings = random.below(16); halvings > 0 && bound > least; --halvings)
    bound /= 2;
  return least + random.below(std::max(bound, least) - least + 1);
}

void random(Builder& builder, const Pattern& pattern) {
  const auto [least, largest] = std::minmax_element(pattern.sizes.begin(), pattern.sizes.end());
  const auto ranks = static_cast<std::uint64_t>(builder.ranks());
  for (std::uint64_t i = 0; i < pattern.messages; ++i) {
    if (i % kBatch == 0) builder.begin(i / kBatch % 4 == 3 ? Way::blocking : Way::nonblocking);
    const std::uint64_t from = builder.random().below(ranks);
    const std::uint64_t to = (from + 1 + builder.random().below(ranks - 1)) % ranks;
    builder.add(static_cast<int>(from), static_cast<int>(to),
                random_size(builder.random(), *least, *largest));
  }
}

using PerSize = std::function<void(Builder&, std::uint64_t bytes, int window)>;
const std::map<std::string, PerSize>& patterns_by_size() {
  static const std::map<std::string, PerSize> patterns{
      {"pairs", pairs}, {"window", window}, {"both", both}, {"ring", ring}, {"all", all}};
  return patterns;
}

}  // namespace

std::vector<std::string> pattern_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : patterns_by_size()) names.push_back(name);
  names.emplace_back("random");
  return names;
}

std::vector<Phase> make_phases(const Pattern& pattern, int ranks) {
  Builder builder(ranks, pattern.seed);
  if (pattern.name == "random") {
    random(builder, pattern);
    return builder.phases;
  }
  const auto known = patterns_by_size().find(pattern.name);
  if (known == patterns_by_size().end())
    throw InvalidArgument(fmt::format("pattern \"{}\" is not one of {}", pattern.name,
                                      fmt::join(pattern_names(), ", ")));
  for (const std::uint64_t bytes : pattern.sizes) known->second(builder, bytes, pattern.window);
  return builder.phases;
}

Extent extent(const Phase& phase, int rank) {
  Extent needed;
  for (const Message& message : phase.messages) {
    if (message.from == rank)
      needed.from_bytes = std::max(needed.from_bytes, message.from_offset + message.bytes);
    if (message.to == rank)
      needed.to_bytes = std::max(needed.to_bytes, message.to_offset + message.bytes);
  }
  return needed;
}

}  // namespace polypath::test
