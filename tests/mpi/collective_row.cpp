#include "collective_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <type_traits>

#include "base/error.hpp"

namespace polypath::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xA5};
constexpr std::size_t kGuard = 64;  ///< bytes after a buffer

/// Numbers whose sums and products are exact in every order, or wrap. Of 8 bits they are too small
/// to overflow: Open MPI's sums of those saturate.
template <typename T>
void fill(Bytes& bytes, std::mt19937& random, bool is_for_products) {
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value{};
    if constexpr (std::is_floating_point_v<T>)
      value = is_for_products
                  ? static_cast<T>(random() % 2 == 0 ? 1 : -1) * static_cast<T>(1U << random() % 8)
                  : static_cast<T>(static_cast<int>(random() % 2001) - 1000);
    else if constexpr (sizeof(T) == 1)
      value = static_cast<T>(random() % 4);
    else
      value = static_cast<T>(static_cast<std::uint64_t>(random()) << 32 | random());
    std::memcpy(&bytes[at], &value, sizeof value);
  }
}

template <typename Call>
void with_type(Type::Kind kind, Call&& call) {
  switch (kind) {
    case Type::Kind::i8: return call(std::int8_t{});
    case Type::Kind::u8: return call(std::uint8_t{});
    case Type::Kind::i32: return call(std::int32_t{});
    case Type::Kind::u32: return call(std::uint32_t{});
    case Type::Kind::i64: return call(std::int64_t{});
    case Type::Kind::u64: return call(std::uint64_t{});
    case Type::Kind::f32: return call(float{});
    case Type::Kind::f64: return call(double{});
    case Type::Kind::other: return call(std::uint8_t{});
  }
}

template <typename T>
T combine(MPI_Op op, T a, T b) {
  if (op == MPI_MAX) return std::max(a, b);
  if (op == MPI_MIN) return std::min(a, b);
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<T>(op == MPI_PROD ? x * y : x + y);
  } else {
    return op == MPI_PROD ? a * b : a + b;
  }
}

Bytes contents(const Row& row, int rank, std::size_t bytes) {
  std::mt19937 random(row.seed * 64 + static_cast<unsigned>(rank));
  Bytes values(bytes);
  with_type(row.type.kind,
            [&](auto zero) { fill<decltype(zero)>(values, random, row.op == MPI_PROD); });
  return values;
}

/// What goes in and comes out of a rank, in bytes.
struct Extents {
  std::size_t sent;
  std::size_t received;
};
Extents extents_of(const Row& row, int size) {
  const std::size_t part = row.count * row.type.bytes;
  const std::size_t all = part * static_cast<std::size_t>(size);
  switch (row.collective) {
    case Collective::allreduce:
    case Collective::broadcast: return {part, part};
    case Collective::reduce_scatter: return {all, part};
    case Collective::all_gather: return {part, all};
    case Collective::all_to_all: return {all, all};
  }
  return {};
}

/// What MPI says that `rank` receives.
Bytes expected(const Row& row, int rank, int size) {
  const Extents extents = extents_of(row, size);
  const std::size_t part = row.count * row.type.bytes;
  const auto sent_by = [&](int from) { return contents(row, from, extents.sent); };
  const auto at = [&](int index) { return static_cast<std::ptrdiff_t>(part) * index; };
  Bytes out;
  const auto append = [&](const Bytes& from, std::ptrdiff_t begin) {
    out.insert(out.end(), from.begin() + begin,
               from.begin() + begin + static_cast<std::ptrdiff_t>(part));
  };
  switch (row.collective) {
    case Collective::broadcast: return sent_by(row.root);
    case Collective::all_gather:
      for (int from = 0; from < size; ++from) append(sent_by(from), 0);
      return out;
    case Collective::all_to_all:
      for (int from = 0; from < size; ++from) append(sent_by(from), at(rank));
      return out;
    case Collective::allreduce:
    case Collective::reduce_scatter: break;
  }
  out = sent_by(0);
  for (int from = 1; from < size; ++from) {
    const Bytes more = sent_by(from);
    with_type(row.type.kind, [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t i = 0; i + sizeof(T) <= out.size(); i += sizeof(T)) {
        T a;
        T b;
        std::memcpy(&a, &out[i], sizeof a);
        std::memcpy(&b, &more[i], sizeof b);
        a = combine<T>(row.op, a, b);
        std::memcpy(&out[i], &a, sizeof a);
      }
    });
  }
  if (row.collective == Collective::allreduce) return out;
  return {out.begin() + at(rank), out.begin() + at(rank + 1)};
}

/// Memory with a buffer somewhere in it, on the GPU or on the host; poison around.
class Buffer {
 public:
  Buffer(const RankGpu& gpu, const Row& row, const Bytes& inside)
      : gpu_(gpu), is_host_(row.host_memory), begin_(row.offset * row.type.bytes) {
    image_.assign(begin_ + inside.size() + kGuard, kPoison);
    std::copy(inside.begin(), inside.end(), image_.begin() + static_cast<std::ptrdiff_t>(begin_));
    if (is_host_) {
      memory_ = image_;
      return;
    }
    device_ = gpu_.allocate(image_.size());
    gpu_.write(device_, image_);
  }
  ~Buffer() {
    if (!is_host_) gpu_.free(device_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* get() {
    return is_host_ ? static_cast<void*>(memory_.data() + begin_)
                    : reinterpret_cast<void*>(device_ + begin_);
  }

  /// Everything is as it was, but for `expected_bytes` at the buffer's beginning. `only`: what follows that
  /// is the operation's.
  void compare(const Bytes& expected_bytes, bool only, const char* what) {
    if (!is_host_) {
      memory_.resize(image_.size());
      gpu_.read(device_, memory_);
    }
    Bytes should = image_;
    std::copy(expected_bytes.begin(), expected_bytes.end(),
              should.begin() + static_cast<std::ptrdiff_t>(begin_));
    for (std::size_t i = 0; i < should.size(); ++i) {
      const bool is_free =
          only && i >= begin_ + expected_bytes.size() && i + kGuard < should.size();
      if (memory_[i] != should[i] && !is_free)
        throw Error(fmt::format(
            "byte {} of {} from the {} buffer's begin is {:#x}, not {:#x}",
            static_cast<std::ptrdiff_t>(i) - static_cast<std::ptrdiff_t>(begin_), should.size(),
            what, static_cast<int>(memory_[i]), static_cast<int>(should[i])));
    }
  }

 private:
  const RankGpu& gpu_;
  bool is_host_;
  std::size_t begin_;
  Bytes image_;
  Bytes memory_;
  CUdeviceptr device_ = 0;
};

int call_by_int(const Row& row, MPI_Comm comm, const void* send, void* recv, int count,
                MPI_Datatype type) {
  switch (row.collective) {
    case Collective::allreduce: return MPI_Allreduce(send, recv, count, type, row.op, comm);
    case Collective::reduce_scatter:
      return MPI_Reduce_scatter_block(send, recv, count, type, row.op, comm);
    case Collective::all_gather: return MPI_Allgather(send, count, type, recv, count, type, comm);
    case Collective::broadcast: return MPI_Bcast(recv, count, type, row.root, comm);
    case Collective::all_to_all: return MPI_Alltoall(send, count, type, recv, count, type, comm);
  }
  return MPI_ERR_OTHER;
}

int call_by_count(const Row& row, MPI_Comm comm, const void* send, void* recv, int count,
                  MPI_Datatype type) {
#if MPI_VERSION < 4
  return call_by_int(row, comm, send, recv, count, type);
#else
  switch (row.collective) {
    case Collective::allreduce: return MPI_Allreduce_c(send, recv, count, type, row.op, comm);
    case Collective::reduce_scatter:
      return MPI_Reduce_scatter_block_c(send, recv, count, type, row.op, comm);
    case Collective::all_gather: return MPI_Allgather_c(send, count, type, recv, count, type, comm);
    case Collective::broadcast: return MPI_Bcast_c(recv, count, type, row.root, comm);
    case Collective::all_to_all: return MPI_Alltoall_c(send, count, type, recv, count, type, comm);
  }
  return MPI_ERR_OTHER;
#endif
}

void call_mpi(const Row& row, MPI_Comm comm, const void* send, void* recv) {
  auto count = static_cast<int>(row.count);
  MPI_Datatype type = row.type.mpi;
  if (row.derived_type) {
    MPI_Type_contiguous(count, row.type.mpi, &type);
    MPI_Type_commit(&type);
    count = 1;
  }
  const int result = row.seed % 2 == 0 ? call_by_int(row, comm, send, recv, count, type)
                                       : call_by_count(row, comm, send, recv, count, type);
  if (row.derived_type) MPI_Type_free(&type);
  if (result != MPI_SUCCESS) throw Error(fmt::format("MPI says {}", result));
}
void run_and_compare(const RankGpu& gpu, MPI_Comm comm, const Row& row, int rank, int size) {
  const Extents extents = extents_of(row, size);
  const Bytes own_bytes = contents(row, rank, extents.sent);
  const Bytes expected_bytes = expected(row, rank, size);
  if (row.collective == Collective::broadcast) {
    Buffer buffer(gpu, row, rank == row.root ? own_bytes : Bytes(extents.received, kPoison));
    call_mpi(row, comm, nullptr, buffer.get());
    return buffer.compare(expected_bytes, false, "one");
  }
  if (!row.in_place) {
    Buffer send(gpu, row, own_bytes);
    Buffer recv(gpu, row, Bytes(extents.received, kPoison));
    call_mpi(row, comm, send.get(), recv.get());
    recv.compare(expected_bytes, false, "receive");
    return send.compare(own_bytes, false, "send");
  }
  Bytes both(std::max(extents.sent, extents.received), kPoison);
  const bool is_part = row.collective == Collective::all_gather;
  std::copy(own_bytes.begin(), own_bytes.end(),
            both.begin() + (is_part ? static_cast<std::ptrdiff_t>(extents.sent) * rank : 0));
  Buffer buffer(gpu, row, both);
  call_mpi(row, comm, MPI_IN_PLACE, buffer.get());
  buffer.compare(expected_bytes, row.collective == Collective::reduce_scatter, "one");
}

const char* name_of(MPI_Op op) {
  if (op == MPI_SUM) return "sum";
  if (op == MPI_PROD) return "product";
  if (op == MPI_MIN) return "min";
  return op == MPI_MAX ? "max" : "another";
}

}  // namespace

const std::vector<Type>& types() {
  using Kind = Type::Kind;
  static const std::vector<Type> all{
      {MPI_FLOAT, Kind::f32, 4},         {MPI_DOUBLE, Kind::f64, 8},
      {MPI_INT, Kind::i32, 4},           {MPI_UNSIGNED, Kind::u32, 4},
      {MPI_LONG, Kind::i64, 8},          {MPI_UINT64_T, Kind::u64, 8},
      {MPI_SIGNED_CHAR, Kind::i8, 1},    {MPI_UNSIGNED_CHAR, Kind::u8, 1},
      {MPI_BYTE, Kind::other, 1},        {MPI_SHORT, Kind::other, 2},
      {MPI_LONG_DOUBLE, Kind::other, 16}};
  return all;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::allreduce: return "MPI_Allreduce";
    case Collective::reduce_scatter: return "MPI_Reduce_scatter_block";
    case Collective::all_gather: return "MPI_Allgather";
    case Collective::broadcast: return "MPI_Bcast";
    case Collective::all_to_all: return "MPI_Alltoall";
  }
  return "?";
}

std::string describe(const Row& row) {
  return fmt::format("{} of {} x {} bytes (kind {}), {}, root {}, offset {}{}{}{}",
                     name_of(row.collective), row.count, row.type.bytes,
                     static_cast<int>(row.type.kind), name_of(row.op), row.root, row.offset,
                     row.in_place ? ", in place" : "", row.host_memory ? ", host memory" : "",
                     row.derived_type ? ", derived type" : "");
}

void run_row(const RankGpu& gpu, MPI_Comm comm, const Row& row) {
  const int rank = rank_in(comm);
  const int size = size_of(comm);
  try {
    run_and_compare(gpu, comm, row, rank, size);
  } catch (const std::exception& error) {
    throw Error(fmt::format("rank {} of {}, {}: {}", rank, size, describe(row), error.what()));
  }
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace polypath::test
