// The bytes of one allocation of device memory, where the simulated devices read and write them: a
// mapping of its own, apart from the public no-access address. Pages come into being when touched.
// Memory never written holds a pattern instead of zeros, so that a test which forgets to write
// fails.
#pragma once

#include <cstdint>

#include <sys/types.h>
#include <memory>
#include <mutex>
#include <string>

#include <vector>

#include <cstddef>

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

 protected:
  explicit Shadow(std::size_t bytes) : bytes_(bytes) {}

  static constexpr std::size_t kGranule = std::size_t{2} << 20;
  static std::size_t granules(std::size_t bytes) { return (bytes + kGranule - 1) / kGranule; }

  /// True when the granule holds its pattern, or written bytes.
  virtual bool is_touched(std::size_t granule) = 0;
  /// Makes a granule touched that may not be: by its pattern, unless all of it is about to be
  /// overwritten.
  virtual void touch(std::size_t granule, bool is_overwritten) = 0;
  void write_pattern(std::size_t granule);

  std::byte* base_ = nullptr;  ///< set by whoever maps the bytes

 private:
  void prepare(std::size_t first, std::size_t last, bool is_overwritten);

  std::size_t bytes_;
};

// A shadow that nobody else sees; used under the driver's lock.

class PrivateShadow : public Shadow {
 public:
  /// Throws std::bad_alloc when the address space is used up.
  explicit PrivateShadow(std::size_t bytes);
  ~PrivateShadow() override;

 protected:
  bool is_touched(std::size_t granule) override { return touched_[granule]; }
  void touch(std::size_t granule, bool is_overwritten) override;

 private:
  std::vector<bool> touched_;  // one a granule
};

// A shadow in a memory file, which other processes can open by its number and name while this one
// lives. Any thread may use it.
//
// The file holds the bytes, from the next page on one byte a granule that says whether it was
// touched. Whoever touches one holds a lock on the file, which the system gives back if the process
// is killed.

class SharedShadow : public Shadow {
 public:
  /// A new one. The name must tell it from every other of any process.
  /// Throws std::bad_alloc when there is no file or address space left.
  SharedShadow(std::size_t bytes, const std::string& name);
  ~SharedShadow() override;

  /// The one that process `pid` made and has under `file`; null when it is no longer there, or
  /// another. Throws std::bad_alloc as above.
  static std::unique_ptr<SharedShadow> open(pid_t pid, int file, std::size_t bytes,
                                            const std::string& name);

  /// Its number among the files of this process.
  [[nodiscard]] int file() const noexcept { return file_; }

 protected:
  bool is_touched(std::size_t granule) override;
  void touch(std::size_t granule, bool is_overwritten) override;

 private:
  SharedShadow(std::size_t bytes, int file);
  void map();
  [[nodiscard]] std::size_t file_bytes() const noexcept;
  [[nodiscard]] std::size_t marks_offset() const noexcept;

  int file_;
  std::mutex mutex_;  // the lock on the file is for all threads of a process in common
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

 protected:
  bool is_touched(std::size_t) override { return true; }
  void touch(std::size_t, bool) override {}

 private:
  int file_;
};

}  // namespace polypath::sim
