// AllReduce and Reduce: every operator of every type, against sums that are made here.
#pragma once

#include <cmath>

#include "suite_collectives.hpp"

// The half types of cuda_fp16.h and cuda_bf16.h, which need a whole toolkit: UNICONN knows them by
// their names.
struct __half {
  std::uint16_t bits;
};
struct __nv_bfloat16 {
  std::uint16_t bits;
};

namespace polypath::test {

using Op = uc::ReductionOperator;

/// A half type of 16 bits, as elements are known in memory: UNICONN knows it by its name.
template <typename T>
inline constexpr bool is_half = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

/// Small whole numbers have the same bits in a half type, cut from a float's.
template <typename T>
Bytes element_bytes(double value) {
  Bytes bytes(sizeof(T));
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const auto single = static_cast<float>(value);
    std::memcpy(bytes.data(), reinterpret_cast<const char*>(&single) + 2, 2);
  } else if constexpr (std::is_same_v<T, __half>) {
    // Sign, exponent with another bias, and the first ten bits of the fraction.
    std::uint32_t bits = 0;
    const auto single = static_cast<float>(value);
    std::memcpy(&bits, &single, 4);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const auto half = static_cast<std::uint16_t>(
        (bits >> 16U & 0x8000U) | (magnitude == 0 ? 0 : (magnitude - (112U << 23U)) >> 13U));
    std::memcpy(bytes.data(), &half, 2);
  } else {
    const T cast = static_cast<T>(static_cast<long long>(value));
    const T exact = std::is_floating_point_v<T> ? static_cast<T>(value) : cast;
    std::memcpy(bytes.data(), &exact, sizeof exact);
  }
  return bytes;
}

/// Whole numbers that no operator makes inexact in any type, on up to eight ranks.
template <typename T>
double operand(Op op, int rank, std::size_t at) {
  const int mixed = static_cast<int>((at * 7 + static_cast<std::size_t>(rank) * 5) % 11);
  constexpr bool has_sign = std::is_signed_v<T> || is_half<T>;
  switch (op) {
    case Op::PROD: return has_sign && mixed % 3 == 0 ? -1 : 1 + mixed % 2;
    case Op::AVG: return 840.0 / (sizeof(T) < 4 ? 70 : 1) * (has_sign ? mixed % 3 - 1 : mixed % 3);
    case Op::LAND:
    case Op::LOR:
    case Op::LXOR: return mixed % 2 == 0 ? 0 : 1 + mixed % 3;
    case Op::SUM: return has_sign ? mixed - 5 : mixed % 6;
    case Op::MIN:
    case Op::MAX:
    case Op::BAND:
    case Op::BOR:
    case Op::BXOR: break;
  }
  return has_sign ? mixed * 3 - 15 : mixed * 3;
}

/// By arithmetic of its own, in rank order.
template <typename T>
double expected(Op op, const std::vector<double>& values) {
  double result = values[0];
  long long bits = static_cast<long long>(values[0]);
  bool truth = values[0] != 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double value = values[i];
    switch (op) {
      case Op::SUM:
      case Op::AVG: result += value; break;
      case Op::PROD: result *= value; break;
      case Op::MIN: result = std::fmin(result, value); break;
      case Op::MAX: result = std::fmax(result, value); break;
      case Op::LAND: truth = truth && value != 0; break;
      case Op::LOR: truth = truth || value != 0; break;
      case Op::LXOR: truth = truth != (value != 0); break;
      case Op::BAND: bits &= static_cast<long long>(value); break;
      case Op::BOR: bits |= static_cast<long long>(value); break;
      case Op::BXOR: bits ^= static_cast<long long>(value); break;
    }
  }
  if (op == Op::LAND || op == Op::LOR || op == Op::LXOR) return truth ? 1 : 0;
  if (op == Op::BAND || op == Op::BOR || op == Op::BXOR) return static_cast<double>(bits);
  if (op == Op::AVG) {
    result /= static_cast<double>(values.size());
    return std::is_integral_v<T> ? std::trunc(result) : result;
  }
  return result;
}

template <typename B, typename T, Op Operator>
void reductions_of(SuiteRank<B>& self, std::size_t count, bool in_place) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  constexpr std::size_t kElement = uc::bytes_of(uc::element_of<T>());
  Buffer<B> send(self.gpu, count * kElement);
  Buffer<B> recv(self.gpu, count * kElement);
  Bytes contributions(count * kElement);
  Bytes result(count * kElement);
  for (std::size_t at = 0; at < count; ++at) {
    std::vector<double> values;
    for (int r = 0; r < self.size(); ++r) values.push_back(operand<T>(Operator, r, at));
    const Bytes own = element_bytes<T>(values[static_cast<std::size_t>(self.rank())]);
    const Bytes all = element_bytes<T>(expected<T>(Operator, values));
    std::memcpy(&contributions[at * kElement], own.data(), kElement);
    std::memcpy(&result[at * kElement], all.data(), kElement);
  }
  const std::string what = "operator " + std::to_string(static_cast<int>(Operator)) + ", element " +
                           std::to_string(static_cast<int>(uc::element_of<T>())) +
                           (in_place ? ", in place" : "");
  const int root = static_cast<int>(count % static_cast<std::size_t>(self.size()));
  for (const bool to_all : {true, false}) {
    recv.poison();
    send.poison();
    (in_place ? recv : send).put(0, contributions);
    T* const to = recv.template get<T>();
    const T* const from = send.template get<T>();
    if (to_all && in_place) coordinator.template AllReduce<Operator>(to, count, &self.comm);
    if (to_all && !in_place) coordinator.template AllReduce<Operator>(from, to, count, &self.comm);
    if (!to_all && in_place) coordinator.template Reduce<Operator>(to, count, root, &self.comm);
    if (!to_all && !in_place)
      coordinator.template Reduce<Operator>(from, to, count, root, &self.comm);
    settle(self, coordinator);
    if (to_all || self.rank() == root) recv.note(0, result);
    recv.expect_image((to_all ? "AllReduce, " : "Reduce, ") + what);
    send.expect_image("send, " + what);
  }
}

template <typename B, typename T>
void reductions_of_type(SuiteRank<B>& self) {
  const std::size_t count = 61;
  reductions_of<B, T, Op::SUM>(self, count, false);
  reductions_of<B, T, Op::SUM>(self, count + 1, true);
  reductions_of<B, T, Op::PROD>(self, count, false);
  reductions_of<B, T, Op::MIN>(self, count, true);
  reductions_of<B, T, Op::MAX>(self, count, false);
  reductions_of<B, T, Op::AVG>(self, count, true);
  reductions_of<B, T, Op::LAND>(self, count, false);
  reductions_of<B, T, Op::LOR>(self, count, true);
  reductions_of<B, T, Op::LXOR>(self, count, false);
  if constexpr (std::is_integral_v<T>) {
    reductions_of<B, T, Op::BAND>(self, count, true);
    reductions_of<B, T, Op::BOR>(self, count, false);
    reductions_of<B, T, Op::BXOR>(self, count, true);
  }
}

template <typename B>
void reductions(SuiteRank<B>& self) {
  reductions_of_type<B, signed char>(self);
  reductions_of_type<B, unsigned char>(self);
  reductions_of_type<B, short>(self);
  reductions_of_type<B, unsigned short>(self);
  reductions_of_type<B, int>(self);
  reductions_of_type<B, unsigned>(self);
  reductions_of_type<B, long>(self);
  reductions_of_type<B, unsigned long long>(self);
  reductions_of_type<B, float>(self);
  reductions_of_type<B, double>(self);
  reductions_of_type<B, __half>(self);
  reductions_of_type<B, __nv_bfloat16>(self);
}

/// By more than one piece of what is staged, and of none.
template <typename B>
void long_reductions(SuiteRank<B>& self) {
  reductions_of<B, float, Op::SUM>(self, (std::size_t{1} << 15) + 3, false);
  reductions_of<B, short, Op::SUM>(self, (std::size_t{1} << 17) + 5, true);
  reductions_of<B, double, Op::LAND>(self, (std::size_t{1} << 15) + 1, false);
  reductions_of<B, int, Op::MAX>(self, 0, false);
  reductions_of<B, short, Op::MAX>(self, 0, true);
  reductions_of<B, int, Op::SUM>(self, 1, true);
}

}  // namespace polypath::test
