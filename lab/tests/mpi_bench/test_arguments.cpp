#include "support/arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/sizes.hpp"
#include "support/usage_error.hpp"

namespace mpi_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Sizes, AsPeopleWriteThem) {
  EXPECT_THAT(
      parse_sizes("--sizes", "1,64K,1M:8M,3:13,2G"),
      ElementsAre(1, 65536, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 3, 6, 12, std::size_t{2} << 30));
  EXPECT_EQ(parse_size("--max", "1024G"), std::size_t{1} << 40);
}

TEST(Sizes, OthersAreRefused) {
  for (const char* text :
       {"", "0", "K", "1T", "1KB", "-1", "1.5M", "1025G", "x", "1,", ":4", "99999999999999999999"})
    EXPECT_THAT([&] { return parse_sizes("--sizes", text); },
                ThrowsMessage<UsageError>(HasSubstr("is not a size")))
        << text;
  EXPECT_THAT([] { return parse_sizes("--sizes", "8K:4K"); },
              ThrowsMessage<UsageError>("--sizes '8K:4K' runs down"));
}

TEST(Counts, Range) {
  EXPECT_EQ(parse_count("--n", "4", 4, 6), 4);
  EXPECT_EQ(parse_count("--n", "6", 4, 6), 6);
  for (const char* text : {"3", "7", "", "5x", "five", "99999999999"})
    EXPECT_THAT([&] { return parse_count("--n", text, 4, 6); },
                ThrowsMessage<UsageError>(HasSubstr("is not allowed: 4 to 6")))
        << text;
}

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() {
    arguments_.option("--count", "N", "how many",
                      [this](auto name, auto value) { count_ = parse_count(name, value, 0, 9); });
    arguments_.option("--json", "FILE", "where to", [this](auto, auto value) { file_ = value; });
  }

  bool parse(std::vector<std::string> words) {
    std::vector<char*> argv = {program_.data()};
    for (std::string& word : words) argv.push_back(word.data());
    return arguments_.parse(static_cast<int>(argv.size()), argv.data(), "what it is", help_);
  }

  Arguments arguments_;
  std::string program_ = "program";
  int count_ = -1;
  std::string file_;
  std::string help_;
};

TEST_F(ArgumentsTest, ValuesFollowOrAreJoined) {
  EXPECT_TRUE(parse({"--count", "4", "--json=a=b"}));
  EXPECT_EQ(count_, 4);
  EXPECT_EQ(file_, "a=b");
}

TEST_F(ArgumentsTest, HelpNamesEveryOption) {
  EXPECT_FALSE(parse({"--count", "4", "--help"}));
  for (const char* text : {"what it is", "--count N", "how many", "--json FILE", "where to"})
    EXPECT_THAT(help_, HasSubstr(text));
}

TEST_F(ArgumentsTest, OthersAreRefused) {
  EXPECT_THAT([&] { parse({"--frobnicate", "1"}); },
              ThrowsMessage<UsageError>(HasSubstr("there is no option '--frobnicate'")));
  EXPECT_THAT([&] { parse({"4"}); }, ThrowsMessage<UsageError>(HasSubstr("'4'")));
  EXPECT_THAT([&] { parse({"--json"}); }, ThrowsMessage<UsageError>("--json needs a value: FILE"));
  EXPECT_THAT([&] { parse({"--count", "10"}); },
              ThrowsMessage<UsageError>("--count '10' is not allowed: 0 to 9"));
}

TEST(MemoryKinds, Names) {
  EXPECT_EQ(parse_memory("--memory", "gpu"), MemoryKind::gpu);
  EXPECT_EQ(parse_memory("--memory", "host"), MemoryKind::host);
  EXPECT_THROW(parse_memory("--memory", "disk"), UsageError);
}

}  // namespace
}  // namespace mpi_bench
