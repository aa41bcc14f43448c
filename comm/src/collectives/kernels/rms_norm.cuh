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

/// Two elements in 4 bytes, as float.
struct Two {
  float low;
  float high;
};
template <typename Element>
SIMT_DEVICE Two widened(std::uint32_t bits) {
  return {simt::to_float(Element{static_cast<std::uint16_t>(bits)}),
          simt::to_float(Element{static_cast<std::uint16_t>(bits >> 16)})};
}
/// Rounded as simt::to_float16() or simt::to_bfloat16() does, both by one instruction.
template <typename Element>
SIMT_DEVICE std::uint32_t narrowed(const Two& two) {
  constexpr bool kIsFloat16 = std::is_same_v<Element, simt::float16>;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t bits;
  if constexpr (kIsFloat16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(two.high), "f"(two.low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(two.high), "f"(two.low));
  return bits;
#else
  const auto bits_of = [](float value) -> std::uint32_t {
    if constexpr (kIsFloat16)
      return simt::to_float16(value).bits;
    else
      return simt::to_bfloat16(value).bits;
  };
  return bits_of(two.low) | bits_of(two.high) << 16;
#endif
}

/// The sums of two elements each, as float rounds them to an element. That is how they are rounded
/// at once, since float has more than twice as many bits (reductions.cuh); so one instruction does.
template <typename Element>
SIMT_DEVICE std::uint32_t sums_of_two(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t sums;
  if constexpr (std::is_same_v<Element, simt::float16>)
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  else  // times 1: there is no addition before sm_90
    asm("fma.rn.bf16x2 %0, %1, %3, %2;" : "=r"(sums) : "r"(a), "r"(b), "r"(0x3F803F80U));
  return sums;
#else
  const Two first = widened<Element>(a);
  const Two second = widened<Element>(b);
  return narrowed<Element>({sum_of(first.low, second.low), sum_of(first.high, second.high)});
#endif
}

/// This lane's elements of a unit, two in each.
inline constexpr int kTwos = kWords * static_cast<int>(kWord) / 4;
struct Part {
  std::uint32_t at[kTwos];
};

/// Where this lane's part of a unit lies in a row, in bytes, and how many the row has from there
/// on: 0 after its end. Word k of the part follows word k - 1 after those of the other lanes.
struct Place {
  std::uint32_t at;
  std::uint32_t rest;

  [[nodiscard]] SIMT_DEVICE bool has(int k) const {
    return static_cast<std::uint32_t>(k) * kStride < rest;
  }
  static constexpr std::uint32_t kStride = simt::kWarp * kWord;
};
SIMT_DEVICE Place place_of(std::uint32_t unit, std::uint32_t lane, std::uint32_t row_bytes) {
  const std::uint32_t at = unit * kCellRowData + lane * kWord;
  return {at, at < row_bytes ? row_bytes - at : 0};
}

/// What is after the end of the row is 0. `kConstant`: nothing stores to it during the kernel.
template <bool kConstant = false>
SIMT_DEVICE Part load_part(const unsigned char* row, const Place& place) {
  Part part{};
  // One address for all words.
  const auto* const begin = reinterpret_cast<const std::uint64_t*>(simt::opaque(row + place.at));
  POLYPATH_UNROLL
  for (int k = 0; k < kWords; ++k) {
    if (!place.has(k)) continue;
    const std::uint64_t* const from = begin + k * static_cast<int>(simt::kWarp);
    const std::uint64_t word = kConstant ? simt::load_constant(from) : simt::load_streaming(from);
    part.at[2 * k] = static_cast<std::uint32_t>(word);
    part.at[2 * k + 1] = static_cast<std::uint32_t>(word >> 32);
  }
  return part;
}
SIMT_DEVICE void store_part(unsigned char* row, const Place& place, const Part& part) {
  auto* const begin = reinterpret_cast<std::uint64_t*>(simt::opaque(row + place.at));
  POLYPATH_UNROLL
  for (int k = 0; k < kWords; ++k)
    if (place.has(k))
      simt::store_streaming(begin + k * static_cast<int>(simt::kWarp),
                            part.at[2 * k] | std::uint64_t{part.at[2 * k + 1]} << 32);
}

/// Sums of units in the block's shared memory, of one row and of the next. Sums that no unit has
/// are 0: a sum of squares is the same with them.
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

/// What a block does with its rows. `Element`: float16 or bfloat16; `Team`: Alone, or blocks that
/// share each row, whose units go to them in turns. `kEarly`: there are registers for the weight
/// and the scale while data are waited for.
///
/// What is between the last data and the stores takes the time of a call of few rows: a block has
/// 4 warps on each of its SM's schedulers. So loads that need no other rank are issued before the
/// waits, and nothing looks at them until they are needed; places are worked out once.
template <typename Element, typename Team, bool kEarly>
class Rows {
 public:
  /// Issues the load of the first part of the residual.
  SIMT_DEVICE Rows(const NormArgs& args, RowSums& sums, const Team& team)
      : args_(args),
        sums_(sums),
        team_(team),
        lane_(simt::lane_index()),
        bytes_(args.hidden * static_cast<std::uint32_t>(sizeof(Element))),
        units_(norm_units(args.hidden)),
        step_(simt::block_size() / simt::kWarp * team.size()),
        first_(simt::warp_index() * team.size() + team.member()) {
    if (has_row()) addend_ = addend_of(team_.number(), place(first_));
  }

  /// Whether this block has any row.
  [[nodiscard]] SIMT_DEVICE bool has_row() const {
    return team_.number() < team_.count() && team_.number() < args_.rows;
  }

  /// Normalises rows `number()`, `number() + count()`, ... of its team. All threads of the block.
  /// `get(row, unit, use)`, which all lanes of a warp call, calls `use(x)` with this lane's part of
  /// the row to normalise, once; false, to all lanes, and no call: one has timed out. `ok` false:
  /// this thread has timed out before. Calls `waited()` in all threads, after all waits of the
  /// block, or once one has timed out.
  template <typename Get, typename Waited>
  SIMT_DEVICE void run(const Get& get, bool ok, const Waited& waited) {
    ok = simt::warp_all(ok);
    if (!has_row()) {
      simt::block_sync();
      return waited();
    }
    last_ = first_;
    while (last_ + step_ < units_) last_ += step_;
    if (kEarly) load_factors();
    for (std::uint32_t unit = units_ + simt::thread_index(); unit < kMaxNormUnits;
         unit += simt::block_size())
      sums_.at[0][unit] = sums_.at[1][unit] = 0;
    for (std::uint32_t row = team_.number(); row < args_.rows; row += team_.count()) {
      Held held;
      const bool is_taken = take(row, get, ok, held);
      if (!is_taken || row + team_.count() >= args_.rows) waited();
      if (!is_taken) return;
      give(row, held);
      parity_ ^= 1U;
    }
  }

 private:
  /// What stays in registers of a row: this warp's last unit, and the one before it. Others are
  /// loaded again.
  struct Held {
    Part last{};
    Part before_last{};
    Part weight{};  // of the one before the last
  };
  static constexpr std::uint32_t kSumsAtOnce = 16;
  static_assert(kMaxNormUnits % kSumsAtOnce == 0);

  SIMT_DEVICE Part addend_of(std::uint32_t row, const Place& place) const {
    if (args_.residual == nullptr) return {};
    return load_part(
        static_cast<const unsigned char*>(args_.residual) + std::uint64_t{row} * bytes_, place);
  }
  SIMT_DEVICE unsigned char* residual_out(std::uint32_t row) const {
    return static_cast<unsigned char*>(args_.residual_out) + std::uint64_t{row} * bytes_;
  }
  SIMT_DEVICE Part weight_of(const Place& place) const {
    return load_part<true>(static_cast<const unsigned char*>(args_.weight), place);
  }
  SIMT_DEVICE void load_factors() {
    weight_ = weight_of(place(last_));
    if (args_.scale != nullptr)
      scale_bits_ = simt::load_constant(reinterpret_cast<const std::uint32_t*>(args_.scale));
  }
  /// Worked out where it is used, as what follows from it: kept from row to row it would take
  /// registers.
  SIMT_DEVICE Place place(std::uint32_t unit) const {
    return place_of(simt::opaque(unit), lane_, bytes_);
  }
  /// Sums the row and its squares. Returns false, to all threads of the block, where one has timed
  /// out.
  template <typename Get>
  SIMT_DEVICE bool take(std::uint32_t row, const Get& get, bool ok, Held& held) {
    const bool has_addend = args_.residual != nullptr;
    POLYPATH_NO_UNROLL
    for (std::uint32_t unit = simt::opaque(first_); ok && unit < units_; unit += step_) {
      ok = get(row, unit, [&](Part x) {
        if (has_addend) add(x, addend_);
        const float squares = warp_sum(squares_of(x));
        if (lane_ == 0) team_.put(sums_.at[parity_], row, unit, squares);
        store_part(residual_out(row), place(unit), x);
        held.last = x;
      });
      if (!ok || unit == last_) break;
      held.before_last = held.last;
      addend_ = addend_of(row, place(unit + step_));
    }
    if (!kEarly) load_factors();
    if (last_ != first_) held.weight = weight_of(place(last_ - step_));
    if (row + team_.count() < args_.rows) addend_ = addend_of(row + team_.count(), place(first_));
    return team_.gather(sums_.at[parity_], row, units_, ok);
  }

  /// Stores the row's output.
  SIMT_DEVICE void give(std::uint32_t row, const Held& held) const {
    const float factor = factor_of(sums_.at[parity_]);
    // What follows from this load is not worked out before the waits, which would wait for it.
    const float scale = simt::detail::float_of(simt::opaque(scale_bits_));
    const float inverse = args_.scale != nullptr ? inverse_of(scale) : 0;
    if (first_ >= units_) return;
    store_output(row, place(last_), held.last, weight_, factor, inverse);
    if (last_ == first_) return;
    store_output(row, place(last_ - step_), held.before_last, held.weight, factor, inverse);
    POLYPATH_NO_UNROLL
    for (std::uint32_t unit = first_; unit + step_ < last_; unit += step_) {
      const Place at = place(unit);
      store_output(row, at, load_part(residual_out(row), at), weight_of(at), factor, inverse);
    }
  }

  SIMT_DEVICE static void add(Part& x, const Part& addend) {
    POLYPATH_UNROLL
    for (int i = 0; i < kTwos; ++i) x.at[i] = sums_of_two<Element>(x.at[i], addend.at[i]);
  }

  SIMT_DEVICE static float squares_of(const Part& part) {
    float sum = 0;
    POLYPATH_UNROLL
    for (int i = 0; i < kTwos; ++i) {
      const Two two = widened<Element>(part.at[i]);
      sum = sum_with_square(two.high, sum_with_square(two.low, sum));
    }
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

  SIMT_DEVICE float factor_of(const float* sums) const {
    float sum = 0;
    POLYPATH_NO_UNROLL
    for (std::uint32_t begin = 0; begin < units_; begin += kSumsAtOnce) {
      float some[kSumsAtOnce];
      memcpy(some, __builtin_assume_aligned(&sums[begin], alignof(RowSums)), sizeof some);
      POLYPATH_UNROLL
      for (std::uint32_t i = 0; i < kSumsAtOnce; ++i) sum = sum_of(sum, some[i]);
    }
    const float mean = product_of(sum, args_.inverse_hidden);
    return inverse_of(root_of(sum_of(mean, args_.epsilon)));
  }

  SIMT_DEVICE void store_output(std::uint32_t row, const Place& at, const Part& x,
                                const Part& weight, float factor, float inverse) const {
    Part y;
    POLYPATH_UNROLL
    for (int i = 0; i < kTwos; ++i) {
      const Two a = widened<Element>(x.at[i]);
      const Two w = widened<Element>(simt::opaque(weight.at[i]));
      y.at[i] = narrowed<Element>({product_of(product_of(a.low, factor), w.low),
                                   product_of(product_of(a.high, factor), w.high)});
    }
    auto* const out = static_cast<unsigned char*>(args_.call.out);
    if (args_.scale != nullptr)
      store_as_float8(out + std::uint64_t{row} * args_.hidden, at, y, inverse);
    else
      store_part(out + std::uint64_t{row} * bytes_, at, y);
  }

  SIMT_DEVICE static void store_as_float8(unsigned char* row, const Place& at, const Part& y,
                                          float inverse) {
    constexpr std::uint32_t kSize = sizeof(Element);
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) {
      std::uint32_t bytes = 0;
      POLYPATH_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Two two = widened<Element>(y.at[2 * k + i]);
        bytes |= to_float8(product_of(two.low, inverse), product_of(two.high, inverse)) << (16 * i);
      }
      if (at.has(k))
        simt::store_streaming(
            reinterpret_cast<std::uint32_t*>(
                row + (at.at + static_cast<std::uint32_t>(k) * Place::kStride) / kSize),
            bytes);
    }
  }

  const NormArgs& args_;
  RowSums& sums_;
  const Team& team_;
  const std::uint32_t lane_;
  const std::uint32_t bytes_;  // of a row
  const std::uint32_t units_;
  const std::uint32_t step_;   // between units of a warp
  const std::uint32_t first_;  // of this warp, and its last; from units_ on: none
  std::uint32_t last_ = 0;
  Part addend_{};  // of the unit to come
  Part weight_{};  // of the last unit
  std::uint32_t scale_bits_ = 0;
  unsigned parity_ = 0;
};

/// Rows that are in memory already, on any grid. Waits for earlier kernels.
template <typename Element>
SIMT_DEVICE void run(const NormArgs& args) {
  SIMT_SHARED(RowSums, sums);
  simt::grid_dependency_wait();
  const std::uint32_t bytes = args.hidden * static_cast<std::uint32_t>(sizeof(Element));
  const auto* const in = static_cast<const unsigned char*>(args.call.in);
  const Alone alone{};
  Rows<Element, Alone, true>(args, simt::as_shared(sums), alone)
      .run(
          [&](std::uint32_t row, std::uint32_t unit, const auto& use) {
            use(load_part(in + std::uint64_t{row} * bytes,
                          place_of(unit, simt::lane_index(), bytes)));
            return true;
          },
          true, [] {});
}

}  // namespace polypath::norm
