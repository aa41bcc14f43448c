// A node as a capacity graph: memories, directed links between them, and ports that links share.
// A plain value: the planner reads it, a node file or the discovery fills it, the simulated node
// obeys it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace polypath {

/// An end point of a transfer: the memory of one GPU, or the host memory of one NUMA domain.
struct MemoryId {
  enum class Kind : std::uint8_t { gpu, host };
  Kind kind = Kind::gpu;
  int index = 0;

  static constexpr MemoryId gpu(int index) noexcept { return {Kind::gpu, index}; }
  static constexpr MemoryId host(int index) noexcept { return {Kind::host, index}; }
  [[nodiscard]] constexpr bool is_gpu() const noexcept { return kind == Kind::gpu; }
  [[nodiscard]] constexpr bool is_host() const noexcept { return kind == Kind::host; }
  friend constexpr auto operator<=>(const MemoryId&, const MemoryId&) = default;
};

/// "gpu0", "host1".
std::string to_string(MemoryId id);
/// Reads "gpu0" or "host1" ("host" means "host0"). Throws InvalidArgument.
MemoryId parse_memory(std::string_view text);

enum class LinkType : std::uint8_t {
  nvlink,    ///< point to point NVLink between two GPUs, or a GPU and its CPU
  nvswitch,  ///< NVLink through a switch: the pair's link shares its GPU's port with all others
  pcie,      ///< PCI Express between a GPU and host memory, or peer to peer
  c2c,       ///< NVLink-C2C between a Grace CPU and its GPU
  bounce,    ///< no peer access: the driver itself carries such a copy through host memory
};
std::string_view to_string(LinkType type) noexcept;

/// A capacity that several links share: the NVSwitch port of a GPU, both directions of one PCIe
/// link, all host reads of the node.
struct Port {
  std::string name;
  double gbps = 0;

  friend bool operator==(const Port&, const Port&) = default;
};

/// One directed link.
struct Link {
  MemoryId from;
  MemoryId to;
  LinkType type = LinkType::nvlink;
  double gbps = 0;          ///< what one large copy reaches, GB/s
  double nominal_gbps = 0;  ///< the data sheet's figure, GB/s; 0 when unknown
  int width = 0;  ///< NVLinks bundled in it, or the PCIe width; 0: unknown, or none of its own
  std::vector<int> ports;  ///< indices into Node::ports: the capacities that it shares

  friend bool operator==(const Link&, const Link&) = default;
};

struct Gpu {
  std::string name;  ///< e.g. "NVIDIA H200"
  std::string uuid;  ///< empty on a node file
  std::string pci;   ///< bus id, e.g. "0000:41:00.0"; empty when unknown
  int numa = 0;      ///< index into Node::hosts of the nearest host memory
  std::uint64_t memory_bytes = 0;
  int pcie_generation = 0;  ///< 0: unknown
  int pcie_width = 0;       ///< 16 for x16; 0: unknown

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct HostMemory {
  int numa = 0;                    ///< the operating system's NUMA node number
  std::uint64_t memory_bytes = 0;  ///< 0: unknown

  friend bool operator==(const HostMemory&, const HostMemory&) = default;
};

/// What the planner counts with and the simulated node charges. Microseconds where nothing else is
/// said; defaults are those of 4 x H200 (docs/cuda-notes.md names the command).
struct Costs {
  double copy_issue_us = 1.7;     ///< CPU time of one asynchronous copy call
  double call_us = 0.35;          ///< CPU time of one event record or stream wait
  double launch_us = 3.2;         ///< CPU time of one launch of a kernel
  double value_us = 1.2;          ///< CPU time of a value that a stream writes or waits for
  double copy_start_us = 5.5;     ///< from "may run" to the first byte, on an idle stream
  double copy_gap_us = 2.4;       ///< between two copies queued on one stream
  double copy_handover_us = 2.2;  ///< how long a starting copy halts the link that it shares with
                                  ///< copies under way, or the port that they fill
  double event_us = 2.0;  ///< from an event's completion to the start of work that waits for it
  double staged_fixed_us = 0;   ///< of a staged route beyond its bytes and gaps: fork, the start of
                                ///< both legs, hand-over, join; 0: 2 copy_start_us + 3 event_us
  double staged_gap_us = 0;     ///< between two chunks of a staged route; 0: copy_gap_us
  double batch_entry_us = 0.5;  ///< of one copy of a cuMemcpyBatchAsync beyond its bytes, at least
  double context_create_us = 215000;  ///< creating a context on another GPU
  // CUDA graphs, CPU time of each call: once a call, and for each of its nodes.
  double graph_create_us = 1.0;
  double graph_add_node_us = 0.4;
  double graph_instantiate_us = 3.0;
  double graph_instantiate_node_us = 1.35;
  double graph_launch_us = 0.6;
  double graph_launch_node_us = 1.13;
  double graph_set_node_us = 0.5;  ///< new addresses for one node of an instantiated graph
  // Kernels of collectives, fitted to a prototype's times on 4 x H200
  // (docs/collectives-planning.md).
  double kernel_start_us =
      3.3;                 ///< of a kernel next to its bytes and flags, one call after another
  double fence_us = 0.65;  ///< until what a block stored can be seen by other GPUs
  double flag_us = 1.2;    ///< from the store of a flag to its reader on another GPU
  double load_us = 1.0;    ///< until a thread has what it loads of its own GPU's memory
  double block_gbps = 23;  ///< what a block of 512 threads stores over links; GB/s
  double switch_share =
      0.9;  ///< part of a switch port's rate that stores of all GPUs at once reach
  double memory_gbps = 4800;  ///< reads and writes of a GPU's own memory together; GB/s
  // Pageable host memory (docs/pageable.md). n copy threads reach 1 / (1 / (n * thread) + 1 / host)
  // GB/s, fitted to times on 4 x H200.
  double pageable_to_gpu_gbps = 9.5;     ///< what the driver's own copy reaches; GB/s
  double pageable_from_gpu_gbps = 18.2;  ///< of memory that was touched before; GB/s
  double pageable_untouched_gbps = 1.7;  ///< from a GPU to memory never touched; GB/s
  double thread_to_gpu_gbps = 11.3;      ///< a thread alone, to pinned slots; GB/s
  double thread_from_gpu_gbps = 16;      ///< a thread alone, from pinned slots; GB/s
  double thread_read_gbps = 6;           ///< a thread alone, from a cached file to slots; GB/s
  double host_to_gpu_gbps = 235;         ///< all threads, by the host's memory alone; GB/s
  double host_from_gpu_gbps = 500;       ///< all threads, by the host's memory alone; GB/s
  double thread_wake_us = 50;   ///< until a sleeping copy thread runs, from the call that wakes it
  double thread_issue_us = 12;  ///< a copy thread's calls for one leg of a chunk

  friend bool operator==(const Costs&, const Costs&) = default;
};

/// Copies of other programs on the simulated node: blocks over one link without pause, or by turns
/// on and off. The planner does not read it.
struct BackgroundTraffic {
  MemoryId from;
  MemoryId to;
  std::uint64_t block_bytes = std::uint64_t{64} << 20;
  int queue_blocks = 1;  ///< blocks queued at any time, the one in service included
  double on_us = 0;      ///< of each period; both are 0 where it is always on
  double off_us = 0;
  double begin_us = 0;  ///< since cuInit
  double end_us = 0;    ///< since cuInit; 0: never

  friend bool operator==(const BackgroundTraffic&, const BackgroundTraffic&) = default;
};

struct Node {
  std::string name;    ///< "narval"; for a real node the GPUs' name and count
  std::string title;   ///< one line for people
  std::string source;  ///< where the figures come from
  std::vector<Gpu> gpus;
  std::vector<HostMemory> hosts;
  std::vector<Port> ports;
  std::vector<Link> links;
  Costs costs;
  std::vector<BackgroundTraffic> traffic;  ///< of a simulated node; else empty

  /// Index of the link, or nothing. Between two memories there is at most one link a direction.
  [[nodiscard]] std::optional<int> find_link(MemoryId from, MemoryId to) const noexcept;
  [[nodiscard]] bool contains(MemoryId id) const noexcept;
  /// All memories: GPUs first, then hosts.
  [[nodiscard]] std::vector<MemoryId> memories() const;

  friend bool operator==(const Node&, const Node&) = default;
};

/// Throws InvalidArgument with the reason when the node breaks a rule: no GPU or no host memory, an
/// index out of range, a capacity that is not positive, a link or a port's name doubled, a link
/// between two host memories, a GPU without a link to or from its host memory, traffic without a
/// link, without bytes or with half a period.
void validate(const Node& node);

}  // namespace polypath
