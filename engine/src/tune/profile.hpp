// The profile of a node: what was measured on it, kept in a file between processes. The file is a
// node file (topology/node_file.hpp), with a table more:
//
//   [profile]
//   schema = 4
//   fingerprint = "..."     # of the GPUs, links and driver that were measured
//   version = "0.1.0"       # of polypath
//   date = "2026-01-31T12:00:00Z"
//   driver = "580.65.06"
//
// then tables of what was tuned, each with an entry [[NAME]] for each choice, which users may edit:
// tuned_transfer_profile.hpp, and those of the parts above the engine (profile_table.hpp),
//
// and last the empty table [end], without which the file was cut short.
//
// A profile only ever saves time: if anything is wrong with the file, the library goes on without
// it.
// Only a setting that names something else than a file is an error (core/node_source.hpp).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "topology/node.hpp"
#include "tune/profile_table.hpp"

namespace polypath {

struct Profile {
  Node node;
  std::string fingerprint;
  std::string version;
  std::string date;
  std::string driver;
  ProfileTables tables = {};
};

/// A profile of `node` with this library's version and the time now.
Profile make_profile(Node node, std::string fingerprint, std::string driver);

/// $XDG_CACHE_HOME/polypath, or ~/.cache/polypath; empty when neither variable is set to an
/// absolute path.
std::filesystem::path profile_directory();

/// The file of a fingerprint in `directory`: "<fingerprint>.toml". Throws InvalidArgument when the
/// fingerprint is empty or has a character other than letters, digits, '.', '_' and '-'.
std::filesystem::path profile_file(const std::filesystem::path& directory,
                                   const std::string& fingerprint);

/// One line that names `file` when it is something else than a regular file, or a link to one:
/// no profile is read from it or kept in it, and it stays untouched. Empty when it is one, and when
/// nothing is there.
std::string unusable_reason(const std::filesystem::path& file);

/// Reads `file`. Nothing, with an empty `*why`, when there is no such file; nothing, with a
/// one-line reason in `*why`, when it is damaged, of another version of this library, of another
/// fingerprint (node or driver), or no regular file, which is not opened.
std::optional<Profile> load_profile(const std::filesystem::path& file,
                                    const std::string& fingerprint, std::string* why);

/// Writes `file`, and the folders above it, so that a reader finds the old file or the new one and
/// never a part. False, with a one-line reason in `*why`, when it cannot. What others wrote there
/// is lost: tune/profile_update.hpp adds to it.
bool save_profile(const std::filesystem::path& file, const Profile& profile, std::string* why);

}  // namespace polypath
