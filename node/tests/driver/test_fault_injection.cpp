#include "driver/fault_injection.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "fake_driver.hpp"

namespace polypath {
namespace {

using Counts = std::map<std::string, std::uint64_t>;

TEST(FaultInjection, PassesCallsOnAndCountsThem) {
  FaultInjector injector(test::fake_driver());
  const CudaDriver& driver = *injector.driver();
  int count = 0;
  EXPECT_EQ(driver.device_get_count(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(injector.calls(), 3u);
  EXPECT_EQ(injector.calls_by_symbol(), (Counts{{"cuDeviceGetCount", 1}, {"cuStreamQuery", 2}}));
  EXPECT_EQ(injector.last_failed(), "");
}

TEST(FaultInjection, KeepsMissingEntriesMissing) {
  FaultInjector injector(test::fake_driver());
  EXPECT_EQ(injector.driver()->memcpy_async, nullptr);
}

TEST(FaultInjection, ChosenCallOfSymbol_FailsUnexecuted) {
  FaultInjector injector(test::fake_driver());
  const CudaDriver& driver = *injector.driver();
  driver.stream_query(nullptr);
  injector.fail("cuStreamQuery", 2, CUDA_ERROR_ILLEGAL_ADDRESS);
  int count = 0;
  EXPECT_EQ(driver.device_get_count(&count), CUDA_SUCCESS);
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(injector.last_failed(), "");
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(injector.last_failed(), "cuStreamQuery");
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(test::executed_queries, 3);
  EXPECT_EQ(injector.calls_by_symbol().at("cuStreamQuery"), 4u);
}

TEST(FaultInjection, FailsTheChosenCallOfAnySymbol) {
  FaultInjector injector(test::fake_driver());
  const CudaDriver& driver = *injector.driver();
  injector.fail_call(2, CUDA_ERROR_OUT_OF_MEMORY);
  int count = 0;
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.device_get_count(&count), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(injector.last_failed(), "cuDeviceGetCount");
  EXPECT_EQ(driver.device_get_count(&count), CUDA_SUCCESS);
}

TEST(FaultInjection, LaterChoice_ReplacesEarlier) {
  FaultInjector injector(test::fake_driver());
  const CudaDriver& driver = *injector.driver();
  injector.fail("cuStreamQuery", 1, CUDA_ERROR_UNKNOWN);
  injector.fail_call(2, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(FaultInjection, ClearDisarmsAndCountsFromZero) {
  FaultInjector injector(test::fake_driver());
  const CudaDriver& driver = *injector.driver();
  injector.fail_call(1, CUDA_ERROR_UNKNOWN);
  driver.stream_query(nullptr);
  injector.fail_call(1, CUDA_ERROR_UNKNOWN);
  injector.clear();
  EXPECT_EQ(injector.calls(), 0u);
  EXPECT_EQ(injector.calls_by_symbol(), Counts{});
  EXPECT_EQ(injector.last_failed(), "");
  EXPECT_EQ(driver.stream_query(nullptr), CUDA_ERROR_NOT_READY);
}

TEST(FaultInjection, ErrorNamesAreNeitherCountedNorFailed) {
  FaultInjector injector(test::fake_driver());
  injector.fail_call(1, CUDA_ERROR_UNKNOWN);
  const char* name = nullptr;
  EXPECT_EQ(injector.driver()->get_error_name(CUDA_ERROR_OUT_OF_MEMORY, &name), CUDA_SUCCESS);
  EXPECT_STREQ(name, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(injector.calls(), 0u);
  EXPECT_THROW(injector.fail("cuGetErrorName", 1, CUDA_ERROR_UNKNOWN), InvalidArgument);
}

TEST(FaultInjection, RejectsUnknownSymbolsAndCallNumberZero) {
  FaultInjector injector(test::fake_driver());
  EXPECT_THROW(injector.fail("cuNoSuchCall", 1, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(injector.fail("cuStreamQuery", 0, CUDA_ERROR_UNKNOWN), InvalidArgument);
  EXPECT_THROW(injector.fail_call(0, CUDA_ERROR_UNKNOWN), InvalidArgument);
}

TEST(FaultInjection, SingleInjector_TableOutlivesIt) {
  std::shared_ptr<const CudaDriver> table;
  {
    FaultInjector injector(test::fake_driver());
    EXPECT_THROW(FaultInjector second(test::fake_driver()), Error);
    table = injector.driver();
    injector.fail_call(1, CUDA_ERROR_UNKNOWN);
  }
  EXPECT_EQ(table->stream_query(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_NO_THROW(FaultInjector next(test::fake_driver()));
}

TEST(FaultInjection, ExactlyOneCallOfManyThreadsFails) {
  FaultInjector injector(test::fake_driver());
  const CudaDriver& driver = *injector.driver();
  injector.fail_call(1000, CUDA_ERROR_UNKNOWN);
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      int count = 0;
      for (int i = 0; i < 500; ++i)
        if (driver.device_get_count(&count) != CUDA_SUCCESS) ++failures;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(injector.calls(), 2000u);
}

}  // namespace
}  // namespace polypath
