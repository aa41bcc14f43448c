// Which ranks of a communicator that is being made are under this library.
//
// A rank that is not cannot be asked: it would take the question for the program's first
// collective, or wait without a limit. So a rank first shows that it is there, and then enters
// NCCL's creation, which ends on no rank before all have entered it. A rank that finds all ranks
// there then knows that all find it so; where one is missing (without this library, switched off,
// on another node) no rank finds all, and no rank asks.
//
// What shows it is an abstract socket with the key in its name: it goes with its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace polypath::nccl {

/// Names a communicator before there is one; the same on all its ranks.
struct CommKey {
  std::uint64_t first = 0;
  std::uint64_t second = 0;

  [[nodiscard]] bool is_known() const noexcept { return (first | second) != 0; }
  /// Another one, by what all ranks know.
  [[nodiscard]] CommKey derived(const void* bytes, std::size_t count) const noexcept;
};
CommKey key_of(const void* bytes, std::size_t count) noexcept;

/// One rank shows itself while this lives.
class Advertisement {
 public:
  Advertisement() noexcept = default;
  Advertisement(const CommKey& key, int rank) noexcept;
  ~Advertisement();
  Advertisement(Advertisement&& other) noexcept { *this = std::move(other); }
  Advertisement& operator=(Advertisement&& other) noexcept;

  /// False: it could not show itself, and no rank will find all.
  [[nodiscard]] bool is_shown() const noexcept { return shown_ >= 0; }
  /// How many of the ranks 0 to `ranks` - 1 are there now. Only while it is shown; then it needs
  /// nothing more that could be missing.
  [[nodiscard]] int count(int ranks) const noexcept;
  /// The first of them; -1: none.
  [[nodiscard]] int lowest(int ranks) const noexcept;

 private:
  [[nodiscard]] bool is_there(int rank) const noexcept;

  CommKey key_;
  int rank_ = 0;
  int shown_ = -1;   // the socket with the name
  int asking_ = -1;  // by which others are found
};

}  // namespace polypath::nccl
