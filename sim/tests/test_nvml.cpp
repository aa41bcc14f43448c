// NVML tells how the node is wired.
#include <nvml.h>

#include <array>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

class NvmlTest : public SimTest {
 protected:
  void SetUp() override {
    SimTest::SetUp();
    ASSERT_EQ(NVML_SUCCESS, nvmlInit());
  }

  static nvmlDevice_t device_of(int gpu) {
    char bus_id[32];
    EXPECT_CUDA(CUDA_SUCCESS, cuDeviceGetPCIBusId(bus_id, sizeof bus_id, gpu));
    nvmlDevice_t device = nullptr;
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByPciBusId(bus_id, &device));
    return device;
  }
  static std::string bus_id_of(int gpu) {
    nvmlPciInfo_t info{};
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetPciInfo(device_of(gpu), &info));
    return info.busId;
  }
};

TEST_F(NvmlTest, EachLinkNamesItsPeer) {
  const nvmlDevice_t gpu0 = device_of(0);
  std::vector<std::string> peers;
  for (unsigned link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state = NVML_FEATURE_DISABLED;
    const nvmlReturn_t result = nvmlDeviceGetNvLinkState(gpu0, link, &state);
    if (result == NVML_ERROR_NOT_SUPPORTED) break;
    EXPECT_EQ(NVML_SUCCESS, result);
    EXPECT_EQ(NVML_FEATURE_ENABLED, state);
    nvmlIntNvLinkDeviceType_t type = NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetNvLinkRemoteDeviceType(gpu0, link, &type));
    EXPECT_EQ(NVML_NVLINK_DEVICE_TYPE_GPU, type);
    unsigned version = 0;
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetNvLinkVersion(gpu0, link, &version));
    EXPECT_EQ(3U, version);
    nvmlPciInfo_t info{};
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetNvLinkRemotePciInfo(gpu0, link, &info));
    peers.emplace_back(info.busId);
  }
  const std::string a = bus_id_of(1);
  const std::string b = bus_id_of(2);
  EXPECT_EQ((std::vector{a, a, a, a, b, b}), peers);
}

TEST_F(NvmlTest, PcieIsTheNodeFiles) {
  unsigned value = 0;
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetMaxPcieLinkGeneration(device_of(0), &value));
  EXPECT_EQ(4U, value);
  EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetMaxPcieLinkWidth(device_of(0), &value));
  EXPECT_EQ(16U, value);
}

TEST_F(NvmlTest, VersionSaysSimulated) {
  char version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
  EXPECT_EQ(NVML_SUCCESS, nvmlSystemGetDriverVersion(version, sizeof version));
  EXPECT_STREQ("580.0 (simulated)", version);
}

TEST_F(NvmlTest, DevicesAreCountedInTheOrderOfTheNode) {
  unsigned count = 0;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetCount(&count));
  ASSERT_EQ(contexts.size(), count);
  for (unsigned i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    EXPECT_EQ(NVML_SUCCESS, nvmlDeviceGetHandleByIndex(i, &device));
    EXPECT_EQ(device_of(static_cast<int>(i)), device);
  }
  nvmlDevice_t device = nullptr;
  EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetHandleByIndex(count, &device));
}

TEST_F(NvmlTest, FieldsHaveAResultEach) {
  std::array<nvmlFieldValue_t, 2> values{};
  values[0].fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT;
  values[1].fieldId = NVML_FI_DEV_ECC_CURRENT;
  ASSERT_EQ(NVML_SUCCESS, nvmlDeviceGetFieldValues(device_of(0), 2, values.data()));
  EXPECT_EQ(NVML_SUCCESS, values[0].nvmlReturn);
  EXPECT_EQ(NVML_VALUE_TYPE_UNSIGNED_INT, values[0].valueType);
  EXPECT_EQ(6U, values[0].value.uiVal);
  EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED, values[1].nvmlReturn);
}

TEST_F(NvmlTest, ThereIsNoFabric) {
  nvmlGpuFabricInfoV_t info{};
  info.version = nvmlGpuFabricInfo_v3;
  EXPECT_EQ(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetGpuFabricInfoV(device_of(0), &info));
}

TEST_F(NvmlTest, UnknownDevicesAreRefused) {
  nvmlDevice_t device = nullptr;
  EXPECT_EQ(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByPciBusId("0000:ff:00.0", &device));
  unsigned value = 0;
  EXPECT_EQ(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetMaxPcieLinkWidth(nullptr, &value));
}

}  // namespace
}  // namespace polypath::sim::test
