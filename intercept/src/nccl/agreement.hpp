// What the ranks of a new communicator tell each other, and what they all make of it; and what
// `polypath tune backend` found on this node, as a policy.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "nccl/engine.hpp"
#include "nccl/offload_policy.hpp"

namespace polypath::nccl {

/// The record of one rank, before anything is made. A version that differs in
/// anything, or in how ranks ask each other, has another `layout`.
struct Record {
  static constexpr std::uint32_t kLayout = 4;

  std::uint32_t layout = kLayout;
  std::array<std::uint16_t, 4> version{};  ///< of polypath
  std::array<char, 64> host{};             ///< the boot id of the machine
  std::int64_t pid = 0;
  std::int32_t gpu = -1;           ///< as this process numbers them
  std::uint32_t reproducible = 0;  ///< the setting
  std::uint32_t measured = 0;      ///< its profile knows NCCL's times; rank 0's counts
};
/// The record of this process; the caller sets `gpu` and `measured`.
Record own_record() noexcept;

/// Why the ranks make no polypath communicator; "": they make one. The same on all ranks,
/// since it is made of the same records; so is what follows.
std::string refusal_of(std::span<const Record> records);
/// Where any rank asked for it.
bool is_reproducible(std::span<const Record> records) noexcept;

/// Whether there may be calls that polypath takes; the same on all ranks.
bool may_take_any(std::span<const Record> records) noexcept;

/// The outcome of one rank, when it has made what it could.
struct Outcome {
  std::uint64_t is_made = 0;
  Policy policy;  ///< what the profile of this rank says; rank 0's counts
};
/// Whether calls are taken, and by which policy. False where one rank has nothing.
bool settle(std::span<const Outcome> outcomes, bool reproducible, Policy& policy) noexcept;

/// Whether the profile of this rank knows any backend's times, on any GPUs.
bool has_measured(const Engine& engine) noexcept;

/// Where polypath and NCCL were both measured, on the GPUs of these ranks; nothing where they were
/// not.
Policy measured_policy(const Engine& engine, polypath_comm* comm, int ranks) noexcept;

}  // namespace polypath::nccl
