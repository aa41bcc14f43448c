#include "mpi/comm_state.hpp"

namespace polypath::preload::mpi {
namespace {

/// An MPI_Status of any library.
struct alignas(16) Status {
  char bytes[256];
};

InternodeMessages& messages_of(void* user) noexcept {
  return *static_cast<InternodeMessages*>(user);
}

/// The upper half of an int stays 0.
Handle* as_handle(std::uint64_t* request) noexcept {
  static_assert(sizeof(Handle) == sizeof *request);
  *request = 0;
  return reinterpret_cast<Handle*>(request);
}

int begin(void* user) noexcept {
  InternodeMessages& between = messages_of(user);
  between.has_own = library().comm_dup(between.handle, &between.own) == kSuccess;
  return between.has_own ? 0 : 1;
}

int send(void* user, int to, int tag, const void* bytes, std::size_t count,
         std::uint64_t* request) noexcept {
  count_sent(count);
  const Library& mpi = library();
  return mpi.isend(bytes, static_cast<int>(count), mpi.byte, to, tag, messages_of(user).own,
                   as_handle(request));
}

int receive(void* user, int from, int tag, void* bytes, std::size_t count,
            std::uint64_t* request) noexcept {
  const Library& mpi = library();
  return mpi.irecv(bytes, static_cast<int>(count), mpi.byte, from, tag, messages_of(user).own,
                   as_handle(request));
}

int test(void*, std::uint64_t* request, int* done) noexcept {
  Status status;
  return library().test(reinterpret_cast<Handle*>(request), done, &status);
}

void end(void* user) noexcept { end_network(messages_of(user)); }

}  // namespace

void end_network(InternodeMessages& between) noexcept {
  if (between.has_own) library().comm_free(&between.own);
  between.has_own = false;
}

polypath_network network_of(InternodeMessages& between) noexcept {
  return {1, 0, &between, &begin, &send, &receive, &test, &end};
}

}  // namespace polypath::preload::mpi
