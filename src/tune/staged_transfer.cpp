#include "tune/staged_transfer.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

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

}  // namespace

StagedTransfer::StagedTransfer(const Node& node, Devices& devices, const Route& route,
                               std::uint64_t bytes, std::size_t chunks)
    : src_(leg_of(node, route, 0).from),
      via_(route.via),
      dst_(leg_of(node, route, 1).to),
      bytes_(bytes),
      chunks_(chunks) {
  if (chunks == 0 || bytes / chunks < kLeastChunk)
    throw InvalidArgument(fmt::format("bytes: {} is not allowed: {} chunks need at least {}", bytes,
                                      chunks, chunks * kLeastChunk));
  first_ = issuer_of(devices, leg_of(node, route, 0));
  second_ = issuer_of(devices, leg_of(node, route, 1));
}

std::uint64_t StagedTransfer::offset(std::size_t chunk) const noexcept {
  return chunk == chunks_ ? bytes_ : bytes_ / kLeastChunk * chunk / chunks_ * kLeastChunk;
}

StagedCopy StagedTransfer::copy(std::size_t chunk, int leg, const StagedAddresses& at) const {
  const std::uint64_t begin = offset(chunk);
  const std::uint64_t bytes = offset(chunk + 1) - begin;
  if (leg == 0) return {at.staging + begin, at.src + begin, bytes, via_, src_, first_};
  return {at.dst + begin, at.staging + begin, bytes, dst_, via_, second_};
}

}  // namespace polypath
