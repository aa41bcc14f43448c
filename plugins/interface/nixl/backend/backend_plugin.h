// The interface of NIXL 1.3.1 for back ends (plug-in API 1), as far as its binary form goes: the
// members of what a plug-in reads, and the order of virtual functions, which the wheel nixl-cu13
// 1.3.1 shows. For tests where NIXL's headers are not installed; a plug-in that is built with it is
// loaded by that wheel.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define NIXL_PLUGIN_API_VERSION 1

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };
enum nixl_status_t {
  NIXL_IN_PROG = 1,
  NIXL_SUCCESS = 0,
  NIXL_ERR_NOT_POSTED = -1,
  NIXL_ERR_INVALID_PARAM = -2,
  NIXL_ERR_BACKEND = -3,
  NIXL_ERR_NOT_SUPPORTED = -9
};
enum class nixl_thread_sync_t { NIXL_THREAD_SYNC_NONE };
enum class nixl_cost_t { ANALYTICAL_BACKEND };

using nixl_backend_t = std::string;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_query_resp_t = std::optional<nixl_b_params_t>;
using notif_list_t = std::vector<std::pair<std::string, std::string>>;

struct nixlTelemetryEvent;
struct nixlAgentOptionalArgs;

struct nixlBasicDesc {
  std::uintptr_t addr = 0;
  std::size_t len = 0;
  std::uint64_t devId = 0;
};
struct nixlBlobDesc : nixlBasicDesc {
  std::string metaInfo;
};

class nixlBackendMD {
 public:
  explicit nixlBackendMD(bool is_private) : isPrivateMD(is_private) {}
  virtual ~nixlBackendMD() = default;

 protected:
  bool isPrivateMD;
};
class nixlBackendReqH {
 public:
  virtual ~nixlBackendReqH() = default;
};

struct nixlMetaDesc : nixlBasicDesc {
  nixlBackendMD* metadataP = nullptr;
};
struct nixlRemoteMetaDesc : nixlMetaDesc {
  std::string remoteAgent;
};

template <typename T>
class nixlDescList {
 public:
  explicit nixlDescList(nixl_mem_t kind) : type(kind) {}
  virtual ~nixlDescList() = default;
  nixl_mem_t getType() const { return type; }
  int descCount() const { return static_cast<int>(descs.size()); }
  const T& operator[](std::size_t index) const { return descs[index]; }
  void add(const T& entry) { descs.push_back(entry); }

 protected:
  nixl_mem_t type;
  std::vector<T> descs;
};
using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;
using nixl_remote_meta_dlist_t = nixlDescList<nixlRemoteMetaDesc>;
using nixl_reg_dlist_t = nixlDescList<nixlBlobDesc>;

struct nixlBackendOptionalArgs {
  std::string notifMsg;
  bool hasNotif = false;
  std::string customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

struct nixlBackendInitParams {
  std::string localAgent;
  nixl_backend_t type;
  nixl_b_params_t* customParams = nullptr;
  bool enableProgTh = false;
  std::uint64_t pthrDelay = 0;
  nixl_thread_sync_t syncMode = nixl_thread_sync_t::NIXL_THREAD_SYNC_NONE;
  bool enableTelemetry_ = false;
};

class nixlBackendEngine {
 public:
  explicit nixlBackendEngine(const nixlBackendInitParams* parameters)
      : backendType(parameters->type),
        customParams(*parameters->customParams),
        localAgent(parameters->localAgent),
        enableTelemetry_(parameters->enableTelemetry_) {}
  virtual ~nixlBackendEngine() = default;
  const nixl_b_params_t& getCustomParams() const noexcept { return customParams; }

  // In the order of the table of virtual functions.
  virtual bool supportsRemote() const = 0;
  virtual bool supportsLocal() const = 0;
  virtual bool supportsNotif() const = 0;
  virtual nixl_mem_list_t getSupportedMems() const = 0;
  virtual nixl_status_t registerMem(const nixlBlobDesc&, const nixl_mem_t&, nixlBackendMD*&) = 0;
  virtual nixl_status_t deregisterMem(nixlBackendMD*) = 0;
  virtual nixl_status_t connect(const std::string&) = 0;
  virtual nixl_status_t disconnect(const std::string&) = 0;
  virtual nixl_status_t unloadMD(nixlBackendMD*) = 0;
  virtual nixl_status_t prepXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                 const nixl_meta_dlist_t&, const std::string&, nixlBackendReqH*&,
                                 const nixl_opt_b_args_t* = nullptr) const = 0;
  virtual nixl_status_t postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                 const nixl_meta_dlist_t&, const std::string&, nixlBackendReqH*&,
                                 const nixl_opt_b_args_t* = nullptr) const = 0;
  virtual nixl_status_t checkXfer(nixlBackendReqH*) const = 0;
  virtual nixl_status_t releaseReqH(nixlBackendReqH*) const = 0;
  virtual nixl_status_t prepMemView(const nixl_remote_meta_dlist_t&, void*&,
                                    const nixl_opt_b_args_t* = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t prepMemView(const nixl_meta_dlist_t&, void*&,
                                    const nixl_opt_b_args_t* = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual void releaseMemView(void*) const {}
  virtual nixl_status_t getPublicData(const nixlBackendMD*, std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t getConnInfo(std::string&) const { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t loadRemoteConnInfo(const std::string&, const std::string&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t loadRemoteMD(const nixlBlobDesc&, const nixl_mem_t&, const std::string&,
                                     nixlBackendMD*&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t loadLocalMD(nixlBackendMD*, nixlBackendMD*&) { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t getNotifs(notif_list_t&) { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t genNotif(const std::string&, const std::string&) const {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t queryMem(const nixl_reg_dlist_t&, std::vector<nixl_query_resp_t>&) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t estimateXferCost(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                         const nixl_meta_dlist_t&, const std::string&,
                                         nixlBackendReqH* const&, std::chrono::microseconds&,
                                         std::chrono::microseconds&, nixl_cost_t&,
                                         const nixlAgentOptionalArgs* = nullptr) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }

 private:
  nixl_backend_t backendType;
  nixl_b_params_t customParams;
  std::vector<nixlTelemetryEvent*> telemetryEvents_;  // always empty here
  std::mutex telemetryEventsMutex_;

 protected:
  bool initErr = false;
  const std::string localAgent;
  const bool enableTelemetry_;
};

class nixlBackendPlugin {
 public:
  int api_version;
  nixlBackendEngine* (*create_engine)(const nixlBackendInitParams*);
  void (*destroy_engine)(nixlBackendEngine*);
  const char* (*get_plugin_name)();
  const char* (*get_plugin_version)();
  nixl_b_params_t (*get_backend_options)();
  nixl_mem_list_t (*get_backend_mems)();
};
