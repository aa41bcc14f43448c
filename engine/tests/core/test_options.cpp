// The one table of settings: origins, ranges, and what an error says.
#include <gmock/gmock.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/options.hpp"
#include "base/units.hpp"

namespace polypath {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// An environment variable, without a value where `value` is null; put back at the end of the
/// scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value != nullptr)
      setenv(name, value, 1);
    else
      unsetenv(name);
  }
  ~Environment() {
    if (before_)
      setenv(name_, before_->c_str(), 1);
    else
      unsetenv(name_);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string message_of(const OptionArguments& arguments) {
  try {
    static_cast<void>(load_options(arguments));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "was allowed";
}

const OptionInfo& info_of(const std::vector<OptionInfo>& infos, const std::string& name) {
  for (const OptionInfo& info : infos)
    if (info.name == name) return info;
  throw Error("no info of " + name);
}

TEST(Options, DefaultsAreWhatTheTableSays) {
  const Environment profile("POLYPATH_PROFILE", nullptr);
  const Options options = load_options({});
  EXPECT_TRUE(options.direct_routes && options.gpu_routes && options.host_routes);
  EXPECT_EQ(options.max_routes, 0);
  EXPECT_EQ(options.chunk_size, 0u);
  EXPECT_EQ(options.chunks, 0);
  EXPECT_EQ(options.min_size, 0u);
  EXPECT_EQ(options.staging_size, 64 * kMiB);
  EXPECT_EQ(options.profile, "auto");
  EXPECT_EQ(options.registry, "auto");
  EXPECT_EQ(options.executor, ExecutorSetting::automatic);
  EXPECT_EQ(options.prepare_threads, 1);
  EXPECT_EQ(options.graph_cache_size, 64);
}

TEST(Options, ArgumentsWinOverEnvironmentOverDefaults) {
  const Environment routes("POLYPATH_ROUTES", "direct,host");
  const Environment size("POLYPATH_STAGING_SIZE", "8M");
  std::vector<OptionInfo> infos;
  const Options options = load_options({{"routes", "gpu"}}, &infos);
  EXPECT_FALSE(options.direct_routes);
  EXPECT_TRUE(options.gpu_routes);
  EXPECT_FALSE(options.host_routes);
  EXPECT_EQ(options.staging_size, 8 * kMiB);

  EXPECT_EQ(info_of(infos, "routes").origin, Origin::argument);
  EXPECT_EQ(info_of(infos, "routes").value, "gpu");
  EXPECT_EQ(info_of(infos, "staging_size").origin, Origin::environment);
  EXPECT_EQ(info_of(infos, "staging_size").value, "8M");
  EXPECT_EQ(info_of(infos, "chunks").origin, Origin::built_in);
  EXPECT_EQ(info_of(infos, "chunks").value, info_of(infos, "chunks").default_value);
}

TEST(Options, EmptyVariable_IsIgnored) {
  const Environment routes("POLYPATH_ROUTES", "");
  std::vector<OptionInfo> infos;
  static_cast<void>(load_options({}, &infos));
  EXPECT_EQ(info_of(infos, "routes").origin, Origin::built_in);
}

TEST(Options, LastOfEqualArgumentsWins) {
  EXPECT_EQ(load_options({{"chunks", "3"}, {"chunks", "5"}}).chunks, 5);
}

TEST(Options, EveryRowIsDocumented) {
  std::vector<OptionInfo> infos;
  static_cast<void>(load_options({}, &infos));
  ASSERT_FALSE(infos.empty());
  for (const OptionInfo& info : infos) {
    EXPECT_EQ(info.environment.rfind("POLYPATH_", 0), 0u) << info.name;
    EXPECT_FALSE(info.allowed.empty()) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
  }
}

TEST(Options, RangesIncludeTheirEnds) {
  EXPECT_EQ(load_options({{"chunk_size", "64K"}}).chunk_size, 64 * kKiB);
  EXPECT_EQ(load_options({{"chunk_size", "16M"}}).chunk_size, 16 * kMiB);
  EXPECT_EQ(load_options({{"chunk_size", "auto"}}).chunk_size, 0u);
  EXPECT_EQ(load_options({{"max_routes", "1"}}).max_routes, 1);
  EXPECT_EQ(load_options({{"max_routes", "64"}}).max_routes, 64);
  EXPECT_EQ(load_options({{"staging_size", "4G"}}).staging_size, 4 * kGiB);
  EXPECT_EQ(load_options({{"prepare_threads", "2"}}).prepare_threads, 2);
  EXPECT_EQ(load_options({{"prepare_threads", "16"}}).prepare_threads, 16);
  EXPECT_EQ(load_options({{"graph_cache_size", "0"}}).graph_cache_size, 0);
  EXPECT_EQ(load_options({{"graph_cache_size", "4096"}}).graph_cache_size, 4096);
  EXPECT_EQ(load_options({{"executor", "stream"}}).executor, ExecutorSetting::stream);
  EXPECT_EQ(load_options({{"executor", "graph"}}).executor, ExecutorSetting::graph);
  EXPECT_EQ(load_options({{"executor", "auto"}}).executor, ExecutorSetting::automatic);
}

TEST(Options, WrongValue_NamesOriginAndRange) {
  struct Case {
    const char* name;
    const char* value;
    const char* range;
  };
  for (const auto& [name, value, range] : {
           Case{"chunk_size", "65535", "64K to 16M"},
           Case{"chunk_size", "16777217", "64K to 16M"},
           Case{"chunk_size", "much", "64K to 16M"},
           Case{"chunk_size", "-1", "64K to 16M"},
           Case{"chunks", "0", "1 to 4096"},
           Case{"chunks", "4097", "1 to 4096"},
           Case{"chunks", "3x", "1 to 4096"},
           Case{"chunks", "", "1 to 4096"},
           Case{"max_routes", "65", "1 to 64"},
           Case{"min_size", "4095", "4K to 1T"},
           Case{"staging_size", "auto", "4M to 4G"},
           Case{"staging_size", "5G", "4M to 4G"},
           Case{"routes", "", "direct, gpu, host"},
           Case{"routes", "direct,,gpu", "direct, gpu, host"},
           Case{"routes", "nvlink", "direct, gpu, host"},
           Case{"executor", "kernel", "auto, stream, graph"},
           Case{"executor", "", "auto, stream, graph"},
           Case{"prepare_threads", "0", "1 to 16"},
           Case{"prepare_threads", "17", "1 to 16"},
           Case{"graph_cache_size", "4097", "0 to 4096"},
           Case{"graph_cache_size", "-1", "0 to 4096"},
           Case{"graph_cache_size", "auto", "0 to 4096"},
           Case{"registry", "", "absolute path"},
           Case{"registry", "on", "absolute path"},
           Case{"registry", "tmp/registry", "absolute path"},
           Case{"log_level", "loud", "debug, info, warn, error, off"},
       }) {
    EXPECT_THAT(message_of({{name, value}}),
                AllOf(HasSubstr(name), HasSubstr(value), HasSubstr("argument"), HasSubstr(range)));
  }
  const Environment chunks("POLYPATH_CHUNKS", "9999");
  EXPECT_THAT(message_of({}),
              AllOf(HasSubstr("POLYPATH_CHUNKS"), HasSubstr("9999"), HasSubstr("1 to 4096")));
  EXPECT_EQ(load_options({{"chunks", "2"}}).chunks, 2) << "an argument hides the variable";
}

TEST(Options, UnknownNamesAreRefused) {
  EXPECT_THAT(message_of({{"chunksize", "1M"}}), HasSubstr("no setting 'chunksize'"));
}

TEST(Options, RegistryTakesAutoOffOrFolder) {
  EXPECT_EQ(load_options({{"registry", "off"}}).registry, "off");
  EXPECT_EQ(load_options({{"registry", "/run/job"}}).registry, "/run/job");
  const Environment registry("POLYPATH_REGISTRY", "/run/other");
  EXPECT_EQ(load_options({}).registry, "/run/other");
  EXPECT_EQ(load_options({{"registry", "auto"}}).registry, "auto");
}

TEST(Options, EmulateMeshTakesOneToThousandGBps) {
  EXPECT_EQ(load_options({}).emulate_mesh_gbps, 0);
  EXPECT_EQ(load_options({{"emulate_mesh", "off"}}).emulate_mesh_gbps, 0);
  EXPECT_EQ(load_options({{"emulate_mesh", "46"}}).emulate_mesh_gbps, 46);
  EXPECT_EQ(load_options({{"emulate_mesh", "12.5"}}).emulate_mesh_gbps, 12.5);
  for (const char* value : {"0", "0.5", "-46", "1001", "46G", "46 ", "", "nan", "inf", "on"})
    EXPECT_THAT(message_of({{"emulate_mesh", value}}),
                AllOf(HasSubstr("emulate_mesh '"), HasSubstr("off, or 1 to 1000")))
        << value;
  const Environment mesh("POLYPATH_EMULATE_MESH", "91");
  EXPECT_EQ(load_options({}).emulate_mesh_gbps, 91);
}

}  // namespace
}  // namespace polypath
