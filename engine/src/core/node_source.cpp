#include "core/node_source.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nvml.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/no_peer_access.hpp"
#include "exec/emulated_mesh/mesh_driver.hpp"
#include "exec/emulated_mesh/mesh_node.hpp"
#include "topology/discover.hpp"
#include "topology/fingerprint.hpp"
#include "topology/node_file.hpp"
#include "topology/peer_links.hpp"
#include "tune/profile.hpp"

namespace polypath {
namespace {

constexpr const char* kCudaLibrary = "libcuda.so.1";
constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";
constexpr const char* kSimulatedLibrary = "libpolypath_sim.so";
constexpr const char* kRealGpusOnly =
    "emulate_mesh is for this machine's GPUs; to see a mesh simulated, name its node: --node "
    "narval, or POLYPATH_NODE=narval (`polypath nodes` lists them)";

std::string simulated_library() {
  for (const char* folder : {"", "/..", "/lib"}) {
    const std::filesystem::path beside =
        std::filesystem::path(own_directory() + folder) / kSimulatedLibrary;
    if (std::filesystem::exists(beside)) return beside.string();
  }
  return kSimulatedLibrary;
}

/// The driver library reads POLYPATH_NODE once; all contexts of the process share what it found.
void claim_node(const std::string& file) {
  static std::mutex mutex;
  static std::string claimed;
  const std::lock_guard lock(mutex);
  if (!claimed.empty() && claimed != file)
    throw InvalidArgument(
        fmt::format("node '{}' cannot be used: this process already runs on '{}'", file, claimed));
  if (claimed == file) return;
  claimed = file;
  // Once: other threads may be reading the environment.
  setenv("POLYPATH_NODE", file.c_str(), 1);
}

std::string driver_version_of(const CudaDriver& driver, const Nvml* nvml) {
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
  if (nvml != nullptr && nvml->driver_version != nullptr &&
      nvml->driver_version(text.data(), text.size()) == NVML_SUCCESS)
    return text.data();
  int version = 0;
  driver.driver_get_version(&version);
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

void open_simulated(const Options& options, NodeSource& source) {
  const std::string file = std::filesystem::absolute(find_node_file(options.node)).string();
  source.node = read_node_file(file);
  source.simulated = true;
  const char* const mode = std::getenv("POLYPATH_SIM_MODE");
  source.virtual_time = mode == nullptr || std::string_view(mode) != "functional";
  source.capacities = Capacities::node_file;
  claim_node(file);
  const std::string library =
      options.driver_library.empty() ? simulated_library() : options.driver_library;
  std::string why;
  source.driver = load_cuda_driver(library, &why);
  if (source.driver == nullptr)
    throw NoDevice(fmt::format("the simulated driver cannot be opened: {}", why));
  if (!options.peer_access) {
    source.driver = without_peer_access(source.driver);
    source.node = without_peer_links(std::move(source.node));
  }
  source.nvml = load_nvml(library, &why);
  int count = 0;
  if (source.driver->device_get_count(&count) != CUDA_SUCCESS ||
      count != static_cast<int>(source.node.gpus.size()))
    throw InvalidArgument(fmt::format("{} runs a node with {} GPUs, but {} has {}", library, count,
                                      file, source.node.gpus.size()));
}

void apply_profile(const Options& options, NodeSource& source) {
  if (options.profile == "off") {
    source.profile_state = "off";
    return;
  }
  if (source.simulated && options.profile == "auto") {
    source.profile_state = "not used: the node is simulated; name a file to use one";
    return;
  }
  const std::filesystem::path folder = profile_directory();
  if (options.profile == "auto" && folder.empty()) {
    source.profile_state =
        "off: no folder for it: HOME or XDG_CACHE_HOME must name one, or POLYPATH_PROFILE a file";
    return;
  }
  const auto file = options.profile == "auto" ? profile_file(folder, source.fingerprint)
                                              : std::filesystem::path(options.profile);
  std::string why = unusable_reason(file);
  if (!why.empty() && options.profile != "auto") throw InvalidArgument(why);
  source.profile_file = file.string();
  if (auto profile = load_profile(file, source.fingerprint, &why)) {
    source.tables = std::move(profile->tables);
    source.profile_state = "loaded, made " + profile->date;
    if (source.simulated) return;
    // The links and ports of the profile, the identity of what is here now.
    source.node.links = std::move(profile->node.links);
    source.node.ports = std::move(profile->node.ports);
    source.node.costs = profile->node.costs;
    source.capacities = Capacities::measured;
  } else if (why.empty()) {
    source.profile_state = "none yet: `polypath topo --measure` or `polypath tune` makes one";
  } else {
    source.profile_state = why;
    log_warn("the profile is not used, defaults serve: {}", why);
  }
}

}  // namespace

std::string_view to_string(Capacities capacities) noexcept {
  switch (capacities) {
    case Capacities::node_file: return "node file";
    case Capacities::measured: return "measured";
    case Capacities::defaults: return "defaults";
  }
  return "?";
}

std::string own_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_directory), &info) == 0) return ".";
  std::error_code ignored;
  const auto real = std::filesystem::canonical(info.dli_fname, ignored);
  return (ignored ? std::filesystem::path(info.dli_fname) : real).parent_path().string();
}

NodeSource with_emulated_mesh(NodeSource source, double gbps) {
  if (gbps == 0 || gbps == source.emulated_mesh_gbps) return source;
  if (source.simulated) throw InvalidArgument(kRealGpusOnly);
  source.node = emulated_mesh(source.node, gbps);
  source.driver = mesh_driver(source.driver, source.node, source.emulated_links);
  source.emulated_mesh_gbps = gbps;
  source.fingerprint =
      fingerprint(source.node, fmt::format("{}, emulated mesh {}", source.driver_version, gbps));
  // What was measured of the host links holds; choices for an NVSwitch do not, and nothing is kept.
  source.profile_file.clear();
  source.profile_state += ", but for its NVLinks: the mesh is emulated";
  source.tables = {};
  return source;
}

std::string registry_of(const Options& options, const NodeSource& source) {
  return options.registry == "auto" && source.virtual_time ? "off" : options.registry;
}

NodeSource open_node(const Options& options) {
  set_log_level(options.log_level);
  // Before the process claims the node.
  if (options.emulate_mesh_gbps > 0 && !options.peer_access)
    throw InvalidArgument("emulate_mesh needs peer access, and peer_access is 0");
  if (options.emulate_mesh_gbps > 0 && !options.node.empty()) throw InvalidArgument(kRealGpusOnly);
  NodeSource source;
  if (!options.node.empty()) {
    open_simulated(options, source);
  } else {
    const std::string library =
        options.driver_library.empty() ? kCudaLibrary : options.driver_library;
    std::string why;
    source.driver = load_cuda_driver(library, &why);
    if (source.driver == nullptr)
      throw NoDevice(
          fmt::format("no GPU here ({}); name a simulated node: --node narval, or "
                      "POLYPATH_NODE=narval (`polypath nodes` lists them)",
                      why));
    if (!options.peer_access) source.driver = without_peer_access(source.driver);
    source.nvml = load_nvml(kNvmlLibrary, &why);
    if (source.nvml == nullptr) log_info("NVML is not used: {}", why);
    source.node = discover_node(*source.driver, source.nvml.get());
  }
  source.driver_version = driver_version_of(*source.driver, source.nvml.get());
  source.fingerprint = fingerprint(source.node, source.driver_version);
  apply_profile(options, source);
  return with_emulated_mesh(std::move(source), options.emulate_mesh_gbps);
}

}  // namespace polypath
