// The loader's own dlsym(), which both interceptors replace.
#pragma once

namespace polypath::gate {

using Dlsym = void* (*)(void* handle, const char* name);

/// Past every library that replaces it. Any thread.
Dlsym real_dlsym() noexcept;

}  // namespace polypath::gate
