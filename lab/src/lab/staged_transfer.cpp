#include "lab/staged_transfer.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/memcpy_node.hpp"

namespace polypath {
namespace {

const Link& leg_of(const Node& node, const Route& route, std::size_t leg) {
  return node.links[static_cast<std::size_t>(route.legs.at(leg))];
}

CUcontext issuer_of(Devices& devices, const Link& link) {
  if (link.from.is_gpu() && link.to.is_gpu())
    devices.enable_peer_access(link.from.index, link.to.index);
  return devices.context(link.from.is_gpu() ? link.from.index : link.to.index);
}

CUDA_MEMCPY3D parameters(const StagedCopy& copy) {
  return memcpy_node(copy.to, copy.dst, copy.from, copy.src, copy.bytes);
}

}  // namespace

StagedTransfer::StagedTransfer(const Node& node, Devices& devices, const Route& route,
                               std::uint64_t bytes, std::size_t chunks)
    : src_(leg_of(node, route, 0).from),
      via_(route.via),
      dst_(leg_of(node, route, 1).to),
      bytes_(bytes),
      chunks_(chunks) {
  if (chunks == 0 || bytes / chunks < kMinChunk)
    throw InvalidArgument(fmt::format("bytes: {} is not allowed: {} chunks need at least {}", bytes,
                                      chunks, chunks * kMinChunk));
  first_ = issuer_of(devices, leg_of(node, route, 0));
  second_ = issuer_of(devices, leg_of(node, route, 1));
}

std::uint64_t StagedTransfer::offset(std::size_t chunk) const noexcept {
  return chunk == chunks_ ? bytes_ : bytes_ / kMinChunk * chunk / chunks_ * kMinChunk;
}

StagedCopy StagedTransfer::copy(std::size_t chunk, int leg, const StagedAddresses& at) const {
  const std::uint64_t begin = offset(chunk);
  const std::uint64_t bytes = offset(chunk + 1) - begin;
  if (leg == 0) return {at.staging + begin, at.src + begin, bytes, via_, src_, first_};
  return {at.dst + begin, at.staging + begin, bytes, dst_, via_, second_};
}

StagedGraph::StagedGraph(const CudaDriver& driver, const StagedTransfer& transfer)
    : driver_(driver), transfer_(transfer) {
  if (!has_memcpy_graphs(driver)) throw NotSupported("this CUDA driver has no graphs of copies");
  nodes_.reserve(2 * transfer.chunks());
  POLYPATH_CHECK(driver_, graph_create(&graph_, 0));
}

StagedGraph::~StagedGraph() {
  if (executable_ != nullptr && launched_on_ != nullptr)
    POLYPATH_WARN(driver_, stream_synchronize(launched_on_));
  if (executable_ != nullptr) POLYPATH_WARN(driver_, graph_exec_destroy(executable_));
  if (graph_ != nullptr) POLYPATH_WARN(driver_, graph_destroy(graph_));
}

void StagedGraph::construct(const StagedAddresses& at) {
  for (std::size_t chunk = 0; chunk < transfer_.chunks(); ++chunk) {
    for (const int leg : {0, 1}) {
      std::array<CUgraphNode, 2> after{};
      std::size_t count = 0;
      if (chunk > 0) after[count++] = nodes_[nodes_.size() - 2];
      if (leg == 1) after[count++] = nodes_.back();
      const StagedCopy copy = transfer_.copy(chunk, leg, at);
      const CUDA_MEMCPY3D what = parameters(copy);
      CUgraphNode node = nullptr;
      POLYPATH_CHECK(
          driver_, graph_add_memcpy_node(&node, graph_, after.data(), count, &what, copy.context));
      nodes_.push_back(node);
    }
  }
}

void StagedGraph::instantiate() {
  POLYPATH_CHECK(driver_, graph_instantiate(&executable_, graph_, 0));
}

void StagedGraph::launch(CUstream stream) {
  launched_on_ = stream;
  POLYPATH_CHECK(driver_, graph_launch(executable_, stream));
}

void StagedGraph::patch(const StagedAddresses& at) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const StagedCopy copy = transfer_.copy(i / 2, static_cast<int>(i % 2), at);
    const CUDA_MEMCPY3D what = parameters(copy);
    POLYPATH_CHECK(driver_,
                   graph_exec_memcpy_node_set_params(executable_, nodes_[i], &what, copy.context));
  }
}

void StagedGraph::destroy() {
  const CUgraphExec executable = std::exchange(executable_, nullptr);
  POLYPATH_CHECK(driver_, graph_exec_destroy(executable));
  const CUgraph graph = std::exchange(graph_, nullptr);
  POLYPATH_CHECK(driver_, graph_destroy(graph));
}

StagedStreams::StagedStreams(const CudaDriver& driver, const StagedTransfer& transfer)
    : driver_(driver),
      transfer_(transfer),
      first_(driver, transfer.context(0)),
      second_(driver, transfer.context(1)),
      end_(driver, transfer.context(1), CU_EVENT_DISABLE_TIMING) {
  for (std::size_t chunk = 0; chunk < transfer.chunks(); ++chunk)
    staged_.emplace_back(driver, transfer.context(0), CU_EVENT_DISABLE_TIMING);
}

StagedStreams::~StagedStreams() {
  for (const CUstream stream : {first_.get(), second_.get()})
    POLYPATH_WARN(driver_, stream_synchronize(stream));
}

void StagedStreams::issue(const StagedAddresses& at) {
  ContextGuard guard(driver_);
  for (std::size_t chunk = 0; chunk < transfer_.chunks(); ++chunk) {
    const CUevent staged = staged_[chunk].get();
    const StagedCopy to_staging = transfer_.copy(chunk, 0, at);
    guard.use(to_staging.context);
    POLYPATH_CHECK(driver_,
                   memcpy_async(to_staging.dst, to_staging.src, to_staging.bytes, first_.get()));
    POLYPATH_CHECK(driver_, event_record(staged, first_.get()));
    const StagedCopy onward = transfer_.copy(chunk, 1, at);
    guard.use(onward.context);
    POLYPATH_CHECK(driver_, stream_wait_event(second_.get(), staged, 0));
    POLYPATH_CHECK(driver_, memcpy_async(onward.dst, onward.src, onward.bytes, second_.get()));
  }
  POLYPATH_CHECK(driver_, event_record(end_.get(), second_.get()));
  guard.use(transfer_.context(0));
  POLYPATH_CHECK(driver_, stream_wait_event(first_.get(), end_.get(), 0));
}

}  // namespace polypath
