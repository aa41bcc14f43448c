// Batches of copies: the large ones are handed over one by one, the rest stays one batch of the driver's. Batches
// whose copies have attributes of their own are the driver's.
#include <cstdlib>

#include "preload/hand_over.hpp"

namespace polypath::preload {
namespace {

/// The arguments of both forms of cuMemcpyBatchAsync.
struct Batch {
  Symbol symbol;
  CUdeviceptr* dsts;
  CUdeviceptr* srcs;
  std::size_t* sizes;
  std::size_t count;
  CUmemcpyAttributes* attributes;
  std::size_t* attribute_firsts;
  std::size_t attribute_count;
  std::size_t* fail_index;  ///< of the older form; else null
  CUstream stream;
};

bool has_fail_index(Symbol symbol) noexcept {
  return symbol == Symbol::cuMemcpyBatchAsync || symbol == Symbol::cuMemcpyBatchAsync_ptsz;
}

CUresult call_native(const Batch& batch) noexcept {
  if (has_fail_index(batch.symbol))
    return call_driver(batch.symbol, batch.dsts, batch.srcs, batch.sizes, batch.count,
                       batch.attributes, batch.attribute_firsts, batch.attribute_count,
                       batch.fail_index, batch.stream);
  return call_driver(batch.symbol, batch.dsts, batch.srcs, batch.sizes, batch.count,
                     batch.attributes, batch.attribute_firsts, batch.attribute_count, batch.stream);
}

Copy copy_of(const Batch& batch, std::size_t index) noexcept {
  return {batch.symbol,      Direction::any,     batch.dsts[index],
          batch.srcs[index], batch.sizes[index], batch.stream};
}

/// A copy that reads its source in the stream's order does what any other order allows, but for "before the
/// call returns".
bool is_in_stream_order(const CUmemcpyAttributes& attributes) noexcept {
  const bool is_known = attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                        attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  return is_known &&
         (attributes.flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

/// Whether the arguments are those of a batch that the driver accepts, as far as can be told, and of a kind
/// that may be taken apart. The legacy stream takes no batches.
bool may_be_split(const Batch& batch) noexcept {
  return stream_of(copy_of(batch, 0)) != CU_STREAM_LEGACY && batch.attributes != nullptr &&
         batch.attribute_firsts != nullptr && batch.attribute_count == 1 &&
         batch.attribute_firsts[0] == 0 && is_in_stream_order(batch.attributes[0]) &&
         (batch.fail_index != nullptr || !has_fail_index(batch.symbol));
}

/// The copies of a batch that stay the driver's, as a batch.
class Rest {
 public:
  explicit Rest(const Batch& batch) noexcept
      : batch_(batch),
        numbers_(
            static_cast<std::size_t*>(std::malloc(kArrays * batch.count * sizeof(std::size_t)))) {}
  ~Rest() { std::free(numbers_); }
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;

  [[nodiscard]] bool has_memory() const noexcept { return numbers_ != nullptr; }

  void add(std::size_t index) noexcept {
    array(kDsts)[count_] = batch_.dsts[index];
    array(kSrcs)[count_] = batch_.srcs[index];
    array(kSizes)[count_] = batch_.sizes[index];
    array(kIndices)[count_++] = index;
  }

  [[nodiscard]] CUresult call() noexcept {
    if (count_ == 0) return CUDA_SUCCESS;
    Batch rest = batch_;
    std::size_t failed = SIZE_MAX;
    rest.dsts = addresses(kDsts);
    rest.srcs = addresses(kSrcs);
    rest.sizes = array(kSizes);
    rest.count = count_;
    rest.fail_index = &failed;
    const CUresult result = call_native(rest);
    if (result != CUDA_SUCCESS && batch_.fail_index != nullptr)
      *batch_.fail_index = failed < count_ ? array(kIndices)[failed] : failed;
    return result;
  }

 private:
  enum Array : std::size_t { kDsts, kSrcs, kSizes, kIndices, kArrays };

  [[nodiscard]] std::size_t* array(Array which) const noexcept {
    return numbers_ + which * batch_.count;
  }
  [[nodiscard]] CUdeviceptr* addresses(Array which) const noexcept {
    static_assert(sizeof(CUdeviceptr) == sizeof(std::size_t));
    return reinterpret_cast<CUdeviceptr*>(array(which));
  }

  const Batch& batch_;
  std::size_t* numbers_;
  std::size_t count_ = 0;
};

/// Hands over what the engine takes, and gives the driver the rest.
CUresult split(const Batch& batch) noexcept {
  Rest rest(batch);
  if (!rest.has_memory()) return call_native(batch);
  for (std::size_t i = 0; i < batch.count; ++i) {
    CUresult result = CUDA_SUCCESS;
    const Copy copy = copy_of(batch, i);
    if (takes_short_way(copy) || !hand_over(copy, &result)) {
      rest.add(i);
    } else if (result != CUDA_SUCCESS) {
      if (batch.fail_index != nullptr) *batch.fail_index = i;
      return result;
    }
  }
  return rest.call();
}

CUresult carry_batch(const Batch& batch) noexcept {
  const bool has_arrays = batch.dsts != nullptr && batch.srcs != nullptr && batch.sizes != nullptr;
  std::size_t bytes = 0;
  bool is_short = true;
  for (std::size_t i = 0; has_arrays && i < batch.count; ++i) {
    bytes += batch.sizes[i];
    is_short = is_short && takes_short_way(copy_of(batch, i));
  }
  const bool is_split = !is_short && may_be_split(batch);
  if (is_split && batch.count == 1)
    return carry(copy_of(batch, 0), [&] { return call_native(batch); });
  begin_process();
  count_call(batch.symbol, bytes);
  return is_split ? split(batch) : call_native(batch);
}

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

POLYPATH_REPLACEMENT(cuMemcpyBatchAsync)
(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
 size_t* firsts, size_t attribute_count, size_t* fail_index, CUstream stream) {
  return carry_batch({Symbol::cuMemcpyBatchAsync, dsts, srcs, sizes, count, attributes, firsts,
                      attribute_count, fail_index, stream});
}

POLYPATH_REPLACEMENT(cuMemcpyBatchAsync_ptsz)
(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
 size_t* firsts, size_t attribute_count, size_t* fail_index, CUstream stream) {
  return carry_batch({Symbol::cuMemcpyBatchAsync_ptsz, dsts, srcs, sizes, count, attributes, firsts,
                      attribute_count, fail_index, stream});
}

POLYPATH_REPLACEMENT(cuMemcpyBatchAsync_v2)
(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
 size_t* firsts, size_t attribute_count, CUstream stream) {
  return carry_batch({Symbol::cuMemcpyBatchAsync_v2, dsts, srcs, sizes, count, attributes, firsts,
                      attribute_count, nullptr, stream});
}

POLYPATH_REPLACEMENT(cuMemcpyBatchAsync_v2_ptsz)
(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count, CUmemcpyAttributes* attributes,
 size_t* firsts, size_t attribute_count, CUstream stream) {
  return carry_batch({Symbol::cuMemcpyBatchAsync_v2_ptsz, dsts, srcs, sizes, count, attributes,
                      firsts, attribute_count, nullptr, stream});
}
