// NVSHMEM's host library, found at run time. For GpushmemBackend.
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <string>
#include <utility>

#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/device/program_symbols.hpp"

namespace polypath::uniconn::detail {

/// NVSHMEM's ABI, as its documentation gives it. Structures begin with a version that holds their
/// size.
class Nvshmem {
 public:
  struct Id {
    int version = (1 << 16) + 128;
    std::array<char, 124> bytes{};
  };
  struct Attributes {
    int version = (1 << 16) + 144;
    void* mpi_comm = nullptr;
    struct {
      int version = (1 << 16) + 128;
      struct {
        int version = (1 << 16) + 24;
        Id* id = nullptr;
        int rank = -1;
        int ranks = -1;
      } of_id;
      std::array<char, 96> unused{};
    } arguments;
  };
  static_assert(sizeof(Id) == 128 && sizeof(Attributes) == 144);

  static constexpr unsigned kWithId = 1U << 3U;
  static constexpr int kSet = 9;      // NVSHMEM_SIGNAL_SET
  static constexpr int kAtLeast = 5;  // NVSHMEM_CMP_GE
  static constexpr int kTeamWorld = 0;

  static const Nvshmem& get() {
    static const Nvshmem nvshmem;
    return nvshmem;
  }
  static void check(int result, const char* call) {
    if (result != 0)
      throw backend_error(result, std::string(call) + " failed: " + std::to_string(result));
  }
  /// Null: it has none for this type and operator.
  using Reduce = int (*)(int, void*, const void*, std::size_t, Stream);
  [[nodiscard]] Reduce reduction(Element element, ReductionOperator op) const noexcept {
    return reductions_[static_cast<std::size_t>(element)][static_cast<std::size_t>(op)];
  }

  int (*unique_id)(Id*) = nullptr;
  int (*set_id)(int, int, const Id*, Attributes*) = nullptr;
  int (*init)(unsigned, Attributes*) = nullptr;
  void (*finalize)() = nullptr;
  void* (*allocate)(std::size_t) = nullptr;
  void (*free)(void*) = nullptr;
  void (*put)(void*, const void*, std::size_t, int, Stream) = nullptr;
  void (*put_signal)(void*, const void*, std::size_t, std::uint64_t*, std::uint64_t, int, int,
                     Stream) = nullptr;
  void (*signal)(std::uint64_t*, std::uint64_t, int, int, Stream) = nullptr;
  void (*wait)(std::uint64_t*, int, std::uint64_t, Stream) = nullptr;
  void (*quiet)(Stream) = nullptr;
  void (*barrier_all)(Stream) = nullptr;
  int (*all_gather)(int, void*, const void*, std::size_t, Stream) = nullptr;
  int (*all_to_all)(int, void*, const void*, std::size_t, Stream) = nullptr;
  /// Not NVSHMEM itself, which has one rank a process, but what stands in for it in tests.
  bool has_threads = false;

 private:
  Nvshmem() {
    void* const library = dlopen("libnvshmem_host.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw error(POLYPATH_NOT_SUPPORTED,
                  "GpushmemBackend: there is no libnvshmem_host.so.3: install NVSHMEM (pip install "
                  "nvidia-nvshmem-cu13), and put its folder into LD_LIBRARY_PATH");
    const auto find = [library](auto& function, const std::string& name, bool is_needed = true) {
      void* const symbol = dlsym(library, name.c_str());
      if (symbol == nullptr && is_needed)
        throw error(POLYPATH_NOT_SUPPORTED, ("libnvshmem_host.so.3 has no " + name).c_str());
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    find(unique_id, "nvshmemx_get_uniqueid");
    find(set_id, "nvshmemx_set_attr_uniqueid_args");
    find(init, "nvshmemx_hostlib_init_attr");
    find(finalize, "nvshmemx_hostlib_finalize");
    find(allocate, "nvshmem_malloc");
    find(free, "nvshmem_free");
    find(put, "nvshmemx_putmem_on_stream");
    find(put_signal, "nvshmemx_putmem_signal_on_stream");
    find(signal, "nvshmemx_signal_op_on_stream");
    find(wait, "nvshmemx_signal_wait_until_on_stream");
    find(quiet, "nvshmemx_quiet_on_stream");
    find(barrier_all, "nvshmemx_barrier_all_on_stream");
    find(all_gather, "nvshmemx_fcollectmem_on_stream");
    find(all_to_all, "nvshmemx_alltoallmem_on_stream");
    has_threads = dlsym(library, "nvshmem_standin") != nullptr;
    using enum ReductionOperator;
    constexpr std::pair<Element, const char*> kTypes[] = {
        {Element::int8, "int8"},         {Element::uint8, "uint8"},   {Element::int16, "int16"},
        {Element::uint16, "uint16"},     {Element::int32, "int32"},   {Element::uint32, "uint32"},
        {Element::int64, "int64"},       {Element::uint64, "uint64"}, {Element::float16, "half"},
        {Element::bfloat16, "bfloat16"}, {Element::float32, "float"}, {Element::float64, "double"}};
    constexpr std::pair<ReductionOperator, const char*> kOperators[] = {
        {SUM, "sum"},  {PROD, "prod"}, {MIN, "min"}, {MAX, "max"},
        {BAND, "and"}, {BOR, "or"},    {BXOR, "xor"}};
    for (const auto& [element, type] : kTypes)
      for (const auto& [op, name] : kOperators)
        find(reductions_[static_cast<std::size_t>(element)][static_cast<std::size_t>(op)],
             std::string("nvshmemx_") + type + "_" + name + "_reduce_on_stream", false);
  }

  std::array<std::array<Reduce, 11>, 13> reductions_{};
};

}  // namespace polypath::uniconn::detail
