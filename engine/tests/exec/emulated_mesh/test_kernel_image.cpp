// What the library was built with: a fat binary with code for the GPUs that it is meant for, or
// nothing; and what it says where the kernel cannot be had.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "exec/emulated_mesh/emulated_links.hpp"
#include "exec/kernels/images.hpp"

namespace polypath {
namespace {

constexpr std::uint32_t kMagic = 0xBA55ED50;
enum Kind : std::uint16_t { ptx = 1, machine_code = 2 };

using Entry = std::pair<std::uint16_t, std::uint32_t>;  // kind and GPU, such as 90

template <typename Number>
Number number_at(std::span<const unsigned char> bytes, std::size_t offset) {
  Number number{};
  std::memcpy(&number, bytes.subspan(offset, sizeof number).data(), sizeof number);
  return number;
}

/// As `cuobjdump` lists them. Header: magic, version, its size, the size of all entries; an entry:
/// kind, version, the size of its header and of its contents, ..., the GPU.
std::vector<Entry> entries_of(std::span<const unsigned char> image) {
  std::vector<Entry> entries;
  std::size_t at = number_at<std::uint16_t>(image, 6);
  const std::size_t end = at + number_at<std::uint64_t>(image, 8);
  while (at < end) {
    entries.emplace_back(number_at<std::uint16_t>(image, at),
                         number_at<std::uint32_t>(image, at + 28));
    at += number_at<std::uint32_t>(image, at + 4) + number_at<std::uint64_t>(image, at + 8);
  }
  return entries;
}

TEST(KernelImage, HoldsCodeForEachKindOfGpu) {
  const auto image = link_copy_image();
  if (image.empty()) GTEST_SKIP() << "this build has no kernels";
  ASSERT_EQ(number_at<std::uint32_t>(image, 0), kMagic);
  EXPECT_THAT(entries_of(image), testing::IsSupersetOf({Entry{machine_code, 80},
                                                        Entry{machine_code, 90}, Entry{ptx, 90}}));
}

TEST(EmulatedLinks, SayWhatIsMissing) {
  const auto driver = std::make_shared<CudaDriver>();  // has no function at all
  const bool built = !link_copy_image().empty();
  try {
    const EmulatedLinks links(driver, Node{});
    FAIL() << "was made";
  } catch (const NotSupported& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("a mesh cannot be emulated"));
    EXPECT_THAT(error.what(), testing::HasSubstr(built ? "loads no kernels" : "without kernels"));
  }
}

}  // namespace
}  // namespace polypath
