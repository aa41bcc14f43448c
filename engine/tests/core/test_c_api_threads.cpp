// The C API from several threads: messages are of the thread, contexts are shared.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "polypath/polypath.h"

namespace {

TEST(CApiThreads, LastErrorIsPerThread) {
  char* text = nullptr;
  ASSERT_EQ(polypath_topology(nullptr, &text), POLYPATH_INVALID_ARGUMENT);
  const std::string error = polypath_last_error();
  ASSERT_NE(error, "");
  std::thread([] {
    EXPECT_STREQ(polypath_last_error(), "");
    EXPECT_EQ(polypath_context_create(nullptr, 1, nullptr), POLYPATH_INVALID_ARGUMENT);
    EXPECT_STRNE(polypath_last_error(), "");
  }).join();
  EXPECT_EQ(error, polypath_last_error());
}

TEST(CApiThreads, ContextsMayBeMadeAndAskedAtOnce) {
  polypath_context* shared = nullptr;
  ASSERT_EQ(polypath_context_create(nullptr, 0, &shared), POLYPATH_SUCCESS)
      << polypath_last_error();
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) {
      const std::size_t bytes = std::size_t{1} << (16 + i % 12);
      const polypath_transfer_request request{"gpu0", i % 2 == 0 ? "gpu1" : "host0", bytes};
      char* text = nullptr;
      EXPECT_EQ(polypath_plan(shared, &request, 1, &text), POLYPATH_SUCCESS);
      polypath_free_string(text);
      EXPECT_EQ(polypath_prepare(shared, &request, 1), POLYPATH_SUCCESS) << polypath_last_error();
      polypath_context* own = nullptr;
      EXPECT_EQ(polypath_context_create(nullptr, 0, &own), POLYPATH_SUCCESS);
      polypath_context_destroy(own);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  polypath_context_destroy(shared);
}

}  // namespace
