#include "mpi/comm_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "gate/process.hpp"

namespace polypath::preload::mpi {
struct Progress {
  struct alignas(64) Finished {
    std::atomic<std::uint64_t> calls;
  } ranks[kMaxRanks];
};

ProgressPlace offer_progress() noexcept {
  const int file = memfd_create("polypath-mpi", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, sizeof(Progress)) == 0) return {getpid(), file};
  if (file >= 0) close(file);
  return {};
}

Progress* open_progress(const ProgressPlace& place) noexcept {
  if (place.file < 0) return nullptr;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(place.process),
                static_cast<long long>(place.file));
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory != MAP_FAILED ? static_cast<Progress*>(memory) : nullptr;
}

void end_offer(const ProgressPlace& place) noexcept {
  if (place.file >= 0) close(static_cast<int>(place.file));
}

void close_progress(Progress* progress) noexcept {
  if (progress != nullptr) munmap(progress, sizeof(Progress));
}

void note_finished(Progress& progress, int rank) noexcept {
  progress.ranks[rank].calls.fetch_add(1, std::memory_order_release);
}

void wait_for_others(const Progress& progress, int rank, int size, int& milliseconds) noexcept {
  const std::uint64_t target = progress.ranks[rank].calls.load(std::memory_order_relaxed);
  for (int other = 0; other < size; ++other)
    while (progress.ranks[other].calls.load(std::memory_order_acquire) < target &&
           milliseconds-- > 0)
      gate::pause_us(1000);
}

}  // namespace polypath::preload::mpi
