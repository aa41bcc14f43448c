// The loader's own dlsym(), which the shim replaces as well (dlsym.cpp).
#pragma once

namespace polypath::preload {

using Dlsym = void* (*)(void* handle, const char* name);

Dlsym real_dlsym() noexcept;

}  // namespace polypath::preload
