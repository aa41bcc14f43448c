#include "driver/cuda_driver.hpp"

#include <gtest/gtest.h>

#include "driver/check.hpp"
#include "fake_driver.hpp"

namespace polypath {
namespace {

TEST(CudaDriver, MissingLibrary_GivesReason) {
  std::string why;
  EXPECT_EQ(load_cuda_driver("libno_such_driver.so.1", &why), nullptr);
  EXPECT_NE(why.find("libno_such_driver.so.1"), std::string::npos) << why;
  EXPECT_EQ(load_cuda_driver("libno_such_driver.so.1", nullptr), nullptr);
}

TEST(CudaDriver, OtherLibrary_NamesMissingSymbol) {
  std::string why;
  EXPECT_EQ(load_cuda_driver("libc.so.6", &why), nullptr);
  EXPECT_NE(why.find("cuInit"), std::string::npos) << why;
}

TEST(DriverCheck, FailureNamesCallErrorAndLine) {
  auto table = std::make_shared<CudaDriver>(*test::fake_driver());
  table->stream_query = [](CUstream) { return CUDA_ERROR_OUT_OF_MEMORY; };
  try {
    POLYPATH_CHECK(*table, stream_query(nullptr));
    FAIL() << "nothing was thrown";
  } catch (const DriverError& error) {
    const std::string what = error.what();
    EXPECT_EQ(error.code(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_TRUE(what.starts_with("cuStreamQuery failed: out of memory, ")) << what;
    EXPECT_EQ(what.find("nullptr"), std::string::npos) << what;
    EXPECT_NE(what.find("CUDA_ERROR_OUT_OF_MEMORY (2)"), std::string::npos) << what;
    EXPECT_NE(what.find("test_cuda_driver.cpp:"), std::string::npos) << what;
  }
}

TEST(DriverCheck, UnnamedError_KeepsItsNumber) {
  EXPECT_EQ(describe(*test::fake_driver(), CUDA_ERROR_LAUNCH_FAILED), "unknown error (719)");
}

}  // namespace
}  // namespace polypath
