// Residual addition and RMSNorm of rows, in one fixed order.
//
//   r = x + residual                          in float32, rounded to the type once
//   y = r * (1 / sqrt(squares * (1 / hidden) + epsilon)) * weight   in float32, left to right
//
// Every operation is rounded on its own, as IEEE 754 has it, with no approximate root; only a
// square is not rounded before it is added. So the bits are the same on all GPUs and on the host. y
// is rounded to the type; as FP8 that value, in float32, times (1 / scale), saturated (float8.cuh).
//
// The order of `squares`, the sum of the squares of a row of r, depends on the row's length alone:
// 1. The row is divided into units of 384 elements, which a warp takes; elements after the end of
//    the row count as 0.
// 2. Lane l of a unit adds 12 squares, one after another: of its elements 4 l to 4 l + 3, 128 + 4 l
//    to 128 + 4 l + 3, and 256 + 4 l to 256 + 4 l + 3.
// 3. The sums of the 32 lanes are added by halves: lane l and lane l + 16, of these l and l + 8,
//    then 4, 2, 1.
// 4. The sums of the units are added one after another.
// The number of rows, of blocks and of threads makes no difference.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "collectives/kernels/collective_ll.cuh"
#include "collectives/kernels/float8.cuh"
#include "collectives/kernels/norm_args.h"

namespace polypath::norm {

using cells::kWord;
using cells::kWords;
using cells::Words;

SIMT_DEVICE float sum_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
SIMT_DEVICE float product_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
/// a * a + b, rounded once.
SIMT_DEVICE float sum_with_square(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, a, b);
#else
  return std::fma(a, a, b);
#endif
}
SIMT_DEVICE float inverse_of(float a) {
#if defined(__CUDA_ARCH__)
  return __frcp_rn(a);
#else
  return 1.0F / a;
#endif
}
SIMT_DEVICE float root_of(float a) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(a);
#else
  return std::sqrt(a);
#endif
}

/// Sums of units in the block's shared memory, of one row and of the next.
struct alignas(16) RowSums {
  float at[2][kMaxNormUnits];
};

/// A block that has whole rows.
struct Alone {
  SIMT_DEVICE std::uint32_t size() const { return 1; }
  SIMT_DEVICE std::uint32_t member() const { return 0; }
  SIMT_DEVICE std::uint32_t number() const { return simt::block_index(); }
  SIMT_DEVICE std::uint32_t count() const { return simt::grid_size(); }
  /// One lane of the warp that has the unit.
  SIMT_DEVICE void put(float* sums, std::uint32_t, std::uint32_t unit, float sum) const {
    sums[unit] = sum;
  }
  /// All threads, after they have put: whether all sums of the row are in `sums`. `ok` false: this
  /// one has timed out.
  SIMT_DEVICE bool gather(float*, std::uint32_t, std::uint32_t, bool ok) const {
    return has_mutant(Fault::squares_not_waited_for) ? ok : !simt::block_any(!ok);
  }
};

/// This lane's words of a unit; 0 after the end of the row.
SIMT_DEVICE Words load_unit(const unsigned char* row, std::uint64_t unit, std::uint64_t bytes) {
  Words words{};
  POLYPATH_UNROLL
  for (int k = 0; k < kWords; ++k) {
    const std::uint64_t place = cells::place_of(unit, k);
    if (place < bytes)
      words.at[k] = simt::load_streaming(reinterpret_cast<const std::uint64_t*>(row + place));
  }
  return words;
}
SIMT_DEVICE void store_unit(unsigned char* row, std::uint64_t unit, std::uint64_t bytes,
                            const Words& words) {
  POLYPATH_UNROLL
  for (int k = 0; k < kWords; ++k) {
    const std::uint64_t place = cells::place_of(unit, k);
    if (place < bytes)
      simt::store_streaming(reinterpret_cast<std::uint64_t*>(row + place), words.at[k]);
  }
}

/// What a block does with its rows. `Element`: float16 or bfloat16; `Team`: Alone, or blocks that
/// share each row, whose units go to them in turns.
template <typename Element, typename Team>
class Rows {
 public:
  SIMT_DEVICE Rows(const NormArgs& args, RowSums& sums, const Team& team)
      : args_(args),
        sums_(sums),
        team_(team),
        bytes_(std::uint64_t{args.hidden} * sizeof(Element)) {
    if (args.scale != nullptr) scale_ = simt::load_constant(args.scale);
  }

  /// Normalises rows `number()`, `number() + count()`, ... of its team. All threads of the block.
  /// `get(row, unit, x)`, which all lanes of a warp call, gives this lane's words of the row to
  /// normalise, once; false: timed out. `ok` false: this thread has timed out before. Returns
  /// false, to all threads of the block, where one has.
  template <typename Get>
  SIMT_DEVICE bool run(const Get& get, bool ok) {
    ok = simt::warp_all(ok);
    if (team_.number() >= team_.count()) return !simt::block_any(!ok);  // in no team
    for (std::uint32_t row = team_.number(); row < args_.rows; row += team_.count()) {
      if (!normalise(row, get, ok)) return false;
      parity_ ^= 1U;
    }
    return ok;
  }

 private:
  static constexpr int kElements = static_cast<int>(kWord / sizeof(Element));
  /// Units of a warp that stay in registers; more are loaded again.
  static constexpr int kHeld = 2;
  static constexpr std::uint32_t kSumsAtOnce = 16;
  static_assert(kMaxNormUnits % kSumsAtOnce == 0);

  SIMT_DEVICE const unsigned char* residual(std::uint32_t row) const {
    return static_cast<const unsigned char*>(args_.residual) + row * bytes_;
  }
  SIMT_DEVICE unsigned char* residual_out(std::uint32_t row) const {
    return static_cast<unsigned char*>(args_.residual_out) + row * bytes_;
  }
  SIMT_DEVICE Words weight(std::uint64_t unit) const {
    Words words{};
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) {
      const std::uint64_t place = cells::place_of(unit, k);
      const auto* const at = static_cast<const unsigned char*>(args_.weight) + place;
      if (place < bytes_)
        words.at[k] = simt::load_constant(reinterpret_cast<const std::uint64_t*>(at));
    }
    return words;
  }

  template <typename Get>
  SIMT_DEVICE bool normalise(std::uint32_t row, const Get& get, bool ok) {
    const std::uint32_t units = norm_units(args_.hidden);
    const std::uint32_t step = simt::block_size() / simt::kWarp * team_.size();
    const std::uint32_t first = simt::warp_index() * team_.size() + team_.member();
    float* const sums = sums_.at[parity_];
    Words held[kHeld] = {};
    Words weights[kHeld];
    // What is needed first is loaded before what may have to be waited for.
    weights[0] = weight(first);
    Words next{};
    if (args_.residual != nullptr) next = load_unit(residual(row), first, bytes_);
    std::uint32_t pass = 0;
    POLYPATH_NO_UNROLL
    for (std::uint32_t unit = first; ok && unit < units; unit += step, ++pass) {
      const Words addend = next;
      if (args_.residual != nullptr) next = load_unit(residual(row), unit + step, bytes_);
      Words x;
      ok = simt::warp_all(get(row, unit, x));
      if (!ok) break;
      const Words sum = args_.residual != nullptr ? added(x, addend) : x;
      store_unit(residual_out(row), unit, bytes_, sum);
      POLYPATH_UNROLL
      for (std::uint32_t h = 0; h < kHeld; ++h)
        if (pass == h) held[h] = sum;
      const float squares = warp_sum(squares_of(sum));
      if (simt::lane_index() == 0) team_.put(sums, row, unit, squares);
    }
    POLYPATH_UNROLL
    for (int h = 1; h < kHeld; ++h) weights[h] = weight(first + h * step);
    if (!team_.gather(sums, row, units, ok)) return false;
    const float factor = factor_of(sums, units);
    POLYPATH_UNROLL
    for (std::uint32_t h = 0; h < kHeld; ++h)
      if (first + h * step < units)
        store_output(row, first + h * step, held[h], weights[h], factor);
    POLYPATH_NO_UNROLL
    for (std::uint32_t unit = first + kHeld * step; unit < units; unit += step)
      store_output(row, unit, load_unit(residual_out(row), unit, bytes_), weight(unit), factor);
    return true;
  }

  template <typename Use>
  SIMT_DEVICE static void for_each(const Words& words, const Use& use) {
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) {
      Element elements[kElements];
      memcpy(elements, &words.at[k], kWord);
      POLYPATH_UNROLL
      for (int e = 0; e < kElements; ++e) use(k, e, simt::to_float(elements[e]));
    }
  }
  SIMT_DEVICE static Element narrow(float value) {
    if constexpr (std::is_same_v<Element, simt::float16>)
      return simt::to_float16(value);
    else
      return simt::to_bfloat16(value);
  }

  SIMT_DEVICE static Words added(const Words& x, const Words& addend) {
    Words result;
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) {
      Element a[kElements];
      Element b[kElements];
      memcpy(a, &x.at[k], kWord);
      memcpy(b, &addend.at[k], kWord);
      POLYPATH_UNROLL
      for (int e = 0; e < kElements; ++e)
        a[e] = narrow(sum_of(simt::to_float(a[e]), simt::to_float(b[e])));
      memcpy(&result.at[k], a, kWord);
    }
    return result;
  }

  SIMT_DEVICE static float squares_of(const Words& words) {
    float sum = 0;
    for_each(words, [&](int, int, float value) { sum = sum_with_square(value, sum); });
    return sum;
  }

  /// The same on all lanes, since an addition does not depend on which operand is first.
  SIMT_DEVICE static float warp_sum(float sum) {
    POLYPATH_UNROLL
    for (unsigned i = 0; i < 5; ++i) {
      const unsigned apart = has_mutant(Fault::squares_in_other_order) ? 1U << i : 16U >> i;
      sum = sum_of(sum, simt::warp_shuffle_xor(sum, apart));
    }
    return sum;
  }

  SIMT_DEVICE float factor_of(const float* sums, std::uint32_t units) const {
    float sum = 0;
    POLYPATH_NO_UNROLL
    for (std::uint32_t begin = 0; begin < units; begin += kSumsAtOnce) {
      float some[kSumsAtOnce];
      memcpy(some, &sums[begin], sizeof some);
      POLYPATH_UNROLL
      for (std::uint32_t i = 0; i < kSumsAtOnce; ++i)
        sum = sum_of(sum, begin + i < units ? some[i] : 0);
    }
    const float mean = product_of(sum, args_.inverse_hidden);
    return inverse_of(root_of(sum_of(mean, args_.epsilon)));
  }

  SIMT_DEVICE void store_output(std::uint32_t row, std::uint64_t unit, const Words& words,
                                const Words& weight, float factor) const {
    Element y[kWords][kElements];
    for_each(words, [&](int k, int e, float value) {
      Element scaling[kElements];
      memcpy(scaling, &weight.at[k], kWord);
      y[k][e] = narrow(product_of(product_of(value, factor), simt::to_float(scaling[e])));
    });
    auto* const out = static_cast<unsigned char*>(args_.call.out);
    if (args_.scale != nullptr) {
      store_as_float8(out + std::uint64_t{row} * args_.hidden, unit, y);
      return;
    }
    Words result;
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) memcpy(&result.at[k], y[k], kWord);
    store_unit(out + row * bytes_, unit, bytes_, result);
  }

  SIMT_DEVICE void store_as_float8(unsigned char* to, std::uint64_t unit,
                                   const Element (&y)[kWords][kElements]) const {
    const float inverse = inverse_of(scale_);
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) {
      std::uint32_t bytes = 0;
      POLYPATH_UNROLL
      for (int e = 0; e < kElements; ++e)
        bytes |= std::uint32_t{to_float8(product_of(simt::to_float(y[k][e]), inverse))} << (8 * e);
      const std::uint64_t place = cells::place_of(unit, k);
      if (place < bytes_)
        simt::store_streaming(reinterpret_cast<std::uint32_t*>(to + place / sizeof(Element)),
                              bytes);
    }
  }

  const NormArgs& args_;
  RowSums& sums_;
  const Team& team_;
  std::uint64_t bytes_;  // of a row
  float scale_ = 0;
  unsigned parity_ = 0;
};

/// Rows that are in memory already, on any grid.
template <typename Element>
SIMT_DEVICE void run(const NormArgs& args) {
  SIMT_SHARED(RowSums, sums);
  const std::uint64_t bytes = std::uint64_t{args.hidden} * sizeof(Element);
  const auto* const in = static_cast<const unsigned char*>(args.call.in);
  Rows<Element, Alone>(args, sums, Alone{})
      .run(
          [&](std::uint32_t row, std::uint32_t unit, Words& x) {
            x = load_unit(in + row * bytes, unit, bytes);
            return true;
          },
          true);
}

}  // namespace polypath::norm
