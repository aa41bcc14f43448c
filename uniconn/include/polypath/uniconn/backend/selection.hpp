// Which library AnyBackend is of: from what POLYPATH_BACKEND says, and what all ranks have.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "polypath/uniconn/backend/routing_table.hpp"

namespace polypath::uniconn::detail {

/// But for the case of letters; `lower` has none but small ones.
inline bool is_alike(std::string_view name, std::string_view lower) {
  return std::ranges::equal(
      name, lower, [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
}

/// Case does not count.
inline int library_of(std::string_view name) {
  for (std::size_t i = 0; i < library_names.size(); ++i)
    if (is_alike(name, library_names[i])) return static_cast<int>(i);
  return kNoLibrary;
}

/// What one rank says to the others, as bytes.
struct Offer {
  using Text = std::array<char, 240>;
  Text requested{};                                ///< POLYPATH_BACKEND; empty: the best one
  std::array<Text, library_names.size()> lacks{};  ///< why it has not that library; empty: it has

  static void write(Text& text, std::string_view value) {
    text = {};
    value.copy(text.data(), text.size() - 1);
  }
  /// "auto" is as nothing said.
  static std::string requested_backend() {
    const char* const setting = std::getenv("POLYPATH_BACKEND");
    return setting == nullptr || is_alike(setting, "auto") ? "" : setting;
  }
};

struct Choice {
  std::vector<int> candidates;  ///< libraries, the first that begins is taken
  bool is_wanted = false;       ///< by name: there is one candidate, and no other in its place
  std::string passed_over;      ///< those before them, and why
};

inline void pass_over(std::string& text, int library, std::string_view why) {
  text += (text.empty() ? "not " : "; not ");
  text.append(library_names[static_cast<std::size_t>(library)]).append(" (").append(why) += ')';
}

/// Why not, on the first rank that lacks it; empty: all have it.
inline std::string missing_reason(const std::vector<Offer>& all, int library) {
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (const char* const lack = all[rank].lacks[static_cast<std::size_t>(library)].data();
        *lack != '\0')
      return "rank " + std::to_string(rank) + ": " + lack;
  return {};
}

/// The same on all ranks, of the offers of all. Throws on all: a name that there is not, or not the
/// same for all; a library by name that a rank has not; none at all.
inline Choice choice_of(const std::vector<Offer>& all) {
  const std::string requested = all.front().requested.data();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string rank_request = all[rank].requested.data();
    const std::string where = " on rank " + std::to_string(rank);
    if (!rank_request.empty() && library_of(rank_request) == kNoLibrary)
      throw error(POLYPATH_INVALID_ARGUMENT, ("POLYPATH_BACKEND is '" + rank_request + "'" + where +
                                              ": polypath, gpuccl, gpushmem, mpi or auto is wanted")
                                                 .c_str());
    if (rank_request.empty() != requested.empty() ||
        library_of(rank_request) != library_of(requested))
      throw error(POLYPATH_INVALID_ARGUMENT, ("POLYPATH_BACKEND is '" + requested +
                                              "' on rank 0, and '" + rank_request + "'" + where)
                                                 .c_str());
  }
  Choice choice;
  if (!requested.empty()) {
    const int library = library_of(requested);
    if (const std::string lack = missing_reason(all, library); !lack.empty())
      throw error(POLYPATH_NOT_SUPPORTED,
                  ("POLYPATH_BACKEND is " + requested + ": " + lack).c_str());
    choice.candidates = {library};
    choice.is_wanted = true;
    return choice;
  }
  // NVSHMEM is had by name alone: it begins once in the life of a process, and may end it.
  for (const char* const name : {"polypath", "gpuccl", "mpi"}) {
    const int library = library_of(name);
    const std::string lack = missing_reason(all, library);
    if (lack.empty()) {
      choice.candidates.push_back(library);
    } else if (choice.candidates.empty()) {
      pass_over(choice.passed_over, library, lack);
    }
  }
  if (choice.candidates.empty())
    throw error(POLYPATH_NOT_SUPPORTED,
                ("AnyBackend: there is no library for these ranks: " + choice.passed_over).c_str());
  return choice;
}

}  // namespace polypath::uniconn::detail
