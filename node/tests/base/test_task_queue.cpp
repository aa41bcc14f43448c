// Tasks in the background of a program that can make no thread.
#include "base/task_queue.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

namespace {

std::atomic<bool> has_threads{true};

}  // namespace

/// For all libraries of this process.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* attributes,
                                                             void* (*start)(void*),
                                                             void* argument) {
  if (!has_threads) return EAGAIN;
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, start, argument);
}

namespace polypath {
namespace {

TEST(TaskQueue, WithoutThreads_SaysSoOnce) {
  testing::internal::CaptureStderr();
  TaskQueue tasks(4);
  has_threads = false;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(tasks.add([] {}));
  has_threads = true;
  bool is_done = false;
  EXPECT_TRUE(tasks.add([&] { is_done = true; }));
  tasks.wait();
  EXPECT_TRUE(is_done);
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  EXPECT_NE(output.find("nothing is done in the background"), std::string::npos) << output;
}

}  // namespace
}  // namespace polypath
