// Records of many lengths in lists, by kernels that allocate and free their memory (lists.cuh).
//
//   messaging_lists [--gpu N] [--records N] [--buckets N] [--blocks N]
//
// Prints a JSON object. Exit: 1 when a record is missing or wrong, or memory was not given back.
#include <cstdio>
#include <string>

#include "arguments.hpp"
#include "gpu.hpp"
#include "images.hpp"
#include "lists_run.h"
#include "polypath/comm.hpp"
#include "polypath/messaging/pool.h"

namespace messaging_example {
namespace {

using polypath::detail::check;

class Pool {
 public:
  Pool(polypath_comm* comm, std::size_t bytes) {
    polypath_pool_options options{};
    options.bytes = bytes;
    check(polypath_pool_create(comm, &options, &pool_));
  }
  ~Pool() { polypath_pool_destroy(pool_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] polypath::device::pool_view view() const {
    polypath::device::pool_view view{};
    check(polypath_pool_view(pool_, &view, sizeof view));
    return view;
  }
  [[nodiscard]] std::string report() const {
    char* json = nullptr;
    check(polypath_pool_report(pool_, &json));
    const std::string text = json;
    polypath_free_string(json);
    return text;
  }

 private:
  polypath_pool* pool_ = nullptr;
};

/// How many buckets have other records than the host puts there.
std::uint32_t wrong_buckets(const ListsRun& run, const std::vector<std::uint64_t>& sums,
                            const std::vector<std::uint32_t>& counts) {
  std::vector<std::uint64_t> expected(run.buckets);
  std::vector<std::uint32_t> records(run.buckets);
  for (std::uint32_t record = 0; record < run.records; ++record) {
    const std::uint32_t bucket = bucket_of(record, run.buckets);
    ++records[bucket];
    for (std::uint32_t i = 0; i < words_of(record); ++i) expected[bucket] += word_of(record, i);
  }
  std::uint32_t wrong = 0;
  for (std::uint32_t bucket = 0; bucket < run.buckets; ++bucket)
    wrong += sums[bucket] != expected[bucket] || counts[bucket] != records[bucket] ? 1 : 0;
  return wrong;
}

int run(int argc, char** argv) {
  const uniconn_example::Arguments arguments(
      argc, argv, {{"gpu", "0"}, {"records", "1000000"}, {"buckets", "20000"}, {"blocks", "256"}});
  const int number = arguments.count("gpu", 0);
  const auto blocks = static_cast<unsigned>(arguments.count("blocks", 1));
  ListsRun run{};
  run.records = static_cast<std::uint32_t>(arguments.count("records", 1));
  run.buckets = static_cast<std::uint32_t>(arguments.count("buckets", 1));
  polypath_context* context = nullptr;
  polypath_comm* comm = nullptr;
  check(polypath_context_create(nullptr, 0, &context));
  check(polypath_comm_create_all(context, &number, 1, nullptr, &comm));
  std::uint32_t wrong = 0;
  std::string report;
  {
    Gpu gpu(context, number);
    constexpr std::size_t kBytesOfARecord = 256;  // the mean is less
    const Pool pool(comm, (std::size_t{1} << 22) + kBytesOfARecord * run.records);
    run.view = pool.view();
    run.heads = gpu.alloc<std::uint32_t>(run.buckets);
    const std::vector<std::uint32_t> none(run.buckets, ~0U);
    gpu.write(run.heads, none.data(), none.size());
    run.sums = gpu.alloc<std::uint64_t>(run.buckets);
    run.record_counts = gpu.alloc<std::uint32_t>(run.buckets);
    run.failed = gpu.alloc<std::uint32_t>(1);
    for (const char* const kernel : {"messaging_build_lists", "messaging_empty_lists"})
      gpu.launch(lists_kernel_image(), kernel, blocks, kListsThreads, run);
    gpu.synchronize();
    wrong = wrong_buckets(run, gpu.read(run.sums, run.buckets),
                          gpu.read(run.record_counts, run.buckets)) +
            gpu.read(run.failed, 1)[0];
    report = pool.report();
  }
  polypath_comm_destroy(comm);
  polypath_context_destroy(context);
  std::printf("{\"records\": %u, \"buckets\": %u, \"wrong\": %u, \"pool\": %s}\n", run.records,
              run.buckets, wrong, report.c_str());
  const bool is_given_back = report.find("\"held_blocks\":0") != std::string::npos;
  return wrong == 0 && is_given_back ? 0 : 1;
}

}  // namespace
}  // namespace messaging_example

int main(int argc, char** argv) {
  return uniconn_example::exit_code(&messaging_example::run, argc, argv);
}
