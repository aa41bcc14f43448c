// Copies of two and three dimensions: what is contiguous on both sides is offered as a linear copy,
// the rest is the driver's. And copies with attributes.
#include <functional>

#include "driver_forms.hpp"
#include "shim_test.hpp"

extern "C" CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                                CUmemcpyAttributes* attributes, CUstream stream);

namespace polypath::preload::test {
namespace {

constexpr std::size_t kWidth = 4096;
constexpr std::size_t kRows = 512;
constexpr std::size_t kLayers = 2;
constexpr std::size_t kBytes = kWidth * kRows * kLayers;
static_assert(kBytes <= kLarge && kBytes >= 3 * kMiB);

class ShapedCopies : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    stream = create_stream(0);
  }

  CUDA_MEMCPY2D flat() const {
    CUDA_MEMCPY2D shape{};
    shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    shape.srcDevice = near;
    shape.dstDevice = far;
    shape.srcPitch = shape.dstPitch = shape.WidthInBytes = kWidth;
    shape.Height = kRows * kLayers;
    return shape;
  }
  /// Both structures for three dimensions.
  template <typename Shape>
  Shape deep() const {
    Shape shape{};
    shape.srcMemoryType = shape.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    shape.srcDevice = near;
    shape.dstDevice = far;
    shape.srcPitch = shape.dstPitch = shape.WidthInBytes = kWidth;
    shape.srcHeight = shape.dstHeight = shape.Height = kRows;
    shape.Depth = kLayers;
    return shape;
  }
  CUDA_MEMCPY3D_PEER deep_peer() const {
    auto shape = deep<CUDA_MEMCPY3D_PEER>();
    shape.srcContext = context(0);
    shape.dstContext = context(1);
    return shape;
  }

  /// `call` copies the first kBytes of `src` to `dst`; they are offered on `on` and arrive.
  void expect_offered(void* dst, const void* src, CUstream on, bool is_waited_for,
                      const std::function<CUresult()>& call) {
    for (const Answer answer : {Answer::take, Answer::leave}) {
      renew();
      engine.answer = answer;
      const auto expected = bytes_at(src, kBytes);
      ASSERT_NE(expected, bytes_at(dst, kBytes));
      EXPECT_CUDA(CUDA_SUCCESS, call());
      EXPECT_EQ((std::vector{FakeEngine::Copy{dst, src, kBytes, on}}), engine.copies);
      EXPECT_EQ(is_waited_for, expected == bytes_at(dst, kBytes));
      EXPECT_CUDA(CUDA_SUCCESS, cuStreamSynchronize(on));
      EXPECT_EQ(expected, bytes_at(dst, kBytes));
    }
  }
  void expect_drivers(const std::function<CUresult()>& call, CUresult result = CUDA_SUCCESS) {
    renew();
    engine.answer = Answer::take;
    EXPECT_CUDA(result, call());
    EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
    EXPECT_TRUE(engine.copies.empty());
  }

  CUstream stream = nullptr;
};

TEST_F(ShapedCopies, ContiguousCopies_AreOffered) {
  const auto two = flat();
  const auto three = deep<CUDA_MEMCPY3D>();
  const auto peer = deep_peer();
  void* const to = pointer(far);
  void* const from = pointer(near);
  expect_offered(to, from, stream, false, [&] { return cuMemcpy2DAsync(&two, stream); });
  expect_offered(to, from, stream, false, [&] { return cuMemcpy3DAsync(&three, stream); });
  expect_offered(to, from, stream, false, [&] { return cuMemcpy3DPeerAsync(&peer, stream); });
  expect_offered(to, from, nullptr, false, [&] { return cuMemcpy2D(&two); });
  expect_offered(to, from, nullptr, false, [&] { return cuMemcpy2DUnaligned(&two); });
  expect_offered(to, from, nullptr, false, [&] { return cuMemcpy3D(&three); });
  expect_offered(to, from, nullptr, false, [&] { return cuMemcpy3DPeer(&peer); });
}

TEST_F(ShapedCopies, WithTheHostAreWaitedFor) {
  auto up = flat();
  up.srcMemoryType = CU_MEMORYTYPE_HOST;
  up.srcHost = host;
  expect_offered(pointer(far), host, nullptr, true, [&] { return cuMemcpy2D(&up); });
  expect_offered(pointer(far), host, stream, false, [&] { return cuMemcpy2DAsync(&up, stream); });
  auto down = deep<CUDA_MEMCPY3D>();
  down.dstMemoryType = CU_MEMORYTYPE_HOST;
  down.dstHost = host;
  expect_offered(host, pointer(near), nullptr, true, [&] { return cuMemcpy3D(&down); });
}

TEST_F(ShapedCopies, SingleRowOfWiderPitch_IsOffered) {
  auto shape = flat();
  shape.Height = 1;
  shape.WidthInBytes = kBytes;
  shape.srcPitch = shape.dstPitch = kBytes + 13;
  expect_offered(pointer(far), pointer(near), stream, false,
                 [&] { return cuMemcpy2DAsync(&shape, stream); });
}

TEST_F(ShapedCopies, BeginWhereTheirOffsetsSay) {
  auto shape = flat();
  shape.Height = kRows * kLayers - 3;
  shape.srcY = 1;
  shape.dstY = 2;
  renew();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy2DAsync(&shape, stream));
  EXPECT_EQ((std::vector{FakeEngine::Copy{pointer(far + 2 * kWidth), pointer(near + kWidth),
                                          kBytes - 3 * kWidth, stream}}),
            engine.copies);
  auto layer = deep<CUDA_MEMCPY3D>();
  layer.Depth = 1;
  layer.srcZ = 1;
  renew();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy3DAsync(&layer, stream));
  EXPECT_EQ(
      (std::vector{FakeEngine::Copy{pointer(far), pointer(near + kBytes / 2), kBytes / 2, stream}}),
      engine.copies);
}

TEST_F(ShapedCopies, CopiesWithGaps_GoToTheDriver) {
  auto narrow = flat();
  narrow.WidthInBytes = kWidth - 4;
  expect_drivers([&] { return cuMemcpy2DAsync(&narrow, stream); });
  auto low = deep<CUDA_MEMCPY3D>();
  low.Height = kRows - 1;
  expect_drivers([&] { return cuMemcpy3DAsync(&low, stream); });
  auto peer = deep_peer();
  peer.dstContext = context(0);
  expect_drivers([&] { return cuMemcpy3DPeerAsync(&peer, stream); });
}

TEST_F(ShapedCopies, WithGaps_AreToldToEngine) {
  renew();
  EXPECT_CUDA(CUDA_SUCCESS, cuMemcpyAsync(far, near, kLarge, stream));  // there is an engine now
  auto narrow = flat();
  narrow.WidthInBytes = kWidth - 4;
  narrow.dstMemoryType = CU_MEMORYTYPE_HOST;
  narrow.dstHost = host;
  expect_drivers([&] { return cuMemcpy2DAsync(&narrow, stream); });
  const FakeEngine::Copy expected{host, pointer(near), (kWidth - 4) * kRows * kLayers, stream};
  EXPECT_EQ(std::vector{expected}, engine.noted);
}

TEST_F(ShapedCopies, WithAttributesAreOffered) {
  CUmemcpyAttributes attributes{CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, {}, {}, 0};
  const auto call = [&] {
    return cuMemcpyWithAttributesAsync(far, near, kBytes, &attributes, stream);
  };
  expect_offered(pointer(far), pointer(near), stream, false, call);
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  expect_drivers(call);
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  expect_drivers(call, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace polypath::preload::test
