// One row of `polypath bench load`: a file in the page cache to a GPU, natively and by polypath in
// alternating pairs, every byte verified.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/file_set.hpp"
#include "lab/pairs.hpp"

namespace polypath {

/// The row as polypath_bench_file() documents it. Throws Error when bytes differ.
nlohmann::json bench_file(Context& context, const FileRequest& request, const PairOptions& options);

}  // namespace polypath
