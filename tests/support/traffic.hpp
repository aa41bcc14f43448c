// How the data went: what a context counted while something ran, and what plans say.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/context.hpp"

namespace polypath::test {

/// What was counted since this object was made.
class Traffic {
 public:
  explicit Traffic(Context& context) : context_(context), before_(context.counters().snapshot()) {}

  [[nodiscard]] std::uint64_t split() const;
  [[nodiscard]] std::uint64_t followed() const;
  [[nodiscard]] std::uint64_t failed() const;
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint64_t native() const;
  [[nodiscard]] std::uint64_t native(NativeReason reason) const;
  [[nodiscard]] std::uint64_t excluded(ExclusionReason reason) const;

  /// All went as one run of `plan`: the bytes of each route and each link, the number of copies,
  /// and native copies only where the plan has them.
  [[nodiscard]] testing::AssertionResult went_as(const Plan& plan) const;
  /// Exactly one transfer went, as the native copy, for this reason.
  [[nodiscard]] testing::AssertionResult went_natively(NativeReason reason,
                                                       std::uint64_t bytes) const;

 private:
  /// " 2 x too small" and the like, for messages.
  [[nodiscard]] std::string native_reasons() const;

  Context& context_;
  Counters::Snapshot before_;
};

}  // namespace polypath::test
