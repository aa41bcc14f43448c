// Derived datatypes on device memory: of several arrays, by MPI_BOTTOM, with gaps, backwards. What
// is right MPI itself says, by the same calls in host memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "collective_row.hpp"
#include "lone_cases.hpp"

namespace polypath::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kArray = 6000;  ///< bytes

/// Two arrays on the GPU and one in host memory, or all three in host memory, with contents that
/// `seed` gives.
class Arrays {
 public:
  Arrays(const RankGpu* gpu, unsigned seed) : gpu_(gpu) {
    std::mt19937 random(seed);
    for (Bytes& image : images_) {
      image.resize(kArray);
      for (std::byte& each : image) each = static_cast<std::byte>(random());
    }
    if (gpu_ == nullptr) return;
    for (std::size_t i = 0; i < 2; ++i) {
      device_[i] = gpu_->allocate(kArray);
      gpu_->write(device_[i], images_[i]);
    }
  }
  ~Arrays() {
    for (std::size_t i = 0; gpu_ != nullptr && i < 2; ++i) gpu_->free(device_[i]);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  [[nodiscard]] MPI_Aint address(std::size_t array) {
    if (gpu_ != nullptr && array < 2) return static_cast<MPI_Aint>(device_[array]);
    return reinterpret_cast<MPI_Aint>(images_[array].data());
  }
  [[nodiscard]] std::array<Bytes, 3> contents() {
    for (std::size_t i = 0; gpu_ != nullptr && i < 2; ++i) gpu_->read(device_[i], images_[i]);
    return images_;
  }

 private:
  const RankGpu* gpu_;
  std::array<Bytes, 3> images_;
  std::array<CUdeviceptr, 2> device_{};
};

/// A datatype, to be used `count` times in a row at `offset` bytes from the first array;
/// `is_bottom`: at MPI_BOTTOM.
struct Shape {
  const char* name;
  MPI_Datatype type;
  int count = 1;
  MPI_Aint offset = 0;
  bool is_bottom = false;
  bool is_spread = false;  ///< a second element would be far away
};

MPI_Datatype committed(MPI_Datatype type) {
  MPI_Type_commit(&type);
  return type;
}

/// All kinds of types, for arrays that lie as `arrays` do.
std::vector<Shape> shapes_for(Arrays& arrays) {
  std::vector<Shape> shapes;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const auto add = [&](const char* name, int count, MPI_Aint offset) {
    shapes.push_back({name, committed(type), count, offset});
  };
  int lengths[] = {3, 1, 40};
  int places[] = {100, 7, 30};
  MPI_Aint absolute[] = {arrays.address(0) + 24, arrays.address(1) + 8, arrays.address(2) + 400};
  MPI_Type_create_hindexed(3, lengths, absolute, MPI_INT, &type);
  add("MPI_BOTTOM over three arrays", 1, 0);
  shapes.back().is_bottom = shapes.back().is_spread = true;
  MPI_Datatype kinds[] = {MPI_DOUBLE, MPI_SHORT, MPI_CHAR};
  MPI_Aint relative[] = {16, arrays.address(1) - arrays.address(0) + 1000, 400};
  MPI_Type_create_struct(3, lengths, relative, kinds, &type);
  add("struct from one array into the other", 1, 0);
  shapes.back().is_spread = true;
  MPI_Type_vector(7, 3, 5, MPI_INT, &type);
  add("vector", 3, 12);
  MPI_Type_create_hvector(6, 2, -20, MPI_SHORT, &type);
  add("hvector backwards", 4, 1000);
  MPI_Type_indexed(3, lengths, places, MPI_SHORT, &type);
  add("indexed", 2, 4);
  MPI_Type_create_indexed_block(3, 4, places, MPI_INT, &type);
  add("indexed_block", 2, 40);
  MPI_Aint backwards[] = {200, -64, 8};
  MPI_Type_create_hindexed_block(3, 2, backwards, MPI_DOUBLE, &type);
  add("hindexed_block with a negative lower bound", 2, 128);
  MPI_Datatype vector = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, 1, 3, MPI_INT, &vector);
  MPI_Type_create_resized(vector, -8, 40, &type);
  add("resized", 5, 64);
  MPI_Type_create_resized(vector, 0, -24, &type);
  add("resized backwards", 5, 512);
  MPI_Type_contiguous(3, vector, &type);
  add("contiguous with gaps", 2, 8);
  MPI_Type_dup(vector, &type);
  add("dup", 3, 8);
  MPI_Type_free(&vector);
  const int sizes[] = {4, 5, 6};
  const int parts[] = {2, 3, 2};
  const int starts[] = {1, 2, 3};
  for (const int order : {MPI_ORDER_C, MPI_ORDER_FORTRAN}) {
    MPI_Type_create_subarray(3, sizes, parts, starts, order, MPI_INT, &type);
    add("subarray", 2, 0);
  }
  for (const int order : {MPI_ORDER_C, MPI_ORDER_FORTRAN}) {
    const int lengths_of_array[] = {9, 4, 11};
    const int distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK};
    const int arguments[] = {2, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    const int processes[] = {2, 1, 2};
    for (const int rank : {1, 2}) {
      MPI_Type_create_darray(4, rank, 3, lengths_of_array, distributions, arguments, processes,
                             order, MPI_INT, &type);
      add("darray", 1, 0);
    }
  }
  // Two elements, one in each array: what lies between them is no memory of this process's.
  const MPI_Aint distance = arrays.address(1) - arrays.address(0);
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_DOUBLE, 0, std::abs(distance), &spread);
  const int two[] = {2};
  const int unit[] = {1};
  const int cyclic[] = {MPI_DISTRIBUTE_CYCLIC};
  MPI_Type_create_darray(1, 0, 1, two, cyclic, unit, unit, MPI_ORDER_C, spread, &type);
  add("darray over two arrays", 1, std::min<MPI_Aint>(distance, 0));
  shapes.back().is_spread = true;
  MPI_Type_free(&spread);
  MPI_Type_dup(MPI_SHORT_INT, &type);
  add("pairs", 5, 16);
#if MPI_VERSION >= 4
  const MPI_Count long_lengths[] = {2, 3};
  const MPI_Count long_places[] = {80, 4};
  MPI_Type_create_hindexed_c(2, long_lengths, long_places, MPI_INT, &type);
  add("hindexed_c", 2, 0);
  const MPI_Count long_sizes[] = {4, 6};
  const MPI_Count long_parts[] = {2, 3};
  const MPI_Count long_starts[] = {1, 2};
  MPI_Type_create_subarray_c(2, long_sizes, long_parts, long_starts, MPI_ORDER_C, MPI_INT, &type);
  add("subarray_c", 2, 0);
  MPI_Type_vector_c(4, 2, 3, MPI_SHORT, &type);
  add("vector_c", 2, 0);
#endif
  return shapes;
}

/// Adds the first of two floats, and takes the larger of the second; what lies between them is not
/// theirs.
void combine(void* in, void* out, int* count, MPI_Datatype* type) {
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  MPI_Type_get_extent(*type, &low, &extent);
  for (int i = 0; i < *count; ++i) {
    float a[3];
    float b[3];
    std::memcpy(a, static_cast<char*>(in) + i * extent, sizeof a);
    std::memcpy(b, static_cast<char*>(out) + i * extent, sizeof b);
    b[0] += a[0];
    b[2] = std::max(b[2], a[2]);
    std::memcpy(static_cast<char*>(out) + i * extent, b, sizeof b);
  }
}

using Contents = std::vector<std::array<Bytes, 3>>;

/// Each call with each type; what all arrays hold after each.
Contents run_all(const RankGpu* gpu, const std::function<void(const char*)>& count) {
  Contents contents;
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  unsigned seed = static_cast<unsigned>(rank);
  const std::size_t kinds = [] {
    Arrays any(nullptr, 0);
    std::vector<Shape> shapes = shapes_for(any);
    for (Shape& shape : shapes) MPI_Type_free(&shape.type);
    return shapes.size();
  }();
  for (std::size_t kind = 0; kind < kinds; ++kind) {
    Arrays arrays(gpu, seed += 16);
    std::vector<Shape> shapes = shapes_for(arrays);
    const Shape& shape = shapes[kind];
    const auto at = [&](MPI_Aint offset) {
      return shape.is_bottom ? MPI_BOTTOM
                             : reinterpret_cast<void*>(arrays.address(0) + shape.offset + offset);
    };
    MPI_Bcast(at(0), shape.count, shape.type, static_cast<int>(kind) % size, MPI_COMM_WORLD);
    count("MPI_Bcast");
    contents.push_back(arrays.contents());
    if (!shape.is_spread) {
      // The sent bytes follow the received ones.
      int bytes = 0;
      MPI_Type_size(shape.type, &bytes);
      Arrays sent(gpu, seed += 16);
      std::vector<Shape> sent_shapes = shapes_for(sent);
      const auto from = reinterpret_cast<void*>(sent.address(0) + sent_shapes[kind].offset);
      MPI_Allgather(from, shape.count, sent_shapes[kind].type, at(0), shape.count, shape.type,
                    MPI_COMM_WORLD);
      count("MPI_Allgather");
      contents.push_back(arrays.contents());
      MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, at(0), shape.count, shape.type,
                    MPI_COMM_WORLD);
      count("MPI_Allgather");
      contents.push_back(arrays.contents());
      MPI_Alltoall(from, shape.count, sent_shapes[kind].type, at(0), shape.count, shape.type,
                   MPI_COMM_WORLD);
      count("MPI_Alltoall");
      contents.push_back(arrays.contents());
      contents.push_back(sent.contents());
      // Bytes without gaps: the order of the elements counts.
      MPI_Allgather(from, shape.count * bytes, MPI_BYTE, at(0), shape.count, shape.type,
                    MPI_COMM_WORLD);
      count("MPI_Allgather");
      contents.push_back(arrays.contents());
      for (Shape& each : sent_shapes) MPI_Type_free(&each.type);
    }
    for (Shape& each : shapes) MPI_Type_free(&each.type);
  }
  // A sum that the program defines, of elements with gaps.
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(&combine, 1, &op);
  MPI_Datatype ends = MPI_DATATYPE_NULL;
  MPI_Type_vector(2, 1, 2, MPI_FLOAT, &ends);
  MPI_Type_commit(&ends);
  std::vector<float> numbers(kArray / sizeof(float));
  std::iota(numbers.begin(), numbers.end(), static_cast<float>(rank));
  Bytes image(kArray);
  std::memcpy(image.data(), numbers.data(), kArray);
  CUdeviceptr memory = 0;
  if (gpu != nullptr) gpu->write(memory = gpu->allocate(kArray), image);
  char* const begin =
      gpu != nullptr ? reinterpret_cast<char*>(memory) : reinterpret_cast<char*>(image.data());
  MPI_Allreduce(MPI_IN_PLACE, begin, 30, ends, op, MPI_COMM_WORLD);
  MPI_Allreduce(begin, begin + 3000, 30, ends, op, MPI_COMM_WORLD);
  count("MPI_Allreduce");
  count("MPI_Allreduce");
  if (gpu != nullptr) {
    gpu->read(memory, image);
    gpu->free(memory);
  }
  contents.push_back({image, {}, {}});
  MPI_Type_free(&ends);
  MPI_Op_free(&op);
  return contents;
}

}  // namespace

void derived_types(Calls& run) {
  const auto count = [&](const char* name) { ++run.calls[name]; };
  const Contents reference = run_all(nullptr, count);
  const Contents got = run_all(&run.gpu, count);
  require(reference.size() == got.size(), "as many calls");
  for (std::size_t i = 0; i < reference.size(); ++i)
    for (std::size_t array = 0; array < 3; ++array)
      require(reference[i][array] == got[i][array],
              ("call " + std::to_string(i) + ", array " + std::to_string(array)).c_str());
}

void gaps_in_use(Calls& run) {
  const int rank = rank_in(MPI_COMM_WORLD);
  constexpr int kCount = 1000;
  MPI_Datatype even = MPI_DATATYPE_NULL;
  MPI_Type_vector(kCount, 1, 2, MPI_INT, &even);
  MPI_Type_commit(&even);
  std::vector<int> words(2 * kCount, rank);
  // After nine refusals ranks do not ask each other, and do not wait for each other by that.
  const auto broadcast = [&](CUdeviceptr to) {
    MPI_Bcast(reinterpret_cast<void*>(to), 1, even, 0, MPI_COMM_WORLD);
    ++run.calls["MPI_Bcast"];
  };
  const CUdeviceptr other_memory = run.gpu.allocate(words.size() * sizeof(int));
  for (int i = 0; i < 9; ++i) broadcast(other_memory);
  run.gpu.free(other_memory);
  const CUdeviceptr memory = run.gpu.allocate(words.size() * sizeof(int));
  run.gpu.write(memory, std::as_bytes(std::span(words)));
  // The root comes late; meanwhile the others write between the elements.
  using namespace std::chrono_literals;
  std::thread other;
  if (rank == 0)
    std::this_thread::sleep_for(300ms);
  else
    other = std::thread([&] {
      const RankGpu here(rank);
      std::this_thread::sleep_for(150ms);
      for (std::size_t i = 1; i < words.size(); i += 200) {
        const int probe[] = {1234};
        here.write(memory + i * sizeof(int), std::as_bytes(std::span(probe)));
      }
    });
  broadcast(memory);
  if (other.joinable()) other.join();
  run.gpu.read(memory, std::as_writable_bytes(std::span(words)));
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_written = rank != 0 && i % 200 == 1;
    require(words[i] == (is_written ? 1234 : i % 2 == 0 ? 0 : rank), "what lies between elements");
  }
  run.gpu.free(memory);
  MPI_Type_free(&even);
}

}  // namespace polypath::test
