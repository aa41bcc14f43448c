#include "mpi/type_map.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace polypath::preload::mpi {
namespace {

/// How a datatype was made.
enum class Combiner : std::uint8_t {
  named,
  dup,
  contiguous,
  vector,
  hvector,
  indexed,
  hindexed,
  indexed_block,
  hindexed_block,
  structure,
  subarray,
  darray,
  resized,
  other
};

// Numbers of mpi.h of Open MPI 5 and MPICH 5, and of the standard ABI (MPI 5.0, appendix A).
constexpr struct {
  Combiner combiner;
  int open_mpi;
  int mpich;
  int standard;
} kCombiners[] = {
    {Combiner::named, 0, 1, 101},
    {Combiner::dup, 1, 2, 102},
    {Combiner::contiguous, 2, 3, 103},
    {Combiner::vector, 3, 4, 104},
    {Combiner::hvector, 5, 6, 105},
    {Combiner::indexed, 6, 7, 106},
    {Combiner::hindexed, 8, 9, 107},
    {Combiner::indexed_block, 9, 10, 108},
    {Combiner::hindexed_block, 18, 19, 109},
    {Combiner::structure, 11, 12, 110},
    {Combiner::subarray, 12, 13, 111},
    {Combiner::darray, 13, 14, 112},
    {Combiner::resized, 17, 18, 116},
};

Combiner combiner_of(int number) noexcept {
  const Family family = library().family;
  for (const auto& entry : kCombiners)
    if (number == (family == Family::open_mpi ? entry.open_mpi
                   : family == Family::mpich  ? entry.mpich
                                              : entry.standard))
      return entry.combiner;
  return Combiner::other;
}

bool is_c_order(std::int64_t order) noexcept {
  const Family family = library().family;
  return order == (family == Family::open_mpi ? 0 : family == Family::mpich ? 56 : 12);
}

/// How a dimension of an array is distributed: MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE.
bool is_cyclic(std::int64_t distribution) noexcept {
  const Family family = library().family;
  return distribution == (family == Family::open_mpi ? 1 : family == Family::mpich ? 122 : 18);
}
bool is_whole(std::int64_t distribution) noexcept {
  const Family family = library().family;
  return distribution == (family == Family::open_mpi ? 2 : family == Family::mpich ? 123 : 16);
}
/// MPI_DISTRIBUTE_DFLT_DARG.
bool is_default_block(std::int64_t argument) noexcept {
  const Family family = library().family;
  return argument == (family == Family::open_mpi ? -1 : family == Family::mpich ? -49767 : 19);
}

/// The arguments by which a datatype was made. Types that were made by functions with MPI_Count
/// have their numbers in `large`, displacements as well.
class Contents {
 public:
  explicit Contents(Handle type) noexcept {
    const Library& mpi = library();
    if (mpi.type_get_envelope_c != nullptr && mpi.type_get_contents_c != nullptr) {
      if (mpi.type_get_envelope_c(type, &counts_[0], &counts_[1], &counts_[2], &counts_[3],
                                  &number_) != kSuccess)
        return;
      is_there_ = take_room() &&
                  (is_named() ||
                   mpi.type_get_contents_c(type, counts_[0], counts_[1], counts_[2], counts_[3],
                                           integers_, addresses_, large_, types_) == kSuccess);
    } else if (mpi.type_get_envelope != nullptr && mpi.type_get_contents != nullptr) {
      int counts[3] = {};
      if (mpi.type_get_envelope(type, &counts[0], &counts[1], &counts[2], &number_) != kSuccess)
        return;
      counts_[0] = counts[0];
      counts_[1] = counts[1];
      counts_[3] = counts[2];
      is_there_ = take_room() &&
                  (is_named() || mpi.type_get_contents(type, counts[0], counts[1], counts[2],
                                                       integers_, addresses_, types_) == kSuccess);
    }
    has_types_ = is_there_ && !is_named();
  }
  ~Contents() {
    // Each is a reference of its own, but for predefined ones.
    for (std::int64_t i = 0; has_types_ && i < counts_[3]; ++i) {
      Handle type = this->type(i);
      if (is_derived(type)) library().type_free(&type);
    }
    std::free(memory_);
  }
  Contents(const Contents&) = delete;
  Contents& operator=(const Contents&) = delete;

  [[nodiscard]] bool is_there() const noexcept { return is_there_; }
  [[nodiscard]] Combiner combiner() const noexcept { return combiner_of(number_); }
  [[nodiscard]] bool is_large() const noexcept { return counts_[2] > 0; }
  /// Argument `i` among those that are counts, or lengths, or displacements in elements.
  [[nodiscard]] std::int64_t number(std::int64_t i) const noexcept {
    return is_large() ? large_[i] : integers_[i];
  }
  /// Displacement in bytes `i`, of `before` numbers that come first where all are large.
  [[nodiscard]] std::int64_t address(std::int64_t i, std::int64_t before) const noexcept {
    return is_large() ? large_[before + i] : addresses_[i];
  }
  [[nodiscard]] std::int64_t integer(std::int64_t i) const noexcept { return integers_[i]; }
  [[nodiscard]] Handle type(std::int64_t i) const noexcept {
    if (library().family == Family::mpich) {
      std::uint32_t handle = 0;
      std::memcpy(&handle, types_ + i * 4, sizeof handle);
      return handle;
    }
    Handle handle = 0;
    std::memcpy(&handle, types_ + i * 8, sizeof handle);
    return handle;
  }

 private:
  [[nodiscard]] bool is_named() const noexcept { return combiner() == Combiner::named; }
  static bool is_derived(Handle type) noexcept {
    int number = 0;
    if (library().type_get_envelope_c != nullptr) {
      std::int64_t counts[4];
      return library().type_get_envelope_c(type, &counts[0], &counts[1], &counts[2], &counts[3],
                                           &number) == kSuccess &&
             combiner_of(number) != Combiner::named && !is_predefined(number);
    }
    int counts[3];
    return library().type_get_envelope(type, &counts[0], &counts[1], &counts[2], &number) ==
               kSuccess &&
           combiner_of(number) != Combiner::named && !is_predefined(number);
  }
  /// Fortran's MPI_Type_create_f90_..., and pairs of MPI_Type_get_value_index: not to be freed.
  static bool is_predefined(int number) noexcept {
    const Family family = library().family;
    if (family == Family::open_mpi) return number >= 14 && number <= 16;
    if (family == Family::mpich) return (number >= 15 && number <= 17) || number == 20;
    return (number >= 113 && number <= 115) || number == 117;
  }

  bool take_room() noexcept {
    const auto count = [&](int i) { return static_cast<std::size_t>(counts_[i]); };
    memory_ = static_cast<char*>(std::calloc(count(0) + count(1) + count(2) + count(3) + 1, 8));
    if (memory_ == nullptr) return false;
    addresses_ = reinterpret_cast<std::intptr_t*>(memory_);
    large_ = reinterpret_cast<std::int64_t*>(addresses_ + count(1));
    types_ = reinterpret_cast<char*>(large_ + count(2));
    integers_ = reinterpret_cast<int*>(types_ + 8 * count(3));
    return true;
  }

  int number_ = -1;
  std::int64_t counts_[4] = {};  ///< of integers, addresses, large counts, types
  bool is_there_ = false;
  bool has_types_ = false;
  char* memory_ = nullptr;
  std::intptr_t* addresses_ = nullptr;
  std::int64_t* large_ = nullptr;
  char* types_ = nullptr;
  int* integers_ = nullptr;
};

constexpr int kMaxDimensions = 64;

}  // namespace

/// The part has `count` of an array's `size` elements: blocks from `first` on, each `stride`
/// elements after the one before.
struct TypeMap::Dimension {
  std::int64_t size;
  std::int64_t first;
  std::int64_t block;
  std::int64_t stride;
  std::int64_t count;
  [[nodiscard]] std::int64_t index(std::int64_t i) const noexcept {
    return first + i / block * stride + i % block;
  }
};

TypeMap::TypeMap(Handle type) noexcept {
  std::intptr_t low = 0;
  if (type == library().datatype_null ||
      library().type_get_extent(type, &low, &extent_) != kSuccess)
    return;
  if (const Datatype* const known = find_datatype(type)) {
    add({0, known->bytes});
    return;
  }
  if (add_type(type)) return;
  count_ = 0;
  bytes_ = 0;
  is_exact_ = false;
  std::intptr_t true_extent = 0;
  if (library().type_get_true_extent(type, &low, &true_extent) == kSuccess)
    add({low, static_cast<std::size_t>(true_extent)});
}

TypeMap::~TypeMap() { std::free(runs_); }

bool TypeMap::add(Run run) noexcept {
  if (run.bytes == 0) return true;
  bytes_ += run.bytes;
  if (count_ > 0) {
    Run& last = runs_[count_ - 1];
    if (last.offset + static_cast<std::intptr_t>(last.bytes) == run.offset) {
      last.bytes += run.bytes;
      return true;
    }
  }
  if (count_ == room_) {
    const std::size_t room = room_ == 0 ? 4 : 2 * room_;
    void* const memory = std::realloc(runs_, room * sizeof(Run));
    if (memory == nullptr) return false;
    runs_ = static_cast<Run*>(memory);
    room_ = room;
  }
  runs_[count_++] = run;
  return true;
}

bool TypeMap::add(const TypeMap& part, std::intptr_t offset, std::int64_t count) noexcept {
  is_exact_ = is_exact_ && part.is_exact_;
  if (count <= 0) return true;
  if (part.is_contiguous())
    return add({offset + part.runs_->offset, part.bytes_ * static_cast<std::size_t>(count)});
  for (std::int64_t i = 0; i < count; ++i, offset += part.extent_)
    for (const Run& run : part)
      if (!add(Run{offset + run.offset, run.bytes})) return false;
  return true;
}

bool TypeMap::add_of_array(const TypeMap& part, const Dimension* dimensions,
                           std::int64_t count) noexcept {
  is_exact_ = is_exact_ && part.is_exact_;
  std::int64_t rows = 1;
  for (std::int64_t d = 0; d + 1 < count; ++d) rows *= dimensions[d].count;
  const Dimension& fastest = dimensions[count - 1];
  std::int64_t at[kMaxDimensions] = {};
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t element = 0;
    for (std::int64_t d = 0; d + 1 < count; ++d)
      element = (element + dimensions[d].index(at[d])) * dimensions[d + 1].size;
    for (std::int64_t i = 0; i < fastest.count; i += fastest.block)
      if (!add(part, (element + fastest.index(i)) * part.extent_,
               std::min(fastest.block, fastest.count - i)))
        return false;
    for (std::int64_t d = count - 2; d >= 0 && ++at[d] == dimensions[d].count; --d) at[d] = 0;
  }
  return true;
}

bool TypeMap::add_leaf(Handle type) noexcept {
  std::int64_t size = 0;
  std::intptr_t low = 0;
  std::intptr_t extent = 0;
  if (library().type_size(type, &size) != kSuccess ||
      library().type_get_true_extent(type, &low, &extent) != kSuccess)
    return false;
  if (size == extent) return add({low, static_cast<std::size_t>(size)});
  // A value and an index, an int: MPI_DOUBLE_INT and its like.
  constexpr std::intptr_t kIndex = sizeof(int);
  if (size <= kIndex || size > extent) return false;
  return add({low, static_cast<std::size_t>(size - kIndex)}) &&
         add({low + extent - kIndex, static_cast<std::size_t>(kIndex)});
}

bool TypeMap::add_type(Handle type) noexcept {
  const Contents contents(type);
  if (!contents.is_there()) return false;
  const Combiner combiner = contents.combiner();
  switch (combiner) {
    case Combiner::named: return add_leaf(type);
    case Combiner::other: return false;
    case Combiner::structure: {
      const std::int64_t count = contents.number(0);
      for (std::int64_t i = 0; i < count; ++i)
        if (!add(TypeMap(contents.type(i)), contents.address(i, count + 1), contents.number(1 + i)))
          return false;
      return true;
    }
    case Combiner::dup:
    case Combiner::contiguous:
    case Combiner::vector:
    case Combiner::hvector:
    case Combiner::indexed:
    case Combiner::hindexed:
    case Combiner::indexed_block:
    case Combiner::hindexed_block:
    case Combiner::subarray:
    case Combiner::darray:
    case Combiner::resized: break;
  }
  const TypeMap part(contents.type(0));
  const bool is_one = combiner == Combiner::dup || combiner == Combiner::resized;
  const bool is_array = combiner == Combiner::subarray || combiner == Combiner::darray;
  const std::int64_t count = is_one || is_array ? 1 : contents.number(0);
  Dimension array[kMaxDimensions];
  switch (combiner) {
    case Combiner::dup:
    case Combiner::resized: return add(part, 0, 1);
    case Combiner::contiguous: return add(part, 0, count);
    case Combiner::vector:
    case Combiner::hvector: {
      const std::intptr_t stride =
          combiner == Combiner::vector ? contents.number(2) * part.extent_ : contents.address(0, 2);
      for (std::int64_t i = 0; i < count; ++i)
        if (!add(part, i * stride, contents.number(1))) return false;
      return true;
    }
    case Combiner::indexed:
      for (std::int64_t i = 0; i < count; ++i)
        if (!add(part, contents.number(1 + count + i) * part.extent_, contents.number(1 + i)))
          return false;
      return true;
    case Combiner::hindexed:
      for (std::int64_t i = 0; i < count; ++i)
        if (!add(part, contents.address(i, 1 + count), contents.number(1 + i))) return false;
      return true;
    case Combiner::indexed_block:
      for (std::int64_t i = 0; i < count; ++i)
        if (!add(part, contents.number(2 + i) * part.extent_, contents.number(1))) return false;
      return true;
    case Combiner::hindexed_block:
      for (std::int64_t i = 0; i < count; ++i)
        if (!add(part, contents.address(i, 2), contents.number(1))) return false;
      return true;
    case Combiner::subarray: {
      const std::int64_t dimensions = contents.integer(0);
      if (dimensions < 1 || dimensions > kMaxDimensions) return false;
      // ndims, sizes, subsizes, starts, order; where counts are large those are in between.
      const std::int64_t before = contents.is_large() ? 0 : 1;
      const bool is_c = is_c_order(contents.integer(contents.is_large() ? 1 : 1 + 3 * dimensions));
      for (std::int64_t d = 0; d < dimensions; ++d) {
        const std::int64_t part_size = contents.number(before + dimensions + d);
        array[is_c ? d : dimensions - 1 - d] = {contents.number(before + d),
                                                contents.number(before + 2 * dimensions + d),
                                                part_size, 0, part_size};
      }
      return add_of_array(part, array, dimensions);
    }
    case Combiner::darray: {
      // size, rank, ndims, gsizes, distribs, dargs, psizes, order. Where counts are large, gsizes
      // are. Processes are numbered in the order of C, for any order of the array.
      const std::int64_t dimensions = contents.integer(2);
      if (dimensions < 1 || dimensions > kMaxDimensions) return false;
      const std::int64_t first = contents.is_large() ? 3 : 3 + dimensions;
      const bool is_c = is_c_order(contents.integer(first + 3 * dimensions));
      std::int64_t rank = contents.integer(1);
      for (std::int64_t d = dimensions - 1; d >= 0; --d) {
        const std::int64_t size = contents.number(contents.is_large() ? d : 3 + d);
        const std::int64_t how = contents.integer(first + d);
        const std::int64_t darg = contents.integer(first + dimensions + d);
        const std::int64_t processes = contents.integer(first + 2 * dimensions + d);
        if (size < 1 || processes < 1) return false;
        const std::int64_t block = is_whole(how)             ? size
                                   : !is_default_block(darg) ? darg
                                   : is_cyclic(how)          ? 1
                                                             : (size + processes - 1) / processes;
        if (block < 1) return false;
        const std::int64_t begin = rank % processes * block;
        const std::int64_t round = block * processes;
        const std::int64_t in_last = std::clamp<std::int64_t>(size % round - begin, 0, block);
        array[is_c ? d : dimensions - 1 - d] = {size, begin, block, round,
                                                size / round * block + in_last};
        rank /= processes;
      }
      return add_of_array(part, array, dimensions);
    }
    case Combiner::named:
    case Combiner::structure:
    case Combiner::other: break;
  }
  return false;
}

}  // namespace polypath::preload::mpi
