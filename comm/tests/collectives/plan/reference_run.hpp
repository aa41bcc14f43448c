// Runs the steps of a collective on memory of its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "collectives/plan/collective_schedule.hpp"
#include "schedule_order.hpp"

namespace polypath {

/// An element type T whose sums are made in Accumulator.
template <typename T, typename Accumulator = T>
struct Elements {
  using Type = T;
  using Sum = Accumulator;
  static Sum widen(T value) { return static_cast<Sum>(value); }
  static T narrow(Sum value) { return static_cast<T>(value); }
};

/// bfloat16, summed in float32, rounded to nearest even.
struct Bfloat16 {
  using Type = std::uint16_t;
  using Sum = float;
  static Sum widen(Type value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
  }
  static Type narrow(Sum value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<Type>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
};

template <typename Sum>
Sum apply(Operator operation, Sum a, Sum b) {
  switch (operation) {
    case Operator::avg:
    case Operator::sum: return static_cast<Sum>(a + b);
    case Operator::product: return static_cast<Sum>(a * b);
    case Operator::min: return b < a ? b : a;
    case Operator::max: return a < b ? b : a;
  }
  return a;
}

/// What each rank's buffers hold. `E`: Elements or Bfloat16.
template <typename E>
class ReferenceRun {
 public:
  using Type = typename E::Type;
  using Sum = typename E::Sum;
  using Buffer = std::vector<std::byte>;

  static constexpr std::byte kPoison{0xC3};

  /// `inputs` of each rank; `output_elements` of each rank, poisoned. In place: an output is its
  /// input.
  ReferenceRun(const Node& node, const CollectiveSchedule& schedule,
               const std::vector<std::vector<Type>>& inputs, std::uint64_t output_elements,
               bool in_place)
      : schedule_(schedule), in_place_(in_place) {
    for (const auto& input : inputs) {
      Buffer bytes(input.size() * sizeof(Type));
      if (!input.empty()) std::memcpy(bytes.data(), input.data(), bytes.size());
      inputs_.push_back(std::move(bytes));
      outputs_.emplace_back(output_elements * sizeof(Type), kPoison);
      scratch_->emplace_back(schedule.scratch_bytes, kPoison);
    }
    for (std::size_t i = 0; i < node.hosts.size(); ++i)
      hosts_->emplace_back(schedule.host_bytes, kPoison);
  }

  /// Uses scratch and host memory of an earlier run, as calls in a row do.
  void share_scratch(const ReferenceRun& earlier) {
    share(scratch_, earlier.scratch_);
    share(hosts_, earlier.hosts_);
  }

  /// All steps, in an order that is random but for what the schedule demands.
  void run(Random& random) {
    ASSERT_NO_FATAL_FAILURE(expect_ordered(schedule_));
    const std::size_t done =
        run_in_any_order(schedule_, random, [&](const Step& step) { execute(step); });
    ASSERT_EQ(done, schedule_.steps.size());
  }

  [[nodiscard]] std::vector<Type> output(int rank) const {
    const Buffer& bytes = (in_place_ ? inputs_ : outputs_)[static_cast<std::size_t>(rank)];
    std::vector<Type> elements(bytes.size() / sizeof(Type));
    if (!elements.empty()) std::memcpy(elements.data(), bytes.data(), bytes.size());
    return elements;
  }

  /// One step.
  void execute(const Step& step) {
    if (step.kind == StepKind::copy) {
      const std::byte* from = at(step.from, step.bytes);
      std::byte* to = at(step.to, step.bytes);
      ASSERT_TRUE(from != nullptr && to != nullptr);
      std::memmove(to, from, step.bytes);
      return;
    }
    const std::span<const Place> places = schedule_.reads(step);
    std::vector<const std::byte*> operands;
    for (const Place& place : places) {
      EXPECT_EQ(place.owner, step.rank) << "a reduction reads its own rank's memory";
      operands.push_back(at(place, bytes_of(schedule_, step, place)));
      ASSERT_NE(operands.back(), nullptr);
    }
    EXPECT_EQ(step.to.owner, step.rank);
    std::byte* const to = at(step.to, step.bytes);
    ASSERT_NE(to, nullptr);
    for (std::uint64_t e = 0; e < elements_of(schedule_, step); ++e) {
      Sum sum = load(operands[0], places[0].is_partial, e);
      for (std::size_t i = 1; i < operands.size(); ++i)
        sum = apply(schedule_.request.operation, sum, load(operands[i], places[i].is_partial, e));
      if (step.to.is_partial) {
        std::memcpy(to + e * sizeof(Sum), &sum, sizeof(Sum));
      } else {
        if (schedule_.request.operation == Operator::avg)
          sum = static_cast<Sum>(sum / static_cast<Sum>(schedule_.request.ranks()));
        const Type value = E::narrow(sum);
        std::memcpy(to + e * sizeof(Type), &value, sizeof(Type));
      }
    }
  }

 private:
  using Buffers = std::shared_ptr<std::vector<Buffer>>;

  static void share(Buffers& buffers, const Buffers& earlier) {
    for (std::size_t i = 0; i < buffers->size(); ++i) {
      Buffer& shared = earlier->at(i);
      shared.resize(std::max(shared.size(), buffers->at(i).size()), kPoison);
    }
    buffers = earlier;
  }

  std::byte* at(const Place& place, std::uint64_t bytes) {
    Buffer& buffer = buffer_of(place);
    EXPECT_LE(place.offset + bytes, buffer.size());
    return place.offset + bytes <= buffer.size() ? buffer.data() + place.offset : nullptr;
  }

  Buffer& buffer_of(const Place& place) {
    const auto rank = static_cast<std::size_t>(place.owner);
    switch (place.buffer) {
      case BufferKind::input: return inputs_.at(rank);
      case BufferKind::output: return (in_place_ ? inputs_ : outputs_).at(rank);
      case BufferKind::scratch: return scratch_->at(rank);
      case BufferKind::host: return hosts_->at(rank);
    }
    return inputs_.front();
  }

  static Sum load(const std::byte* from, bool partial, std::uint64_t element) {
    if (partial) {
      Sum sum;
      std::memcpy(&sum, from + element * sizeof(Sum), sizeof(Sum));
      return sum;
    }
    Type value;
    std::memcpy(&value, from + element * sizeof(Type), sizeof(Type));
    return E::widen(value);
  }

  const CollectiveSchedule& schedule_;
  bool in_place_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  Buffers scratch_ = std::make_shared<std::vector<Buffer>>();
  Buffers hosts_ = std::make_shared<std::vector<Buffer>>();
};

}  // namespace polypath
