// What a running kernel consists of: grids of blocks of threads, and the stores that others do not
// see yet. State only; machine.hpp has what happens to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "simt/cache.hpp"
#include "simt/fiber.hpp"
#include "simt/host_kernels.hpp"
#include "simt/memory_system.hpp"
#include "simt/store_buffer.hpp"

namespace polypath::simt {

struct Block;
struct Grid;
struct Thread;

/// What others stored before barriers that a thread has passed with them.
using Known = std::shared_ptr<const std::vector<BatchPtr>>;

/// A word that a thread polls, as it found it.
struct Watch {
  std::uintptr_t address = 0;
  const std::byte* at = nullptr;
  std::size_t bytes = 0;
  std::array<std::byte, 16> last_seen{};
  unsigned repeats = 0;  ///< found unchanged, without a pause
};

struct Thread {
  enum class State : std::uint8_t {
    ready,
    running,
    at_barrier,
    in_warp,  ///< an operation of its warp
    polling,
    waiting,  ///< for bytes, or for time to pass
    ended
  };

  Block* block = nullptr;
  unsigned index = 0;
  State state = State::ready;
  bool is_killed = false;
  bool may_use_memory = true;   ///< of a kernel that begins early, once it has waited
  bool looked_at_time = false;  ///< since its last pause
  unsigned barrier = 0;         ///< that it is at
  std::unique_ptr<Fiber> fiber;
  std::vector<Watch> watches;  ///< since its last pause, or of it
  BatchPtr own;
  Known known;
  // For an operation of a barrier or warp.
  std::uint64_t contribution = 0;
  unsigned lane = 0;  ///< whose value it wants
  std::uint64_t result = 0;
  // For an operation of its warp on lines: its 16 bytes, and where they are in global memory.
  void* line_part = nullptr;
  const void* line_place = nullptr;
};

/// Threads that have come to a barrier, or to an operation of their warp.
struct Meeting {
  std::vector<Thread*> arrived;
  unsigned expected = 0;
};

struct Block {
  static constexpr unsigned kBarriers = 16;

  Grid* grid = nullptr;
  unsigned index = 0;
  unsigned alive = 0;
  std::vector<Thread> threads;
  std::array<Meeting, kBarriers> barriers;
  std::vector<Meeting> warps;
  std::vector<std::max_align_t> dynamic_shared;
  std::unordered_map<const void*, std::unique_ptr<std::byte[]>> shared;
  StoreBuffer under_way;
  std::vector<Thread*> wants_room;
  Cache loaded;     ///< by plain loads; valid until an acquire
  Cache constants;  ///< by load_constant
};

struct Grid {
  const HostKernel* kernel = nullptr;
  int device = 0;
  unsigned threads = 0;  ///< of a block
  unsigned blocks_of_device = 0;
  bool begins_early = false;
  std::size_t shared_bytes = 0;
  std::vector<std::max_align_t> arguments;   ///< one after the other
  std::vector<std::size_t> argument_places;  ///< in `arguments`
  MemorySystem* outside = nullptr;
  std::function<void(const std::string& error)> ended;
  std::vector<std::unique_ptr<Block>> blocks;
  std::size_t started = 0;  ///< blocks
  std::size_t alive = 0;    ///< blocks that have not ended
  std::size_t outstanding = 0;
  std::string error;
};

}  // namespace polypath::simt
