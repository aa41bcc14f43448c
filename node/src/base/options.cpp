#include "base/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"

namespace polypath {
namespace {

/// Reads `text` into `options`; throws InvalidArgument or returns false when the value is not
/// allowed.
using Parser = std::function<bool(std::string_view text, Options& options)>;

struct Row {
  const char* name;
  const char* environment;
  const char* default_value;
  const char* allowed;
  const char* meaning;
  Parser parse;
};

Parser text_into(std::string Options::* member) {
  return [member](std::string_view text, Options& options) {
    options.*member = text;
    return true;
  };
}

Parser bytes_into(std::uint64_t Options::* member, bool automatic, std::uint64_t low,
                  std::uint64_t high) {
  return [=](std::string_view text, Options& options) {
    if (automatic && text == "auto") {
      options.*member = 0;
      return true;
    }
    const std::uint64_t value = parse_bytes(text);
    options.*member = value;
    return value >= low && value <= high;
  };
}

Parser count_into(int Options::* member, bool automatic, int low, int high) {
  return [=](std::string_view text, Options& options) {
    if (automatic && text == "auto") {
      options.*member = 0;
      return true;
    }
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    options.*member = value;
    return error == std::errc{} && end == text.data() + text.size() && value >= low &&
           value <= high;
  };
}

bool parse_routes(std::string_view text, Options& options) {
  options.direct_routes = options.gpu_routes = options.host_routes = false;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const auto word = text.substr(0, comma);
    if (word == "all") {
      options.direct_routes = options.gpu_routes = options.host_routes = true;
    } else if (word == "direct") {
      options.direct_routes = true;
    } else if (word == "gpu") {
      options.gpu_routes = true;
    } else if (word == "host") {
      options.host_routes = true;
    } else {
      return false;
    }
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return options.direct_routes || options.gpu_routes || options.host_routes;
}

/// One of a few words.
template <typename TransferConfig, std::size_t count>
Parser choice_into(TransferConfig Options::* member,
                   const std::pair<std::string_view, TransferConfig> (&choices)[count]) {
  return [member, words = std::to_array(choices)](std::string_view text, Options& options) {
    const auto it =
        std::ranges::find(words, text, &std::pair<std::string_view, TransferConfig>::first);
    if (it == words.end()) return false;
    options.*member = it->second;
    return true;
  };
}

bool parse_emulate_mesh(std::string_view text, Options& options) {
  if (text == "off") {
    options.emulate_mesh_gbps = 0;
    return true;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  options.emulate_mesh_gbps = value;
  return error == std::errc{} && end == text.data() + text.size() && value >= 1 && value <= 1000;
}

bool parse_registry(std::string_view text, Options& options) {
  options.registry = text;
  return text == "auto" || text == "off" || text.starts_with('/');
}

/// What UNICONN's headers read, which are in programs: they refuse a word on all ranks together.
/// And what the library between programs and NCCL reads, and Python's part for PyTorch.
bool of_programs(std::string_view, Options&) { return true; }

bool on_or_off(std::string_view text, Options&) { return text == "on" || text == "off"; }

bool bit(std::string_view text, Options&) { return text == "0" || text == "1"; }

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"node", "POLYPATH_NODE", "", "a name of `polypath nodes`, or a node file",
       "run on this simulated node instead of this machine's GPUs", text_into(&Options::node)},
      {"routes", "POLYPATH_ROUTES", "all", "all, or a list of direct, gpu, host",
       "kinds of routes that a transfer may use", parse_routes},
      {"max_routes", "POLYPATH_MAX_ROUTES", "auto", "auto, or 1 to 64",
       "routes of one transfer at most, the direct one included",
       count_into(&Options::max_routes, true, 1, 64)},
      {"chunk_size", "POLYPATH_CHUNK_SIZE", "auto", "auto, or 64K to 16M",
       "bytes of one chunk of a staged route",
       bytes_into(&Options::chunk_size, true, 64 * kKiB, 16 * kMiB)},
      {"chunks", "POLYPATH_CHUNKS", "auto", "auto, or 1 to 4096",
       "chunks of a staged route; more than fit the staging memory are raised to what fits",
       count_into(&Options::chunks, true, 1, 4096)},
      {"min_size", "POLYPATH_MIN_SIZE", "auto", "auto, or 4K to 1T",
       "transfers below this many bytes stay native copies",
       bytes_into(&Options::min_size, true, 4 * kKiB, 1024 * kGiB)},
      {"staging_size", "POLYPATH_STAGING_SIZE", "64M", "4M to 4G",
       "staging memory on each GPU, and of pinned host memory, at most",
       bytes_into(&Options::staging_size, false, 4 * kMiB, 4 * kGiB)},
      {"pinned_limit", "POLYPATH_PINNED_LIMIT", "256M", "0 to 1T",
       "pinned host memory of all kinds that transfers of this process take at most; routes for "
       "which there is no room are left out",
       bytes_into(&Options::pinned_limit, false, 0, 1024 * kGiB)},
      {"executor", "POLYPATH_EXECUTOR", "auto", "auto, stream, graph",
       "what runs a transfer: streams and events, or one cached CUDA graph; auto: what the profile "
       "measured faster, else streams",
       choice_into(&Options::executor, {{"auto", ExecutorSetting::automatic},
                                        {"stream", ExecutorSetting::stream},
                                        {"graph", ExecutorSetting::graph}})},
      {"prepare", "POLYPATH_PREPARE", "background", "background, wait",
       "what a transfer does whose staged routes are not ready yet: go without them while they are "
       "prepared in the background, or wait for them",
       choice_into(&Options::prepare,
                   {{"background", PrepareMode::background}, {"wait", PrepareMode::wait}})},
      {"prepare_threads", "POLYPATH_PREPARE_THREADS", "1", "1 to 16",
       "threads that make routes ready in the background",
       count_into(&Options::prepare_threads, false, 1, 16)},
      {"copy_threads", "POLYPATH_COPY_THREADS", "auto", "auto, or 1 to 64",
       "CPU threads that copy between pageable memory and pinned memory; 1: such copies stay "
       "native; auto: the CPUs that the process may use, divided by the ranks of the node, at most "
       "16",
       count_into(&Options::copy_threads, true, 1, 64)},
      {"share_mappings", "POLYPATH_SHARE_MAPPINGS", "on", "on, off",
       "whether GPUs that stage are given access to memory that a program has mapped (cuMemMap) "
       "for "
       "its own GPU alone",
       choice_into(&Options::share_mappings, {{"on", true}, {"off", false}})},
      {"load", "POLYPATH_LOAD", "auto", "auto, all, known, off",
       "whether routes are left out while others use their links: known: by the copies that "
       "processes tell of; all: by those and by measurement; auto: all, but off on simulated "
       "nodes in functional mode",
       choice_into(&Options::load, {{"auto", LoadMode::automatic},
                                    {"all", LoadMode::all},
                                    {"known", LoadMode::known},
                                    {"off", LoadMode::off}})},
      {"graph_cache_size", "POLYPATH_GRAPH_CACHE_SIZE", "64", "0 to 4096",
       "instantiated graphs that are kept; 0: each graph is built, used and destroyed",
       count_into(&Options::graph_cache_size, false, 0, 4096)},
      {"batch_blocks", "POLYPATH_BATCH_BLOCKS", "8", "0 to 64",
       "thread blocks on each GPU whose kernel copies small blocks of a batch; twice as many "
       "between "
       "two GPUs; 0: batches go without kernels",
       count_into(&Options::batch_blocks, false, 0, 64)},
      {"batch_copy_size", "POLYPATH_BATCH_COPY_SIZE", "8M", "64K to 1T",
       "copies of a batch of this many bytes or more are transfers by copy engines",
       bytes_into(&Options::batch_copy_size, false, 64 * kKiB, 1024 * kGiB)},
      {"emulate_mesh", "POLYPATH_EMULATE_MESH", "off", "off, or 1 to 1000",
       "GB/s of each link of an emulated NVLink mesh: copies between GPUs are carried by a kernel "
       "as fast as that (for studies on NVSwitch nodes)",
       parse_emulate_mesh},
      {"peer_access", "POLYPATH_PEER_ACCESS", "1", "0 or 1",
       "0: as if no GPU could address another one's memory, for measuring what runs on such "
       "machines; the same on all ranks",
       choice_into(&Options::peer_access, {{"1", true}, {"0", false}})},
      {"profile", "POLYPATH_PROFILE", "auto", "auto, off, or a file",
       "measured capacities and tuned choices of this node: the file in the cache folder, none, or "
       "this file",
       text_into(&Options::profile)},
      {"registry", "POLYPATH_REGISTRY", "auto", "auto, off, or a folder's absolute path",
       "where processes tell each other where exported memory lies and what is in flight: the "
       "user's folder in /dev/shm, nowhere, or this folder",
       parse_registry},
      {"comm_timeout_ms", "POLYPATH_COMM_TIMEOUT_MS", "30000", "1 to 86400000",
       "milliseconds that a rank of a communicator waits for another one; MPI's ranks have a "
       "limit only where this is set",
       count_into(&Options::comm_time_limit_ms, false, 1, 86'400'000)},
      {"put_kernel_size", "POLYPATH_PUT_KERNEL_SIZE", "4M", "0 to 64M",
       "a communicator's puts of at most so many bytes are made by a kernel, the sooner for it; 0: "
       "all by copies, which need no room beside the program's kernels",
       bytes_into(&Options::put_kernel_size, false, 0, 64 * kMiB)},
      {"scratch", "POLYPATH_SCRATCH", "creation", "creation, needed",
       "creation: a communicator takes all memory for collectives when it is made, also where "
       "one rank says so; needed: most of it when a call needs it first, with "
       "smaller tiles",
       choice_into(&Options::scratch_when_needed, {{"creation", false}, {"needed", true}})},
      {"sum_order", "POLYPATH_SUM_ORDER", "rank", "rank, tree",
       "in which order collectives combine floats of ranks: one after another, or as a balanced "
       "binary tree; the same on all ranks of a communicator",
       choice_into(&Options::sum_order,
                   {{"rank", SumOrderSetting::rank}, {"tree", SumOrderSetting::tree}})},
      {"direct_results", "POLYPATH_DIRECT_RESULTS", "auto", "auto, 0 or 1",
       "1: other ranks store results of large collectives straight into recv, where their GPUs "
       "address it; auto: where ranks share a process",
       choice_into(&Options::direct_results, {{"auto", DirectResultsSetting::automatic},
                                              {"1", DirectResultsSetting::on},
                                              {"0", DirectResultsSetting::off}})},
      {"comm_port", "POLYPATH_COMM_PORT", "auto", "auto, or 1 to 65535",
       "where rank 0 listens for ranks that a launcher started; auto: the port behind MASTER_PORT",
       count_into(&Options::comm_port, true, 1, 65535)},
      {"comm_node", "POLYPATH_COMM_NODE", "auto", "auto, or a name",
       "which node a rank is of, for communicators of several nodes; auto: this machine",
       text_into(&Options::comm_node)},
      {"mpi_collectives", "POLYPATH_MPI_COLLECTIVES", "on", "on, off",
       "whether collectives of MPI are taken from programs under `polypath run`; off on one rank "
       "of a communicator leaves them to MPI on all",
       choice_into(&Options::mpi_collectives, {{"on", true}, {"off", false}})},
      {"nccl_collectives", "POLYPATH_NCCL_COLLECTIVES", "on", "on, off",
       "whether collectives of NCCL are taken from programs under `polypath run`; off on one rank "
       "of a communicator leaves them to NCCL on all",
       on_or_off},
      {"nccl_library", "POLYPATH_NCCL_LIBRARY", "", "a library name or path",
       "the NCCL behind libpolypath_nccl.so; default: what the program has loaded, else "
       "libnccl.so.2",
       of_programs},
      {"nccl_timeout_ms", "POLYPATH_NCCL_TIMEOUT_MS", "86400000", "1 to 86400000",
       "milliseconds that a rank waits for another one in a call that was NCCL's, which waits for "
       "ever; a rank that died is found at once",
       [](std::string_view text, Options&) {
         Options unused;
         return count_into(&Options::comm_time_limit_ms, false, 1, 86'400'000)(text, unused);
       }},
      {"ddp_hook", "POLYPATH_DDP_HOOK", "on", "on, off",
       "whether DistributedDataParallel takes polypath's hook by itself, where the program "
       "registers none; the same on all ranks",
       on_or_off},
      {"reproducible", "POLYPATH_REPRODUCIBLE", "0", "0 or 1",
       "1: every sum of floats of NCCL's is taken, in rank order (`polypath run --reproducible`)",
       bit},
      {"strict", "POLYPATH_STRICT", "0", "0 or 1",
       "1: a program is stopped where that cannot be promised (`--strict`)", bit},
      {"uniconn_backend", "POLYPATH_BACKEND", "", "polypath, gpuccl, gpushmem, mpi or auto",
       "the library that UNICONN's AnyBackend is of, the same on all ranks; auto: the first that "
       "they all have, and what `polypath tune backend` found faster",
       of_programs},
      {"uniconn_mpi", "POLYPATH_UNICONN_MPI", "", "host, messages or gpu",
       "what UNICONN gives to MPI: copies in host memory, or memory of GPUs, to messages alone or "
       "to "
       "collectives as well; default: what this MPI says that it takes",
       of_programs},
      {"check", "POLYPATH_CHECK", "0", "0 or 1",
       "1: each collective waits on the host, and is compared with those of the other ranks",
       count_into(&Options::check, false, 0, 1)},
      {"driver_library", "POLYPATH_DRIVER_LIBRARY", "", "a library name or path",
       "the CUDA driver to open; default libcuda.so.1, with a node the simulated driver",
       text_into(&Options::driver_library)},
      {"log_level", "POLYPATH_LOG_LEVEL", "warn", "debug, info, warn, error, off",
       "least level of the messages on stderr",
       choice_into(&Options::log_level, {{"debug", LogLevel::debug},
                                         {"info", LogLevel::info},
                                         {"warn", LogLevel::warn},
                                         {"error", LogLevel::error},
                                         {"off", LogLevel::off}})},
  };
  return rows;
}

void apply(const Row& row, const std::string& value, std::string_view where, Options& options) {
  bool allowed = false;
  try {
    allowed = row.parse(value, options);
  } catch (const InvalidArgument&) {
    // A size that cannot be read: reported below with the allowed range.
  }
  if (!allowed)
    throw InvalidArgument(
        fmt::format("{} '{}' ({}) is not allowed: {}", row.name, value, where, row.allowed));
}

}  // namespace

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::built_in: return "default";
    case Origin::environment: return "environment";
    case Origin::argument: return "argument";
  }
  return "?";
}

Options load_options(const OptionArguments& arguments, std::vector<OptionInfo>* infos) {
  Options options;
  for (const auto& [name, value] : arguments) {
    bool known = false;
    for (const Row& row : table()) known = known || row.name == name;
    if (!known) throw InvalidArgument(fmt::format("there is no setting '{}'", name));
  }
  if (infos != nullptr) infos->clear();
  for (const Row& row : table()) {
    std::string value = row.default_value;
    Origin origin = Origin::built_in;
    if (const char* set = std::getenv(row.environment); set != nullptr && *set != '\0') {
      value = set;
      origin = Origin::environment;
    }
    for (const auto& [name, argument] : arguments) {
      if (name == row.name) {
        value = argument;
        origin = Origin::argument;
      }
    }
    apply(row, value, origin == Origin::environment ? row.environment : to_string(origin), options);
    if (infos != nullptr)
      infos->push_back(
          {row.name, row.environment, value, origin, row.default_value, row.allowed, row.meaning});
  }
  return options;
}

}  // namespace polypath
