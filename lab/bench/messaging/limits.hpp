// What the hardware gives, as far as the lines of this benchmark can be held against it.
#pragma once

#include <string>

namespace messaging_bench {

class Bench;

/// "fetch_adds": of one address, G/s; "remote_fetch_adds": of one on the other GPU;
/// "l2_read", "hbm_read", "remote_stores": GB/s. 0: it cannot be measured here.
double measure_limit(Bench& bench, const std::string& name);

}  // namespace messaging_bench
