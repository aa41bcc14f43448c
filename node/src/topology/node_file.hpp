// Node files: a node as a TOML file (nodes/*.toml). The format, in full, is docs/node-files.md:
//
//   schema = 1
//   name   = "narval"
//   title  = "Narval: 4 x A100 40 GB, NVLink full mesh"
//   source = "where each figure comes from"
//
//   [costs]                    # any field of Costs; microseconds
//   copy_start_us = 5.5
//
//   [[gpu]]                    # one entry each, or count = N for N equal ones
//   count = 4
//   name = "NVIDIA A100-SXM4-40GB"
//   memory_gib = 40
//   pcie_generation = 4
//   pcie_width = 16
//   numa = 0                   # or a list of `count` values
//
//   [[host]]
//   numa = 0
//   memory_gib = 512
//
//   [[link]]                   # every ordered pair (from, to) that the patterns match, from != to
//   from = "gpu*"              # "gpu0", "gpu*", or a list of these
//   to = "gpu*"
//   both_directions = false    # also every (to, from)
//   distance = "any"           # near: only pairs of one NUMA domain; far: only pairs across
//   domains type = "nvlink"            # nvlink | nvswitch | pcie | c2c | bounce gbps = 93
//   nominal_gbps = 100
//   width = 4
//   source = "..."
//
//   [[port]]                   # a capacity shared by every existing link that the patterns match
//   name = "pcie"              # a generated port is called "pcie.gpu0"
//   from = "gpu*"
//   to = "host*"
//   both_directions = true     # the links of the other direction as well
//   distance = "any"           # as above
//   per = "from"               # from | to | all: one port for each matched `from`, each `to`, or
//   one gbps = 101                 #   for all (default). With both_directions a reversed link
//   counts for source = "..."             #   the pattern side it lies on, so per = "from" is one a
//   GPU here.
//                              # Without from and to: of the links with ports = [its name].
//
//   [[traffic]]                # of other programs, on a simulated node; microseconds
//   from = "gpu0"
//   to = "host0"
//   block_mib = 64
//   queue_blocks = 1
//   on_us = 20000              # with off_us: the parts of a period; without: always on
//   off_us = 20000
//   begin_us = 0
//   end_us = 0                 # 0: never ends
//
// Figures are GB/s = 1e9 bytes/s. Unknown keys are errors.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/node.hpp"

namespace polypath {

/// Reads and validates a node file. Throws InvalidArgument "FILE:LINE: what, and the allowed
/// range". A profile is a node file, too: one with the table [profile]. Such a file may have the
/// [[tables]] that `profile_tables` names, or any where it names none.
Node read_node_file(const std::filesystem::path& file,
                    std::span<const std::string_view> profile_tables = {});

/// As read_node_file(), from a text of format_node_file().
Node read_node_text(std::string_view text);

/// The node as a node file, one entry a GPU, link and port: reading it back gives an equal node,
/// provided that the node is valid and its figures lie in the ranges of docs/node-files.md.
std::string format_node_file(const Node& node);

/// A name ("narval") or a path to a file -> the file. Names are looked up in node_directories().
/// Throws InvalidArgument that lists the known names.
std::filesystem::path find_node_file(const std::string& name_or_path);

/// Known node files, by name, sorted.
std::vector<std::filesystem::path> known_node_files();

/// Where node files are looked for, in this order: "nodes" next to the library that holds this
/// code, then its ../share/polypath/nodes, ../nodes, ../../nodes and ../../../nodes (a build tree).
std::vector<std::filesystem::path> node_directories();

}  // namespace polypath
