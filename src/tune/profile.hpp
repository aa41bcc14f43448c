// The profile of a node: what was measured on it, kept in a file between processes. The file is a node
// file (topology/node_file.hpp), with a table more:
//
//   [profile]
//   schema = 1
//   fingerprint = "..."     # of the GPUs, links and driver that were measured
//   version = "0.1.0"       # of polypath
//   date = "2026-01-31T12:00:00Z"
//   driver = "580.65.06"
//
// A profile only ever saves time: whatever is wrong with the file, the library goes on without it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "topology/node.hpp"

namespace polypath {

struct Profile {
  Node node;
  std::string fingerprint;
  std::string version;
  std::string date;
  std::string driver;
};

/// A profile of `node` with this library's version and the time now.
Profile make_profile(Node node, std::string fingerprint, std::string driver);

/// $XDG_CACHE_HOME/polypath, or ~/.cache/polypath; empty when neither variable is set to an absolute
/// path.
std::filesystem::path profile_directory();

/// The file of a fingerprint in `directory`: "<fingerprint>.toml". Throws InvalidArgument when the
/// fingerprint is empty or has a character other than letters, digits, '.', '_' and '-'.
std::filesystem::path profile_file(const std::filesystem::path& directory,
                                   const std::string& fingerprint);

/// Reads `file`. Nothing, with an empty `*why`, when there is no such file; nothing, with a one-line
/// reason in `*why`, when it is damaged, of a newer schema, or of another fingerprint.
std::optional<Profile> load_profile(const std::filesystem::path& file,
                                    const std::string& fingerprint, std::string* why);

/// Writes `file`, and the folders above it, so that a reader finds the old file or the new one and
/// never a part. False, with a one-line reason in `*why`, when it cannot.
bool save_profile(const std::filesystem::path& file, const Profile& profile, std::string* why);

}  // namespace polypath
