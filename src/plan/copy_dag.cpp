#include "plan/copy_dag.hpp"

#include <initializer_list>

namespace polypath {

void set_hash(CopyDag& dag) noexcept {
  // FNV-1a over the words.
  std::uint64_t hash = 14695981039346656037ull;
  const auto mix = [&](std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) hash = (hash ^ word) * 1099511628211ull;
  };
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  for (const MemoryId memory : {dag.request.src, dag.request.dst})
    mix({word(memory.kind), word(memory.index)});
  mix({dag.request.bytes});
  for (const Route& route : dag.routes) {
    mix({word(route.kind), word(route.via.kind), word(route.via.index)});
    for (const int leg : route.legs) mix({word(leg)});
  }
  for (const RingShape& ring : dag.rings) mix({word(ring.slots), ring.slot_bytes});
  for (const DagCopy& copy : dag.copies)
    mix({word(copy.route), word(copy.leg), copy.offset, copy.bytes, word(copy.slot),
         word(copy.after[0]), word(copy.after[1])});
  dag.hash = hash ^ hash >> 29;
}

}  // namespace polypath
