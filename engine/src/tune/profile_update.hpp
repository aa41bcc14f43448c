// Adds the entries of this process to a profile that other processes write as well: no entries are
// lost.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "tune/profile.hpp"

namespace polypath {

/// What one process found itself, of all that it knows.
struct ProfileUpdate {
  bool links = false;  ///< of the node: measured
  ProfileTables tables = {};
};

/// Writes `file` with what it holds now and `news`, which is a part of `known`; an edited entry
/// stays as it is. Where there is no file, all that is `known` is written; so it is where
/// load_profile() refuses the file, which is kept as FILE.refused then. Processes of one machine
/// that add to one file take turns, by a lock on its folder, which no file is made for. A process
/// that gets no lock, in `longest_wait` or from the file system, writes without. False, with a
/// one-line reason in `*why`, when it cannot be written, when what was refused cannot be kept, and
/// for anything but a regular file, which stays untouched.
bool add_to_profile(const std::filesystem::path& file, const Profile& known,
                    const ProfileUpdate& news, std::string* why,
                    std::chrono::milliseconds longest_wait = std::chrono::seconds(20));

}  // namespace polypath
