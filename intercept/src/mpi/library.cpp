#include "mpi/library.hpp"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "cuda/intercepted.hpp"
#include "gate/loaded_objects.hpp"
#include "gate/process.hpp"

namespace polypath::preload::mpi {
namespace {

struct NamedDatatype {
  const char* open_mpi;  ///< its symbol
  Handle mpich;          ///< its number, whose byte 1 is the size; 0: none
  Handle standard;       ///< in the standard ABI; 0: none, or of no certain size
  Datatype datatype;
};

// Numbers: MPICH's mpi.h, and that of the standard ABI (MPI 5.0, appendix A). MPI_CHAR is for text,
// and not for arithmetic.
constexpr NamedDatatype kDatatypes[] = {
    {"ompi_mpi_float", 0x4c00040a, 0x210, {4, POLYPATH_FLOAT32}},
    {"ompi_mpi_double", 0x4c00080b, 0x214, {8, POLYPATH_FLOAT64}},
    {"ompi_mpi_int", 0x4c000405, 0x209, {4, POLYPATH_INT32}},
    {"ompi_mpi_byte", 0x4c00010d, 0x247, {1, kNotReduced}},
    {"ompi_mpi_char", 0x4c000101, 0x243, {1, kNotReduced}},
    {"ompi_mpi_signed_char", 0x4c000118, 0x244, {1, POLYPATH_INT8}},
    {"ompi_mpi_unsigned_char", 0x4c000102, 0x245, {1, POLYPATH_UINT8}},
    {"ompi_mpi_short", 0x4c000203, 0x208, {2, kNotReduced}},
    {"ompi_mpi_unsigned_short", 0x4c000204, 0x20c, {2, kNotReduced}},
    {"ompi_mpi_unsigned", 0x4c000406, 0x20d, {4, POLYPATH_UINT32}},
    {"ompi_mpi_long", 0x4c000807, 0x20a, {8, POLYPATH_INT64}},
    {"ompi_mpi_unsigned_long", 0x4c000808, 0x20e, {8, POLYPATH_UINT64}},
    {"ompi_mpi_long_long_int", 0x4c000809, 0x20b, {8, POLYPATH_INT64}},
    {"ompi_mpi_unsigned_long_long", 0x4c000819, 0x20f, {8, POLYPATH_UINT64}},
    {"ompi_mpi_long_double", 0x4c00100c, 0x220, {16, kNotReduced}},
    {"ompi_mpi_int8_t", 0x4c000137, 0x240, {1, POLYPATH_INT8}},
    {"ompi_mpi_uint8_t", 0x4c00013b, 0x241, {1, POLYPATH_UINT8}},
    {"ompi_mpi_int16_t", 0x4c000238, 0x248, {2, kNotReduced}},
    {"ompi_mpi_uint16_t", 0x4c00023c, 0x249, {2, kNotReduced}},
    {"ompi_mpi_int32_t", 0x4c000439, 0x250, {4, POLYPATH_INT32}},
    {"ompi_mpi_uint32_t", 0x4c00043d, 0x251, {4, POLYPATH_UINT32}},
    {"ompi_mpi_int64_t", 0x4c00083a, 0x258, {8, POLYPATH_INT64}},
    {"ompi_mpi_uint64_t", 0x4c00083e, 0x259, {8, POLYPATH_UINT64}},
    {"ompi_mpi_aint", 0x4c000843, 0x201, {8, POLYPATH_INT64}},
    {"ompi_mpi_offset", 0x4c000844, 0x203, {8, POLYPATH_INT64}},
    {"ompi_mpi_count", 0x4c000845, 0x202, {8, POLYPATH_INT64}},
    {"ompi_mpi_c_bool", 0x4c00013f, 0x238, {1, kNotReduced}},
    {"ompi_mpi_wchar", 0x4c00040e, 0x23c, {4, kNotReduced}},
    {"ompi_mpi_c_float_complex", 0x4c000840, 0x212, {8, kNotReduced}},
    {"ompi_mpi_c_double_complex", 0x4c001041, 0x216, {16, kNotReduced}},
    // MPIX_C_FLOAT16, where the library has it; not every MPICH does.
    {"ompi_mpi_short_float", 0, 0, {2, POLYPATH_FLOAT16}},
    // Fortran's.
    {"ompi_mpi_real", 0x4c00041c, 0, {4, POLYPATH_FLOAT32}},
    {"ompi_mpi_dblprec", 0x4c00081f, 0, {8, POLYPATH_FLOAT64}},
    {"ompi_mpi_integer", 0x4c00041b, 0, {4, POLYPATH_INT32}},
};
constexpr std::size_t kDatatypeCount = sizeof kDatatypes / sizeof *kDatatypes;

struct NamedOperator {
  const char* open_mpi;
  Handle mpich;
  Handle standard;
  polypath_reduce_op op;
};
constexpr NamedOperator kOperators[] = {
    {"ompi_mpi_op_sum", 0x58000003, 0x21, POLYPATH_SUM},
    {"ompi_mpi_op_prod", 0x58000004, 0x24, POLYPATH_PRODUCT},
    {"ompi_mpi_op_min", 0x58000002, 0x22, POLYPATH_MIN},
    {"ompi_mpi_op_max", 0x58000001, 0x23, POLYPATH_MAX},
};
constexpr std::size_t kOperatorCount = sizeof kOperators / sizeof *kOperators;

constinit Library known{};
constinit std::atomic<bool> is_known{false};
constinit pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/// 0: the library has none such.
constinit Handle datatypes[kDatatypeCount]{};
constinit Handle operators[kOperatorCount]{};

/// A library that a program has loaded for itself (mpi4py) is none of those that RTLD_NEXT sees.
struct Candidates {
  char names[8][PATH_MAX];
  std::size_t count = 0;
};
constinit Candidates candidates{};

int add_candidate(dl_phdr_info* info, std::size_t, void*) noexcept {
  const char* const slash = std::strrchr(info->dlpi_name, '/');
  const char* const file = slash != nullptr ? slash + 1 : info->dlpi_name;
  if (std::strncmp(file, "libmpi", 6) == 0 && std::strlen(info->dlpi_name) < PATH_MAX &&
      candidates.count < sizeof candidates.names / sizeof *candidates.names)
    std::strcpy(candidates.names[candidates.count++], info->dlpi_name);
  return 0;
}

/// The file of the first object that defines the name: a library of another file name that a
/// program has loaded for itself, or a plugin into which MPI was linked. Empty: there is none.
void find_definer(const char* name, char (&file)[PATH_MAX]) noexcept {
  file[0] = '\0';
  void* const program = dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD);
  if (program == nullptr) return;
  any_loaded_object([&](const LoadedObject&) {  // meanwhile nothing is unmapped
    for (const auto* object = static_cast<const link_map*>(program); object != nullptr;
         object = object->l_next) {
      if (*object->l_name == '\0' || is_polypath(object) || !defines(*object, name)) continue;
      if (std::strlen(object->l_name) < PATH_MAX) std::strcpy(file, object->l_name);
      break;
    }
    return true;
  });
  dlclose(program);
}

/// The handle of what has the name; it stays open.
void* open_owner(const char* name) noexcept {
  if (void* const symbol = real_dlsym()(RTLD_NEXT, name)) {
    const link_map* const owner = object_of(symbol);
    return owner != nullptr ? dlopen(owner->l_name, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  }
  candidates.count = 0;
  dl_iterate_phdr(&add_candidate, nullptr);
  for (std::size_t i = 0; i < candidates.count; ++i) {
    void* const handle = dlopen(candidates.names[i], RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr && real_dlsym()(handle, name) != nullptr) return handle;
    if (handle != nullptr) dlclose(handle);
  }
  char file[PATH_MAX];
  find_definer(name, file);
  return *file != '\0' ? dlopen(file, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
}

template <typename Function>
bool find(void* handle, const char* name, Function& function) noexcept {
  function = reinterpret_cast<Function>(real_dlsym()(handle, name));
  return function != nullptr;
}

bool find_functions(void* handle) noexcept {
  bool are_all = true;
#define POLYPATH_MPI_CALL(member, name, arguments) \
  are_all = find(handle, #name, known.member) && are_all;
#define POLYPATH_MPI_OPTIONAL_CALL(member, name, arguments) find(handle, #name, known.member);
#include "mpi/functions.def"
  return are_all &&
         (known.type_size != nullptr || find(handle, "PMPI_Type_size_x", known.type_size));
}

/// The standard ABI has libraries of its own.
Family family_of(void* handle) noexcept {
  const link_map* const owner = object_of(reinterpret_cast<const void*>(known.allreduce));
  if (owner == nullptr) return Family::unknown;
  if (std::strstr(owner->l_name, "libmpi_abi") != nullptr) return Family::standard;
  if (real_dlsym()(handle, "ompi_mpi_comm_world") != nullptr) return Family::open_mpi;
  // In all of MPICH's, for debuggers; and what they say of themselves.
  int (*version)(char*, int*) = nullptr;
  if (!find(handle, "PMPI_Get_library_version", version)) return Family::unknown;
  static char text[8192];  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH
  int length = 0;
  if (version(text, &length) != kSuccess) return Family::unknown;
  for (const char* name : {"MPICH", "Intel(R) MPI", "MVAPICH"})
    if (std::strstr(text, name) != nullptr) return Family::mpich;
  return Family::unknown;
}

void take_handles(void* handle) noexcept {
  const bool is_mpich = known.family == Family::mpich;
  const auto named = [&](const char* open_mpi, Handle mpich, Handle standard) {
    if (known.family != Family::open_mpi) return is_mpich ? mpich : standard;
    // The program's own copy of it, where it has one (R_*_COPY): all then use that.
    void* const copied = real_dlsym()(RTLD_DEFAULT, open_mpi);
    return reinterpret_cast<Handle>(copied != nullptr ? copied : real_dlsym()(handle, open_mpi));
  };
  known.comm_null = named("ompi_mpi_comm_null", 0x04000000, 0x100);
  known.comm_self = named("ompi_mpi_comm_self", 0x44000001, 0x102);
  known.datatype_null = named("ompi_mpi_datatype_null", 0x0c000000, 0x200);
  known.byte = named("ompi_mpi_byte", 0x4c00010d, 0x247);
  known.int64 = named("ompi_mpi_int64_t", 0x4c00083a, 0x258);
  known.min = named("ompi_mpi_op_min", 0x58000002, 0x22);
  known.in_place = reinterpret_cast<const void*>(is_mpich ? ~std::uintptr_t{0} : 1);
  known.root = is_mpich ? -3 : -4;
  known.error_other = is_mpich ? 15 : 16;
  for (std::size_t i = 0; i < kOperatorCount; ++i) {
    const NamedOperator& entry = kOperators[i];
    operators[i] = named(entry.open_mpi, entry.mpich, entry.standard);
  }
  for (std::size_t i = 0; i < kDatatypeCount; ++i) {
    // Sizes of some, as of Fortran's, depend on how the library was built.
    const NamedDatatype& entry = kDatatypes[i];
    const Handle datatype = named(entry.open_mpi, entry.mpich, entry.standard);
    auto bytes = static_cast<std::int64_t>(datatype >> 8 & 0xff);
    if (datatype == 0) continue;
    // One that this MPICH was built without is an error of a call, and no program passes it.
    if (!is_mpich && known.type_size(datatype, &bytes) != kSuccess) continue;
    if (static_cast<std::size_t>(bytes) == entry.datatype.bytes) datatypes[i] = datatype;
  }
}

void find_library() noexcept {
  void* const handle = open_owner("PMPI_Allreduce");
  if (handle == nullptr) return;
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    char name[64] = "P";
    std::strcat(name, kFunctionNames[i]);
    known.originals[i] = real_dlsym()(handle, name);
  }
  if (!find_functions(handle)) return;
  known.family = family_of(handle);
  if (known.family == Family::unknown) return;
  take_handles(handle);
  int (*query)() = nullptr;
  known.takes_device_memory = find(handle, "MPIX_Query_cuda_support", query) && query() == 1;
}

}  // namespace

const Library& library() noexcept {
  if (!is_known.load(std::memory_order_acquire)) {
    const Lock lock(mutex);
    if (!is_known.load(std::memory_order_relaxed)) {
      find_library();
      is_known.store(true, std::memory_order_release);
    }
  }
  return known;
}

bool is_initialized() noexcept {
  static constinit std::atomic<bool> was_seen{false};
  if (was_seen.load(std::memory_order_relaxed)) return true;
  int flag = 0;
  if (known.initialized(&flag) != kSuccess || flag == 0) return false;
  was_seen.store(true, std::memory_order_relaxed);
  return true;
}

Handle clean(Handle handle) noexcept {
  return library().family == Family::mpich ? handle & 0xffffffff : handle;
}

const Datatype* find_datatype(Handle datatype) noexcept {
  for (std::size_t i = 0; i < kDatatypeCount; ++i)
    if (datatypes[i] == datatype && datatype != 0) return &kDatatypes[i].datatype;
  return nullptr;
}

int find_operator(Handle op) noexcept {
  for (std::size_t i = 0; i < kOperatorCount; ++i)
    if (operators[i] == op && op != 0) return kOperators[i].op;
  return -1;
}

}  // namespace polypath::preload::mpi
