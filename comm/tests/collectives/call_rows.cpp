#include "call_rows.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "driver/check.hpp"

namespace polypath::test {

DeviceBytes::DeviceBytes(const CudaDriver& driver, std::uint64_t bytes) : driver_(driver) {
  POLYPATH_CHECK(driver_, mem_alloc(&address_, std::max<std::uint64_t>(bytes, 16)));
}

DeviceBytes::~DeviceBytes() { POLYPATH_WARN(driver_, mem_free(address_)); }

void DeviceBytes::write(const Bytes& bytes) const {
  POLYPATH_CHECK(driver_,
                 memcpy_sync(address_, std::bit_cast<CUdeviceptr>(bytes.data()), bytes.size()));
  // Memory that is not pinned has been read by now, but not all of it may have arrived.
  POLYPATH_CHECK(driver_, stream_synchronize(nullptr));
}

Bytes DeviceBytes::read(std::size_t bytes) const {
  Bytes contents(bytes);
  POLYPATH_CHECK(driver_,
                 memcpy_sync(std::bit_cast<CUdeviceptr>(contents.data()), address_, bytes));
  return contents;
}

PlannedCall planned_call(Random& random, int ranks, const ByteRange& bytes,
                         const std::vector<std::vector<std::uint32_t>>& nodes) {
  const ScratchShape any_shape{static_cast<std::uint32_t>(ranks), 8, 4, 65536, 1 << 22};
  PlannedCall call;
  do {
    call.what = random_case(random, any_shape, bytes.most, 1);
  } while (std::max(call.what.in_bytes(), call.what.out_bytes()) < bytes.least);
  call.what.nodes = nodes;
  call.images = images_of(random, call.what);
  return call;
}

CallRow::CallRow(const CudaDriver& driver, const std::vector<PlannedCall>& calls, int rank)
    : rank_(rank) {
  for (const PlannedCall& call : calls)
    memory_.push_back(std::make_unique<DeviceBytes>(
        driver, call.images[static_cast<std::size_t>(rank)].before.size()));
  reset(calls);
}

CollectiveCall call_on(const PlannedCall& planned, int rank, CUdeviceptr memory) {
  const CollectiveCase& what = planned.what;
  const Image& image = planned.images[static_cast<std::size_t>(rank)];
  CollectiveCall call{what.op,
                      what.type,
                      what.reduction,
                      static_cast<int>(what.root),
                      what.count,
                      memory + image.in_at,
                      memory + image.out_at};
  if (!what.parts.empty()) std::ranges::copy(what.parts, call.parts.emplace().begin());
  return call;
}

CollectiveCall CallRow::call(const std::vector<PlannedCall>& calls, std::size_t i) const {
  return call_on(calls[i], rank_, memory_[i]->address());
}

std::string CallRow::difference_of(const std::vector<PlannedCall>& calls, std::size_t i) const {
  const Image& image = calls[i].images[static_cast<std::size_t>(rank_)];
  const std::string wrong = difference(image, memory_[i]->read(image.before.size()).data());
  return wrong.empty()
             ? wrong
             : fmt::format("rank {}, call {} ({}): {}", rank_, i, calls[i].what.text(), wrong);
}

std::string CallRow::difference_of(const std::vector<PlannedCall>& calls) const {
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (std::string wrong = difference_of(calls, i); !wrong.empty()) return wrong;
  return {};
}

void CallRow::expect_done(const std::vector<PlannedCall>& calls) const {
  for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(difference_of(calls, i), "");
}

void CallRow::reset(const std::vector<PlannedCall>& calls) const {
  for (std::size_t i = 0; i < calls.size(); ++i)
    memory_[i]->write(calls[i].images[static_cast<std::size_t>(rank_)].before);
}

}  // namespace polypath::test
