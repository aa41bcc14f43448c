// Which backend carries what, of those that AnyBackend has at hand: by what `polypath tune backend`
// measured on rank 0's node. Everything here is known to all ranks alike, so that both sides of a
// message choose alike.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "polypath/uniconn.h"
#include "polypath/uniconn/bootstrap.hpp"

namespace polypath::uniconn::detail {

/// By number, which is that of AnyBackend's alternatives, and POLYPATH_BACKEND_...
inline constexpr std::array<const char*, POLYPATH_BACKEND_COUNT> library_names{"polypath", "gpuccl",
                                                                               "gpushmem", "mpi"};
/// By number: POLYPATH_COMM_...
inline constexpr std::array<const char*, POLYPATH_BACKEND_OP_COUNT> operation_names{
    "post", "allreduce", "reduce", "all_gather", "all_to_all", "broadcast"};
inline constexpr int kNoLibrary = -1;
/// Why a one-sided library does not serve next to another one.
inline constexpr const char* kOwnMemoryAlone =
    "it sends to memory of its own alone: by POLYPATH_BACKEND it is had for everything";

/// Libraries, as bits.
using LibrarySet = unsigned;
constexpr LibrarySet only(int library) { return 1U << static_cast<unsigned>(library); }
constexpr bool has(LibrarySet all, int library) {
  return library >= 0 && (all >> static_cast<unsigned>(library) & 1U) != 0;
}

using BackendRow = polypath_backend_entry;

/// The largest ratio between a size and the nearest measured size, in either direction.
inline constexpr double kFarthestSize = 2;

/// The row of the nearest size (by its logarithm; of two as near, the smaller); null: none is near.
/// `rows` are of one operation, by size.
inline const BackendRow* nearest_row(std::span<const BackendRow> rows, std::size_t bytes) noexcept {
  if (bytes == 0 || rows.empty()) return nullptr;
  const auto above = std::ranges::lower_bound(rows, bytes, {}, &BackendRow::bytes);
  const BackendRow* best = above == rows.end() ? &rows.back() : &*above;
  const auto requested = static_cast<double>(bytes);
  if (above != rows.begin() && above != rows.end()) {
    const BackendRow& below = *(above - 1);
    if (requested * requested <=
        static_cast<double>(below.bytes) * static_cast<double>(above->bytes))
      best = &below;
  }
  const auto measured = static_cast<double>(best->bytes);
  return requested <= measured * kFarthestSize && measured <= requested * kFarthestSize ? best
                                                                                        : nullptr;
}

/// The library that `row` names, if it is `usable`; else the usable one that was measured to be
/// fastest; the first if none of them was measured.
inline int library_of_row(const BackendRow& row, LibrarySet usable, int first) noexcept {
  if (has(usable, row.backend)) return row.backend;
  int best = first;
  double least = row.us[first];
  for (int library = 0; library < POLYPATH_BACKEND_COUNT; ++library) {
    const double time_us = row.us[library];
    if (!has(usable, library) || time_us < 0 || (least >= 0 && time_us >= least)) continue;
    best = library;
    least = time_us;
  }
  return best;
}

/// For each operation and size, of one set of ranks.
class Routes {
 public:
  /// All go by `first`.
  explicit Routes(int first = 0) : first_(first) {}
  /// `rows` by operation, then by size.
  Routes(std::span<const BackendRow> rows, LibrarySet usable, int first) : first_(first) {
    for (const BackendRow& row : rows) {
      if (row.op < 0 || row.op >= POLYPATH_BACKEND_OP_COUNT) continue;
      BackendRow kept = row;
      kept.backend = library_of_row(row, usable, first);
      rows_[static_cast<std::size_t>(row.op)].push_back(kept);
    }
  }
  [[nodiscard]] int first() const noexcept { return first_; }
  [[nodiscard]] int at(int operation, std::size_t bytes) const noexcept {
    const BackendRow* const row = nearest_row(rows_[static_cast<std::size_t>(operation)], bytes);
    return row == nullptr ? first_ : row->backend;
  }

 private:
  int first_;
  std::array<std::vector<BackendRow>, POLYPATH_BACKEND_OP_COUNT> rows_;
};

}  // namespace polypath::uniconn::detail

namespace polypath::uniconn {

/// How much of something AnyBackend gave to a backend; calls of this rank.
struct BackendUse {
  std::string operation;  ///< one of `polypath tune backend`, or "acknowledge"
  std::string backend;
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  ///< of a message; of a collective, of a rank's larger buffer

  friend bool operator==(const BackendUse&, const BackendUse&) = default;
};

}  // namespace polypath::uniconn

namespace polypath::uniconn::detail {

class UseCounts {
 public:
  /// Next to POLYPATH_COMM_...
  static constexpr int kAcknowledge = POLYPATH_BACKEND_OP_COUNT;

  void note(int operation, int library, std::size_t bytes) noexcept {
    Count& count = counts_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(library)];
    ++count.calls;
    count.bytes += bytes;
  }
  /// The uses so far, by operation, then by library.
  [[nodiscard]] std::vector<BackendUse> all() const {
    std::vector<BackendUse> uses;
    for (std::size_t operation = 0; operation < counts_.size(); ++operation)
      for (std::size_t library = 0; library < library_names.size(); ++library)
        if (const Count& count = counts_[operation][library]; count.calls > 0)
          uses.push_back(
              {operation < operation_names.size() ? operation_names[operation] : "acknowledge",
               library_names[library], count.calls, count.bytes});
    return uses;
  }

 private:
  struct Count {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
  };
  std::array<std::array<Count, POLYPATH_BACKEND_COUNT>, POLYPATH_BACKEND_OP_COUNT + 1> counts_{};
};

// ---- What rank 0 knows, on all ranks ------------------------------------------------------------

/// Rows of sets of ranks of a world: of all, and of parts of up to eight.
class BackendTable {
 public:
  static constexpr int kMaxRanksByParts = 8;
  using Rows = std::vector<BackendRow>;

  BackendTable() = default;
  /// `rows_of(ranks)` gives those of these ranks of the world, in rising order. No call where
  /// `is_known` is false.
  template <typename RowsOf>
  BackendTable(int ranks, bool is_known, const RowsOf& rows_of) {
    if (!is_known) return;
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    add(all, rows_of(all));
    if (ranks > kMaxRanksByParts) return;
    for (unsigned set = 1; set + 1 < 1U << static_cast<unsigned>(ranks); ++set) {
      std::vector<int> part;
      for (int rank = 0; rank < ranks; ++rank)
        if ((set >> static_cast<unsigned>(rank) & 1U) != 0) part.push_back(rank);
      if (part.size() > 1) add(part, rows_of(part));
    }
  }

  /// The rows for these ranks, in any order; empty: nothing is known of them.
  [[nodiscard]] std::span<const BackendRow> rows_for(std::vector<int> ranks) const {
    std::ranges::sort(ranks);
    const auto it = std::ranges::find(parts_, ranks, &Part::ranks);
    if (it == parts_.end()) return {};
    return lists_[it->list];
  }
  [[nodiscard]] bool empty() const noexcept { return parts_.empty(); }
  /// All lists of rows.
  [[nodiscard]] const std::vector<Rows>& lists() const noexcept { return lists_; }

  /// Collective: `own_table` of rank 0, on all.
  [[nodiscard]] static BackendTable of_first(const Bootstrap& bootstrap,
                                             const BackendTable& own_table) {
    Writer writer;
    if (bootstrap.rank() == 0) {
      writer.add(own_table.lists_.size());
      for (const Rows& rows : own_table.lists_) writer.add_all(rows);
      writer.add(own_table.parts_.size());
      for (const Part& part : own_table.parts_) {
        writer.add(part.list);
        writer.add_all(part.ranks);
      }
    }
    Reader reader{bytes_of_first(bootstrap, writer.bytes)};
    BackendTable table;
    table.lists_.resize(reader.next<std::size_t>());
    for (Rows& rows : table.lists_) reader.next_all(rows);
    table.parts_.resize(reader.next<std::size_t>());
    for (Part& part : table.parts_) {
      part.list = reader.next<std::size_t>();
      reader.next_all(part.ranks);
    }
    return table;
  }

 private:
  struct Part {
    std::vector<int> ranks;
    std::size_t list = 0;
  };

  void add(const std::vector<int>& ranks, Rows rows) {
    if (rows.empty()) return;
    const auto is_same = [&rows](const Rows& list) {
      return std::ranges::equal(list, rows, [](const BackendRow& a, const BackendRow& b) {
        return a.op == b.op && a.backend == b.backend && a.bytes == b.bytes &&
               std::ranges::equal(a.us, b.us);
      });
    };
    auto list = std::ranges::find_if(lists_, is_same);
    if (list == lists_.end()) list = lists_.insert(list, std::move(rows));
    parts_.push_back({ranks, static_cast<std::size_t>(list - lists_.begin())});
  }

  /// Plain values one after the other.
  struct Writer {
    std::vector<std::byte> bytes;
    template <typename T>
    void add(const T& value) {
      const auto value_bytes = std::as_bytes(std::span(&value, 1));
      bytes.insert(bytes.end(), value_bytes.begin(), value_bytes.end());
    }
    template <typename T>
    void add_all(const std::vector<T>& values) {
      add(values.size());
      for (const T& value : values) add(value);
    }
  };
  struct Reader {
    std::vector<std::byte> bytes;
    std::size_t at = 0;
    template <typename T>
    T next() {
      T value{};
      std::ranges::copy(std::span(bytes).subspan(at, sizeof value),
                        std::as_writable_bytes(std::span(&value, 1)).begin());
      at += sizeof value;
      return value;
    }
    template <typename T>
    void next_all(std::vector<T>& values) {
      values.resize(next<std::size_t>());
      for (T& value : values) value = next<T>();
    }
  };
  static std::vector<std::byte> bytes_of_first(const Bootstrap& bootstrap,
                                               const std::vector<std::byte>& own_bytes) {
    using Block = std::array<std::byte, 4096>;
    std::vector<std::byte> all(bootstrap.gather(own_bytes.size()).front());
    for (std::size_t at = 0; at < all.size(); at += sizeof(Block)) {
      Block block{};
      if (bootstrap.rank() == 0)
        std::ranges::copy(
            std::span(own_bytes).subspan(at, std::min(sizeof block, own_bytes.size() - at)),
            block.begin());
      const Block first = bootstrap.gather(block).front();
      std::ranges::copy(std::span(first).first(std::min(sizeof block, all.size() - at)),
                        all.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return all;
  }

  std::vector<Rows> lists_;
  std::vector<Part> parts_;
};

/// What this rank's profile has of ranks on these GPUs; of none: all that it has.
inline BackendTable::Rows rows_here(polypath_context* engine, const std::vector<int>& gpus) {
  BackendTable::Rows rows;
  std::size_t count = 0;
  do {
    rows.resize(count);
    polypath::detail::check(polypath_backend_entries(engine, gpus.empty() ? nullptr : gpus.data(),
                                                     static_cast<int>(gpus.size()), rows.data(),
                                                     rows.size(), &count));
  } while (rows.size() != count);
  return rows;
}

/// The table of a world whose ranks are on these GPUs, and of its parts.
inline BackendTable table_here(polypath_context* engine, const std::vector<int>& gpus) {
  return {static_cast<int>(gpus.size()), !rows_here(engine, {}).empty(),
          [&](const std::vector<int>& ranks) {
            std::vector<int> rank_gpus;
            for (const int rank : ranks) rank_gpus.push_back(gpus[static_cast<std::size_t>(rank)]);
            return rows_here(engine, rank_gpus);
          }};
}

}  // namespace polypath::uniconn::detail
