#include "mpi/call.hpp"

#include "gate/process.hpp"

namespace polypath::preload::mpi {

std::size_t buffers_of(const Call& call, std::size_t part_bytes, int size, Buffer (&buffers)[2]) {
  const std::size_t all_bytes = part_bytes * static_cast<std::size_t>(size);
  const bool sends_all =
      call.operation == Operation::reduce_scatter || call.operation == Operation::all_to_all;
  const bool receives_all =
      call.operation == Operation::all_gather || call.operation == Operation::all_to_all;
  const bool is_one = call.in_place || call.operation == Operation::broadcast;
  std::size_t count = 0;
  if (!is_one) buffers[count++] = {call.send, sends_all ? all_bytes : part_bytes};
  buffers[count++] = {call.recv, receives_all || (is_one && sends_all) ? all_bytes : part_bytes};
  return count;
}

std::size_t spare_bytes_of(const Call& call, std::size_t part_bytes, int size) noexcept {
  if (!call.in_place) return 0;
  if (call.operation == Operation::reduce_scatter) return part_bytes;
  if (call.operation == Operation::all_to_all) return part_bytes * static_cast<std::size_t>(size);
  return 0;
}

std::uint32_t time_limit_of(const char* setting) noexcept {
  return setting == nullptr || *setting == '\0' ? kMaxTimeoutMs : 0;  // 0: libpolypath reads it
}

std::int64_t arguments_of(const Arguments& arguments, std::uint64_t part_bytes) noexcept {
  auto words = static_cast<std::uint64_t>(arguments.operation) << 16;
  if (combines(arguments.operation))
    words |=
        static_cast<std::uint64_t>(arguments.type) << 8 | static_cast<std::uint64_t>(arguments.op);
  if (arguments.operation == Operation::broadcast)
    words |= static_cast<std::uint64_t>(arguments.root & 0xffff);
  return static_cast<std::int64_t>((words << 44 ^ part_bytes) & ~(std::uint64_t{1} << 63));
}

}  // namespace polypath::preload::mpi
