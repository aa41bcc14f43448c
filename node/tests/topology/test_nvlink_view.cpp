#include "topology/nvlink_view.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace polypath {
namespace {

/// One NVLink of the GPU that the fake NVML below shows.
struct FakeLink {
  bool active = true;
  std::optional<nvmlIntNvLinkDeviceType_t> type;
  unsigned bus = 0;  ///< of the other end; 0: NVML does not tell
};

std::vector<FakeLink> fake_links;

const FakeLink* find(unsigned link) {
  return link < fake_links.size() ? &fake_links[link] : nullptr;
}

nvmlReturn_t fake_state(nvmlDevice_t, unsigned link, nvmlEnableState_t* state) {
  if (find(link) == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *state = find(link)->active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

nvmlReturn_t fake_type(nvmlDevice_t, unsigned link, nvmlIntNvLinkDeviceType_t* type) {
  if (!find(link)->type) return NVML_ERROR_NOT_SUPPORTED;
  *type = *find(link)->type;
  return NVML_SUCCESS;
}

nvmlReturn_t fake_pci(nvmlDevice_t, unsigned link, nvmlPciInfo_t* pci) {
  if (find(link)->bus == 0) return NVML_ERROR_NOT_SUPPORTED;
  pci->bus = find(link)->bus;
  return NVML_SUCCESS;
}

Nvml fake_nvml() {
  Nvml nvml;
  nvml.nvlink_state = fake_state;
  nvml.nvlink_remote_type = fake_type;
  nvml.nvlink_remote_pci = fake_pci;
  return nvml;
}

NvlinkView view(const Nvml& nvml, std::vector<FakeLink> links) {
  fake_links = std::move(links);
  return view_nvlinks(nvml, nullptr, {"0000:41:00.0", "0000:42:00.0"});
}

TEST(NvlinkView, CountsLinksByTheOtherEnd) {
  const NvlinkView seen = view(fake_nvml(), {{true, NVML_NVLINK_DEVICE_TYPE_GPU, 0x41},
                                             {true, NVML_NVLINK_DEVICE_TYPE_GPU, 0x41},
                                             {false, NVML_NVLINK_DEVICE_TYPE_GPU, 0x41},
                                             {true, NVML_NVLINK_DEVICE_TYPE_GPU, 0x42},
                                             {true, NVML_NVLINK_DEVICE_TYPE_IBMNPU, 0x99},
                                             {true, NVML_NVLINK_DEVICE_TYPE_SWITCH, 0x98}});
  EXPECT_EQ(seen.to_gpu, (std::map<std::string, int>{{"0000:41:00.0", 2}, {"0000:42:00.0", 1}}));
  EXPECT_EQ(seen.to_cpu, 1);
  EXPECT_EQ(seen.to_switch, 1);
}

TEST(NvlinkView, HiddenGpu_IsNoSwitch) {
  const NvlinkView seen = view(fake_nvml(), {{true, NVML_NVLINK_DEVICE_TYPE_GPU, 0x77}});
  EXPECT_EQ(seen.to_gpu, (std::map<std::string, int>{{"0000:77:00.0", 1}}));
  EXPECT_EQ(seen.to_switch, 0);
}

TEST(NvlinkView, UntypedEnd_IsGpuByBusIdElseSwitch) {
  const NvlinkView seen =
      view(fake_nvml(), {{true, {}, 0x41}, {true, {}, 0x98}, {true, {}, 0}, {true, {}, 0}});
  EXPECT_EQ(seen.to_gpu, (std::map<std::string, int>{{"0000:41:00.0", 1}}));
  EXPECT_EQ(seen.to_switch, 3);
}

TEST(NvlinkView, OldNvml_ShowsWhatItCan) {
  Nvml nvml = fake_nvml();
  nvml.nvlink_remote_type = nullptr;
  const NvlinkView seen = view(nvml, {{true, NVML_NVLINK_DEVICE_TYPE_GPU, 0x42}});
  EXPECT_EQ(seen.to_gpu, (std::map<std::string, int>{{"0000:42:00.0", 1}}));
  nvml.nvlink_state = nullptr;
  EXPECT_TRUE(view(nvml, {{true, NVML_NVLINK_DEVICE_TYPE_GPU, 0x42}}).to_gpu.empty());
}

}  // namespace
}  // namespace polypath
