// How tuned choices of a profile serve: below settings, by executor, in a window; and what happens
// to a profile that cannot be used.
#include <gmock/gmock.h>

#include <algorithm>

#include "tuning_test.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;
using enum ExecutorKind;

class TunedPlansTest : public TuningTest {
 protected:
  std::uint64_t launches(Context& context) { return context.graph_counts().launches; }
};

TEST_F(TunedPlansTest, SettingsWin) {
  write_choice(Pattern::one_way, stream, .25, 3);
  EXPECT_EQ(table(plan_of(*open())), "direct 0.75/1, via gpu2 0.25/3");
  EXPECT_EQ(table(plan_of(*open({{"executor", "stream"}}))), "direct 0.75/1, via gpu2 0.25/3");
  EXPECT_EQ(table(plan_of(*open({{"min_size", "1M"}}))), "direct 0.75/1, via gpu2 0.25/3");
  for (const OptionArguments& settings : std::vector<OptionArguments>{
           {{"routes", "direct"}},
           {{"routes", "direct,gpu"}},
           {{"routes", "direct,host"}},
           {{"chunks", "2"}},
           {{"chunk_size", "128K"}},
           {{"max_routes", "2"}},
           {{"max_routes", "1"}},
           {{"min_size", "8M"}},
       }) {
    const auto tuned = open(settings);
    ASSERT_EQ(tuned->source().tables.table<TunedTransfer>().entries().size(), 1u);
    OptionArguments off = settings;
    off.emplace_back("profile", "off");
    const Plan plan = plan_of(*tuned);
    EXPECT_EQ(table(plan), table(plan_of(*open(off))))
        << settings.front().first << "=" << settings.front().second;
    EXPECT_NE(table(plan), "direct 0.75/1, via gpu2 0.25/3");
    if (settings.front().first == "min_size") continue;  // native for a reason of its own
    expect_goes_as(*tuned, plan);
  }
}

TEST_F(TunedPlansTest, WithoutAChoiceTheModelServes) {
  write_choice(Pattern::one_way, stream, .25, 3);
  const auto tuned = open();
  const auto off = open({{"profile", "off"}});
  EXPECT_EQ(table(plan_of(*tuned, kMiB / 2)), table(plan_of(*off, kMiB / 2))) << "too small";
  const Request host{MemoryId::gpu(0), MemoryId::host(0), kBytes};
  EXPECT_EQ(table(tuned->plan({host})), table(off->plan({host}))) << "another class";
  EXPECT_EQ(table(plan_of(*tuned, 4 * kMiB)), "direct 0.75/1, via gpu2 0.25/12")
      << "chunks keep their size";
}

TEST_F(TunedPlansTest, AutoFollowsTheFasterExecutorBehindWork) {
  const std::vector<Request> pair = {{MemoryId::gpu(0), MemoryId::gpu(1), kBytes}};
  write_choice(Pattern::one_way, stream, .25, 3, 100);
  write_choice(Pattern::one_way, graph, .5, 4, 110);
  {
    const auto context = open();
    EXPECT_EQ(context->executor_for(pair), graph);
    expect_goes_as(*context, plan_of(*context), true);
    EXPECT_EQ(table(plan_of(*context)), "direct 0.50/1, via gpu2 0.50/4");
    EXPECT_EQ(launches(*context), 1u);
    // Nothing hides the launch on an idle stream.
    expect_goes_as(*context, plan_of(*open({{"executor", "stream"}})));
    EXPECT_EQ(launches(*context), 1u);
    expect_goes_as(*open({{"executor", "graph"}}), plan_of(*context));
  }
  {
    const auto context = open({{"executor", "stream"}});
    EXPECT_EQ(context->executor_for(pair), stream);
    expect_goes_as(*context, plan_of(*context));
    EXPECT_EQ(table(plan_of(*context)), "direct 0.75/1, via gpu2 0.25/3");
    EXPECT_EQ(launches(*context), 0u);
  }
  write_choice(Pattern::one_way, graph, .5, 4, 90);
  const auto context = open();
  EXPECT_EQ(context->executor_for(pair), stream);
  expect_goes_as(*context, plan_of(*context));
  EXPECT_EQ(launches(*context), 0u);
  EXPECT_EQ(open({{"executor", "graph"}})->executor_for(pair), graph);
  EXPECT_EQ(open({{"profile", "off"}})->executor_for(pair), stream) << "nothing is known";
}

TEST_F(TunedPlansTest, OtherStreamInFlight_UsesWindowConfig) {
  write_choice(Pattern::one_way, stream, .5, 4);
  write_choice(Pattern::window, stream, .25, 1);
  const auto context = open();
  const Request request{MemoryId::gpu(0), MemoryId::gpu(1), kBytes};
  context->prepare(std::vector<Request>(3, request));
  const auto prepared = context->planner().plan({&request, 1}, 0);
  ASSERT_NE(prepared->in_window, nullptr);
  ASSERT_EQ(table(prepared->plan), "direct 0.50/1, via gpu2 0.50/4");
  ASSERT_EQ(table(prepared->in_window->plan), "direct 0.75/1, via gpu2 0.25/1");

  std::deque<Payload> payloads;
  for (int i = 0; i < 5; ++i) add(payloads, {request.src, request.dst, request.bytes});
  const Stream first = stream_on(0);
  const Stream second = stream_on(0);
  const auto goes_as = [&](std::size_t i, const Stream& stream, const Plan& plan) {
    const Traffic traffic(*context);
    copy(*context, payloads[i].transfer(stream.get()));
    EXPECT_TRUE(traffic.went_as(plan)) << "transfer " << i;
  };
  goes_as(0, first, prepared->plan);
  goes_as(1, first, prepared->plan);  // its own stream's transfers come before it anyway
  goes_as(2, second, prepared->in_window->plan);
  goes_as(3, first, prepared->in_window->plan);
  synchronize(first.get());
  synchronize(second.get());
  goes_as(4, second, prepared->plan);
  synchronize(second.get());
  for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived());
}

TEST_F(TunedPlansTest, OtherNodesProfile_IsRefused) {
  write_choice(Pattern::one_way, stream, .25, 3);
  replace("fingerprint = '", "fingerprint = '0");
  testing::internal::CaptureStderr();
  const Context context({{"profile", profile().string()}, {"log_level", "warn"}});
  const std::string output = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::off);
  EXPECT_EQ(std::ranges::count(output, '\n'), 1) << output;
  EXPECT_THAT(output, HasSubstr(profile().string() + ": was measured on another node or driver"));
  EXPECT_THAT(context.source().profile_state, HasSubstr("another node"));
  EXPECT_TRUE(context.source().tables.table<TunedTransfer>().entries().empty());

  const auto refused = open();
  const Plan plan = plan_of(*refused);
  EXPECT_EQ(table(plan), table(plan_of(*open({{"profile", "off"}}))));
  expect_goes_as(*refused, plan);
}

TEST_F(TunedPlansTest, RefusedProfile_IsKeptAside) {
  write_choice(Pattern::one_way, stream, .25, 3);
  replace("slots = 0", "slots = none");  // a slip while a person edits the file
  const std::string before = text();
  EXPECT_EQ(table(plan_of(*open())), table(plan_of(*open({{"profile", "off"}}))));
  EXPECT_EQ(text(), before) << "reading changes nothing";

  write_choice(Pattern::one_way, graph, .5, 4);
  EXPECT_EQ(open()->source().tables.table<TunedTransfer>().entries().size(), 1u);
  std::stringstream aside;
  aside << std::ifstream(profile().string() + ".refused").rdbuf();
  EXPECT_EQ(aside.str(), before);
}

TEST_F(TunedPlansTest, ProfilePathIsFolder_NothingIsMeasured) {
  const auto before = open();
  std::filesystem::create_directory(profile());
  EXPECT_THROW(open(), InvalidArgument);
  int reports = 0;
  EXPECT_THROW(Tuning(*before, one_pair(),
                      [&](std::size_t, std::size_t, double, const std::string&) {
                        ++reports;
                        return true;
                      })
                   .run(),
               InvalidArgument);
  EXPECT_EQ(reports, 0);
  EXPECT_TRUE(std::filesystem::is_directory(profile()));
  EXPECT_FALSE(std::filesystem::exists(profile().string() + ".refused"));
}

TEST_F(TunedPlansTest, EntriesOfOthers_StayInProfile) {
  const auto context = open();
  write_choice(Pattern::window, stream, .25, 3);
  TunedTransfer entry = open()->source().tables.table<TunedTransfer>().entries().front();
  entry.pattern = Pattern::one_way;
  context->save_tuned_transfer(entry);
  EXPECT_EQ(context->source().tables.table<TunedTransfer>().entries().size(), 1u);
  EXPECT_EQ(open()->source().tables.table<TunedTransfer>().entries().size(), 2u);
}

TEST_F(TunedPlansTest, UnwritableProfile_LogsOneLineAndServes) {
  const std::filesystem::path nowhere = folder_.write("file", "") / "node.toml";
  testing::internal::CaptureStderr();
  Context context({{"profile", nowhere.string()}, {"log_level", "warn"}});
  const Reports reports = tune(context, one_pair());
  const std::string output = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::off);
  EXPECT_FALSE(reports.result.stopped);
  EXPECT_EQ(std::ranges::count(output, '\n'), 1) << output;
  EXPECT_THAT(output, HasSubstr("the profile was not kept: cannot write " + nowhere.string()));
  EXPECT_THAT(context.source().profile_state, HasSubstr("cannot write"));
  // What was found serves as long as the context lives.
  EXPECT_EQ(context.source().tables.table<TunedTransfer>().entries().size(), 6u);
  EXPECT_TRUE(context.planner()
                  .plan(std::vector<Request>{{MemoryId::gpu(0), MemoryId::gpu(1), kBytes}}, 0)
                  ->tuned);
  expect_goes_as(context, plan_of(context));
}

}  // namespace
}  // namespace polypath::test
