// Defects of the kernels by which streams wait and put (device/detail/mutants.hpp); those of
// waits in general are device::wait_mutant.
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace polypath {

enum class StreamWaitFault {
  none,
  words_loaded_plainly,   ///< not by an acquire: an old value may be seen forever
  records_not_looked_at,  ///< any record from other nodes is accepted
  first_word_alone,       ///< a barrier waits for one rank
  exact_value,            ///< a word that is past the value releases no waiter
  no_circle,              ///< values are compared as numbers
  epoch_not_counted       ///< every launch of a graph has the values of the first
};

enum class StreamPutFault {
  none,
  word_before_bytes,      ///< a word is told, and its bytes come then
  word_before_the_block,  ///< ... when one thread has stored its own
  word_without_release,   ///< ... and not ordered after them
  word_by_any_block,      ///< of several that make one put the first tells it
  count_not_put_back,     ///< the next put finds those of the last one
  first_wait_alone        ///< of several words one is waited for
};

}  // namespace polypath
