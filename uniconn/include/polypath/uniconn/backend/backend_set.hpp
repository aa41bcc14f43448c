// Several backends at once: one object of each, by number. For AnyBackend.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>

#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn::detail {

/// Backends by number, as library_names has them. Those that there are not are null.
template <typename... Backends>
struct BackendSet {
  static constexpr int kCount = sizeof...(Backends);
  using Worlds = std::tuple<std::unique_ptr<typename Backends::World>...>;
  using Ranks = std::tuple<std::unique_ptr<typename Backends::Ranks>...>;
  using Groups = std::tuple<std::unique_ptr<typename Backends::Group>...>;

  /// Calls `body` with the type, as a std::type_identity.
  template <typename Body>
  static decltype(auto) visit(int library, const Body& body) {
    return with_first<Body, Backends...>(library, body);
  }
  /// Calls `body` with each.
  template <typename Body>
  static void each(const Body& body) {
    (body(std::type_identity<Backends>{}), ...);
  }

 private:
  template <typename Body, typename First, typename... Others>
  static decltype(auto) with_first(int library, const Body& body) {
    if constexpr (sizeof...(Others) > 0) {
      if (library != 0) return with_first<Body, Others...>(library - 1, body);
    }
    return body(std::type_identity<First>{});
  }
};

}  // namespace polypath::uniconn::detail
