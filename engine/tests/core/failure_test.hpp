// The fixture of tests in which driver calls fail, each in turn.
#pragma once

#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <set>
#include <string>

#include "driver/fault_injection.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {

class FailureTest : public SimulatedTest {
 protected:
  /// How a transfer ended whose call was failed.
  enum class Ending : std::uint8_t { graph, streams, native, error };

  void SetUp() override;

  /// A context whose driver calls may fail.
  [[nodiscard]] std::unique_ptr<Context> make_context() const;
  /// A size that this context splits.
  [[nodiscard]] std::uint64_t bytes_for(MemoryId src, MemoryId dst) const {
    const auto context = make_context();
    return min_split(*context, src, dst).value_or(kMiB) + 1;
  }

  /// Runs `body`; a DriverError must name the call that was failed.
  template <typename Body>
  bool fails_by_name(Body&& body) {
    try {
      body();
      return false;
    } catch (const Error& error) {
      const std::string symbol = faults_->last_failed();
      EXPECT_THAT(error.what(), testing::AnyOf(testing::HasSubstr(symbol),
                                               testing::HasSubstr(member_of(symbol))));
      return true;
    }
  }

  /// Fails each driver call of one run of the transfers, on a fresh context each time, on which
  /// `earlier` has run before: transfers between buffers of their own, or with `same_buffers`
  /// between those of the run.
  void fail_each_call(const std::vector<Request>& requests,
                      const std::vector<Request>& earlier = {}, bool same_buffers = false);

  /// Checks the result of fail_each_call(): only failed calls of native copies were errors.
  void expect_native_errors_alone() {
    std::set<std::string> errors = endings_[Ending::error];
    if (!is_all_split_) errors.erase("cuMemcpyAsync");
    EXPECT_THAT(errors, testing::IsEmpty());
  }

  /// A context whose calls failed may have left another one current.
  void use_first_gpu() { POLYPATH_CHECK(driver(), ctx_set_current(context_of(0))); }

  std::optional<FaultInjector> faults_;
  OptionArguments arguments_{{"chunks", "2"}};  ///< few chunks make few calls
  /// Results of fail_each_call(), with the exported names of the calls that failed.
  std::map<Ending, std::set<std::string>> endings_;
  bool is_all_split_ = false;    ///< when no call fails, nothing is copied natively
  GraphCache::Counts unfailed_;  ///< what the run does with graphs when no call fails

 private:
  struct Transfers;

  /// The member of CudaDriver, by which errors name a call, for an exported name.
  static std::string member_of(const std::string& symbol);
  Ending ending_of(Context& context, const Traffic& traffic, std::uint64_t launches, bool failed);
  /// Waits for everything, and asserts that nothing is written any more.
  void expect_quiet(const std::deque<Payload>& payloads);
};

}  // namespace polypath::test
