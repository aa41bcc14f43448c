// Copies with attributes, alone or in batches. A batch of many copies is offered as a whole. If it
// is left, its large copies are offered together, as the group that they are: they have no order
// among each other. The driver executes the rest as one batch.
#include "cuda/offload.hpp"
#include "gate/process.hpp"

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

/// A copy that reads its source in the stream's order does what any other order allows, but for
/// "before the call returns".
bool is_in_stream_order(const CUmemcpyAttributes& attributes) noexcept {
  const bool is_known = attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                        attributes.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  return is_known &&
         (attributes.flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0;
}

/// Whether the arguments are those of a batch that the driver accepts, as far as can be told. The
/// legacy stream takes no batches.
bool may_be_split(const Batch& batch) noexcept {
  if (stream_of(copy_of(batch, 0)) == CU_STREAM_LEGACY || batch.attributes == nullptr ||
      batch.attribute_firsts == nullptr || batch.attribute_count == 0 ||
      batch.attribute_firsts[0] != 0 ||
      (batch.fail_index == nullptr && has_fail_index(batch.symbol)))
    return false;
  for (std::size_t a = 1; a < batch.attribute_count; ++a)
    if (batch.attribute_firsts[a] <= batch.attribute_firsts[a - 1]) return false;
  return batch.attribute_firsts[batch.attribute_count - 1] < batch.count;
}

/// The copies of a batch that stay the driver's, as a batch.
class Rest {
 public:
  explicit Rest(const Batch& batch) noexcept
      : batch_(batch),
        dsts_(batch.count),
        srcs_(batch.count),
        sizes_(batch.count),
        indices_(batch.count),
        attributes_(batch.attribute_count),
        firsts_(batch.attribute_count) {}

  [[nodiscard]] bool has_memory() const noexcept {
    return dsts_ && srcs_ && sizes_ && indices_ && attributes_ && firsts_;
  }

  /// In ascending order; `attribute`: the number of the copy's attributes.
  void add(std::size_t index, std::size_t attribute) noexcept {
    if (count_ == 0 || attribute != last_attribute_) {
      attributes_[attribute_count_] = batch_.attributes[attribute];
      firsts_[attribute_count_++] = count_;
      last_attribute_ = attribute;
    }
    dsts_[count_] = batch_.dsts[index];
    srcs_[count_] = batch_.srcs[index];
    sizes_[count_] = batch_.sizes[index];
    indices_[count_++] = index;
  }

  [[nodiscard]] CUresult call() const noexcept {
    if (count_ == 0) return CUDA_SUCCESS;
    std::size_t failed = SIZE_MAX;
    const CUresult result =
        call_native({batch_.symbol, dsts_.get(), srcs_.get(), sizes_.get(), count_,
                     attributes_.get(), firsts_.get(), attribute_count_, &failed, batch_.stream});
    if (result != CUDA_SUCCESS && batch_.fail_index != nullptr)
      *batch_.fail_index = failed < count_ ? indices_[failed] : failed;
    return result;
  }

 private:
  const Batch& batch_;
  Array<CUdeviceptr> dsts_;
  Array<CUdeviceptr> srcs_;
  Array<std::size_t> sizes_;
  Array<std::size_t> indices_;
  Array<CUmemcpyAttributes> attributes_;
  Array<std::size_t> firsts_;
  std::size_t count_ = 0;
  std::size_t attribute_count_ = 0;
  std::size_t last_attribute_ = 0;
};

/// Hands over what the engine takes, and gives the driver the rest.
CUresult split(const Batch& batch) noexcept {
  Rest rest(batch);
  const Array<Copy> offered(batch.count);
  const Array<std::size_t> indices(batch.count);
  const Array<bool> issued(batch.count);
  if (!rest.has_memory() || !offered || !indices || !issued) return call_native(batch);
  std::size_t count = 0;
  std::size_t attribute = 0;
  const auto each = [&](auto&& visit) {
    attribute = 0;
    for (std::size_t i = 0; i < batch.count; ++i) {
      while (attribute + 1 < batch.attribute_count && batch.attribute_firsts[attribute + 1] <= i)
        ++attribute;
      visit(i);
    }
  };
  each([&](std::size_t i) {
    const Copy copy = copy_of(batch, i);
    if (is_below_threshold(copy) || !is_in_stream_order(batch.attributes[attribute])) return;
    offered[count] = copy;
    indices[count++] = i;
  });
  CUresult result = CUDA_SUCCESS;
  if (count == 0 || !offload_batch(offered.get(), count, issued.get(), &result))
    return call_native(batch);
  std::size_t next = 0;
  std::size_t first_issued = SIZE_MAX;
  each([&](std::size_t i) {
    const bool is_offered = next < count && indices[next] == i;
    if (is_offered && issued[next++]) {
      if (first_issued == SIZE_MAX) first_issued = i;
    } else {
      rest.add(i, attribute);
    }
  });
  if (result == CUDA_SUCCESS) return rest.call();
  // Which of them it was is not known.
  if (batch.fail_index != nullptr) *batch.fail_index = first_issued;
  return result;
}

/// Whether all copies of the batch may be made in the stream's order.
bool is_all_in_stream_order(const Batch& batch) noexcept {
  for (std::size_t a = 0; a < batch.attribute_count; ++a)
    if (!is_in_stream_order(batch.attributes[a])) return false;
  return true;
}

CUresult carry_batch(const Batch& batch) noexcept {
  const bool has_arrays = batch.dsts != nullptr && batch.srcs != nullptr && batch.sizes != nullptr;
  std::size_t bytes = 0;
  bool is_short = true;
  for (std::size_t i = 0; has_arrays && i < batch.count; ++i) {
    bytes += batch.sizes[i];
    is_short = is_short && is_below_threshold(copy_of(batch, i));
  }
  const bool is_split = !is_short && may_be_split(batch);
  if (is_split && batch.count == 1 && is_in_stream_order(batch.attributes[0]))
    return carry(copy_of(batch, 0), [&] { return call_native(batch); });
  init_process();
  count_call(batch.symbol, bytes);
  const CopyBatch whole{batch.symbol, batch.dsts,
                        batch.srcs,   batch.sizes,
                        batch.count,  has_arrays ? stream_of(copy_of(batch, 0)) : nullptr,
                        bytes};
  if (CUresult result = CUDA_SUCCESS; has_arrays && may_go_by_kernels(whole) &&
                                      may_be_split(batch) && is_all_in_stream_order(batch) &&
                                      offload_whole_batch(whole, &result)) {
    note_other(batch.stream);
    // Which of them it was is not known.
    if (batch.fail_index != nullptr) *batch.fail_index = SIZE_MAX;
    return result;
  }
  const CUresult result = is_split ? split(batch) : call_native(batch);
  // The engine knows the transfers that were offered.
  for (std::size_t i = 0; has_arrays && i < batch.count; ++i)
    if (const Copy copy = copy_of(batch, i); !is_split || is_below_threshold(copy))
      note_native(copy);
  note_other(batch.stream);
  return result;
}

CUresult carry_with_attributes(Symbol symbol, CUdeviceptr dst, CUdeviceptr src, std::size_t bytes,
                               CUmemcpyAttributes* attributes, CUstream stream) noexcept {
  const Copy copy{symbol, Direction::any, dst, src, bytes, stream};
  const auto native = [=] { return call_driver(symbol, dst, src, bytes, attributes, stream); };
  if (attributes != nullptr && is_in_stream_order(*attributes) &&
      stream_of(copy) != CU_STREAM_LEGACY)
    return carry(copy, native);
  return leave_to_driver(copy, bytes, native);
}

}  // namespace
}  // namespace polypath::preload

using namespace polypath::preload;

#define POLYPATH_BATCH(name)                                                                   \
  POLYPATH_INTERCEPTOR(name)                                                                   \
  (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t* sizes, size_t count,                        \
   CUmemcpyAttributes* attributes, size_t* firsts, size_t attribute_count, size_t* fail_index, \
   CUstream stream) {                                                                          \
    return carry_batch({Symbol::name, dsts, srcs, sizes, count, attributes, firsts,            \
                        attribute_count, fail_index, stream});                                 \
  }
#define POLYPATH_BATCH_V2(name)                                                               \
  POLYPATH_INTERCEPTOR(name)                                                                  \
  (CUdeviceptr * dsts, CUdeviceptr * srcs, size_t* sizes, size_t count,                       \
   CUmemcpyAttributes* attributes, size_t* firsts, size_t attribute_count, CUstream stream) { \
    return carry_batch({Symbol::name, dsts, srcs, sizes, count, attributes, firsts,           \
                        attribute_count, nullptr, stream});                                   \
  }
#define POLYPATH_COPY_WITH_ATTRIBUTES(name)                                          \
  POLYPATH_INTERCEPTOR(name)                                                         \
  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes* attributes,   \
   CUstream stream) {                                                                \
    return carry_with_attributes(Symbol::name, dst, src, bytes, attributes, stream); \
  }

POLYPATH_BATCH(cuMemcpyBatchAsync)
POLYPATH_BATCH(cuMemcpyBatchAsync_ptsz)
POLYPATH_BATCH_V2(cuMemcpyBatchAsync_v2)
POLYPATH_BATCH_V2(cuMemcpyBatchAsync_v2_ptsz)
POLYPATH_COPY_WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync)
POLYPATH_COPY_WITH_ATTRIBUTES(cuMemcpyWithAttributesAsync_ptsz)
