// Addresses that the simulated driver gives out. None is given out twice unless that is wanted, so that a
// freed address is recognised for as long as the process lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace polypath::sim {

class AddressSpace {
 public:
  /// `reuses`: what is given back is given out again, the latest first, as drivers do.
  explicit AddressSpace(bool reuses) noexcept : reuses_(reuses) {}

  /// Reserves `bytes` without access, apart from every other range by at least one page.
  /// Throws std::bad_alloc when the system gives no more.
  /// `alignment`: at least this one, a power of two; 0: as the size asks for.
  std::uintptr_t reserve(std::size_t bytes, std::size_t alignment = 0);
  /// Nothing uses the range from `address` on, reserved for `bytes`, any more.
  void give_back(std::uintptr_t address, std::size_t bytes);

  /// Makes a reserved range readable and writable for the program.
  static void open(std::uintptr_t address, std::size_t bytes);
  /// Takes all access, and the memory behind it, away again.
  static void close(std::uintptr_t address, std::size_t bytes);

  /// True for every address that may ever be, or has been, given out.
  [[nodiscard]] bool contains(std::uintptr_t address) const noexcept;

 private:
  struct Region {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  std::vector<Region> regions_;
  std::uintptr_t next_ = 0;  // in the last region
  const bool reuses_;
  std::map<std::size_t, std::vector<std::uintptr_t>> given_back_;  // by room
};

}  // namespace polypath::sim
