// The table of what the shim replaces, as tests need it.
#pragma once

#include <string_view>

namespace polypath::preload::test {

enum class Form : bool { plain, per_thread };

struct ReplacedName {
  std::string_view name;  ///< as the driver exports it
  std::string_view base;  ///< as cuGetProcAddress knows it
  int version;
  Form form;
};

namespace detail {
inline constexpr Form none = Form::plain;
inline constexpr Form legacy = Form::plain;
inline constexpr Form per_thread = Form::per_thread;
}  // namespace detail

inline constexpr ReplacedName kReplaced[] = {
#define POLYPATH_INTERCEPTED(name, base, version, stream) {#name, base, version, detail::stream},
#include "cuda/intercepted.def"
};

constexpr bool is_replaced(std::string_view name) {
  for (const ReplacedName& entry : kReplaced)
    if (entry.name == name) return true;
  return false;
}

}  // namespace polypath::preload::test
