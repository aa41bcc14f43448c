// Sizes and counts as people write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpi_bench {

/// Bytes: a number, with K, M or G for powers of 1024. Throws UsageError that names `option`.
std::size_t parse_size(std::string_view option, std::string_view text);

/// "64K,1M:8M": sizes, and ranges that double. Throws UsageError that names `option`.
std::vector<std::size_t> parse_sizes(std::string_view option, std::string_view text);

/// A whole number in this range. Throws UsageError that names `option`.
int parse_count(std::string_view option, std::string_view text, int least, int most);

/// The parts of "1,4,16".
std::vector<std::string_view> split(std::string_view text);

}  // namespace mpi_bench
