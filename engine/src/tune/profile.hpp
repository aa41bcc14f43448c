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
// and a table for each choice that was tuned (`polypath tune`), which people may edit:
//
//   [[tuned]]
//   pattern = "one way"                       # or "both ways", "window"
//   pair = "gpu to gpu, nvlink x4, via 2 gpu, 1 host"
//   bytes = 67108864
//   executor = "graph"                        # or "stream"
//   routes = ["direct", "gpu", "gpu", "host"]
//   shares = [0.34, 0.31, 0.31, 0.04]         # add up to 1
//   chunks = [1, 9, 9, 4]
//   slots = 0                                 # 0: as many as fit
//   native_gbps, predicted_gbps, measured_gbps, tried
//   digest = 123456789                        # of pattern to slots: without it, or when it
//   differs,
//                                             # the entry counts as edited and no search replaces
//                                             it
//
// a table for each collective that was tuned (`polypath tune collectives`), which people may edit
// as well:
//
//   [[collective]]
//   op = "allreduce"
//   ranks = "4 ranks, nvlink x4"              # collective_class()
//   bytes = 1048576                           # of a rank's larger buffer
//   algorithm = "flat"
//   stages = 2                                # of kernels
//   blocks = 64                               # of a kernel
//   lanes, chunk_bytes                        # of what runs by copies
//   planned_us, us, tried
//   digest = 123456789                        # of op to chunk_bytes
//
// a table for each operation and size that UNICONN's backends were measured with (`polypath tune
// comm`), which people may edit, too:
//
//   [[comm]]
//   op = "post"
//   ranks = "4 ranks, nvlink x4"              # collective_class()
//   bytes = 1048576                           # of a message; of a rank's larger buffer
//   backend = "polypath"                      # the choice
//   backends, us                              # that were measured, and how long each took
//   pairs                                     # how often
//   digest = 123456789                        # of op to us
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
#include <vector>

#include "plan/tuned_backend.hpp"
#include "plan/tuned_collective.hpp"
#include "plan/tuned_transfer.hpp"
#include "topology/node.hpp"
#include "topology/toml_table.hpp"

namespace polypath {

struct Profile {
  Node node;
  std::string fingerprint;
  std::string version;
  std::string date;
  std::string driver;
  std::vector<TunedTransfer> tuned;
  std::vector<TunedCollective> collectives;
  std::vector<TunedBackend> backends;
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

/// The [[tuned]] table, ended by a newline.
std::string format_tuned(const TunedTransfer& choice);

/// Reads one. Throws InvalidArgument with file, line and the allowed values.
TunedTransfer read_tuned(TomlTable& table);

}  // namespace polypath
