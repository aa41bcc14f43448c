#include "collectives/collective_plan_inputs.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/log.hpp"
#include "collectives/collective_profile.hpp"
#include "topology/node_file.hpp"
#include "topology/peer_links.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMaxNumbers = 64;

/// As a profile (tune/profile.hpp) that holds no more than these; empty where that cannot be read
/// back.
std::string text_of(const Node& node, std::span<const TunedCollective> tuned) {
  std::string text = format_node_file(node) + "\n[profile]\n";
  for (const TunedCollective& entry : tuned)
    text += '\n' + ProfileFormat<TunedCollective>::format(entry);
  try {
    static_cast<void>(read_node_text(text));
  } catch (const InvalidArgument& error) {
    log_info("each rank plans collectives with its own capacities: {}", error.what());
    return {};
  }
  return text;
}

/// The text of rank 0, on all.
std::string from_first(Communicator& comm, const std::string& local) {
  const auto size = static_cast<std::size_t>(comm.size());
  std::array<std::uint64_t, 1> bytes{local.size()};
  std::vector<std::uint64_t> all(size);
  comm.exchange(std::as_bytes(std::span(bytes)), std::as_writable_bytes(std::span(all)));
  std::string padded = local;
  padded.resize(all.front());
  std::string texts(all.front() * size, '\0');
  comm.exchange(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(texts)));
  return texts.substr(0, all.front());
}

CollectivePlanInputs inputs_of_first(Communicator& comm, std::span<const TunedCollective> tuned) {
  CollectivePlanInputs basis;
  std::array<std::int32_t, kMaxNumbers> local{};
  for (int rank = 0; rank < comm.size(); ++rank) {
    basis.gpus.push_back(comm.gpu_of(rank));
    local[static_cast<std::size_t>(rank)] = comm.gpu_of(rank);
  }
  basis.node = comm.node();
  if (comm.size() == 1) {
    basis.tuned.assign(tuned.begin(), tuned.end());
    return basis;
  }
  const std::string text =
      from_first(comm, comm.rank() == 0 ? text_of(comm.node(), tuned) : std::string());
  if (text.empty()) return basis;
  basis.node = read_node_text(text);
  basis.tuned = read_collectives(text);
  // GPUs as rank 0 numbers them.
  std::vector<std::array<std::int32_t, kMaxNumbers>> all(static_cast<std::size_t>(comm.size()));
  comm.exchange(std::as_bytes(std::span(local)), std::as_writable_bytes(std::span(all)));
  for (std::size_t rank = 0; rank < basis.gpus.size(); ++rank) basis.gpus[rank] = all.front()[rank];
  return basis;
}

}  // namespace

CollectivePlanInputs share_plan_inputs(Communicator& comm, std::span<const TunedCollective> tuned) {
  CollectivePlanInputs basis = inputs_of_first(comm, tuned);
  // What all ranks found out counts, not the links of rank 0's node.
  if (!comm.has_peer_access()) basis.node = without_peer_links(std::move(basis.node));
  return basis;
}

}  // namespace polypath
