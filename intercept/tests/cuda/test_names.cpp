// The names that the shim replaces, by each way in which a program finds them, and no others. This
// program runs under the shim and is linked to the driver.
#include <cuda.h>
#include <gtest/gtest.h>

#include <bit>
#include <tuple>
#include <utility>

#include "elf_file.hpp"
#include "lookup.hpp"
#include "owner.hpp"
#include "replaced_names.hpp"

#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuMemcpyBatchAsync

// By another name each, because cuda.h has declared some of them.
#define POLYPATH_INTERCEPTED(name, base, version, stream) \
  extern "C" void reference_##name() __asm__(#name);
#include "cuda/intercepted.def"

namespace polypath::preload::test {
namespace {

constexpr std::pair<std::string_view, void (*)()> kReferences[] = {
#define POLYPATH_INTERCEPTED(name, base, version, stream) {#name, &reference_##name},
#include "cuda/intercepted.def"
};

constexpr int kNewest = 13000;
constexpr cuuint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
constexpr cuuint64_t kBothStreams = kLegacy | kPerThread;  // counts as per-thread
constexpr cuuint64_t kUnknownFlag = 1024;

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t);
using GetProcAddress2 = CUresult (*)(const char*, void**, int, cuuint64_t,
                                     CUdriverProcAddressQueryResult*);

class Names : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(nullptr, driver) << dlerror();
    for (const std::string& name : read_elf(POLYPATH_SIM_LIBRARY).exported)
      if (name.starts_with("cu") && !is_replaced(name)) others.push_back(name);
    ASSERT_GT(others.size(), 80U);
  }

  static Owner shim(std::string_view name) { return {kShim, std::string(name)}; }

  /// The function as it is exported, asked for past the shim.
  template <typename Function>
  Function real(const char* name) const {
    return std::bit_cast<Function>(look_up_past_shim(driver, name));
  }

  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  std::vector<std::string> others;
};

TEST_F(Names, ReferencesAreBoundToTheShim) {
  for (const auto& [name, function] : kReferences)
    EXPECT_EQ(shim(name), owner_of(std::bit_cast<void*>(function)));
}

TEST_F(Names, DlsymFindsTheShim) {
  void* const program = dlopen(nullptr, RTLD_NOW);
  for (const ReplacedName& entry : kReplaced) {
    const char* const name = entry.name.data();
    EXPECT_EQ(shim(name), owner_of(dlsym(driver, name)));
    EXPECT_EQ(shim(name), owner_of(dlsym(program, name)));
    EXPECT_EQ(shim(name), owner_of(dlsym(RTLD_DEFAULT, name)));
    EXPECT_EQ(shim(name), owner_of(dlsym(RTLD_NEXT, name)));
    EXPECT_EQ(shim(name), owner_of(look_up_in_library(driver, name)));
    EXPECT_EQ(shim(name), owner_of(look_up_in_library(RTLD_DEFAULT, name)));
    EXPECT_EQ(shim(name), owner_of(look_up_in_library(RTLD_NEXT, name)));
    EXPECT_EQ(nullptr, dlerror());
  }
}

TEST_F(Names, OwnLibraries_GetTheDriversFunctions) {
  for (const ReplacedName& entry : kReplaced) {
    const char* const name = entry.name.data();
    const Owner own{kDriver, name};
    EXPECT_EQ(own, owner_of(look_up_past_shim(driver, name)));
    EXPECT_EQ(own, owner_of(look_up_past_shim(RTLD_DEFAULT, name)));
    EXPECT_EQ(own, owner_of(look_up_past_shim(RTLD_NEXT, name)));
  }
  const auto from_dlsym = std::bit_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
  EXPECT_EQ((Owner{kDriver, "cuMemcpy"}), owner_of(ask_past_shim(from_dlsym, "cuMemcpy", kNewest)));
  EXPECT_EQ(shim("cuMemcpy"), owner_of(ask_in_library(from_dlsym, "cuMemcpy", kNewest)));
}

TEST_F(Names, OthersAreTheDriversOwn) {
  for (const std::string& name : others) {
    void* const own = look_up_past_shim(driver, name.c_str());
    ASSERT_NE(nullptr, own) << name;
    EXPECT_EQ(own, dlsym(driver, name.c_str())) << name;
    EXPECT_EQ(own, dlsym(RTLD_DEFAULT, name.c_str())) << name;
    EXPECT_EQ(own, dlsym(RTLD_NEXT, name.c_str())) << name;
  }
}

// Every version and all flags of every base name, -1 (the newest) among the versions: the shim's
// where, and only where, the driver hands out a function that is replaced, and then the one of that
// name.
template <typename Ask>
void check_versions(Ask&& ask) {
  for (const ReplacedName& base : kReplaced) {
    for (const ReplacedName& other : kReplaced) {
      for (const int version : {-1, 0, other.version - 10, other.version, kNewest}) {
        for (const cuuint64_t flags :
             {cuuint64_t{CU_GET_PROC_ADDRESS_DEFAULT}, kLegacy, kPerThread, kBothStreams}) {
          const auto [own, intercepted] = ask(base.base.data(), version, flags);
          const Owner expected = own == nullptr ? Owner{} : Owner{kShim, owner_of(own).function};
          EXPECT_EQ(expected, owner_of(intercepted)) << base.base << ' ' << version << ' ' << flags;
        }
      }
    }
  }
}

TEST_F(Names, CuGetProcAddressFindsTheShim) {
  const auto own = real<GetProcAddress>("cuGetProcAddress");
  const auto from_dlsym = std::bit_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress"));
  ASSERT_EQ(kShim, owner_of(std::bit_cast<void*>(from_dlsym)).library);
  check_versions([&](const char* name, int version, cuuint64_t flags) {
    std::pair<void*, void*> functions;
    EXPECT_EQ(own(name, &functions.first, version, flags),
              from_dlsym(name, &functions.second, version, flags));
    return functions;
  });
}

TEST_F(Names, CuGetProcAddressV2GivesItsStatus) {
  const auto own = real<GetProcAddress2>("cuGetProcAddress_v2");
  const auto from_dlsym = std::bit_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
  ASSERT_EQ(kShim, owner_of(std::bit_cast<void*>(from_dlsym)).library);
  check_versions([&](const char* name, int version, cuuint64_t flags) {
    std::pair<void*, void*> functions;
    auto own_status = CUdriverProcAddressQueryResult(3);
    auto status = CUdriverProcAddressQueryResult(3);
    EXPECT_EQ(own(name, &functions.first, version, flags, &own_status),
              from_dlsym(name, &functions.second, version, flags, &status));
    EXPECT_EQ(own_status, status);
    return functions;
  });
}

// What cuda.h 13 has for a name, in words.
TEST_F(Names, VersionsFollowTheCudaHeader) {
  const auto ask = std::bit_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
  const auto find = [&](const char* name, int version, cuuint64_t flags) {
    void* function = nullptr;
    ask(name, &function, version, flags, nullptr);
    return owner_of(function).function;
  };
  EXPECT_EQ("", find("cuMemcpyDtoDAsync", 3010, 0));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2", find("cuMemcpyDtoDAsync", 3020, 0));
  EXPECT_EQ("", find("cuMemcpyDtoDAsync", 6050, kPerThread));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2_ptsz", find("cuMemcpyDtoDAsync", 7000, kPerThread));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2", find("cuMemcpyDtoDAsync", kNewest, 0));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2", find("cuMemcpyDtoDAsync", -1, 0));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2_ptsz", find("cuMemcpyDtoDAsync", -1, kBothStreams));
  EXPECT_EQ("", find("cuMemcpyDtoDAsync_v2", kNewest, 0));
  EXPECT_EQ("cuMemcpy_ptds", find("cuMemcpy", kNewest, kPerThread));
  EXPECT_EQ("cuMemcpyBatchAsync", find("cuMemcpyBatchAsync", 12080, 0));
  EXPECT_EQ("cuMemcpyBatchAsync_ptsz", find("cuMemcpyBatchAsync", 12090, kPerThread));
  EXPECT_EQ("cuMemcpyBatchAsync_v2", find("cuMemcpyBatchAsync", 13000, 0));
  EXPECT_EQ("cuMemcpyBatchAsync_v2_ptsz", find("cuMemcpyBatchAsync", 13000, kPerThread));
  EXPECT_EQ("cuIpcOpenMemHandle_v2", find("cuIpcOpenMemHandle", 11000, kPerThread));
  EXPECT_EQ("cuGetProcAddress", find("cuGetProcAddress", 11040, 0));
  EXPECT_EQ("cuGetProcAddress_v2", find("cuGetProcAddress", 12000, 0));
}

TEST_F(Names, OthersAreTheDriversOwnByCuGetProcAddress) {
  const auto own = real<GetProcAddress2>("cuGetProcAddress_v2");
  const auto from_dlsym = std::bit_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
  int known = 0;
  for (const std::string& exported : others) {
    const std::string name = exported.substr(0, exported.find("_v"));
    void* expected = nullptr;
    void* symbol = nullptr;
    EXPECT_EQ(own(name.c_str(), &expected, kNewest, 0, nullptr),
              from_dlsym(name.c_str(), &symbol, kNewest, 0, nullptr));
    EXPECT_EQ(expected, symbol) << name;
    known += expected != nullptr ? 1 : 0;
  }
  EXPECT_GT(known, 80);
}

// What finds no function leaves result, function and status as the driver does, and so do questions
// that it refuses.
TEST_F(Names, WrongQuestionsAreAnsweredByTheDriver) {
  const auto own = real<GetProcAddress2>("cuGetProcAddress_v2");
  const auto from_dlsym = std::bit_cast<GetProcAddress2>(dlsym(driver, "cuGetProcAddress_v2"));
  const auto own_first = real<GetProcAddress>("cuGetProcAddress");
  const auto given_first = std::bit_cast<GetProcAddress>(dlsym(driver, "cuGetProcAddress"));
  const auto ask = [this](GetProcAddress2 function, const char* name, int version,
                          cuuint64_t flags) {
    void* address = this;
    auto status = CUdriverProcAddressQueryResult(3);
    const CUresult result = function(name, &address, version, flags, &status);
    return std::tuple{result, address, status};
  };
  const auto ask_first = [this](GetProcAddress function, const char* name, int version,
                                cuuint64_t flags) {
    void* address = this;
    const CUresult result = function(name, &address, version, flags);
    return std::pair{result, address};
  };
  for (const auto& [name, version, flags] :
       {std::tuple{"cuNoSuchFunction", kNewest, kLegacy},
        {"cuMemcpyDtoDAsync_v2", kNewest, kLegacy},
        {"cuMemcpyAsync", 3000, kLegacy},
        {"cuMemcpyAsync", 4000, kPerThread},
        {"cuMemcpyAsync", 99'000, kLegacy},
        {"cuMemcpyAsync", kNewest, kUnknownFlag},
        {static_cast<const char*>(nullptr), kNewest, kLegacy}}) {
    EXPECT_EQ(ask(own, name, version, flags), ask(from_dlsym, name, version, flags));
    EXPECT_EQ(ask_first(own_first, name, version, flags),
              ask_first(given_first, name, version, flags));
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, own("cuMemcpyAsync", nullptr, kNewest, kLegacy, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            from_dlsym("cuMemcpyAsync", nullptr, kNewest, kLegacy, nullptr));
}

// A name that no object has is missed in the loader's words.
TEST_F(Names, MissingNames_KeepTheLoadersMessage) {
  void* const other = dlopen("libm.so.6", RTLD_NOW);
  for (const char* name : {"cuMemcpyAsync", "cuNoSuchFunction", "noSuchFunction"}) {
    EXPECT_EQ(error_of([&] { return look_up_past_shim(other, name); }),
              error_of([&] { return dlsym(other, name); }));
    EXPECT_NE(std::string::npos,
              error_of([&] { return dlsym(other, name); }).find("undefined symbol"));
  }
}

}  // namespace
}  // namespace polypath::preload::test
