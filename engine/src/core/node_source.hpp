// The node that a context works on: its driver and its capacity graph, real or simulated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/options.hpp"
#include "driver/cuda_driver.hpp"
#include "driver/nvml.hpp"
#include "exec/emulated_mesh/emulated_links.hpp"
#include "topology/node.hpp"
#include "tune/profile_table.hpp"

namespace polypath {

/// Where the capacities of a node came from.
enum class Capacities : std::uint8_t { node_file, measured, defaults };
std::string_view to_string(Capacities capacities) noexcept;

struct NodeSource {
  std::shared_ptr<const CudaDriver> driver;
  std::shared_ptr<const Nvml> nvml;  ///< null where there is none
  Node node;
  bool simulated = false;
  bool virtual_time = false;  ///< simulated, and for this process alone
  Capacities capacities = Capacities::defaults;
  std::string fingerprint;
  std::string driver_version;
  std::string profile_file;       ///< empty: none is kept
  std::string profile_state;      ///< "loaded", "none yet", "off", or what is wrong with it
  ProfileTables tables;           ///< from the profile
  std::string registry;           ///< as the setting, for process_registry()
  double emulated_mesh_gbps = 0;  ///< of each link, when `node` is an emulated mesh
  std::vector<EmulatedLink> emulated_links;
};

/// A simulated node, and an emulated mesh, use a profile only when the setting names a file, and
/// take nothing but tuned choices from it.
///
/// With Options::node: that node file, on the simulated driver, which reads the same node from
/// POLYPATH_NODE (set here). Otherwise this machine's GPUs, with their profile if there is one.
/// Throws NoDevice with a line that says what to do, InvalidArgument for a node that is not known
/// and for a profile that is named and is no regular file.
/// The registry of a simulated node in virtual time, which is one process's own, is "off" unless a
/// folder is named. One process has one driver: a second node in the same process is refused.
NodeSource open_node(const Options& options);

/// `source` as an emulated mesh of `gbps` GB/s a link, in its driver and its capacities, with its
/// host links and without what was tuned, which keeps no profile; unchanged for 0, or when it is
/// that already. Slow: mesh_driver.hpp. Throws InvalidArgument for a simulated node, and what
/// emulated_mesh() and mesh_driver() throw.
NodeSource with_emulated_mesh(NodeSource source, double gbps);

/// The setting of the registry: what `options` say; without a word there, off in virtual time,
/// where there is nothing to share.
std::string registry_of(const Options& options, const NodeSource& source);

/// The folder of the library or program that holds this code.
std::string own_directory();

}  // namespace polypath
