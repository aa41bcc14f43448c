// Copies without a stream: on the default stream, and waited for where host memory is on a side, or
// memory that asks for it.
#include <functional>

#include "driver_forms.hpp"
#include "shim_test.hpp"

namespace polypath::preload::test {
namespace {

enum class Waits : bool { no, yes };

class WaitingCopies : public ShimTest {
 protected:
  struct Form {
    const char* name;
    void* dst;
    const void* src;
    Waits waits;
    CUstream stream;  ///< as the engine is told
    std::function<CUresult()> call;
  };

  std::vector<Form> forms() {
    std::vector<Form> all;
    const auto add = [&](CUstream on, auto* any, auto* within, auto* to_gpu, auto* to_host,
                         auto* peer) {
      const auto add_one = [&](const char* name, void* dst, const void* src, Waits waits,
                               auto call) { all.push_back({name, dst, src, waits, on, call}); };
      add_one("any", pointer(far), pointer(near), Waits::no,
              [=, this] { return any(far, near, kLarge); });
      add_one("any, from host memory", pointer(near), host, Waits::yes,
              [=, this] { return any(near, device(host), kLarge); });
      add_one("any, to host memory", host, pointer(far), Waits::yes,
              [=, this] { return any(device(host), far, kLarge); });
      add_one("DtoD", pointer(far), pointer(near), Waits::no,
              [=, this] { return within(far, near, kLarge); });
      add_one("DtoD, to host memory", host, pointer(near), Waits::yes,
              [=, this] { return within(device(host), near, kLarge); });
      add_one("HtoD", pointer(near), host, Waits::yes,
              [=, this] { return to_gpu(near, host, kLarge); });
      add_one("DtoH", host, pointer(near), Waits::yes,
              [=, this] { return to_host(host, near, kLarge); });
      add_one("Peer", pointer(far), pointer(near), Waits::no,
              [=, this] { return peer(far, context(1), near, context(0), kLarge); });
    };
    add(nullptr, &cuMemcpy, &cuMemcpyDtoD_v2, &cuMemcpyHtoD_v2, &cuMemcpyDtoH_v2, &cuMemcpyPeer);
    add(CU_STREAM_PER_THREAD, &cuMemcpy_ptds, &cuMemcpyDtoD_v2_ptds, &cuMemcpyHtoD_v2_ptds,
        &cuMemcpyDtoH_v2_ptds, &cuMemcpyPeer_ptds);
    return all;
  }
};

TEST_F(WaitingCopies, OfferedAndWaitedForAsByTheDriver) {
  for (const Form& form : forms()) {
    for (const Answer answer : {Answer::take, Answer::leave, Answer::refuse}) {
      SCOPED_TRACE(std::string(form.name) + (form.stream == nullptr ? "" : ", per thread"));
      renew();
      engine.answer = answer;
      const auto expected = bytes_at(form.src, kLarge);
      ASSERT_NE(expected, bytes_at(form.dst, kLarge));
      EXPECT_CUDA(CUDA_SUCCESS, form.call());
      EXPECT_EQ((std::vector{FakeEngine::Copy{form.dst, form.src, kLarge, form.stream}}),
                engine.copies);
      EXPECT_CUDA(form.waits == Waits::yes ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY,
                  cuStreamQuery(form.stream));
      EXPECT_EQ(form.waits == Waits::yes, expected == bytes_at(form.dst, kLarge));
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(form.stream));
      EXPECT_EQ(expected, bytes_at(form.dst, kLarge));
      EXPECT_EQ(1U, polypath_sim_copies());
    }
  }
}

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS on either side, for offloaded and native copies.
TEST_F(WaitingCopies, SyncMemops_AreWaitedFor) {
  for (const CUdeviceptr asking : {near, far}) {
    unsigned is_set = 1;
    EXPECT_CUDA(CUDA_SUCCESS,
                cuPointerSetAttribute(&is_set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, asking));
    for (const Form& form : forms()) {
      if (form.waits == Waits::yes) continue;
      for (const Answer answer : {Answer::take, Answer::leave}) {
        SCOPED_TRACE(form.name);
        renew();
        engine.answer = answer;
        const auto expected = bytes_at(form.src, kLarge);
        ASSERT_NE(expected, bytes_at(form.dst, kLarge));
        EXPECT_CUDA(CUDA_SUCCESS, form.call());
        EXPECT_CUDA(CUDA_SUCCESS, cuStreamQuery(form.stream));
        EXPECT_EQ(expected, bytes_at(form.dst, kLarge));
        EXPECT_EQ(1U, polypath_sim_copies());
      }
    }
    is_set = 0;
    EXPECT_CUDA(CUDA_SUCCESS,
                cuPointerSetAttribute(&is_set, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, asking));
  }
}

// The waits leave no events.
TEST_F(WaitingCopies, LeaveNoEvents) {
  const auto events = polypath_sim_live_events();
  engine.answer = Answer::take;
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoH(host, near, kLarge));
  EXPECT_EQ(events, polypath_sim_live_events());
}

TEST_F(WaitingCopies, FailedCopies_ReturnTheCause) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    renew();
    engine.answer = Answer::fail;
    engine.cuda_result = CUDA_ERROR_LAUNCH_FAILED;
    EXPECT_CUDA(CUDA_ERROR_LAUNCH_FAILED, form.call());
    EXPECT_EQ(0U, polypath_sim_copies());
  }
}

TEST_F(WaitingCopies, SmallCopies_GoToTheDriver) {
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyHtoD(near, host, 2 * kMiB - 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoH(host, near, 3 * kMiB - 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyDtoD(far, near, kMiB - 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy(far, near, kMiB - 1));
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyPeer(far, context(1), near, context(0), kMiB - 1));
  EXPECT_TRUE(engine.copies.empty());
  EXPECT_EQ(5U, polypath_sim_copies());
}

// The driver's answer to a copy that is taken, when the wait for it fails.
TEST_F(WaitingCopies, FailedWait_ReturnsItsResult) {
  const CUstream capturing = create_stream(0);
  engine.answer = Answer::take;
  engine.during_copy = [&] {
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamBeginCapture(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL));
  };
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemcpyHtoD(near, host, kLarge));
  CUgraph graph = nullptr;
  EXPECT_CUDA(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(capturing, &graph));
}

}  // namespace
}  // namespace polypath::preload::test
