// The kernel that makes a row of calls (device_kernels.h). Polypath's backend; in device_ranks.cu,
// which includes this file, the one that DEVICE_ROW_OF_GPUSHMEM or DEVICE_ROW_OF_GPUCCL names.
#include "device_kernels.h"
#if defined(DEVICE_ROW_OF_GPUSHMEM)
#include "polypath/uniconn/device/gpushmem.cuh"
#elif defined(DEVICE_ROW_OF_GPUCCL)
#include "polypath/uniconn/device/gpuccl.cuh"
#else
#include "polypath/uniconn/device/polypath.cuh"
#endif
#include "simt/platform.cuh"

namespace polypath::test {

namespace uc = polypath::uniconn;
#if defined(DEVICE_ROW_OF_GPUSHMEM)
using DeviceBackend = uc::GpushmemBackend;
#elif defined(DEVICE_ROW_OF_GPUCCL)
using DeviceBackend = uc::GpucclBackend;
#else
using DeviceBackend = uc::PolypathBackend;
#endif

template <uc::ThreadGroup G>
class RowOfCalls {
  using It = uc::Coordinator<DeviceBackend>;
  using Comm = uc::Communicator<DeviceBackend>;
  using Op = uc::ReductionOperator;

 public:
  SIMT_DEVICE static void make(const DeviceCall& args, Comm* comm) {
    copy(args.fill, args.in, args.in_bytes);
    call(args, comm);
    copy(args.out, args.look, args.out_bytes);
    uc::detail::GroupOf<G>().sync();  // what comes next may write to what was looked at
  }

 private:
  SIMT_DEVICE_NOINLINE static void copy(void* to, const void* from, std::size_t bytes) {
    simt::copy_tile<simt::tile_access::plain, simt::tile_access::plain, 1>(
        uc::detail::GroupOf<G>(),
        simt::pointer_list<unsigned char, 1>{{static_cast<unsigned char*>(to)}, 1},
        static_cast<const unsigned char*>(from), bytes);
  }

  SIMT_DEVICE static void call(const DeviceCall& args, Comm* comm) {
    if (args.op == DeviceOp::wait) return It::Wait<G>(comm);
    if (args.op == DeviceOp::barrier) return It::Barrier<G>(comm);
    if (args.op == DeviceOp::tell) return tell(args);
    if (args.op == DeviceOp::all_reduce || args.op == DeviceOp::reduce) return combine(args, comm);
    if (args.element_bytes == 1) return move<unsigned char>(args, comm);
    if (args.element_bytes == 8) return move<double>(args, comm);
    move<ThreeWords>(args, comm);
  }

  /// By itself: to this rank's own `signal`, at another's.
  SIMT_DEVICE static void tell(const DeviceCall& args) {
    if (uc::detail::GroupOf<G>().is_leader())
      simt::store_volatile(static_cast<std::uint64_t*>(args.recv), args.value);
  }

  template <typename T>
  SIMT_DEVICE_NOINLINE static void move(const DeviceCall& args, Comm* comm) {
    const T* const send = static_cast<const T*>(args.send);
    T* const recv = static_cast<T*>(args.recv);
    const bool in_place = args.is_in_place != 0;
    switch (args.op) {
      case DeviceOp::post:
        return It::Post<G>(send, recv, args.count, args.signal, args.value, args.root, comm);
      case DeviceOp::post_quietly:
        return It::Post<G>(send, recv, args.count, nullptr, 0, args.root, comm);
      case DeviceOp::acknowledge:
        return It::Acknowledge<G>(recv, args.count, args.signal, args.value, args.root, comm);
      case DeviceOp::all_gather:
        return in_place ? It::AllGather<G>(recv, args.count, comm)
                        : It::AllGather<G>(send, recv, args.count, comm);
      case DeviceOp::all_gatherv:
        return in_place ? It::AllGatherv<G>(recv, args.counts, args.displs, comm)
                        : It::AllGatherv<G>(send, recv, args.counts, args.displs, comm);
      case DeviceOp::all_to_all: return It::AlltoAll<G>(send, recv, args.count, comm);
      case DeviceOp::all_to_allv:
        return It::AlltoAllv<G>(send, args.counts, args.displs, recv, args.counts, args.rdispls,
                                comm);
      case DeviceOp::broadcast: return It::Broadcast<G>(recv, args.count, args.root, comm);
      case DeviceOp::gather:
        return in_place ? It::Gather<G>(recv, args.count, args.root, comm)
                        : It::Gather<G>(send, recv, args.count, args.root, comm);
      case DeviceOp::gatherv:
        return in_place ? It::Gatherv<G>(recv, args.counts, args.displs, args.root, comm)
                        : It::Gatherv<G>(send, recv, args.counts, args.displs, args.root, comm);
      case DeviceOp::scatter:
        return in_place ? It::Scatter<G>(recv, args.count, args.root, comm)
                        : It::Scatter<G>(send, recv, args.count, args.root, comm);
      case DeviceOp::scatterv:
        return in_place ? It::Scatterv<G>(recv, args.counts, args.displs, args.root, comm)
                        : It::Scatterv<G>(send, recv, args.counts, args.displs, args.root, comm);
      case DeviceOp::wait:
      case DeviceOp::tell:
      case DeviceOp::barrier:
      case DeviceOp::all_reduce:
      case DeviceOp::reduce: return;
    }
  }

  SIMT_DEVICE static void combine(const DeviceCall& args, Comm* comm) {
    // A warp and a thread differ in their group alone.
    if constexpr (G == uc::ThreadGroup::BLOCK) {
      switch (args.sum) {
        case DeviceSum::float32_sum: break;
        case DeviceSum::float16_sum: return combine_as<__half, Op::SUM>(args, comm);
        case DeviceSum::uint64_bxor: return combine_as<unsigned long long, Op::BXOR>(args, comm);
#if !defined(__CUDACC__)  // each takes the compiler seconds
        case DeviceSum::float64_prod: return combine_as<double, Op::PROD>(args, comm);
        case DeviceSum::bfloat16_min: return combine_as<__nv_bfloat16, Op::MIN>(args, comm);
        case DeviceSum::int32_max: return combine_as<std::int32_t, Op::MAX>(args, comm);
        case DeviceSum::int8_avg: return combine_as<signed char, Op::AVG>(args, comm);
        case DeviceSum::uint16_land: return combine_as<unsigned short, Op::LAND>(args, comm);
#else
        default: break;
#endif
      }
    }
    combine_as<float, Op::SUM>(args, comm);
  }
  template <typename T, Op kOperator>
  SIMT_DEVICE_NOINLINE static void combine_as(const DeviceCall& args, Comm* comm) {
    const T* const send = static_cast<const T*>(args.send);
    T* const recv = static_cast<T*>(args.recv);
    const bool in_place = args.is_in_place != 0;
    if (args.op == DeviceOp::all_reduce)
      return in_place ? It::AllReduce<G, kOperator>(recv, args.count, comm)
                      : It::AllReduce<G, kOperator>(send, recv, args.count, comm);
    in_place ? It::Reduce<G, kOperator>(recv, args.count, args.root, comm)
             : It::Reduce<G, kOperator>(send, recv, args.count, args.root, comm);
  }
};

/// One of the calls, as all threads find it.
SIMT_DEVICE DeviceCall load_call(const DeviceCall* from) {
  constexpr std::size_t kWords = sizeof(DeviceCall) / sizeof(std::uint64_t);
  std::uint64_t words[kWords];
  POLYPATH_UNROLL
  for (std::size_t i = 0; i < kWords; ++i)
    words[i] = simt::load(reinterpret_cast<const std::uint64_t*>(from) + i);
  DeviceCall call;
  memcpy(&call, words, sizeof call);
  return call;
}

/// Each block makes its calls; of those of a warp, or a thread, the first of the block.
SIMT_DEVICE void make_row(const DeviceRow& row) {
  auto* const comm = static_cast<uc::Communicator<DeviceBackend>*>(row.comm);
  for (std::uint64_t i = 0; i < row.count; ++i) {
    const DeviceCall args = load_call(row.calls + i);
    if (args.block != simt::block_index()) continue;
    if (args.group == static_cast<std::uint32_t>(uc::ThreadGroup::BLOCK)) {
      RowOfCalls<uc::ThreadGroup::BLOCK>::make(args, comm);
    } else if (args.group == static_cast<std::uint32_t>(uc::ThreadGroup::WARP)) {
      if (simt::thread_index() < simt::kWarp) RowOfCalls<uc::ThreadGroup::WARP>::make(args, comm);
    } else if (simt::thread_index() == 0) {
      RowOfCalls<uc::ThreadGroup::THREAD>::make(args, comm);
    }
    simt::block_sync();  // the next call may be another group's
  }
}

}  // namespace polypath::test

SIMT_KERNEL(uniconn_device_row, 256, polypath::test::DeviceRow row) {
  polypath::test::make_row(row);
}
