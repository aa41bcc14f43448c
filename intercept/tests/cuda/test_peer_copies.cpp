// cuMemcpyPeer of memory that belongs to no context, mapped or of a pool: an ordinary copy between
// the GPUs that hold it.
#include <functional>

#include "node_test.hpp"

namespace polypath::preload::test {
namespace {

constexpr std::size_t kPeerBytes = 8 * kMebibyte + 5;

class PeerCopies : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (!IsSkipped()) stream = create_stream(0);
  }
  void TearDown() override {
    if (stream != nullptr) {
      EXPECT_CUDA(cuStreamDestroy(stream));
    }
    NodeTest::TearDown();
  }

  struct Form {
    const char* name;
    std::function<CUresult(CUdeviceptr dst, int to, CUdeviceptr src, int from)> call;
  };
  [[nodiscard]] std::vector<Form> forms() const {
    const auto shape = [this](CUdeviceptr dst, int to, CUdeviceptr src, int from) {
      CUDA_MEMCPY3D_PEER params{};
      params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      params.srcDevice = src;
      params.dstDevice = dst;
      params.srcContext = context(from);
      params.dstContext = context(to);
      params.srcPitch = params.dstPitch = params.WidthInBytes = kPeerBytes;
      params.srcHeight = params.dstHeight = params.Height = params.Depth = 1;
      return params;
    };
    return {
        {"cuMemcpyPeerAsync",
         [this](CUdeviceptr dst, int to, CUdeviceptr src, int from) {
           return cuMemcpyPeerAsync(dst, context(to), src, context(from), kPeerBytes, stream);
         }},
        {"cuMemcpyPeerAsync, default stream",
         [this](CUdeviceptr dst, int to, CUdeviceptr src, int from) {
           return cuMemcpyPeerAsync(dst, context(to), src, context(from), kPeerBytes, nullptr);
         }},
        {"cuMemcpyPeer",
         [this](CUdeviceptr dst, int to, CUdeviceptr src, int from) {
           return cuMemcpyPeer(dst, context(to), src, context(from), kPeerBytes);
         }},
        {"cuMemcpy3DPeerAsync",
         [this, shape](CUdeviceptr dst, int to, CUdeviceptr src, int from) {
           const CUDA_MEMCPY3D_PEER params = shape(dst, to, src, from);
           return cuMemcpy3DPeerAsync(&params, stream);
         }},
        {"cuMemcpy3DPeer",
         [shape](CUdeviceptr dst, int to, CUdeviceptr src, int from) {
           const CUDA_MEMCPY3D_PEER params = shape(dst, to, src, from);
           return cuMemcpy3DPeer(&params);
         }},
        {"cuMemcpyAsync, default stream",
         [](CUdeviceptr dst, int, CUdeviceptr src, int) {
           return cuMemcpyAsync(dst, src, kPeerBytes, nullptr);
         }},
        {"cuMemcpyDtoD", [](CUdeviceptr dst, int, CUdeviceptr src,
                            int) { return cuMemcpyDtoD(dst, src, kPeerBytes); }},
    };
  }

  /// Copies by each form, there and back; on the simulated node the copies that it takes are
  /// `expected`.
  void expect_arrival(CUdeviceptr near, CUdeviceptr far,
                      const std::function<bool(std::uint64_t)>& expected,
                      const std::vector<Form>& forms) {
    std::uint64_t seed = 1;
    for (const Form& form : forms) {
      for (const bool back : {false, true}) {
        SCOPED_TRACE(testing::Message() << form.name << (back ? ", back" : ""));
        const CUdeviceptr dst = back ? near : far;
        const CUdeviceptr src = back ? far : near;
        const int to = back ? 0 : 1;
        const int from = 1 - to;
        const auto values = random_bytes(kPeerBytes, ++seed);
        use(from);
        write(src, values);
        use(to);
        write(dst, std::vector<std::uint8_t>(kPeerBytes, 0xEE));
        use(0);
        const auto before = simulated_copies();
        EXPECT_CUDA(form.call(dst, to, src, from));
        for (const int gpu : {1, 0}) {
          use(gpu);
          EXPECT_CUDA(cuCtxSynchronize());
        }
        if (before) {
          const std::uint64_t copies = *simulated_copies() - *before;
          EXPECT_TRUE(expected(copies)) << copies << " copies";
        }
        use(to);
        EXPECT_EQ(values, read(dst, kPeerBytes));
        use(0);
      }
    }
  }

  static bool is_native(std::uint64_t copies) { return copies == 1; }
  static bool by_plan(std::uint64_t copies) {
    return splits_between_gpus(kPeerBytes) ? copies > 2 : is_native(copies);
  }

  CUstream stream = nullptr;
};

TEST_F(PeerCopies, MappedMemory_TakesSeveralRoutes) {
  const auto all = all_gpus();
  expect_arrival(allocate_mapped(0, kPeerBytes, all), allocate_mapped(1, kPeerBytes, all), by_plan,
                 forms());
}

TEST_F(PeerCopies, PoolMemory_TakesSeveralRoutes) {
  const auto all = all_gpus();
  expect_arrival(allocate_in_pool(0, kPeerBytes, all), allocate_in_pool(1, kPeerBytes, all),
                 by_plan, forms());
}

TEST_F(PeerCopies, MappedToOrdinary_TakesSeveralRoutes) {
  expect_arrival(allocate_mapped(0, kPeerBytes, all_gpus()), allocate(1, kPeerBytes), by_plan,
                 forms());
}

// The driver carries what names the contexts, by any way; a plain copy in its place would
// fail.
TEST_F(PeerCopies, UnreachableMemory_GoesToTheDriver) {
  const std::vector<Form> named = forms();
  expect_arrival(allocate_mapped(0, kPeerBytes, {0}), allocate_mapped(1, kPeerBytes, {1}),
                 is_native, {named.begin(), named.begin() + 3});
}

}  // namespace
}  // namespace polypath::preload::test
