// The C API of UNICONN (uniconn.h), as a program links it: what it gives, and what it refuses.
// Every operation of it: tests/python/test_uniconn.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "polypath/uniconn.h"

namespace {

using testing::HasSubstr;
using testing::StartsWith;

#define EXPECT_DONE(call) EXPECT_EQ(POLYPATH_SUCCESS, (call)) << polypath_last_error()
#define EXPECT_REFUSED(text, call)                       \
  do {                                                   \
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, (call));        \
    EXPECT_THAT(polypath_last_error(), HasSubstr(text)); \
  } while (false)

/// One rank alone, on its GPU.
class UniconnApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_uniconn_env_create_from_environment(&env_))
        << polypath_last_error();
    const polypath_status status = polypath_uniconn_set_device(env_, 0);
    if (status == POLYPATH_NO_DEVICE) GTEST_SKIP() << polypath_last_error();
    ASSERT_EQ(POLYPATH_SUCCESS, status) << polypath_last_error();
    EXPECT_DONE(polypath_uniconn_comm_create(&comm_));
    EXPECT_DONE(polypath_uniconn_coordinator_create(nullptr, &coordinator_));
  }
  void TearDown() override {
    polypath_uniconn_coordinator_destroy(coordinator_);
    polypath_uniconn_comm_destroy(comm_);
    polypath_uniconn_env_destroy(env_);
  }

  polypath_uniconn_env* env_ = nullptr;
  polypath_uniconn_comm* comm_ = nullptr;
  polypath_uniconn_coordinator* coordinator_ = nullptr;
};

TEST_F(UniconnApi, SaysWhoItIs) {
  EXPECT_STREQ("polypath", polypath_uniconn_backend(env_));
  EXPECT_THAT(polypath_uniconn_reason(env_), StartsWith("polypath: "));
  EXPECT_EQ(0, polypath_uniconn_world_rank(env_));
  EXPECT_EQ(1, polypath_uniconn_world_size(env_));
  EXPECT_EQ(0, polypath_uniconn_node_rank(env_));
  EXPECT_EQ(1, polypath_uniconn_node_size(env_));
  EXPECT_EQ(0, polypath_uniconn_comm_rank(comm_));
  EXPECT_EQ(1, polypath_uniconn_comm_size(comm_));
}

TEST_F(UniconnApi, GivesNoPartForANegativeColor) {
  auto* part = comm_;
  EXPECT_DONE(polypath_uniconn_comm_split(comm_, -1, 0, &part));
  EXPECT_EQ(nullptr, part);
  EXPECT_DONE(polypath_uniconn_comm_split(comm_, 3, 0, &part));
  EXPECT_EQ(1, polypath_uniconn_comm_size(part));
  polypath_uniconn_comm_destroy(part);
}

TEST_F(UniconnApi, GivesNoMemoryForNoBytes) {
  int any = 0;
  void* address = &any;
  EXPECT_DONE(polypath_uniconn_alloc(0, &address));
  EXPECT_EQ(nullptr, address);
  EXPECT_DONE(polypath_uniconn_free(nullptr));
  EXPECT_REFUSED("not what Memory::Alloc gave", polypath_uniconn_free(&any));
}

TEST_F(UniconnApi, RefusesWhatItCannotDo) {
  void* memory = nullptr;
  EXPECT_DONE(polypath_uniconn_alloc(64, &memory));
  auto* const word = static_cast<uint64_t*>(memory);
  const size_t list = 0;
  EXPECT_REFUSED("env is null", polypath_uniconn_env_create_from_environment(nullptr));
  EXPECT_REFUSED("env is null", polypath_uniconn_set_device(nullptr, 0));
  EXPECT_REFUSED("its GPU already", polypath_uniconn_set_device(env_, 0));
  polypath_uniconn_env* second = env_;
  EXPECT_REFUSED("an Environment already", polypath_uniconn_env_create_from_environment(&second));
  EXPECT_EQ(nullptr, second);
  EXPECT_REFUSED("an exchange", polypath_uniconn_env_create(0, 1, nullptr, nullptr, 0, &second));
  EXPECT_REFUSED("address is null", polypath_uniconn_alloc(8, nullptr));
  EXPECT_REFUSED("comm is null", polypath_uniconn_comm_create(nullptr));
  EXPECT_REFUSED("part is null", polypath_uniconn_comm_split(comm_, 0, 0, nullptr));
  EXPECT_REFUSED("comm is null", polypath_uniconn_barrier(nullptr, nullptr));
  EXPECT_REFUSED("coordinator is null", polypath_uniconn_coordinator_create(nullptr, nullptr));
  EXPECT_REFUSED("coordinator is null", polypath_uniconn_start(nullptr));
  EXPECT_REFUSED("no group", polypath_uniconn_end(coordinator_));
  EXPECT_REFUSED("comm is null",
                 polypath_uniconn_post(coordinator_, memory, memory, 8, word, 1, 0, nullptr));
  EXPECT_REFUSED("dest_rank is 1",
                 polypath_uniconn_post(coordinator_, memory, memory, 8, word, 1, 1, comm_));
  EXPECT_REFUSED("counts is null",
                 polypath_uniconn_all_gatherv(coordinator_, memory, memory, nullptr, &list, comm_));
  EXPECT_REFUSED("root is -1", polypath_uniconn_gather(coordinator_, memory, memory, 8, -1, comm_));
  for (const int type : {-1, 12})
    EXPECT_REFUSED("there is no type", polypath_uniconn_all_reduce(coordinator_, memory, memory, 1,
                                                                   type, POLYPATH_SUM, comm_));
  for (const int op : {-1, 11})
    EXPECT_REFUSED(
        "there is no operator",
        polypath_uniconn_all_reduce(coordinator_, memory, memory, 1, POLYPATH_INT8, op, comm_));
  EXPECT_REFUSED("no such reduction",
                 polypath_uniconn_reduce(coordinator_, memory, memory, 1, POLYPATH_FLOAT16,
                                         POLYPATH_UNICONN_BXOR, 0, comm_));
  EXPECT_DONE(polypath_uniconn_wait(coordinator_));
  EXPECT_DONE(polypath_uniconn_free(memory));
}

TEST(UniconnApiWithoutAnEnvironment, RefusesAll) {
  polypath_uniconn_comm* comm = nullptr;
  void* memory = nullptr;
  polypath_uniconn_coordinator* coordinator = nullptr;
  EXPECT_REFUSED("no Environment", polypath_uniconn_comm_create(&comm));
  EXPECT_REFUSED("no Environment", polypath_uniconn_alloc(8, &memory));
  EXPECT_REFUSED("no Environment", polypath_uniconn_coordinator_create(nullptr, &coordinator));
  EXPECT_STREQ("", polypath_uniconn_backend(nullptr));
  EXPECT_STREQ("", polypath_uniconn_reason(nullptr));
  EXPECT_EQ(-1, polypath_uniconn_world_rank(nullptr));
  EXPECT_EQ(-1, polypath_uniconn_comm_size(nullptr));
  polypath_uniconn_env_destroy(nullptr);
  polypath_uniconn_comm_destroy(nullptr);
  polypath_uniconn_coordinator_destroy(nullptr);
}

TEST(UniconnApiWithoutAnEnvironment, SaysWhatIsMissing) {
  setenv("POLYPATH_BACKEND", "mpi", 1);
  polypath_uniconn_env* env = nullptr;
  EXPECT_DONE(polypath_uniconn_env_create_from_environment(&env));
  const polypath_status status = polypath_uniconn_set_device(env, 0);
  unsetenv("POLYPATH_BACKEND");
  if (status == POLYPATH_NO_DEVICE) GTEST_SKIP() << polypath_last_error();
  EXPECT_EQ(POLYPATH_NOT_SUPPORTED, status);
  EXPECT_THAT(polypath_last_error(), HasSubstr("no code for it"));
  EXPECT_STREQ("", polypath_uniconn_backend(env));
  polypath_uniconn_env_destroy(env);
}

}  // namespace
