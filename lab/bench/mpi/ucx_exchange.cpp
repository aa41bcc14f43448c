#include "ucx_exchange.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace mpi_bench {
namespace {

constexpr int kArrived = 101;  ///< tag

void check(ucs_status_t status, const char* call) {
  if (status != UCS_OK)
    throw std::runtime_error(fmt::format("{}: {}", call, ucs_status_string(status)));
}

ucx::Context make_context() {
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_RMA;
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&parameters, config, &context);
  ucp_config_release(config);
  check(status, "ucp_init");
  return ucx::Context(context);
}

ucx::Worker make_worker(ucp_context_h context) {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  check(ucp_worker_create(context, &parameters, &worker), "ucp_worker_create");
  return ucx::Worker(worker);
}

}  // namespace

UcxExchange::UcxExchange(Flows flows, const Buffers& buffers)
    : flows_(std::move(flows)),
      buffers_(buffers),
      context_(make_context()),
      worker_(make_worker(context_.get())) {
  Introduction sent;  // in a ring each rank sends and receives one
  for (const Flow& flow : flows_.from) {
    sent = export_sink();
    sent.send(flow.peer);
  }
  for (const Flow& flow : flows_.to) import_sink(Introduction::receive(flow.peer));
  sent.wait();
}

UcxExchange::~UcxExchange() {
  key_.reset();
  if (endpoint_ != nullptr) {
    ucp_request_param_t parameters{};
    const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_PTR(closing)) {
      while (ucp_request_check_status(closing) == UCS_INPROGRESS)
        ucp_worker_progress(worker_.get());
      ucp_request_free(closing);
    }
  }
  if (registered_ != nullptr) ucp_mem_unmap(context_.get(), registered_);
}

void UcxExchange::run(const Layout& layout) {
  char none = 0;
  MPI_Request arrived = MPI_REQUEST_NULL;
  for (const Flow& flow : flows_.from)
    MPI_Irecv(&none, 1, MPI_CHAR, flow.peer, kArrived, MPI_COMM_WORLD, &arrived);
  for (const Flow& flow : flows_.to) {
    ucp_request_param_t parameters{};
    puts_.clear();
    for (int number = 0; number < layout.window(); ++number) {
      const std::size_t offset = layout.offset(0, number);
      puts_.push_back(ucp_put_nbx(endpoint_, buffers_.source.data() + offset, layout.bytes(),
                                  remote_ + offset, key_.get(), &parameters));
    }
    for (const ucs_status_ptr_t put : puts_) wait(put, "ucp_put_nbx");
    wait(ucp_ep_flush_nbx(endpoint_, &parameters), "ucp_ep_flush_nbx");
    MPI_Send(&none, 1, MPI_CHAR, flow.peer, kArrived, MPI_COMM_WORLD);
  }
  wait(arrived);
}

Introduction UcxExchange::export_sink() {
  ucp_mem_map_params_t parameters{};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address = buffers_.sink.data();
  parameters.length = buffers_.sink.bytes();
  check(ucp_mem_map(context_.get(), &parameters, &registered_), "ucp_mem_map");

  Introduction introduction;
  introduction.sink = reinterpret_cast<std::uint64_t>(buffers_.sink.data());
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check(ucp_worker_get_address(worker_.get(), &address, &bytes), "ucp_worker_get_address");
  const auto* const packed_address = reinterpret_cast<const char*>(address);
  introduction.worker.assign(packed_address, packed_address + bytes);
  ucp_worker_release_address(worker_.get(), address);

  void* key = nullptr;
  check(ucp_rkey_pack(context_.get(), registered_, &key, &bytes), "ucp_rkey_pack");
  const auto* const packed_key = static_cast<const char*>(key);
  introduction.key.assign(packed_key, packed_key + bytes);
  ucp_rkey_buffer_release(key);
  return introduction;
}

void UcxExchange::import_sink(const Introduction& peer) {
  remote_ = peer.sink;
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = reinterpret_cast<const ucp_address_t*>(peer.worker.data());
  check(ucp_ep_create(worker_.get(), &parameters, &endpoint_), "ucp_ep_create");
  ucp_rkey_h key = nullptr;
  check(ucp_ep_rkey_unpack(endpoint_, peer.key.data(), &key), "ucp_ep_rkey_unpack");
  key_.reset(key);
}

void UcxExchange::wait(ucs_status_ptr_t operation, const char* call) {
  if (!UCS_PTR_IS_PTR(operation)) return check(UCS_PTR_STATUS(operation), call);
  ucs_status_t status = UCS_INPROGRESS;
  while ((status = ucp_request_check_status(operation)) == UCS_INPROGRESS)
    ucp_worker_progress(worker_.get());
  ucp_request_free(operation);
  check(status, call);
}

void UcxExchange::wait(MPI_Request& receive) {
  for (int done = 0; done == 0;) {
    MPI_Test(&receive, &done, MPI_STATUS_IGNORE);
    ucp_worker_progress(worker_.get());
  }
}

}  // namespace mpi_bench
