// The C API of measured backends (uniconn.h): the [[comm]] entries of the profile, as AnyBackend
// follows them.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "collectives/plan/tuned_plan.hpp"
#include "core/c_boundary.hpp"
#include "polypath/uniconn.h"
#include "polypath/uniconn/backend/gpuccl.hpp"
#include "polypath/uniconn/backend/nvshmem_library.hpp"
#include "polypath/uniconn/backend/routing_table.hpp"
#include "uniconn/backend_profile.hpp"
#include "uniconn/tuned_backend_json.hpp"

using namespace polypath;

namespace {

namespace table = polypath::uniconn::detail;

template <std::size_t count>
int number_of(const std::array<const char*, count>& names, std::string_view name) {
  const auto it = std::ranges::find(names, name);
  return it == names.end() ? -1 : static_cast<int>(it - names.begin());
}

std::string class_of(const Context& context, const int* gpus, int ranks) {
  require(gpus != nullptr && ranks > 0, "gpus is null, or there are no ranks");
  const std::vector<int> all(gpus, gpus + ranks);
  for (const int gpu : all)
    if (gpu < 0 || gpu >= static_cast<int>(context.node().gpus.size()))
      throw InvalidArgument("there is no GPU " + std::to_string(gpu) + " on " +
                            context.node().name);
  return collective_class(context.node(), all);
}

polypath_backend_entry row_of(const TunedBackend& tuned) {
  polypath_backend_entry row{};
  row.op = number_of(table::operation_names, tuned.op);
  row.backend = number_of(table::library_names, tuned.backend);
  row.bytes = tuned.bytes;
  row.edited = tuned.edited ? 1 : 0;
  std::ranges::fill(row.us, -1);
  for (const BackendTime& time : tuned.times)
    if (const int backend = number_of(table::library_names, time.backend); backend >= 0)
      row.us[backend] = time.us;
  return row;
}

/// The entries of these ranks, or of all where `ranks` is null, of operations that it knows.
std::vector<polypath_backend_entry> rows_of(const Context& context, const std::string* ranks) {
  std::vector<polypath_backend_entry> rows;
  const ProfileTable<TunedBackend> known = context.tuned<TunedBackend>();
  for (const TunedBackend& tuned : known.entries())
    if (ranks == nullptr || tuned.ranks == *ranks) rows.push_back(row_of(tuned));
  std::erase_if(rows, [](const polypath_backend_entry& row) { return row.op < 0; });
  std::ranges::sort(rows, {}, [](const auto& row) { return std::pair(row.op, row.bytes); });
  return rows;
}

/// Why a library does not serve next to polypath; "": it does.
std::string missing_reason(int library, bool with_mpi) {
  try {
    switch (library) {
      case POLYPATH_BACKEND_GPUCCL: static_cast<void>(table::Nccl::get()); return "";
      case POLYPATH_BACKEND_GPUSHMEM:
        static_cast<void>(table::Nvshmem::get());
        return table::kOwnMemoryAlone;
      case POLYPATH_BACKEND_MPI:
        return with_mpi ? "" : "for programs with MPI, whose ranks are MPI's";
      default: return "";
    }
  } catch (const error& thrown) {
    return thrown.what();
  }
}

}  // namespace

polypath_status polypath_backend_entries(polypath_context* context, const int* gpus, int ranks,
                                         polypath_backend_entry* rows, size_t capacity,
                                         size_t* count) {
  return guarded([&] {
    const Context& engine = context_of(context);
    require(count != nullptr, "count is null");
    require(rows != nullptr || capacity == 0, "rows is null");
    const std::string name = gpus == nullptr ? "" : class_of(engine, gpus, ranks);
    const auto matching_rows = rows_of(engine, gpus == nullptr ? nullptr : &name);
    *count = matching_rows.size();
    std::copy_n(matching_rows.begin(), std::min(capacity, matching_rows.size()), rows);
  });
}

polypath_status polypath_backend_save(polypath_context* context,
                                      const polypath_backend_samples* measured, char** json) {
  return guarded([&] {
    Context& engine = context_of(context);
    require(measured != nullptr, "measured is null");
    require(measured->op >= 0 && measured->op < POLYPATH_BACKEND_OP_COUNT,
            "there is no such operation");
    require(measured->bytes > 0, "bytes is 0");
    require(measured->backends != nullptr && measured->backend_count > 0, "there are no backends");
    require(measured->us != nullptr && measured->turns > 0, "nothing was measured");
    std::vector<std::string> names;
    for (int i = 0; i < measured->backend_count; ++i) {
      const int number = measured->backends[i];
      require(number >= 0 && number < POLYPATH_BACKEND_COUNT, "there is no such backend");
      names.emplace_back(table::library_names[static_cast<std::size_t>(number)]);
    }
    TunedBackend entry;
    entry.op = table::operation_names[static_cast<std::size_t>(measured->op)];
    entry.ranks = class_of(engine, measured->gpus, measured->ranks);
    entry.bytes = measured->bytes;
    choose_backend(entry, names,
                   {measured->us, static_cast<std::size_t>(measured->turns) * names.size()});
    const ProfileTable<TunedBackend> all = engine.tuned<TunedBackend>();
    const TunedBackend* const known = all.find(entry);
    if (known != nullptr && known->edited) {
      entry = *known;
    } else {
      engine.save_tuned(entry);
    }
    give(to_json(entry), json);
  });
}

polypath_status polypath_plan_backend(polypath_context* context, const char* op, size_t bytes,
                                      const int* gpus, int ranks, int with_mpi, char** json) {
  return guarded([&] {
    const Context& engine = context_of(context);
    require(op != nullptr, "op is null");
    const int number = number_of(table::operation_names, op);
    if (number < 0) throw InvalidArgument("there is no operation '" + std::string(op) + "'");
    require(bytes > 0, "bytes is 0");
    require(ranks >= 0, "ranks is negative");
    std::vector<int> taken;
    for (int i = 0; i < (ranks > 0 ? ranks : static_cast<int>(engine.node().gpus.size())); ++i)
      taken.push_back(gpus == nullptr ? i : gpus[i]);
    const std::string name = class_of(engine, taken.data(), static_cast<int>(taken.size()));
    std::array<std::string, POLYPATH_BACKEND_COUNT> lacks;
    table::LibrarySet usable = 0;
    for (int library = 0; library < POLYPATH_BACKEND_COUNT; ++library) {
      std::string& lack = lacks[static_cast<std::size_t>(library)];
      lack = missing_reason(library, with_mpi != 0);
      if (lack.empty()) usable |= table::only(library);
    }
    std::vector<polypath_backend_entry> rows = rows_of(engine, &name);
    std::erase_if(rows, [&](const polypath_backend_entry& row) { return row.op != number; });
    const polypath_backend_entry* const row = table::nearest_row(rows, bytes);
    const table::Routes routes(rows, usable, POLYPATH_BACKEND_POLYPATH);
    const int best = routes.at(number, bytes);
    nlohmann::json backends = nlohmann::json::array();
    for (int library = 0; library < POLYPATH_BACKEND_COUNT; ++library) {
      const std::string& lack = lacks[static_cast<std::size_t>(library)];
      const bool is_measured = row != nullptr && row->us[library] >= 0;
      backends.push_back({{"backend", table::library_names[static_cast<std::size_t>(library)]},
                          {"us", nullptr},
                          {"serves", lack.empty()},
                          {"why", lack}});
      if (is_measured) backends.back()["us"] = row->us[library];
    }
    nlohmann::json entry = nullptr;
    std::string reason;
    if (row == nullptr) {
      reason = rows.empty() ? "nothing was measured of " + std::string(op) + " on " + name
                            : "no size near this one was measured";
    } else {
      const ProfileTable<TunedBackend> all = engine.tuned<TunedBackend>();
      const TunedBackend& taken_from = *all.find({.op = op, .ranks = name, .bytes = row->bytes});
      entry = to_json(taken_from);
      const std::string chosen = table::library_names[static_cast<std::size_t>(best)];
      if (taken_from.edited) {
        reason = "edited in the profile";
      } else if (chosen == taken_from.times.front().backend) {
        reason = "nothing else was faster beyond doubt";
      } else {
        reason = "it was measured to be fastest";
      }
      if (taken_from.backend != chosen)
        reason = "the fastest of those that serve: the choice was " + taken_from.backend;
    }
    give({{"op", op},
          {"ranks", name},
          {"bytes", bytes},
          {"backend", table::library_names[static_cast<std::size_t>(best)]},
          {"reason", reason},
          {"entry", std::move(entry)},
          {"backends", std::move(backends)}},
         json);
  });
}
