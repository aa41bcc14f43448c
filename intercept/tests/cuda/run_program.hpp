// Running a program and keeping what it says.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace polypath::preload::test {

struct Outcome {
  int status;  ///< exit status; 128 and the signal when a signal ended it
  int pid;
  std::string out;
  std::string error;
};

using Environment = std::map<std::string, std::string>;

/// Runs it to its end, in this process's environment with these changes. Throws std::runtime_error
/// when it cannot be started.
Outcome run(const std::vector<std::string>& command, const Environment& environment);

}  // namespace polypath::preload::test
