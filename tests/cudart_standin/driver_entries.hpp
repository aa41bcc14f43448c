// The driver functions that the stand-in asks for by name.
#pragma once

#include <cuda.h>

namespace polypath::cudart_standin {

/// Whose default stream the stream 0 is.
enum class DefaultStream { legacy, per_thread };

/// The entry point that cuGetProcAddress gives for the name, as of the version (CUDA_VERSION counts
/// so). Null when there is none.
void* driver_entry(const char* name, int version, DefaultStream default_stream);

/// The same as a pointer of the type `Function`.
template <typename Function>
Function driver_function(const char* name, int version,
                         DefaultStream default_stream = DefaultStream::legacy) {
  return reinterpret_cast<Function>(driver_entry(name, version, default_stream));
}

/// Calls the function, CUDA_ERROR_NOT_FOUND without one.
template <typename Function, typename... Arguments>
int call(Function function, Arguments... arguments) {
  return function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...);
}

}  // namespace polypath::cudart_standin
