// Addresses that the simulated driver gives out. None is ever given out twice, so that a freed address
// is recognised for as long as the process lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace polypath::sim {

class AddressSpace {
 public:
  /// Reserves `bytes` without access, apart from every other range by at least one page.
  /// Throws std::bad_alloc when the system gives no more.
  std::uintptr_t reserve(std::size_t bytes);

  /// Makes a reserved range readable and writable for the program.
  static void open(std::uintptr_t address, std::size_t bytes);
  /// Takes the access, and the memory behind it, away again.
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
};

}  // namespace polypath::sim
