// Memory that is given back and taken again at the same address between two launches: host pages
// that are registered anew, since the simulated driver gives out no device address twice.
#include <sys/mman.h>

#include "graph_transfer_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kBytes = 16 * kMiB;

/// Pages that keep their address through all registrations.
class Pages {
 public:
  explicit Pages(const CudaDriver& driver)
      : driver_(driver),
        address_(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (address_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Pages() { munmap(address_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  [[nodiscard]] CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(address_); }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(address_), kBytes};
  }
  void take(CUcontext context) {
    const CurrentContext current(driver_, context);
    POLYPATH_CHECK(driver_, mem_host_register(address_, kBytes, CU_MEMHOSTREGISTER_PORTABLE));
  }
  void unregister(CUcontext context) {
    const CurrentContext current(driver_, context);
    POLYPATH_CHECK(driver_, mem_host_unregister(address_));
  }

 private:
  const CudaDriver& driver_;
  void* address_;
};

TEST_F(GraphTransferTest, ReusedAddress_IsPatchedIn) {
  make_context(64);
  Pages pages(driver());
  TestBuffer dst(driver(), node(), MemoryId::gpu(0), kBytes);
  const Stream stream = stream_on(0);
  const std::vector<Request> requests{{MemoryId::host(0), MemoryId::gpu(0), kBytes}};
  const Plan plan = context_->plan(requests);
  ASSERT_FALSE(plan.native());
  context_->prepare(requests);
  const std::uint64_t nodes = make_schedule(plan, context_->resources().ring_limits()).order.size();
  const auto expect_copy = [&] {
    const std::uint64_t seed = random_();
    fill_pattern(pages.bytes(), seed);
    dst.poison();
    const Traffic traffic(*context_);
    copy(*context_, {dst.address(), pages.address(), kBytes, stream.get()});
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_EQ(dst.first_difference(seed), std::nullopt);
    EXPECT_TRUE(traffic.went_as(plan));
  };

  pages.take(context_of(0));
  expect_copy();
  expect_copy();
  EXPECT_EQ(uses(), (GraphUses{.launches = 2, .hits = 1, .builds = 1, .cached = 1}));
  pages.unregister(context_of(0));
  pages.take(context_of(0));
  expect_copy();
  EXPECT_EQ(uses(), (GraphUses{.launches = 3,
                               .hits = 1,
                               .patches = 1,
                               .patched_nodes = nodes,
                               .builds = 1,
                               .cached = 1}));
  pages.unregister(context_of(0));
  // Memory of another context cannot be patched in.
  pages.take(context_of(1));
  expect_copy();
  EXPECT_EQ(uses(), (GraphUses{.launches = 4,
                               .hits = 1,
                               .patches = 1,
                               .patched_nodes = nodes,
                               .builds = 2,
                               .cached = 1}));
  pages.unregister(context_of(1));
}

}  // namespace
}  // namespace polypath::test
