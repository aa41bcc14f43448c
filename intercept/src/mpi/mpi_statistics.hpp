// What became of the calls for collectives of MPI, for the report. Nothing is counted unless
// statistics are wanted. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/text.hpp"
#include "mpi/call.hpp"

namespace polypath::preload::mpi {

/// Why a call went to MPI, and the text of the report; none: it did not.
#define POLYPATH_MPI_REASONS(each)                                                                 \
  each(none, "taken") /* Found by all ranks alike, each by itself. */                              \
      each(unknown_library, "unknown MPI library") each(no_elements, "no elements") each(          \
          one_rank, "one rank") each(intercommunicator,                                            \
                                     "intercommunicator") each(datatype_of_reduction,              \
                                                               "datatype not reduced")             \
          each(operator_of_reduction, "operator") each(bad_root, "root is no rank") each(          \
              too_many_ranks,                                                                      \
              "too many ranks on a node") each(not_asked,                                          \
                                               "not asked after host memory") each(never_on_gpus,  \
                                                                                   "never GPU "    \
                                                                                   "memory")       \
              each(refused, "no communicator") each(lost, "communicator lost") each(               \
                  switched_off,                                                                    \
                  "switched off") /* A reason of this rank; the others learn that there is one. */ \
      each(host_memory, "host memory") each(managed_memory, "managed memory")                      \
          each(other_gpu, "another GPU") each(other_context, "not a primary context")              \
              each(misaligned, "misaligned") each(short_buffer, "beyond its allocation")           \
                  each(datatype, "derived datatype") each(no_engine, "no engine")                  \
                      each(no_memory,                                                              \
                           "no memory for what is in place") /* A reason of the agreement. */      \
      each(other_rank, "another rank could not") each(ranks_differ, "arguments of ranks differ")

enum class Reason : std::uint8_t {
#define POLYPATH_REASON(name, text) name,
  POLYPATH_MPI_REASONS(POLYPATH_REASON)
#undef POLYPATH_REASON
};
inline constexpr const char* kReasonTexts[] = {
#define POLYPATH_REASON(name, text) text,
    POLYPATH_MPI_REASONS(POLYPATH_REASON)
#undef POLYPATH_REASON
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
