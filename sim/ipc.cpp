#include "ipc.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "failure.hpp"

namespace polypath::sim {
namespace {

constexpr std::uint64_t kMagic = 0x50502d53494d3031;  // "PP-SIM01"
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

struct Content {
  std::uint64_t magic;
  std::uint64_t process_id;
  std::uint64_t buffer_id;
  std::uint64_t bytes;
  std::int32_t pid;
  std::int32_t file;
  std::int32_t device;
  std::array<unsigned char, 20> unused;  // zero
};
static_assert(sizeof(Content) == sizeof(CUipcMemHandle));

}  // namespace

CUipcMemHandle encode(const SharedMemory& memory) {
  const Content content{kMagic,
                        memory.process.id,
                        memory.buffer_id,
                        memory.bytes,
                        memory.process.pid,
                        memory.file,
                        memory.device,
                        {}};
  CUipcMemHandle handle{};
  std::memcpy(&handle, &content, sizeof content);
  return handle;
}

SharedMemory decode(const CUipcMemHandle& handle) {
  Content content{};
  std::memcpy(&content, &handle, sizeof content);
  require(content.magic == kMagic && content.unused == decltype(content.unused){},
          CUDA_ERROR_INVALID_HANDLE);
  require(content.bytes > 0 && content.bytes <= kMostBytes, CUDA_ERROR_INVALID_HANDLE);
  return {{content.pid, content.process_id},
          content.file,
          content.device,
          content.buffer_id,
          content.bytes};
}

std::string file_name(const SharedMemory& memory) {
  return fmt::format("polypath-sim-{}-{:016x}-gpu{}-{}-{}", memory.process.pid, memory.process.id,
                     memory.device, memory.buffer_id, memory.bytes);
}

}  // namespace polypath::sim
