#include "collectives/multi_node_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "collectives/call_arguments.hpp"
#include "collectives/call_match.hpp"
#include "collectives/norm_call.hpp"
#include "comm/stream_waits.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {
namespace {

/// Chunks under way: while one is between nodes, others may be copied to and from host memory.
constexpr std::size_t kNodeSlots = 3;
/// Scratch beyond what the slices have: what is not even.
constexpr std::uint64_t kUneven = 65536;
static_assert(2 * kNodeSlots <= kMaxExchanges);  // two of a chunk
constexpr int kMaxAveraged = 255;                // SumArgs::ranks

bool is_by_parts(CollectiveOp op) {
  return op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_gather ||
         op == CollectiveOp::all_to_all;
}

/// Part `at` of `parts` nearly equal ones of `count`.
struct Piece {
  std::uint64_t begin;
  std::uint64_t count;
};
Piece piece_of(std::uint64_t count, int parts, int at) {
  const auto n = static_cast<std::uint64_t>(parts);
  const auto i = static_cast<std::uint64_t>(at);
  const std::uint64_t begin = count * i / n;
  return {begin, count * (i + 1) / n - begin};
}

}  // namespace

MultiNodeCollectives::MultiNodeCollectives(Collectives& inside, NodeNetwork& links,
                                           std::uint64_t max_slice)
    : inside_(inside),
      links_(links),
      map_(links.map),
      comm_(inside.communicator()),
      max_slice_(max_slice),
      stream_(comm_.driver(), comm_.context()),
      fork_(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING),
      end_(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING) {
  const CudaDriver& driver = comm_.driver();
  const CurrentContext current(driver, comm_.context());
  try {
    const auto per_node = static_cast<std::uint64_t>(map_.per_node);
    staged_ = take(per_node * (max_slice_ + kUneven));
    for (std::size_t i = 0; i < kNodeSlots; ++i) {
      Slot slot{Stream(driver, comm_.context()),
                Event(driver, comm_.context(), CU_EVENT_DISABLE_TIMING),
                Event(driver, comm_.context(), CU_EVENT_DISABLE_TIMING)};
      slot.part = take(max_slice_ + kUneven);
      slot.received = take(max_slice_ + kUneven);
      if (map_.nodes > static_cast<int>(kMaxRanks)) slot.sum = take(2 * (max_slice_ + kUneven));
      slots_.push_back(std::move(slot));
    }
  } catch (...) {
    for (const CUdeviceptr memory : memory_) POLYPATH_WARN(driver, mem_free(memory));
    throw;
  }
  waits_ = comm_.register_waits(
      1, [](const wait_error& status, std::uint32_t) { return mismatch_text(status, "node"); });
}

MultiNodeCollectives::~MultiNodeCollectives() {
  comm_.unregister_waits(waits_);
  const CurrentContext current(comm_.driver(), comm_.context(), std::nothrow);
  for (const CUdeviceptr memory : memory_) POLYPATH_WARN(comm_.driver(), mem_free(memory));
}

CUdeviceptr MultiNodeCollectives::take(std::uint64_t bytes) {
  CUdeviceptr memory = 0;
  POLYPATH_CHECK(comm_.driver(), mem_alloc(&memory, bytes));
  memory_.push_back(memory);
  taken_ += bytes;
  return memory;
}

std::uint64_t MultiNodeCollectives::scratch_bytes() const noexcept { return taken_; }

void MultiNodeCollectives::run(const CollectiveCall& call, CUstream stream) {
  comm_.check();
  ++skipped_;  // until it is issued; ranks that differ in it differ in their marks
  require_alike(call, map_.rank, map_.size());
  if (call.operation == Operator::avg && map_.size() > kMaxAveraged)
    throw NotSupported(
        fmt::format("averages are of {} ranks at most, not {}", kMaxAveraged, map_.size()));
  if (call.parts)
    throw NotSupported(
        fmt::format("rank {}: parts of different lengths are of ranks of one node", map_.rank));
  require_order(call);
  ContextGuard guard(comm_.driver());
  guard.use(comm_.context());  // of a default stream
  if (is_captured(comm_.driver(), stream))
    throw InvalidArgument(fmt::format(
        "rank {}: stream is in capture: collectives of several nodes cannot be captured",
        map_.rank));
  if (call.count == 0) return;
  CollectiveCall marked = call;
  marked.within = hash_of(call);
  CollectiveCall in_node = call;
  in_node.root %= static_cast<int>(kMaxRanks);  // what a mark has room for; the hash has all of it
  const CallMark mark = mark_of(in_node, marked.within);
  mark_ = {mark.what, mark.count, static_cast<std::uint32_t>(counts_.calls + 1), waits_};
  try {
    require_buffers(comm_.driver(), call, {map_.rank, map_.size(), comm_.gpu()});
    inside_.require_stream(stream);
    issue(marked, stream);
  } catch (const std::exception& error) {
    comm_.abort(fmt::format("rank {} could not issue its part of call {} across nodes: {}",
                            map_.rank, counts_.calls + 1, error.what()));
    throw;
  }
  ++counts_.calls;
  --skipped_;
}

/// Sums of nodes are nodes of the tree where a node has a power of 2 of ranks, one after another;
/// and one kernel adds them.
void MultiNodeCollectives::require_order(const CollectiveCall& call) const {
  if (inside_.order() != SumOrder::tree || !combines(call.op) || !depends_on_order(call.type))
    return;
  std::string why;
  if (!std::has_single_bit(static_cast<unsigned>(map_.per_node)))
    why = fmt::format("each node has {} ranks, which is no power of 2", map_.per_node);
  else if (!std::ranges::is_sorted(map_.ranks))
    why = "the ranks of a node do not follow one another";
  else if (map_.nodes > static_cast<int>(kMaxRanks))
    why = fmt::format("there are {} nodes, and {} are served", map_.nodes, kMaxRanks);
  if (!why.empty())
    throw NotSupported(fmt::format(
        "rank {}: sums of floats as a tree (sum_order) cannot be kept: {}", map_.rank, why));
}

void MultiNodeCollectives::run(const NormCall& call, CUstream stream) {
  comm_.check();
  require_norm_alike(call, map_.rank);
  try {
    require_norm_buffers(comm_.driver(), call, {map_.rank, map_.size(), comm_.gpu()});
  } catch (const std::exception& error) {
    comm_.abort(error.what());  // the other ranks wait for this call
    throw;
  }
  const CollectiveCall first = all_reduce_of(call);
  run(first, stream);
  if (call.rows > 0) inside_.launch_norm_alone(call, first.recv, stream);
}

std::uint32_t MultiNodeCollectives::hash_of(const CollectiveCall& call) const {
  CollectiveCall same = call;
  same.root = 0;  // a mark has room for those of one node
  const CallMark mark = mark_of(same, 0);
  const std::uint64_t root = has_root(call.op) ? static_cast<std::uint64_t>(call.root) : 0;
  return hash_with(hash_with(hash_with(hash_with(mark.what, mark.count), root), call.within),
                   skipped_) |
         1U;
}

std::uint64_t MultiNodeCollectives::chunk_elements(const CollectiveCall& call) const {
  const std::uint64_t element = size_of(call.type);
  const auto nodes = static_cast<std::uint64_t>(map_.nodes);
  const auto per_node = static_cast<std::uint64_t>(map_.per_node);
  if (!is_by_parts(call.op)) {
    // The root's node receives the slices of all others.
    const std::uint64_t most =
        call.op == CollectiveOp::reduce ? max_slice_ / (nodes - 1) : max_slice_;
    const std::uint64_t bytes = node_slice_bytes(call.count * element, map_.per_node, max_slice_);
    return per_node * std::max<std::uint64_t>(1, std::min(bytes, most) / element);
  }
  const std::uint64_t parts = call.op == CollectiveOp::all_to_all ? nodes * per_node : nodes;
  return std::max<std::uint64_t>(1, max_slice_ / element / parts);
}

void MultiNodeCollectives::issue(const CollectiveCall& call, CUstream stream) {
  const CudaDriver& driver = comm_.driver();
  const std::uint64_t most = chunk_elements(call);
  const std::uint64_t chunks = (call.count + most - 1) / most;
  const auto per_node = static_cast<std::uint64_t>(map_.per_node);
  const auto chunk_at = [&](std::uint64_t at) {
    Chunk chunk;
    chunk.begin = at * most;
    chunk.count = std::min(most, call.count - chunk.begin);
    chunk.slice = (chunk.count + per_node - 1) / per_node;
    chunk.slot = &slots_[at % kNodeSlots];
    return chunk;
  };
  const auto begin = [&](std::uint64_t at) {
    const Chunk chunk = chunk_at(at);
    Slot& slot = *chunk.slot;
    issue(call, chunk, Stage::first);
    POLYPATH_CHECK(driver, event_record(slot.ready.get(), stream_.get()));
    POLYPATH_CHECK(driver, stream_wait_event(slot.stream.get(), slot.ready.get(), 0));
    issue(call, chunk, Stage::between);
    POLYPATH_CHECK(driver, event_record(slot.done.get(), slot.stream.get()));
  };

  POLYPATH_CHECK(driver, event_record(fork_.get(), stream));
  POLYPATH_CHECK(driver, stream_wait_event(stream_.get(), fork_.get(), 0));
  for (std::uint64_t at = 0; at < std::min<std::uint64_t>(chunks, kNodeSlots); ++at) begin(at);
  for (std::uint64_t at = 0; at < chunks; ++at) {
    const Chunk chunk = chunk_at(at);
    POLYPATH_CHECK(driver, stream_wait_event(stream_.get(), chunk.slot->done.get(), 0));
    issue(call, chunk, Stage::last);
    if (at + kNodeSlots < chunks) begin(at + kNodeSlots);
  }
  POLYPATH_CHECK(driver, event_record(end_.get(), stream_.get()));
  POLYPATH_CHECK(driver, stream_wait_event(stream, end_.get(), 0));
  counts_.chunks += chunks;
}

void MultiNodeCollectives::issue(const CollectiveCall& call, const Chunk& chunk, Stage stage) {
  switch (call.op) {
    case CollectiveOp::allreduce: return allreduce(call, chunk, stage);
    case CollectiveOp::reduce_scatter: return reduce_scatter(call, chunk, stage);
    case CollectiveOp::all_gather: return all_gather(call, chunk, stage);
    case CollectiveOp::broadcast: return broadcast(call, chunk, stage);
    case CollectiveOp::reduce: return reduce(call, chunk, stage);
    case CollectiveOp::all_to_all: return all_to_all(call, chunk, stage);
  }
}

// ---- what the stages are made of ---------------------------------------------------------------

void MultiNodeCollectives::copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes,
                                CUstream stream) {
  if (to != from && bytes > 0)
    POLYPATH_CHECK(comm_.driver(), memcpy_async(to, from, bytes, stream));
}

void MultiNodeCollectives::exchange(const std::vector<NetworkMessage>& sends,
                                    const std::vector<NetworkMessage>& receives, const Slot& slot) {
  links_.engine->exchange(sends, receives, mark_, slot.stream.get());
}

void MultiNodeCollectives::run_inside(const CollectiveCall& call) {
  inside_.run(call, stream_.get());
}

void MultiNodeCollectives::sum(const CollectiveCall& call, const std::vector<CUdeviceptr>& operands,
                               CUdeviceptr to, std::uint64_t count, const Slot& slot) {
  if (count == 0) return;
  // A partial sum takes the place of an operand, where elements are their own accumulators.
  const std::size_t most = operands.size() <= kMaxRanks ? kMaxRanks : kMaxRanks - 1;
  for (std::size_t at = 0; at < operands.size(); at += most) {
    const std::size_t end = std::min(operands.size(), at + most);
    SumArgs args{};
    args.type = call.type;
    args.reduction = call.operation;
    args.ranks = static_cast<std::uint8_t>(std::min(map_.size(), kMaxAveraged));
    args.to_partial = end < operands.size();
    args.count = count;
    args.first = at == 0 ? nullptr : std::bit_cast<const void*>(slot.sum);
    for (std::size_t i = at; i < end; ++i)
      args.from[args.from_count++] = std::bit_cast<const void*>(operands[i]);
    args.to = std::bit_cast<void*>(args.to_partial ? slot.sum : to);
    inside_.modules().launch_sum(args, count * size_of(call.type), slot.stream.get());
  }
}

/// Slices of the chunk, combined in this node, to their ranks. An average is a sum until the end.
void MultiNodeCollectives::reduce_inside(const CollectiveCall& call, const Chunk& chunk) {
  const std::uint64_t element = size_of(call.type);
  CollectiveCall part = call;
  part.op = CollectiveOp::reduce_scatter;
  part.operation = call.operation == Operator::avg ? Operator::sum : call.operation;
  part.count = chunk.slice;
  part.send = call.send + chunk.begin * element;
  part.recv = chunk.slot->part;
  if (chunk.slice * static_cast<unsigned>(map_.per_node) != chunk.count) {
    // The last slice ends after the message: the rest of the result is not used.
    copy(staged_, part.send, chunk.count * element, stream_.get());
    part.send = staged_;
  }
  run_inside(part);
}

/// Slices of the chunk, from their ranks to all of this node.
void MultiNodeCollectives::gather_inside(const CollectiveCall& call, const Chunk& chunk,
                                         CUdeviceptr to) {
  const std::uint64_t element = size_of(call.type);
  const bool is_even = chunk.slice * static_cast<unsigned>(map_.per_node) == chunk.count;
  CollectiveCall part = call;
  part.op = CollectiveOp::all_gather;
  part.count = chunk.slice;
  part.send = chunk.slot->part;
  part.recv = is_even && to != 0 ? to : staged_;
  run_inside(part);
  if (to != 0 && part.recv != to) copy(to, staged_, chunk.count * element, stream_.get());
}

// ---- operations on a message -------------------------------------------------------------------

void MultiNodeCollectives::allreduce(const CollectiveCall& call, const Chunk& chunk, Stage stage) {
  const std::uint64_t element = size_of(call.type);
  if (stage == Stage::first) return reduce_inside(call, chunk);
  if (stage == Stage::last) return gather_inside(call, chunk, call.recv + chunk.begin * element);

  // Each node combines a piece of the slice, and sends it to all others.
  Slot& slot = *chunk.slot;
  const int node = map_.node();
  const auto piece_at = [&](int peer) {
    const Piece piece = piece_of(chunk.slice, map_.nodes, peer);
    return NetworkMessage{peer, slot.part + piece.begin * element, piece.count * element};
  };
  const NetworkMessage own = piece_at(node);
  std::vector<NetworkMessage> sends;
  std::vector<NetworkMessage> receives;
  std::vector<CUdeviceptr> operands;
  CUdeviceptr address = slot.received;
  for (int other = 0; other < map_.nodes; ++other) {
    if (other == node) {
      operands.push_back(own.address);
      continue;
    }
    sends.push_back(piece_at(other));
    receives.push_back({other, address, own.bytes});
    operands.push_back(address);
    address += own.bytes;
  }
  exchange(sends, receives, slot);
  sum(call, operands, own.address, own.bytes / element, slot);
  receives = std::exchange(sends, {});
  for (const NetworkMessage& receive : receives)
    sends.push_back({receive.node, own.address, own.bytes});
  exchange(sends, receives, slot);
}

void MultiNodeCollectives::reduce(const CollectiveCall& call, const Chunk& chunk, Stage stage) {
  const std::uint64_t element = size_of(call.type);
  const int root_node = map_.node_of(call.root);
  if (stage == Stage::first) return reduce_inside(call, chunk);
  if (stage == Stage::last) {
    if (map_.node() == root_node)
      gather_inside(call, chunk,
                    map_.rank == call.root ? call.recv + chunk.begin * element : CUdeviceptr{0});
    return;
  }
  Slot& slot = *chunk.slot;
  const std::uint64_t bytes = chunk.slice * element;
  std::vector<NetworkMessage> sends;
  std::vector<NetworkMessage> receives;
  std::vector<CUdeviceptr> operands;
  if (map_.node() != root_node) {
    sends.push_back({root_node, slot.part, bytes});
  } else {
    CUdeviceptr address = slot.received;
    for (int other = 0; other < map_.nodes; ++other) {
      operands.push_back(other == root_node ? slot.part : address);
      if (other == root_node) continue;
      receives.push_back({other, address, bytes});
      address += bytes;
    }
  }
  exchange(sends, receives, slot);
  if (!operands.empty()) sum(call, operands, slot.part, chunk.slice, slot);
}

void MultiNodeCollectives::broadcast(const CollectiveCall& call, const Chunk& chunk, Stage stage) {
  const std::uint64_t element = size_of(call.type);
  const int root_node = map_.node_of(call.root);
  const CUdeviceptr recv = call.recv + chunk.begin * element;
  if (map_.node() == root_node) {
    if (stage == Stage::first) {
      CollectiveCall part = call;
      part.root = map_.local_of(call.root);
      part.count = chunk.count;
      part.send = call.send == 0 ? 0 : call.send + chunk.begin * element;
      part.recv = recv;
      run_inside(part);
    }
  } else if (stage == Stage::last) {
    gather_inside(call, chunk, recv);
  }
  if (stage != Stage::between) return;

  // The last slices may have less than others, or nothing.
  const std::uint64_t begin =
      std::min(chunk.count, chunk.slice * static_cast<unsigned>(map_.local()));
  const std::uint64_t bytes = std::min(chunk.slice, chunk.count - begin) * element;
  std::vector<NetworkMessage> sends;
  std::vector<NetworkMessage> receives;
  if (map_.node() == root_node) {
    for (int other = 0; other < map_.nodes; ++other)
      if (other != root_node) sends.push_back({other, recv + begin * element, bytes});
  } else {
    receives.push_back({root_node, chunk.slot->part, bytes});
  }
  exchange(sends, receives, *chunk.slot);
}

// ---- operations by parts -----------------------------------------------------------------------
// A chunk is of each rank's part; what lies apart in the buffers is brought together in scratch.

void MultiNodeCollectives::reduce_scatter(const CollectiveCall& call, const Chunk& chunk,
                                          Stage stage) {
  const std::uint64_t element = size_of(call.type);
  const std::uint64_t bytes = chunk.count * element;
  const auto nodes = static_cast<std::uint64_t>(map_.nodes);
  Slot& slot = *chunk.slot;
  if (stage == Stage::first) {
    CUdeviceptr to = staged_;
    for (int local = 0; local < map_.per_node; ++local)
      for (int node = 0; node < map_.nodes; ++node, to += bytes) {
        const auto rank = static_cast<std::uint64_t>(map_.rank_at(node, local));
        copy(to, call.send + (rank * call.count + chunk.begin) * element, bytes, stream_.get());
      }
    CollectiveCall part = call;
    part.operation = call.operation == Operator::avg ? Operator::sum : call.operation;
    part.count = nodes * chunk.count;
    part.send = staged_;
    part.recv = slot.part;
    return run_inside(part);
  }
  if (stage == Stage::last) return;
  std::vector<NetworkMessage> sends;
  std::vector<NetworkMessage> receives;
  std::vector<CUdeviceptr> operands;
  for (int node = 0; node < map_.nodes; ++node) {
    const CUdeviceptr offset = static_cast<unsigned>(node) * bytes;
    const bool is_own = node == map_.node();
    operands.push_back((is_own ? slot.part : slot.received) + offset);
    if (is_own) continue;
    sends.push_back({node, slot.part + offset, bytes});
    receives.push_back({node, slot.received + offset, bytes});
  }
  exchange(sends, receives, slot);
  sum(call, operands, call.recv + chunk.begin * element, chunk.count, slot);
}

void MultiNodeCollectives::all_gather(const CollectiveCall& call, const Chunk& chunk, Stage stage) {
  const std::uint64_t element = size_of(call.type);
  const std::uint64_t bytes = chunk.count * element;
  Slot& slot = *chunk.slot;
  const CUdeviceptr own = slot.part + static_cast<unsigned>(map_.node()) * bytes;
  if (stage == Stage::first)
    return copy(own, call.send + chunk.begin * element, bytes, stream_.get());
  if (stage == Stage::between) {
    std::vector<NetworkMessage> sends;
    std::vector<NetworkMessage> receives;
    for (int node = 0; node < map_.nodes; ++node) {
      if (node == map_.node()) continue;
      sends.push_back({node, own, bytes});
      receives.push_back({node, slot.part + static_cast<unsigned>(node) * bytes, bytes});
    }
    return exchange(sends, receives, slot);
  }
  CollectiveCall part = call;
  part.count = static_cast<unsigned>(map_.nodes) * chunk.count;
  part.send = slot.part;
  part.recv = staged_;
  run_inside(part);
  CUdeviceptr from = staged_;
  for (int local = 0; local < map_.per_node; ++local)
    for (int node = 0; node < map_.nodes; ++node, from += bytes) {
      const auto rank = static_cast<std::uint64_t>(map_.rank_at(node, local));
      copy(call.recv + (rank * call.count + chunk.begin) * element, from, bytes, stream_.get());
    }
}

void MultiNodeCollectives::all_to_all(const CollectiveCall& call, const Chunk& chunk, Stage stage) {
  const std::uint64_t element = size_of(call.type);
  const std::uint64_t bytes = chunk.count * element;
  const std::uint64_t node_bytes = static_cast<unsigned>(map_.per_node) * bytes;
  Slot& slot = *chunk.slot;
  const auto part_of = [&](CUdeviceptr buffer, int place) {
    const auto rank = static_cast<std::uint64_t>(map_.ranks[static_cast<std::size_t>(place)]);
    return buffer + (rank * call.count + chunk.begin) * element;
  };
  if (stage == Stage::first) {
    for (int place = 0; place < map_.size(); ++place)
      copy(staged_ + static_cast<unsigned>(place) * bytes, part_of(call.send, place), bytes,
           stream_.get());
    for (int node = 0; node < map_.nodes; ++node) {
      CollectiveCall part = call;
      part.count = chunk.count;
      part.send = staged_ + static_cast<unsigned>(node) * node_bytes;
      part.recv = (node == map_.node() ? slot.received : slot.part) +
                  static_cast<unsigned>(node) * node_bytes;
      run_inside(part);
    }
    return;
  }
  if (stage == Stage::between) {
    std::vector<NetworkMessage> sends;
    std::vector<NetworkMessage> receives;
    for (int node = 0; node < map_.nodes; ++node) {
      if (node == map_.node()) continue;
      const CUdeviceptr offset = static_cast<unsigned>(node) * node_bytes;
      sends.push_back({node, slot.part + offset, node_bytes});
      receives.push_back({node, slot.received + offset, node_bytes});
    }
    return exchange(sends, receives, slot);
  }
  for (int place = 0; place < map_.size(); ++place)
    copy(part_of(call.recv, place), slot.received + static_cast<unsigned>(place) * bytes, bytes,
         stream_.get());
}

}  // namespace polypath
