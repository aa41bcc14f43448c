// Libraries whose calls of the driver all pass the shim, as far as they put work on a stream.
//
// An object is transparent when all of this holds of it, and of every object that needs it:
//   - it is not the program itself;
//   - of all names that begin with `cu` it refers to functions that put nothing on a stream but
//     event records, and to functions that the shim replaces; nor does it refer to libraries that
//     put work on streams of others (NCCL), or to lookups that the shim does not see (dlvsym);
//   - it has not looked up anything else by dlsym() or cuGetProcAddress().
// The object itself refers to the function by name that it makes a stream with: code that calls it
// by an address, as libffi does, calls it for another object.
#pragma once

namespace polypath::preload {

/// Whether the object that holds `caller` is transparent, and refers to `maker`. Slow: some
/// microseconds to milliseconds.
bool is_transparent(const void* caller, const char* maker) noexcept;

/// Code at `caller` was, or may have been, given the address of a function of that name that the
/// shim does not replace. True when that is news, and its object is not transparent any more.
bool add_lookup(const char* name, const void* caller) noexcept;

}  // namespace polypath::preload
