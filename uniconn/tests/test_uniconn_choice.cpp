// What AnyBackend chooses, what it says about it, and what it refuses. With what stands in for NCCL
// and NVSHMEM where UNICONN_STANDINS is 1, and without any of them where it is 0.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "polypath/uniconn/backend/any.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Backend = uc::AnyBackend;
using uc::detail::Offer;

/// Sets POLYPATH_BACKEND for its lifetime.
class Wanted {
 public:
  explicit Wanted(const char* name) { setenv("POLYPATH_BACKEND", name, 1); }
  ~Wanted() { unsetenv("POLYPATH_BACKEND"); }
  Wanted(const Wanted&) = delete;
  Wanted& operator=(const Wanted&) = delete;
};

/// What each of two ranks says when they come together on these GPUs, and `body` has run.
std::vector<std::string> outcomes(
    std::array<int, 2> devices,
    const std::function<std::string(uc::Environment<Backend>&)>& body = {}) {
  const auto bootstraps = uc::Bootstrap::threads(2);
  std::vector<std::string> texts(2);
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      try {
        uc::Environment<Backend> env(bootstraps[rank]);
        if (!env.BackendName().empty() || !env.BackendReason().empty())
          throw std::runtime_error("it has chosen before SetDevice");
        env.SetDevice(devices[rank]);
        texts[rank] = body ? body(env) : env.BackendReason();
      } catch (const std::exception& error) {
        texts[rank] = std::string("error: ") + error.what();
      }
    });
  threads.clear();
  return texts;
}

// ---- Made-up ranks, without any library ---------------------------------------------------------

enum : std::size_t { kPolypath, kGpuccl, kGpushmem, kMpi };

std::vector<Offer> ranks_that_want(std::initializer_list<const char*> names) {
  std::vector<Offer> all;
  for (const char* const name : names) {
    Offer::write(all.emplace_back().requested, name);
  }
  return all;
}
std::string choice_refused(polypath_status status, const std::vector<Offer>& all) {
  return refusal(status, "the choice", [&] { static_cast<void>(uc::detail::choice_of(all)); });
}

TEST(UniconnChoice, TakesTheFirstThatAllRanksHave) {
  std::vector<Offer> all = ranks_that_want({"", "", ""});
  EXPECT_THAT(uc::detail::choice_of(all).candidates, ElementsAre(kPolypath, kGpuccl, kMpi));
  EXPECT_EQ("", uc::detail::choice_of(all).passed_over);
  Offer::write(all[2].lacks[kPolypath], "ranks are on several nodes");
  Offer::write(all[1].lacks[kMpi], "none");
  uc::detail::Choice choice = uc::detail::choice_of(all);
  EXPECT_THAT(choice.candidates, ElementsAre(kGpuccl));
  EXPECT_EQ("not polypath (rank 2: ranks are on several nodes)", choice.passed_over);
  EXPECT_FALSE(choice.is_wanted);
  Offer::write(all[0].lacks[kGpuccl], "no library");
  EXPECT_EQ(
      "AnyBackend: there is no library for these ranks: not polypath (rank 2: ranks are on "
      "several nodes); not gpuccl (rank 0: no library); not mpi (rank 1: none)",
      choice_refused(POLYPATH_NOT_SUPPORTED, all));
}

TEST(UniconnChoice, NamesAreOfAnyCase) {
  const uc::detail::Choice choice =
      uc::detail::choice_of(ranks_that_want({"GPUSHMEM", "GpuShmem", "gpushmem"}));
  EXPECT_THAT(choice.candidates, ElementsAre(kGpushmem));
  EXPECT_TRUE(choice.is_wanted);
  EXPECT_EQ(3, uc::detail::library_of("MPI"));
  for (const char* const wrong : {"", "nccl", "mp", "mpii", "polypath "})
    EXPECT_EQ(uc::detail::kNoLibrary, uc::detail::library_of(wrong)) << wrong;
}

TEST(UniconnChoice, RefusesWhatRanksDoNotWantAlike) {
  EXPECT_EQ("POLYPATH_BACKEND is 'polypath' on rank 0, and 'gpuccl' on rank 1",
            choice_refused(POLYPATH_INVALID_ARGUMENT, ranks_that_want({"polypath", "gpuccl"})));
  EXPECT_EQ("POLYPATH_BACKEND is '' on rank 0, and 'mpi' on rank 2",
            choice_refused(POLYPATH_INVALID_ARGUMENT, ranks_that_want({"", "", "mpi"})));
  EXPECT_EQ(
      "POLYPATH_BACKEND is 'nccl' on rank 1: polypath, gpuccl, gpushmem, mpi or auto is wanted",
      choice_refused(POLYPATH_INVALID_ARGUMENT, ranks_that_want({"", "nccl"})));
}

TEST(UniconnChoice, TakesNoOtherForWhatIsWantedByName) {
  std::vector<Offer> all = ranks_that_want({"gpuccl", "gpuccl"});
  Offer::write(all[1].lacks[kGpuccl], "no library");
  EXPECT_EQ("POLYPATH_BACKEND is gpuccl: rank 1: no library",
            choice_refused(POLYPATH_NOT_SUPPORTED, all));
}

// ---- This machine -------------------------------------------------------------------------------

TEST(UniconnChoice, SaysWhatItChose) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  EXPECT_THAT(outcomes({0, 1}),
              Each("polypath: ranks are of one node, and reach each other's memory"));
  const Wanted setting("PolyPath");
  EXPECT_THAT(outcomes({1, 0}), Each("polypath: POLYPATH_BACKEND says so"));
}

TEST(UniconnChoice, RefusesNamesThatThereAreNot) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Wanted setting("nvshmem");
  EXPECT_THAT(outcomes({0, 1}), Each(HasSubstr("POLYPATH_BACKEND is 'nvshmem' on rank 0: polypath, "
                                               "gpuccl, gpushmem, mpi or auto is wanted")));
}

TEST(UniconnChoice, SaysThatThereIsNoCodeForMpi) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Wanted setting("mpi");
  EXPECT_THAT(outcomes({0, 1}), Each(AllOf(StartsWith("error: "), HasSubstr("no code for it"),
                                           HasSubstr("UNICONN_WITH_MPI"))));
}

/// What a Coordinator of each mode says, and toDevice().
std::string modes(uc::Environment<Backend>&) {
  uc::Coordinator<Backend> pure_host(nullptr);
  std::string text;
  for (const auto& make : std::initializer_list<std::function<void()>>{
           [] { uc::Coordinator<Backend, uc::LaunchMode::PartialDevice> coordinator(nullptr); },
           [] { uc::Coordinator<Backend, uc::LaunchMode::PureDevice> coordinator(nullptr); },
           [] { static_cast<void>(uc::Communicator<Backend>().toDevice()); }}) {
    try {
      make();
    } catch (const polypath::error& error) {
      if (error.status() != POLYPATH_NOT_SUPPORTED) text += "another status: ";
      text += std::string(error.what()) + "\n";
    }
  }
  return text;
}

TEST(UniconnChoice, LaunchesWhatPolypathDoes) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Wanted setting("polypath");
  EXPECT_THAT(outcomes({0, 1}, &modes), Each(IsEmpty()));
}

#if UNICONN_STANDINS

// Ranks on one GPU are what polypath refuses, and what stands in for NCCL takes.
TEST(UniconnChoice, TakesTheNextWhereThePreferredDoesNotWork) {
  if (gpus() < 1) GTEST_SKIP() << "needs a GPU";
  EXPECT_THAT(outcomes({0, 0}),
              Each(AllOf(StartsWith("gpuccl: the first that these ranks have; not polypath ("),
                         HasSubstr("GPU"))));
  const Wanted setting("polypath");
  EXPECT_THAT(outcomes({0, 0}), Each(AllOf(StartsWith("error: "), HasSubstr("GPU"))));
}

TEST(UniconnChoice, SaysWhatProgramsWithKernelsNeed) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  for (const auto& [name, library, header] :
       {std::tuple("gpuccl", "NCCL", "device/gpuccl.cuh"),
        std::tuple("gpushmem", "NVSHMEM", "device/gpushmem.cuh")}) {
    const Wanted setting(name);
    for (const std::string& text : outcomes({0, 1}, &modes))
      for (const char* const mode : {"PartialDevice", "PureDevice", "toDevice"})
        EXPECT_THAT(text, HasSubstr(std::string(mode) + " over " + library +
                                    ": include polypath/uniconn/" + header));
  }
}

/// Memory that kernels over one library use is of no use to those over another.
TEST(UniconnChoice, GivesKernelsWhatTheyAreOver) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Wanted setting("polypath");
  const auto results = outcomes({0, 1}, [](uc::Environment<Backend>&) {
    uc::Communicator<Backend> comm;
    if (comm.toDevice<uc::PolypathBackend>() == nullptr ||
        static_cast<void*>(comm.toDevice<uc::PolypathBackend>()) != comm.toDevice())
      return std::string("it is another");
    static_cast<void>(comm.toDevice<uc::GpucclBackend>());
    return std::string("it is given");
  });
  EXPECT_THAT(results, Each(HasSubstr("the kernel is over gpuccl, and the backend is polypath")));
}

#else

TEST(UniconnChoice, SaysWhichLibraryIsMissingAndHowToGetIt) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  for (const auto& [name, file, package] :
       {std::tuple("GPUCCL", "libnccl.so.2", "nvidia-nccl-cu13"),
        std::tuple("gpushmem", "libnvshmem_host.so.3", "nvidia-nvshmem-cu13")}) {
    if (dlopen(file, RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "there is " << file;
    const Wanted setting(name);
    EXPECT_THAT(outcomes({0, 1}),
                Each(AllOf(StartsWith("error: "),
                           HasSubstr(std::string("POLYPATH_BACKEND is ") + name + ": rank 0: "),
                           HasSubstr(std::string("there is no ") + file), HasSubstr(package))));
  }
}

TEST(UniconnChoice, SaysThatThereIsNone) {
  if (gpus() < 1) GTEST_SKIP() << "needs a GPU";
  if (dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != nullptr) GTEST_SKIP() << "there is NCCL";
  EXPECT_THAT(outcomes({0, 0}),
              Each(AllOf(StartsWith("error: "), HasSubstr("no library works for these ranks"),
                         HasSubstr("not polypath ("))));
}

#endif

}  // namespace
}  // namespace polypath::test
