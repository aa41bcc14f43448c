// The bytes of one allocation of device memory, where the simulated devices read and write them: a
// mapping of its own, apart from the public no-access address. Pages come into being when touched.
// Memory never written holds a pattern instead of zeros, so that a test which forgets to write
// fails.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "kept.hpp"

namespace polypath::sim {

class Shadow {
 public:
  static constexpr std::byte kPoison{0xC3};

  virtual ~Shadow() = default;
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// The bytes from `offset` on, ready to be read.
  const std::byte* read(std::size_t offset, std::size_t bytes);
  /// The bytes from `offset` on; the caller overwrites all `bytes` of them.
  std::byte* overwrite(std::size_t offset, std::size_t bytes);
  /// Makes the bytes from `offset` on zero. Pages that the system has not given yet stay with it.
  void clear(std::size_t offset, std::size_t bytes);

 protected:
  /// Memory is given its pattern in units of this size.
  static constexpr std::size_t kGranule = std::size_t{64} << 10;

  explicit Shadow(std::size_t bytes) : bytes_(bytes) {}

  static std::size_t granules(std::size_t bytes) { return (bytes + kGranule - 1) / kGranule; }
  /// The size of the memory that an allocation of this size gets.
  static std::size_t capacity_for(std::size_t bytes);
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// What a granule holds.
  enum class Mark : unsigned char {
    none,     ///< nothing of this allocation's; zeros in fact, as the system gives pages
    stale,    ///< nothing of this allocation's; what an earlier one left, in fact
    cleared,  ///< zeros that the system gave, for the allocation to read
    touched,  ///< the pattern, or bytes that were written
  };

  [[nodiscard]] Mark mark(std::size_t granule) const noexcept {
    return std::atomic_ref(marks_[granule]).load(std::memory_order_acquire);
  }
  void set_mark(std::size_t granule, Mark mark) const noexcept {
    std::atomic_ref(marks_[granule]).store(mark, std::memory_order_release);
  }
  void write_pattern(std::size_t first, std::size_t last) const;

  /// What the caller is going to do with all bytes of a range.
  enum class Use { reads, overwrites, clears };
  struct Range {
    std::size_t first;
    std::size_t last;
    Use use;
  };
  [[nodiscard]] bool is_ready(std::size_t granule, Use use) const noexcept {
    const Mark now = mark(granule);
    return now == Mark::touched || (now == Mark::cleared && use != Use::overwrites);
  }
  /// Makes those of the granules [begin, end) ready that are not. What is cleared is one granule.
  virtual void touch(std::size_t begin, std::size_t end, const Range& range);

  // Set by the class that maps the memory.
  std::byte* base_ = nullptr;
  Mark* marks_ = nullptr;  ///< one a granule; null: all are touched
  std::size_t capacity_ = 0;

 private:
  void prepare(const Range& range);

  std::size_t bytes_;
};

// A shadow that no other process sees; used under the driver's lock.

class PrivateShadow : public Shadow {
 public:
  /// Throws std::bad_alloc when the address space is used up.
  explicit PrivateShadow(std::size_t bytes);
  ~PrivateShadow() override;

 protected:
  void touch(std::size_t begin, std::size_t end, const Range& range) override;

 private:
  class Arena;
  static Kept<Arena>& kept();

  std::unique_ptr<Arena> arena_;
};

// A shadow in a memory file, which other processes can open by its number and name while this one
// lives. Any thread may use it.
//
// The file begins with a record of its allocation and one byte a granule that says whether it was
// touched; the bytes follow from the next page on. A process that touches a granule holds a lock on
// the file. The system releases the lock if the process is killed. A file that no other process can
// know is kept for a later allocation, with the pattern in all that was touched.

class SharedShadow : public Shadow {
 public:
  /// What tells an allocation from every other one of the process that made it.
  struct Identity {
    std::uint64_t buffer_id = 0;
    std::uint64_t bytes = 0;
    std::int64_t device = 0;

    friend bool operator==(const Identity&, const Identity&) = default;
  };

  /// A new one. `name` must tell the files of this process from those of every other.
  /// Throws std::bad_alloc when there is no file or address space left.
  SharedShadow(const Identity& identity, const std::string& name);
  ~SharedShadow() override;

  /// The one that process `pid` made and has under `file`; null when it is no longer there, or
  /// another. Throws std::bad_alloc as above.
  static std::unique_ptr<SharedShadow> open(pid_t pid, int file, const Identity& identity,
                                            const std::string& name);

  /// Its number among the files of this process, for others to open it.
  [[nodiscard]] int export_file() noexcept;

 protected:
  void touch(std::size_t begin, std::size_t end, const Range& range) override;

 private:
  class File;
  static Kept<File>& kept();

  SharedShadow(const Identity& identity, std::unique_ptr<File> file, bool is_exported);
  void forget() const;

  std::unique_ptr<File> file_;
  std::atomic<bool> is_exported_;  // or imported
  std::mutex mutex_;               // the lock on the file is for all threads of a process in common
};

// Host memory that the CPU and the devices use by different addresses: of mappings (cuMemMap).

/// Zero at first, as the system gives it; the CPU may write it at any time.
class HostShadow : public Shadow {
 public:
  /// Throws std::bad_alloc when there is no file or address space left.
  explicit HostShadow(std::size_t bytes);
  ~HostShadow() override;

  /// Shows the bytes at this address, to the program's reads or writes or neither; bits of PROT_*.
  void show(std::uintptr_t address, int access) const;

 private:
  int file_;
};

}  // namespace polypath::sim
