// The groups of lines, by the names of --what. Each runs, checks and prints its lines.
#pragma once

#include "bench.hpp"

namespace messaging_bench {

void queue_lines(Bench& bench);        ///< queues and pairs of one GPU
void remote_lines(Bench& bench);       ///< between two GPUs, and with the CPU
void beside_lines(Bench& bench);       ///< ... while a program copies
void match_lines(Bench& bench);        ///< matching in batches
void relaxed_lines(Bench& bench);      ///< the same by relaxed rules
void pool_lines(Bench& bench);         ///< memory that kernels allocate and free
void collectives_lines(Bench& bench);  ///< collectives that kernels make

void active_lines(Bench& bench);    ///< active messages between two GPUs
void channel_lines(Bench& bench);   ///< ... with tags
void patterns_lines(Bench& bench);  ///< ... as the paper found applications to do

}  // namespace messaging_bench
