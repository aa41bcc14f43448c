// The C API of UNICONN (uniconn.h), over its headers as any program has them.
#include "polypath/uniconn.h"

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "core/last_error.hpp"
#include "polypath/uniconn.hpp"
#include "polypath/uniconn/backend/any.hpp"

namespace uc = polypath::uniconn;
using Any = uc::AnyBackend;

struct polypath_uniconn_env {
  explicit polypath_uniconn_env(uc::Bootstrap bootstrap) : environment(std::move(bootstrap)) {}
  uc::Environment<Any> environment;
  std::string backend;
  std::string reason;
};
struct polypath_uniconn_comm {
  uc::Communicator<Any> communicator;
};
struct polypath_uniconn_coordinator {
  explicit polypath_uniconn_coordinator(uc::Stream stream) : coordinator(stream) {}
  uc::Coordinator<Any, uc::LaunchMode::PureHost> coordinator;
};

namespace {

/// What UNICONN throws, as a status and the thread's last error.
template <typename Body>
polypath_status as_status(const Body& body) noexcept {
  try {
    body();
    return POLYPATH_SUCCESS;
  } catch (const polypath::error& error) {
    return polypath::failed(error.status(), error.what());
  } catch (const std::exception& error) {
    return polypath::failed(POLYPATH_INTERNAL_ERROR, error.what());
  }
}

template <typename T>
T& from_handle(T* handle, const char* what) {
  if (handle == nullptr)
    throw polypath::error(POLYPATH_INVALID_ARGUMENT, (std::string(what) + " is null").c_str());
  return *handle;
}
auto& from_handle(polypath_uniconn_coordinator* coordinator) {
  return from_handle(coordinator, "coordinator").coordinator;
}
/// Null is the Coordinator's to refuse.
uc::Communicator<Any>* communicator_or_null(polypath_uniconn_comm* comm) {
  return comm == nullptr ? nullptr : &comm->communicator;
}
const std::byte* bytes_at(const void* address) { return static_cast<const std::byte*>(address); }
std::byte* bytes_at(void* address) { return static_cast<std::byte*>(address); }

/// Throws for a number that is not in the headers.
uc::Element element_of(int type) {
  static_assert(static_cast<int>(uc::Element::int16) == POLYPATH_UNICONN_INT16 &&
                static_cast<int>(uc::Element::uint16) == POLYPATH_UNICONN_UINT16);
  if (type < 0 || type >= static_cast<int>(uc::Element::none))
    throw polypath::error(POLYPATH_INVALID_ARGUMENT,
                          ("there is no type " + std::to_string(type)).c_str());
  return static_cast<uc::Element>(type);
}
uc::ReductionOperator operator_of(int op) {
  using enum uc::ReductionOperator;
  static_assert(static_cast<int>(LAND) == POLYPATH_UNICONN_LAND &&
                static_cast<int>(LOR) == POLYPATH_UNICONN_LOR &&
                static_cast<int>(LXOR) == POLYPATH_UNICONN_LXOR &&
                static_cast<int>(BAND) == POLYPATH_UNICONN_BAND &&
                static_cast<int>(BOR) == POLYPATH_UNICONN_BOR &&
                static_cast<int>(BXOR) == POLYPATH_UNICONN_BXOR);
  if (op < 0 || op > static_cast<int>(BXOR))
    throw polypath::error(POLYPATH_INVALID_ARGUMENT,
                          ("there is no operator " + std::to_string(op)).c_str());
  return static_cast<uc::ReductionOperator>(op);
}

polypath_status create(polypath_uniconn_env** env, const auto& bootstrap) noexcept {
  return as_status([&] {
    from_handle(env, "env") = nullptr;
    *env = std::make_unique<polypath_uniconn_env>(bootstrap()).release();
  });
}

}  // namespace

// ---- Environment --------------------------------------------------------------------------------

polypath_status polypath_uniconn_env_create(int rank, int size, polypath_all_gather_fn exchange,
                                            void* user, int is_thread, polypath_uniconn_env** env) {
  return create(env,
                [&] { return uc::Bootstrap(rank, size, exchange, user, nullptr, is_thread != 0); });
}
polypath_status polypath_uniconn_env_create_from_environment(polypath_uniconn_env** env) {
  return create(env, [] { return uc::Bootstrap::environment(); });
}
void polypath_uniconn_env_destroy(polypath_uniconn_env* env) { delete env; }
polypath_status polypath_uniconn_set_device(polypath_uniconn_env* env, int gpu) {
  return as_status([&] {
    from_handle(env, "env").environment.SetDevice(gpu);
    env->backend = env->environment.BackendName();
    env->reason = env->environment.BackendReason();
  });
}
const char* polypath_uniconn_backend(const polypath_uniconn_env* env) {
  return env == nullptr ? "" : env->backend.c_str();
}
const char* polypath_uniconn_reason(const polypath_uniconn_env* env) {
  return env == nullptr ? "" : env->reason.c_str();
}
int polypath_uniconn_world_rank(const polypath_uniconn_env* env) {
  return env == nullptr ? -1 : env->environment.WorldRank();
}
int polypath_uniconn_world_size(const polypath_uniconn_env* env) {
  return env == nullptr ? -1 : env->environment.WorldSize();
}
int polypath_uniconn_node_rank(const polypath_uniconn_env* env) {
  return env == nullptr ? -1 : env->environment.NodeRank();
}
int polypath_uniconn_node_size(const polypath_uniconn_env* env) {
  return env == nullptr ? -1 : env->environment.NodeSize();
}

// ---- Memory -------------------------------------------------------------------------------------

polypath_status polypath_uniconn_alloc(size_t bytes, void** address) {
  return as_status([&] {
    from_handle(address, "address") = nullptr;
    *address = uc::Memory<Any>::Alloc<std::byte>(bytes);
  });
}
polypath_status polypath_uniconn_free(void* address) {
  return as_status([&] { uc::Memory<Any>::Free(bytes_at(address)); });
}

// ---- Communicator -------------------------------------------------------------------------------

polypath_status polypath_uniconn_comm_create(polypath_uniconn_comm** comm) {
  return as_status([&] {
    from_handle(comm, "comm") = nullptr;
    *comm = std::make_unique<polypath_uniconn_comm>().release();
  });
}
polypath_status polypath_uniconn_comm_split(polypath_uniconn_comm* comm, int color, int key,
                                            polypath_uniconn_comm** part) {
  return as_status([&] {
    from_handle(part, "part") = nullptr;
    auto part_comm = std::make_unique<polypath_uniconn_comm>(
        polypath_uniconn_comm{from_handle(comm, "comm").communicator.Split(color, key)});
    if (part_comm->communicator) *part = part_comm.release();
  });
}
void polypath_uniconn_comm_destroy(polypath_uniconn_comm* comm) { delete comm; }
int polypath_uniconn_comm_rank(const polypath_uniconn_comm* comm) {
  return comm == nullptr ? -1 : comm->communicator.GlobalRank();
}
int polypath_uniconn_comm_size(const polypath_uniconn_comm* comm) {
  return comm == nullptr ? -1 : comm->communicator.GlobalSize();
}
polypath_status polypath_uniconn_barrier(polypath_uniconn_comm* comm, void* stream) {
  return as_status(
      [&] { from_handle(comm, "comm").communicator.Barrier(static_cast<uc::Stream>(stream)); });
}

// ---- Coordinator --------------------------------------------------------------------------------

polypath_status polypath_uniconn_coordinator_create(void* stream,
                                                    polypath_uniconn_coordinator** coordinator) {
  return as_status([&] {
    from_handle(coordinator, "coordinator") = nullptr;
    *coordinator =
        std::make_unique<polypath_uniconn_coordinator>(static_cast<uc::Stream>(stream)).release();
  });
}
void polypath_uniconn_coordinator_destroy(polypath_uniconn_coordinator* coordinator) {
  delete coordinator;
}
polypath_status polypath_uniconn_start(polypath_uniconn_coordinator* coordinator) {
  return as_status([&] { from_handle(coordinator).CommStart(); });
}
polypath_status polypath_uniconn_end(polypath_uniconn_coordinator* coordinator) {
  return as_status([&] { from_handle(coordinator).CommEnd(); });
}
polypath_status polypath_uniconn_wait(polypath_uniconn_coordinator* coordinator) {
  return as_status([&] { from_handle(coordinator).WaitComm(); });
}

polypath_status polypath_uniconn_post(polypath_uniconn_coordinator* coordinator, const void* src,
                                      void* dest, size_t bytes, uint64_t* signal, uint64_t value,
                                      int to, polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator)
        .Post(bytes_at(src), bytes_at(dest), bytes, signal, value, to, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_acknowledge(polypath_uniconn_coordinator* coordinator, void* dest,
                                             size_t bytes, uint64_t* signal, uint64_t value,
                                             int from, polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator)
        .Acknowledge(bytes_at(dest), bytes, signal, value, from, communicator_or_null(comm));
  });
}

polypath_status polypath_uniconn_all_gather(polypath_uniconn_coordinator* coordinator,
                                            const void* send, void* recv, size_t bytes,
                                            polypath_uniconn_comm* comm) {
  return as_status([&] {
    if (send == nullptr)
      return from_handle(coordinator).AllGather(bytes_at(recv), bytes, communicator_or_null(comm));
    from_handle(coordinator)
        .AllGather(bytes_at(send), bytes_at(recv), bytes, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_all_gatherv(polypath_uniconn_coordinator* coordinator,
                                             const void* send, void* recv, const size_t* counts,
                                             const size_t* displs, polypath_uniconn_comm* comm) {
  return as_status([&] {
    if (send == nullptr)
      return from_handle(coordinator)
          .AllGatherv(bytes_at(recv), counts, displs, communicator_or_null(comm));
    from_handle(coordinator)
        .AllGatherv(bytes_at(send), bytes_at(recv), counts, displs, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_all_to_all(polypath_uniconn_coordinator* coordinator,
                                            const void* send, void* recv, size_t bytes,
                                            polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator)
        .AlltoAll(bytes_at(send), bytes_at(recv), bytes, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_all_to_allv(polypath_uniconn_coordinator* coordinator,
                                             const void* send, const size_t* send_counts,
                                             const size_t* send_displs, void* recv,
                                             const size_t* recv_counts, const size_t* recv_displs,
                                             polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator)
        .AlltoAllv(bytes_at(send), send_counts, send_displs, bytes_at(recv), recv_counts,
                   recv_displs, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_broadcast(polypath_uniconn_coordinator* coordinator, void* buffer,
                                           size_t bytes, int root, polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator).Broadcast(bytes_at(buffer), bytes, root, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_gather(polypath_uniconn_coordinator* coordinator, const void* send,
                                        void* recv, size_t bytes, int root,
                                        polypath_uniconn_comm* comm) {
  return as_status([&] {
    if (send == nullptr)
      return from_handle(coordinator)
          .Gather(bytes_at(recv), bytes, root, communicator_or_null(comm));
    from_handle(coordinator)
        .Gather(bytes_at(send), bytes_at(recv), bytes, root, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_gatherv(polypath_uniconn_coordinator* coordinator,
                                         const void* send, void* recv, const size_t* counts,
                                         const size_t* displs, int root,
                                         polypath_uniconn_comm* comm) {
  return as_status([&] {
    if (send == nullptr)
      return from_handle(coordinator)
          .Gatherv(bytes_at(recv), counts, displs, root, communicator_or_null(comm));
    from_handle(coordinator)
        .Gatherv(bytes_at(send), bytes_at(recv), counts, displs, root, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_scatter(polypath_uniconn_coordinator* coordinator,
                                         const void* send, void* recv, size_t bytes, int root,
                                         polypath_uniconn_comm* comm) {
  return as_status([&] {
    auto* const whole = bytes_at(const_cast<void*>(send));
    if (recv == nullptr)
      return from_handle(coordinator).Scatter(whole, bytes, root, communicator_or_null(comm));
    from_handle(coordinator)
        .Scatter(bytes_at(send), bytes_at(recv), bytes, root, communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_scatterv(polypath_uniconn_coordinator* coordinator,
                                          const void* send, void* recv, const size_t* counts,
                                          const size_t* displs, int root,
                                          polypath_uniconn_comm* comm) {
  return as_status([&] {
    auto* const whole = bytes_at(const_cast<void*>(send));
    if (recv == nullptr)
      return from_handle(coordinator)
          .Scatterv(whole, counts, displs, root, communicator_or_null(comm));
    from_handle(coordinator)
        .Scatterv(bytes_at(send), bytes_at(recv), counts, displs, root, communicator_or_null(comm));
  });
}

polypath_status polypath_uniconn_all_reduce(polypath_uniconn_coordinator* coordinator,
                                            const void* send, void* recv, size_t count, int type,
                                            int op, polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator)
        .AllReduce(element_of(type), operator_of(op), send, recv, count,
                   communicator_or_null(comm));
  });
}
polypath_status polypath_uniconn_reduce(polypath_uniconn_coordinator* coordinator, const void* send,
                                        void* recv, size_t count, int type, int op, int root,
                                        polypath_uniconn_comm* comm) {
  return as_status([&] {
    from_handle(coordinator)
        .Reduce(element_of(type), operator_of(op), send, recv, count, root,
                communicator_or_null(comm));
  });
}
