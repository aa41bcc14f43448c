// The exceptions of the library. They never cross the C boundary: core/c_api.cpp turns each into a
// status code and a message.
#pragma once

#include <stdexcept>
#include <string>

namespace polypath {

/// Root of the family. `what()` is one line that a user can act on.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something that cannot be carried out (address, size, name, setting, file).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// There is no device, or no driver, to work on.
class NoDevice : public Error {
 public:
  using Error::Error;
};

/// The driver lacks a function that this operation needs.
class NotSupported : public Error {
 public:
  using Error::Error;
};

/// A file could not be read, or ends before the last byte that was asked for.
class FileError : public Error {
 public:
  using Error::Error;
};

/// A communicator could not be made, or cannot be used any more: another rank failed, ended, gave
/// up or did not come in time. The message says which and why.
class CommunicatorError : public Error {
 public:
  using Error::Error;
};

/// A driver or NVML call failed. The message names the call and the driver's own error name.
class DriverError : public Error {
 public:
  DriverError(std::string message, int code) : Error(std::move(message)), code_(code) {}
  /// The raw CUresult or nvmlReturn_t.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

}  // namespace polypath
