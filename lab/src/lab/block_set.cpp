#include "lab/block_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "tune/pattern.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kMaxCompared = 32 * kMiB;  // at once
// A batch of thousands of blocks begins some tens of microseconds after the call.
constexpr int kBlocksAheadCopies = 4;
constexpr double kBlocksAheadUs = 50;  // of each

int gpu_of_stream(const BlocksRequest& request) {
  return request.src.is_gpu() ? request.src.index : request.dst.index;
}

std::vector<std::size_t> permutation(std::size_t count, std::mt19937_64& random) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::shuffle(order, random);
  return order;
}

}  // namespace

BlockSet::BlockSet(Context& context, const BlocksRequest& request)
    : context_(context),
      block_bytes_(request.block_bytes),
      src_(context.driver(), context.node(), request.src, request.block_bytes * request.count),
      dst_(context.driver(), context.node(), request.dst, request.block_bytes * request.count),
      current_(context.devices().context(gpu_of_stream(request))),
      stream_(context.driver(), current_),
      stream_handle_(stream_.get()),
      source_of_(request.count) {
  std::random_device seeds;
  seed_ = std::uint64_t{seeds()} << 32 | seeds();
  std::mt19937_64 random(seed_);
  src_.fill(seed_);
  const auto from = permutation(request.count, random);
  const auto to = permutation(request.count, random);
  for (std::size_t i = 0; i < request.count; ++i) {
    source_of_[to[i]] = from[i];
    dst_addresses_.push_back(dst_.address() + to[i] * block_bytes_);
    src_addresses_.push_back(src_.address() + from[i] * block_bytes_);
    dsts_.push_back(reinterpret_cast<void*>(dst_addresses_.back()));
    srcs_.push_back(reinterpret_cast<const void*>(src_addresses_.back()));
    sizes_.push_back(block_bytes_);
  }
  context_.prepare_batches({{request.src, request.dst, 0}});
}

BlockSet::~BlockSet() = default;

bool BlockSet::has_native_batch() const noexcept {
  return context_.driver().memcpy_batch_async != nullptr;
}

void BlockSet::issue_native() {
  const CudaDriver& driver = context_.driver();
  ContextGuard guard(driver);
  guard.use(current_);
  if (!has_native_batch()) {
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      POLYPATH_CHECK(
          driver, memcpy_async(dst_addresses_[i], src_addresses_[i], block_bytes_, stream_.get()));
    return;
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first = 0;
  POLYPATH_CHECK(driver,
                 memcpy_batch_async(dst_addresses_.data(), src_addresses_.data(), sizes_.data(),
                                    sizes_.size(), &attributes, &first, 1, stream_.get()));
}

void BlockSet::issue_polypath() {
  ContextGuard guard(context_.driver());
  guard.use(current_);
  context_.copy_batch_async(
      {sizes_.size(), dsts_.data(), srcs_.data(), sizes_.data(), stream_.get()});
}

std::function<void()> BlockSet::work_ahead() {
  const auto link = context_.node().find_link(src_.memory(), dst_.memory());
  if (context_.source().simulated || !link) return {};
  const double gbps = context_.node().links[static_cast<std::size_t>(*link)].gbps;
  const auto bytes = static_cast<std::uint64_t>(kBlocksAheadUs * gbps * kBytesPerGbpsUs);
  if (ahead_.empty())
    for (const MemoryId memory : {src_.memory(), dst_.memory()}) {
      ahead_.push_back(
          std::make_unique<TestBuffer>(context_.driver(), context_.node(), memory, bytes));
      ahead_.back()->fill(seed_);
    }
  return [this, bytes] {
    for (int i = 0; i < kBlocksAheadCopies; ++i)
      POLYPATH_CHECK(context_.driver(), memcpy_async(ahead_[1]->address(), ahead_[0]->address(),
                                                     bytes, stream_.get()));
  };
}

void BlockSet::verify(const char* way, const std::function<void()>& issue) {
  const CudaDriver& driver = context_.driver();
  dst_.poison();
  issue();
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
  ContextGuard guard(driver);
  guard.use(current_);
  const std::uint64_t blocks = std::max<std::uint64_t>(1, kMaxCompared / block_bytes_);
  std::vector<std::byte> contents(std::min(blocks * block_bytes_, dst_.size()));
  for (std::size_t first = 0; first < sizes_.size(); first += blocks) {
    const auto count = std::min<std::size_t>(blocks, sizes_.size() - first);
    POLYPATH_CHECK(driver,
                   memcpy_sync(reinterpret_cast<CUdeviceptr>(contents.data()),
                               dst_.address() + first * block_bytes_, count * block_bytes_));
    for (std::size_t b = 0; b < count; ++b)
      if (const auto wrong =
              first_difference(std::span(contents).subspan(b * block_bytes_, block_bytes_), seed_,
                               source_of_[first + b] * block_bytes_))
        throw Error(fmt::format("{} copy of block {} is wrong at byte {} of {}", way, first + b,
                                *wrong, block_bytes_));
  }
}

}  // namespace polypath
