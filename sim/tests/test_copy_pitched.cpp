// Copies of rows and layers.
#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

constexpr std::size_t kWidth = 300;
constexpr std::size_t kRows = 7;
constexpr std::size_t kLayers = 3;

/// Rows and layers with room between them, after an offset of 5 bytes, 2 rows and 1 layer.
struct Layout {
  std::size_t pitch;
  std::size_t height;

  [[nodiscard]] std::size_t bytes() const { return pitch * height * (kLayers + 1); }
  [[nodiscard]] std::size_t at(std::size_t layer, std::size_t row) const {
    return ((layer + 1) * height + row + 2) * pitch + 5;
  }
};
constexpr Layout kSource{320, 10};
constexpr Layout kTarget{512, 9};

class CopyPitched : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    enable_peer(0, 1);
    src = allocate(0, kSource.bytes());
    dst = allocate(1, kTarget.bytes());
    values = pattern(kSource.bytes(), 3);
    write(src, values);
    write(dst, std::vector<std::uint8_t>(kTarget.bytes(), 0xEE));
    polypath_sim_reset_counters();
  }

  template <typename Structure>
  Structure parameters(std::size_t layers) const {
    Structure params{};
    params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = src;
    params.dstDevice = dst;
    params.srcXInBytes = params.dstXInBytes = 5;
    params.srcY = params.dstY = 2;
    params.srcPitch = kSource.pitch;
    params.dstPitch = kTarget.pitch;
    params.WidthInBytes = kWidth;
    params.Height = kRows;
    if constexpr (requires { params.Depth; }) {
      params.srcZ = params.dstZ = 1;
      params.srcHeight = kSource.height;
      params.dstHeight = kTarget.height;
      params.Depth = layers;
    } else {
      params.srcDevice += kSource.pitch * kSource.height;
      params.dstDevice += kTarget.pitch * kTarget.height;
    }
    return params;
  }

  void expect_arrived(std::size_t layers) {
    std::vector<std::uint8_t> expected(kTarget.bytes(), 0xEE);
    for (std::size_t layer = 0; layer < layers; ++layer)
      for (std::size_t row = 0; row < kRows; ++row)
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(kSource.at(layer, row)), kWidth,
                    expected.begin() + static_cast<std::ptrdiff_t>(kTarget.at(layer, row)));
    EXPECT_TRUE(expected == peek(dst, expected.size()));
    EXPECT_EQ(kWidth * kRows * layers, polypath_sim_link_bytes("gpu0", "gpu1"));
  }

  std::vector<std::uint8_t> values;
  CUdeviceptr src = 0;
  CUdeviceptr dst = 0;
};

TEST_F(CopyPitched, MovesRows) {
  const CUstream stream = create_stream(0);
  const auto params = parameters<CUDA_MEMCPY2D>(1);
  ASSERT_CUDA(cuMemcpy2DAsync(&params, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  expect_arrived(1);
}

// In virtual time: in real time a copy may be done before it is queried.
TEST_F(CopyPitched, AsyncCopy_IsNotDoneAtIssue) {
  const CUstream stream = create_stream(0);
  const auto params = parameters<CUDA_MEMCPY2D>(1);
  ASSERT_CUDA(cuMemcpy2DAsync(&params, stream));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
}

TEST_F(CopyPitched, MovesLayers) {
  const CUstream stream = create_stream(0);
  const auto params = parameters<CUDA_MEMCPY3D>(kLayers);
  ASSERT_CUDA(cuMemcpy3DAsync(&params, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  expect_arrived(kLayers);
}

TEST_F(CopyPitched, PeerForm_MovesLayers) {
  auto params = parameters<CUDA_MEMCPY3D_PEER>(kLayers);
  params.srcContext = context(0);
  params.dstContext = context(1);
  ASSERT_CUDA(cuMemcpy3DPeerAsync(&params, nullptr));
  ASSERT_CUDA(cuStreamSynchronize(nullptr));
  expect_arrived(kLayers);
}

TEST_F(CopyPitched, SynchronousFormsWaitForHostMemory) {
  std::vector<std::uint8_t> host(kWidth * kRows, 0xEE);
  CUDA_MEMCPY2D params = parameters<CUDA_MEMCPY2D>(1);
  params.dstMemoryType = CU_MEMORYTYPE_HOST;
  params.dstHost = host.data();
  params.dstXInBytes = params.dstY = 0;
  params.dstPitch = kWidth;
  ASSERT_CUDA(cuMemcpy2D(&params));
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t i = 0; i < kWidth; ++i)
      ASSERT_EQ(values[kSource.at(0, row) + i], host[row * kWidth + i]) << row << ", " << i;
}

TEST_F(CopyPitched, SingleRow_NeedsNoPitch) {
  CUDA_MEMCPY2D params{};
  params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  params.srcDevice = src;
  params.dstDevice = dst;
  params.WidthInBytes = kWidth;
  params.Height = 1;
  ASSERT_CUDA(cuMemcpy2DUnaligned(&params));
  ASSERT_CUDA(cuStreamSynchronize(nullptr));
  EXPECT_EQ(std::vector<std::uint8_t>(values.begin(), values.begin() + kWidth), peek(dst, kWidth));
}

TEST_F(CopyPitched, WrongShapes_AreRefused) {
  using P = CUDA_MEMCPY3D;
  const auto refused = [this](CUresult expected, const auto& spoil) {
    P params = parameters<P>(kLayers);
    spoil(params);
    EXPECT_CUDA(expected, cuMemcpy3DAsync(&params, nullptr));
  };
  refused(CUDA_ERROR_INVALID_VALUE, [](P& p) { p.srcPitch = kWidth + 4; });
  refused(CUDA_ERROR_INVALID_VALUE, [](P& p) { p.dstHeight = kRows + 1; });
  refused(CUDA_ERROR_INVALID_VALUE, [](P& p) { p.Depth = kLayers + 1; });
  refused(CUDA_ERROR_INVALID_VALUE, [](P& p) { p.srcDevice = 0; });
  refused(CUDA_ERROR_NOT_SUPPORTED, [](P& p) { p.dstMemoryType = CU_MEMORYTYPE_ARRAY; });
  refused(CUDA_SUCCESS, [](P& p) { p.Depth = 0; });
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync(nullptr, nullptr));
  EXPECT_EQ(0U, polypath_sim_copies());
}

}  // namespace
}  // namespace polypath::sim::test
