// What the functions of the C API share (c_api.cpp, lab_api.cpp): handles and strings in,
// exceptions out as status codes, converted in one place.
#pragma once

#include <unistd.h>

#include <any>
#include <exception>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "core/context.hpp"
#include "core/last_error.hpp"
#include "polypath/polypath.h"

struct polypath_context {
  explicit polypath_context(const polypath::OptionArguments& arguments) : context(arguments) {}

  polypath::Context context;
  /// The process that made it. A child that got it by a fork has none of its threads.
  const pid_t made_by = getpid();
  /// One long measurement at a time, and what it keeps for the next.
  std::mutex laboratory_mutex;
  std::any laboratory;
};

namespace polypath {

/// Runs `body`; turns what it throws into a status and the thread's last error.
template <typename Body>
polypath_status guarded(Body&& body) noexcept {
  try {
    body();
    return POLYPATH_SUCCESS;
  } catch (const InvalidArgument& error) {
    return failed(POLYPATH_INVALID_ARGUMENT, error.what());
  } catch (const NoDevice& error) {
    return failed(POLYPATH_NO_DEVICE, error.what());
  } catch (const NotSupported& error) {
    return failed(POLYPATH_NOT_SUPPORTED, error.what());
  } catch (const CommunicatorError& error) {
    return failed(POLYPATH_COMMUNICATOR_ERROR, error.what());
  } catch (const FileError& error) {
    return failed(POLYPATH_FILE_ERROR, error.what());
  } catch (const DriverError& error) {
    return failed(POLYPATH_DRIVER_ERROR, error.what(), error.code());
  } catch (const std::exception& error) {
    return failed(POLYPATH_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(POLYPATH_INTERNAL_ERROR, "unknown error");
  }
}

/// Throws InvalidArgument.
void require(bool condition, const char* message);
/// For polypath_free_string(). Throws std::bad_alloc.
char* copy_of(const std::string& text);
/// Throws InvalidArgument when `out` is null.
void give(const nlohmann::json& value, char** out);
/// Throws InvalidArgument when it is null.
Context& context_of(polypath_context* context);
/// Throws InvalidArgument for null, none, and what is no memory.
std::vector<Request> requests_of(const polypath_transfer_request* requests, std::size_t count);

}  // namespace polypath
