// Defects of kernels that wait (simt/planted.h).
#pragma once

#include "simt/planted.h"

namespace polypath {

enum class WaitFault {
  none,
  no_look_at_the_abort_word,
  goes_on_unreported,    ///< past the time limit: what comes behind tells what never came
  words_loaded_plainly,  ///< not by an acquire: an old value may be seen for ever
  first_word_alone,      ///< a barrier waits for one rank
  own_word_as_well,      ///< ... or for itself
  exact_value,           ///< a word that is past the value lets nobody go
  no_circle,             ///< values are compared as numbers
  epoch_not_counted      ///< every launch of a graph has the values of the first
};

}  // namespace polypath
