// What became of the calls for collectives of MPI, for the report. Nothing is counted unless
// statistics are wanted. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/text.hpp"
#include "mpi/call.hpp"

namespace polypath::preload::mpi {

/// Why a call went to MPI.
enum class Reason : std::uint8_t {
#define POLYPATH_REASON(name, text) name,
#include "mpi/reasons.def"
};
inline constexpr const char* kReasonTexts[] = {
#define POLYPATH_REASON(name, text) text,
#include "mpi/reasons.def"
};

void count_call(Function function, std::uint64_t bytes) noexcept;
/// Reason::none: polypath carried it.
void count_outcome(Function function, Reason reason) noexcept;
/// It went to MPI, with host memory in the place of device memory.
void count_staged(Function function) noexcept;
void count_agreement() noexcept;
/// A communicator was made, of ranks on this number of nodes.
void count_communicator(int nodes) noexcept;
/// A message to another node.
void count_sent(std::uint64_t bytes) noexcept;
/// The first text is kept. MPI's ranks could not make a communicator, and why.
void count_refusal(const char* why) noexcept;

bool saw_calls() noexcept;
void append_json(Text& out) noexcept;   ///< an object
void append_lines(Text& out) noexcept;  ///< for people
/// For a child: it begins without.
void forget_counts() noexcept;

}  // namespace polypath::preload::mpi
