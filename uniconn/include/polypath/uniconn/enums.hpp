// UNICONN's words: launch modes, thread groups, operators, element types. C++17: host and device
// code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "polypath/types.h"

// As cuda_fp16.h and cuda_bf16.h name them: these headers need neither.
struct __half;
struct __nv_bfloat16;

namespace polypath::uniconn {

/// The side that communicates: host calls alone; kernels send, and the host tells the receiver
/// after them; kernels alone.
enum class LaunchMode { PureHost, PartialDevice, PureDevice };

constexpr const char* name_of(LaunchMode mode) {
  switch (mode) {
    case LaunchMode::PureHost: return "PureHost";
    case LaunchMode::PartialDevice: return "PartialDevice";
    case LaunchMode::PureDevice: break;
  }
  return "PureDevice";
}

/// Which threads of a kernel make a call together.
enum class ThreadGroup { THREAD, WARP, BLOCK };

/// The first five as polypath_reduce_op has them.
enum class ReductionOperator {
  SUM = POLYPATH_SUM,
  PROD = POLYPATH_PRODUCT,
  MIN = POLYPATH_MIN,
  MAX = POLYPATH_MAX,
  AVG = POLYPATH_AVG,
  LAND,
  LOR,
  LXOR,
  BAND,
  BOR,
  BXOR
};

/// What reductions work on. Data movement takes any type that is copied as bytes. Those before
/// int16 as polypath_data_type has them.
enum class Element : std::uint8_t {
  int8 = POLYPATH_INT8,
  uint8 = POLYPATH_UINT8,
  int32 = POLYPATH_INT32,
  uint32 = POLYPATH_UINT32,
  int64 = POLYPATH_INT64,
  uint64 = POLYPATH_UINT64,
  float16 = POLYPATH_FLOAT16,
  bfloat16 = POLYPATH_BFLOAT16,
  float32 = POLYPATH_FLOAT32,
  float64 = POLYPATH_FLOAT64,
  int16,
  uint16,
  none
};

constexpr bool is_integer(Element element) {
  return element < Element::float16 || element == Element::int16 || element == Element::uint16;
}
/// Whether polypath's collectives have this type and this operator.
constexpr bool is_native(Element element) { return element < Element::int16; }
constexpr bool is_native(ReductionOperator op) { return op <= ReductionOperator::AVG; }

constexpr std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::int8:
    case Element::uint8: return 1;
    case Element::int16:
    case Element::uint16:
    case Element::float16:
    case Element::bfloat16: return 2;
    case Element::int32:
    case Element::uint32:
    case Element::float32: return 4;
    case Element::int64:
    case Element::uint64:
    case Element::float64: return 8;
    case Element::none: break;
  }
  return 0;
}

template <typename T>
constexpr Element element_of() {
  if constexpr (std::is_same_v<T, __half>) return Element::float16;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return Element::bfloat16;
  if constexpr (std::is_same_v<T, float>) return Element::float32;
  if constexpr (std::is_same_v<T, double>) return Element::float64;
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? Element::int8 : Element::uint8;
    if constexpr (sizeof(T) == 2) return is_signed ? Element::int16 : Element::uint16;
    if constexpr (sizeof(T) == 4) return is_signed ? Element::int32 : Element::uint32;
    if constexpr (sizeof(T) == 8) return is_signed ? Element::int64 : Element::uint64;
  }
  return Element::none;
}

/// Whether elements of this type are combined so: bits of integers alone.
constexpr bool is_reducible(Element element, ReductionOperator op) {
  return element != Element::none &&
         (is_integer(element) || (op != ReductionOperator::BAND && op != ReductionOperator::BOR &&
                                  op != ReductionOperator::BXOR));
}

/// The same two as variables, which device code may use.
template <typename T>
inline constexpr Element kElementOf = element_of<T>();
template <typename T, ReductionOperator kOperator>
inline constexpr bool kIsReducible = is_reducible(element_of<T>(), kOperator);

}  // namespace polypath::uniconn
