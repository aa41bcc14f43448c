// All settings of the library, from ONE table: name, environment variable, default, allowed values
// and meaning stand in options.cpp once; parsing, errors, help and `polypath info -c` come from
// there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"

namespace polypath {

/// Where a value came from; later ones win.
enum class Origin : std::uint8_t { built_in, environment, argument };
std::string_view to_string(Origin origin) noexcept;

/// What runs schedules. automatic: what the profile measured faster, else streams.
enum class ExecutorSetting : std::uint8_t { automatic, stream, graph };

/// What a transfer does whose staged routes are not ready: go without them, or wait.
enum class PrepareMode : std::uint8_t { background, wait };

/// What the planner knows of the load of links. automatic: all, but nothing on a simulated node
/// whose times mean nothing (functional mode).
enum class LoadMode : std::uint8_t { automatic, all, known, off };

/// In which order collectives combine the elements of ranks.
enum class SumOrderSetting : std::uint8_t { rank, tree };

/// Whether other ranks store results straight into recv. automatic: where ranks share a process.
enum class DirectResultsSetting : std::uint8_t { automatic, on, off };

/// The values that the library runs with. 0 means "the planner decides" where a comment says so.
struct Options {
  std::string node;            ///< node file or name to run on; empty: this machine
  std::string driver_library;  ///< empty: libcuda.so.1, or the simulated driver when a node is set
  bool direct_routes = true;
  bool gpu_routes = true;
  bool host_routes = true;
  int max_routes = 0;              ///< routes a transfer, the direct one included; 0: no limit
  std::uint64_t chunk_size = 0;    ///< bytes a chunk of a staged route; 0: the planner decides
  int chunks = 0;                  ///< chunks a staged route; 0: the planner decides
  std::uint64_t min_size = 0;      ///< bytes below which copies stay native; 0: the planner decides
  std::uint64_t staging_size = 0;  ///< bytes of staging memory a GPU, and of pinned host memory
  std::uint64_t pinned_limit = 0;  ///< bytes of pinned host memory of this process for transfers
  ExecutorSetting executor = ExecutorSetting::automatic;
  PrepareMode prepare = PrepareMode::background;
  int prepare_threads = 1;     ///< that make routes ready in the background
  int copy_threads = 0;        ///< that copy pageable memory; 0: by the CPUs of the process
  bool share_mappings = true;  ///< let staging GPUs reach mappings that may be shared
  LoadMode load = LoadMode::automatic;
  int graph_cache_size = 0;  ///< instantiated graphs that are kept; 0: none
  int batch_blocks = 8;      ///< thread blocks a GPU that copies blocks has; 0: no kernels
  std::uint64_t batch_copy_size =
      0;                         ///< bytes from which a copy of a batch is a transfer of its own
  double emulate_mesh_gbps = 0;  ///< GB/s of each emulated NVLink; 0: no emulation
  bool peer_access = true;       ///< whether GPUs may address each other's memory
  std::string profile;           ///< "auto", "off", or a file
  std::string registry;          ///< "auto", "off", or a folder's absolute path
  int comm_time_limit_ms = 0;    ///< how long a rank waits for another
  std::uint64_t put_kernel_size = 0;  ///< bytes of a put at most that a kernel makes; 0: none
  int check = 0;                      ///< 1: compare each collective with those of the other ranks
  bool scratch_when_needed = false;   ///< collectives take most scratch when a call needs it
  SumOrderSetting sum_order = SumOrderSetting::rank;  ///< of communicators that name none
  DirectResultsSetting direct_results = DirectResultsSetting::automatic;
  int comm_port = 0;            ///< where rank 0 listens; 0: MASTER_PORT + 1
  std::string comm_node;        ///< which node a rank is of; "auto": this machine
  bool mpi_collectives = true;  ///< what the shim takes; it reads the variable itself
  LogLevel log_level = LogLevel::warn;
};

/// One row of `polypath info -c`.
struct OptionInfo {
  std::string name;
  std::string environment;
  std::string value;
  Origin origin;
  std::string default_value;
  std::string allowed;
  std::string meaning;
};

using OptionArguments = std::vector<std::pair<std::string, std::string>>;

/// Defaults, then the environment, then `arguments` (name, value). Throws InvalidArgument that
/// names the setting, where it was set, and the allowed values.
Options load_options(const OptionArguments& arguments, std::vector<OptionInfo>* infos = nullptr);

}  // namespace polypath
