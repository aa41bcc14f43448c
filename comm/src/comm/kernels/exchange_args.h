// What the kernels are told that come before and after an exchange between nodes by NCCL: the one
// agreement between host and device. C++17, plain data.
#pragma once

#include <cstdint>

#include "comm/wait_error.hpp"

namespace polypath {

/// What a rank sends next to the data of an exchange.
struct alignas(16) ExchangeRecord {
  std::uint32_t given_up;  ///< blocks of the rank whose wait timed out; not 0: data are invalid
  std::uint32_t what;      ///< of the call, as ExchangeMark
  std::uint64_t count;
};

/// The one parameter of both kernels. The first fills `local`, and `remote` with what is right. The
/// second, after the exchange, reports an error unless all records that arrived are right.
struct ExchangeArgs {
  ExchangeRecord* local;
  ExchangeRecord* remote;  ///< one a node
  std::uint32_t nodes;
  std::uint32_t waits;  ///< ExchangeMark::waits
  std::uint32_t what;
  std::uint64_t count;
  wait_context wait_ctx;
};

}  // namespace polypath
