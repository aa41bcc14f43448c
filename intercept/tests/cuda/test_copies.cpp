// Copies on streams: which are offered to the engine, with which arguments, and what the program is
// answered.
#include <pthread.h>

#include <functional>
#include <thread>

#include "driver_forms.hpp"
#include "shim_test.hpp"

namespace polypath::preload::test {
namespace {

/// One form of a copy, between memories of the fixture.
struct Form {
  const char* name;
  void* dst;
  const void* src;
  std::size_t least;    ///< bytes from which the engine is asked
  CUstream by_default;  ///< what stream 0 means, as the engine is told
  std::function<CUresult(std::size_t bytes, CUstream stream)> call;
};

class Copies : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    own = create_stream(0);
    const auto any = [&](const char* name, auto* form, CUstream by_default) {
      forms.push_back(
          {name, pointer(far), pointer(near), kMiB, by_default,
           [=, this](std::size_t bytes, CUstream s) { return form(far, near, bytes, s); }});
    };
    const auto to_gpu = [&](const char* name, auto* form, CUstream by_default) {
      forms.push_back(
          {name, pointer(near), host, 2 * kMiB, by_default,
           [=, this](std::size_t bytes, CUstream s) { return form(near, host, bytes, s); }});
    };
    const auto to_host = [&](const char* name, auto* form, CUstream by_default) {
      forms.push_back(
          {name, host, pointer(near), 3 * kMiB, by_default,
           [=, this](std::size_t bytes, CUstream s) { return form(host, near, bytes, s); }});
    };
    const auto peer = [&](const char* name, auto* form, CUstream by_default) {
      forms.push_back({name, pointer(far), pointer(near), kMiB, by_default,
                       [=, this](std::size_t bytes, CUstream s) {
                         return form(far, context(1), near, context(0), bytes, s);
                       }});
    };
    const auto batch = [&](const char* name, auto* form, CUstream by_default) {
      forms.push_back(
          {name, pointer(far), pointer(near), kMiB, by_default,
           [=, this](std::size_t bytes, CUstream s) { return batch_of_one(form, bytes, s); }});
    };
    const CUstream thread = CU_STREAM_PER_THREAD;
    any("cuMemcpyAsync", &cuMemcpyAsync, nullptr);
    any("cuMemcpyAsync_ptsz", &cuMemcpyAsync_ptsz, thread);
    any("cuMemcpyDtoDAsync_v2", &cuMemcpyDtoDAsync_v2, nullptr);
    any("cuMemcpyDtoDAsync_v2_ptsz", &cuMemcpyDtoDAsync_v2_ptsz, thread);
    to_gpu("cuMemcpyHtoDAsync_v2", &cuMemcpyHtoDAsync_v2, nullptr);
    to_gpu("cuMemcpyHtoDAsync_v2_ptsz", &cuMemcpyHtoDAsync_v2_ptsz, thread);
    to_host("cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync_v2, nullptr);
    to_host("cuMemcpyDtoHAsync_v2_ptsz", &cuMemcpyDtoHAsync_v2_ptsz, thread);
    peer("cuMemcpyPeerAsync", &cuMemcpyPeerAsync, nullptr);
    peer("cuMemcpyPeerAsync_ptsz", &cuMemcpyPeerAsync_ptsz, thread);
    batch("cuMemcpyBatchAsync_ptsz", &cuMemcpyBatchAsync_ptsz, thread);
    batch("cuMemcpyBatchAsync_v2_ptsz", &cuMemcpyBatchAsync_v2_ptsz, thread);
  }

  CUresult batch_of_one(decltype(&cuMemcpyBatchAsync) form, std::size_t bytes, CUstream stream) {
    std::size_t failed = 0;
    return form(&far, &near, &bytes, 1, &attributes, &first, 1, &failed, stream);
  }
  CUresult batch_of_one(decltype(&cuMemcpyBatchAsync_v2) form, std::size_t bytes, CUstream stream) {
    return form(&far, &near, &bytes, 1, &attributes, &first, 1, stream);
  }

  /// Calls the form, and checks the bytes once the stream has ended.
  void copy(const Form& form, std::size_t bytes, CUstream stream) {
    const auto expected = bytes_at(form.src, bytes);
    ASSERT_NE(expected, bytes_at(form.dst, bytes));
    EXPECT_CUDA(CUDA_SUCCESS, form.call(bytes, stream));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream != nullptr ? stream : form.by_default));
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_EQ(expected, bytes_at(form.dst, bytes));
  }

  CUstream own = nullptr;
  std::vector<Form> forms;
  CUmemcpyAttributes attributes{CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, {}, {}, 0};
  std::size_t first = 0;
};

TEST_F(Copies, OfferedFromTheThresholdOn) {
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    for (const CUstream stream : {CUstream{nullptr}, own}) {
      renew();
      // The forms that take any two memories go by the least of the thresholds.
      copy(form, form.least - 1, stream);
      EXPECT_TRUE(engine.copies.empty());
      renew();
      copy(form, form.least, stream);
      const FakeEngine::Copy expected{form.dst, form.src, form.least,
                                      stream != nullptr ? stream : form.by_default};
      EXPECT_EQ(std::vector{expected}, engine.copies);
      EXPECT_EQ(1U, polypath_sim_copies()) << "left to the driver";
    }
  }
}

TEST_F(Copies, TakenCopies_SkipTheDriver) {
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    renew();
    engine.answer = Answer::take;
    copy(form, kLarge, own);
    EXPECT_EQ(1U, engine.copies.size());
    EXPECT_EQ(1U, polypath_sim_copies()) << "the engine's own";
  }
}

TEST_F(Copies, RefusedCopies_GoToTheDriver) {
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    renew();
    engine.answer = Answer::refuse;
    copy(form, kLarge, own);
    EXPECT_EQ(1U, engine.copies.size());
    EXPECT_EQ(1U, polypath_sim_copies());
  }
}

TEST_F(Copies, NotOffered_AreToldToEngine) {
  renew();
  copy(forms.front(), kLarge, own);  // there is an engine from now on
  EXPECT_TRUE(engine.noted.empty()) << "it was offered";
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    renew();
    copy(form, form.least - 1, own);
    const std::string name = form.name;
    const bool is_of_gpus =
        name.find("DtoD") != std::string::npos || name.find("Peer") != std::string::npos;
    const FakeEngine::Copy expected{form.dst, form.src, form.least - 1, own};
    EXPECT_EQ(is_of_gpus ? std::vector<FakeEngine::Copy>{} : std::vector{expected}, engine.noted);
    renew();
    copy(form, 4096, own);
    EXPECT_TRUE(engine.noted.empty()) << "too small";
  }
}

// Unwinding out of the engine would end the process.
TEST_F(Copies, CancelledThread_EndsAfterTheCall) {
  struct Run {
    std::function<void()> copy;
    bool has_returned;
  } run{[&] {
          use(0);
          forms.front().call(kLarge, own);
        },
        false};
  renew();
  engine.during_copy = [] {
    pthread_cancel(pthread_self());
    pthread_testcancel();
  };
  pthread_t thread{};
  const auto body = [](void* argument) -> void* {
    Run& state = *static_cast<Run*>(argument);
    state.copy();
    state.has_returned = true;
    pthread_testcancel();
    return nullptr;
  };
  ASSERT_EQ(0, pthread_create(&thread, nullptr, body, &run));
  void* result = nullptr;
  ASSERT_EQ(0, pthread_join(thread, &result));
  engine.during_copy = [] {};
  EXPECT_EQ(PTHREAD_CANCELED, result);
  EXPECT_TRUE(run.has_returned);
}

TEST_F(Copies, FailedCopies_ReturnTheCause) {
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    renew();
    engine.answer = Answer::fail;
    engine.cuda_result = CUDA_ERROR_LAUNCH_FAILED;
    EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, form.call(kLarge, own));
    engine.cuda_result = 0;
    EXPECT_CUDA(CUDA_ERROR_UNKNOWN, form.call(kLarge, own));
    EXPECT_EQ(0U, polypath_sim_copies());
  }
}

TEST_F(Copies, WrongArguments_AreAnsweredByDriver) {
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    renew();
    EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, form.call(kLarge + 1, own));
    const auto no_stream = std::bit_cast<CUstream>(std::uintptr_t{0x7770});
    EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, form.call(kLarge, no_stream));
    EXPECT_EQ(2U, engine.copies.size());
    EXPECT_EQ(0U, polypath_sim_copies());
  }
}

TEST_F(Copies, EmptyCopies_GoToTheDriver) {
  for (const Form& form : forms) static_cast<void>(form.call(0, own));
  EXPECT_TRUE(engine.copies.empty());
}

// What the engine calls by name is bound to the shim like all calls.
TEST_F(Copies, EnginesOwnCopies_GoToTheDriver) {
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    renew();
    engine.during_copy = [&] { copy(form, kLarge, own); };
    EXPECT_CUDA(CUDA_SUCCESS, form.call(kLarge, own));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(own));
    EXPECT_EQ(1U, engine.copies.size());
    EXPECT_EQ(2U, polypath_sim_copies());
  }
}

TEST_F(Copies, ForeignContexts_GoToTheDriver) {
  CUcontext other = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxCreate(&other, nullptr, 0, 1));
  use(0);
  renew();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyPeerAsync(far, other, near, context(0), kLarge, own));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyPeerAsync(far, context(1), near, context(1), kLarge, own));
  EXPECT_CUDA(CUDA_ERROR_INVALID_CONTEXT,
              cuMemcpyPeerAsync(far, nullptr, near, context(0), kLarge, own));
  EXPECT_TRUE(engine.copies.empty());
  EXPECT_EQ(2U, polypath_sim_copies());
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxDestroy(other));
  use(0);
}

}  // namespace
}  // namespace polypath::preload::test
