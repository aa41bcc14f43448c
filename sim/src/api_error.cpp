// Names and texts of the results that this driver gives.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "call.hpp"
#include "failure.hpp"

namespace polypath::sim {

void fail_not_supported(const char* what) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  {
    const std::lock_guard lock(mutex);
    if (reported.insert(what).second)
      std::fprintf(stderr, "polypath_sim: not supported: %s\n", what);
  }
  throw Failure{CUDA_ERROR_NOT_SUPPORTED};
}

}  // namespace polypath::sim

using namespace polypath::sim;

namespace {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

#define POLYPATH_ERROR(code, text) \
  ErrorText { code, #code, text }
constexpr ErrorText kErrors[] = {
    POLYPATH_ERROR(CUDA_SUCCESS, "no error"),
    POLYPATH_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    POLYPATH_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    POLYPATH_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    POLYPATH_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "device is busy or unavailable"),
    POLYPATH_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    POLYPATH_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    POLYPATH_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    POLYPATH_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported"),
    POLYPATH_ERROR(CUDA_ERROR_ILLEGAL_STATE, "not permitted in this state"),
    POLYPATH_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    POLYPATH_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    POLYPATH_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                   "too many blocks in cooperative launch"),
    POLYPATH_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    POLYPATH_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    POLYPATH_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    POLYPATH_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    POLYPATH_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    POLYPATH_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    POLYPATH_ERROR(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access is not enabled"),
    POLYPATH_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    POLYPATH_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is already registered"),
    POLYPATH_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered"),
    POLYPATH_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not permitted in stream capture"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "another thread began the capture"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE, "would merge two captures"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not begun on this stream"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "captured work was not joined"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency on work outside the capture"),
    POLYPATH_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "would depend on a capture implicitly"),
    POLYPATH_ERROR(CUDA_ERROR_CAPTURED_EVENT, "event was last recorded in a capture"),
    POLYPATH_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef POLYPATH_ERROR

const ErrorText& find_error(CUresult code) {
  const auto* const entry = std::find_if(std::begin(kErrors), std::end(kErrors),
                                         [code](const ErrorText& e) { return e.code == code; });
  require(entry != std::end(kErrors), CUDA_ERROR_INVALID_VALUE);
  return *entry;
}

}  // namespace

CUresult cuGetErrorName(CUresult error, const char** name) {
  return guarded([&] { out(name) = nullptr, *name = find_error(error).name; });
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  return guarded([&] { out(text) = nullptr, *text = find_error(error).text; });
}
