// The fields of Costs as one table: the node-file reader and writer and the JSON go through it, so
// a new cost is one line in node.hpp and one here.
#pragma once

#include <array>
#include <string_view>

#include "topology/node.hpp"

namespace polypath {

struct CostField {
  std::string_view name;  ///< the key in a node file
  double Costs::* member;
  double least;  ///< smallest value that a node file may give
  double most;   ///< largest
};

inline constexpr std::array kCostFields{
    CostField{"copy_issue_us", &Costs::copy_issue_us, 0, 1e4},
    CostField{"call_us", &Costs::call_us, 0, 1e4},
    CostField{"launch_us", &Costs::launch_us, 0, 1e4},
    CostField{"value_us", &Costs::value_us, 0, 1e4},
    CostField{"copy_start_us", &Costs::copy_start_us, 0, 1e4},
    CostField{"copy_gap_us", &Costs::copy_gap_us, 0, 1e4},
    CostField{"copy_handover_us", &Costs::copy_handover_us, 0, 1e4},
    CostField{"event_us", &Costs::event_us, 0, 1e4},
    CostField{"staged_fixed_us", &Costs::staged_fixed_us, 0, 1e4},
    CostField{"staged_gap_us", &Costs::staged_gap_us, 0, 1e4},
    CostField{"batch_entry_us", &Costs::batch_entry_us, 0, 1e4},
    CostField{"context_create_us", &Costs::context_create_us, 0, 1e8},
    CostField{"graph_create_us", &Costs::graph_create_us, 0, 1e6},
    CostField{"graph_add_node_us", &Costs::graph_add_node_us, 0, 1e6},
    CostField{"graph_instantiate_us", &Costs::graph_instantiate_us, 0, 1e6},
    CostField{"graph_instantiate_node_us", &Costs::graph_instantiate_node_us, 0, 1e6},
    CostField{"graph_launch_us", &Costs::graph_launch_us, 0, 1e6},
    CostField{"graph_launch_node_us", &Costs::graph_launch_node_us, 0, 1e6},
    CostField{"graph_set_node_us", &Costs::graph_set_node_us, 0, 1e6},
    CostField{"kernel_start_us", &Costs::kernel_start_us, 0, 1e4},
    CostField{"fence_us", &Costs::fence_us, 0, 1e4},
    CostField{"flag_us", &Costs::flag_us, 0, 1e4},
    CostField{"load_us", &Costs::load_us, 0, 1e4},
    CostField{"block_gbps", &Costs::block_gbps, 0.001, 1e5},
    CostField{"switch_share", &Costs::switch_share, 0.01, 1},
    CostField{"memory_gbps", &Costs::memory_gbps, 0.001, 1e5},
    CostField{"pageable_to_gpu_gbps", &Costs::pageable_to_gpu_gbps, 0.001, 1e5},
    CostField{"pageable_from_gpu_gbps", &Costs::pageable_from_gpu_gbps, 0.001, 1e5},
    CostField{"pageable_untouched_gbps", &Costs::pageable_untouched_gbps, 0.001, 1e5},
    CostField{"thread_to_gpu_gbps", &Costs::thread_to_gpu_gbps, 0.001, 1e5},
    CostField{"thread_from_gpu_gbps", &Costs::thread_from_gpu_gbps, 0.001, 1e5},
    CostField{"thread_read_gbps", &Costs::thread_read_gbps, 0.001, 1e5},
    CostField{"host_to_gpu_gbps", &Costs::host_to_gpu_gbps, 0.001, 1e5},
    CostField{"host_from_gpu_gbps", &Costs::host_from_gpu_gbps, 0.001, 1e5},
    CostField{"thread_wake_us", &Costs::thread_wake_us, 0, 1e4},
    CostField{"thread_issue_us", &Costs::thread_issue_us, 0, 1e4},
};

static_assert(sizeof(Costs) == kCostFields.size() * sizeof(double),
              "every field of Costs needs its line in kCostFields");

}  // namespace polypath
