// The behaviour of UNICONN, for every backend: templates over it, called on each rank by the
// launcher of the ranks (threads, processes, mpirun). docs/uniconn.md has what they hold it to.
#pragma once

#include "suite_collectives.hpp"
#include "suite_errors.hpp"
#include "suite_messages.hpp"
#include "suite_reductions.hpp"

namespace polypath::test {

template <typename B>
struct SuiteCase {
  const char* name;
  void (*run)(SuiteRank<B>&);
};

/// All of them: collective, in this order or another.
template <typename B>
const std::vector<SuiteCase<B>>& suite() {
  static const std::vector<SuiteCase<B>> all{
      {"PostsInAGroup", &posts_in_a_group<B>},
      {"PostsAlone", &posts_alone<B>},
      {"PostsToItself", &posts_to_itself<B>},
      {"SourcesMayBeOverwrittenBehindCommEnd", &sources_are_reused<B>},
      {"SignalsAreSetAndRise", &signals_are_set<B>},
      {"PostsComeBehindTheStream", &posts_come_behind<B>},
      {"AllGathers", &all_gathers<B>},
      {"AllGathervs", &all_gathervs<B>},
      {"AlltoAlls", &all_to_alls<B>},
      {"AlltoAllvs", &all_to_allvs<B>},
      {"Broadcasts", &broadcasts<B>},
      {"GathersAndScatters", &gathers_and_scatters<B>},
      {"GathervsAndScattervs", &gathervs_and_scattervs<B>},
      {"CollectivesInGroups", &collectives_in_groups<B>},
      {"Reductions", &reductions<B>},
      {"LongReductions", &long_reductions<B>},
      {"Splits", &splits<B>},
      {"BadInput", &bad_input<B>},
      {"ASecondEnvironment", &a_second_environment<B>},
  };
  return all;
}

}  // namespace polypath::test
