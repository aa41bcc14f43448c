#include "listing_4.hpp"

namespace polypath::test {

POLYPATH_LISTINGS_OF(PolypathBackend);
template int listing_4<PolypathBackend, LaunchMode::PartialDevice>(int, char**);
template int listing_4<PolypathBackend, LaunchMode::PureDevice>(int, char**);

// What a type or an operator cannot do does not compile.
template <typename T, ReductionOperator Operator>
concept Reduces = requires(Coordinator<PolypathBackend>& it, T* buf, Communicator<>* comm) {
  it.template AllReduce<Operator>(buf, std::size_t{1}, comm);
};
static_assert(Reduces<float, ReductionOperator::AVG>);
static_assert(Reduces<int, ReductionOperator::BXOR>);
static_assert(Reduces<__half, ReductionOperator::SUM>);
static_assert(!Reduces<float, ReductionOperator::BAND>);
static_assert(!Reduces<bool, ReductionOperator::SUM>);
struct Two {
  int a, b;
};
static_assert(!Reduces<Two, ReductionOperator::SUM>);
static_assert(Sendable<Two>);
static_assert(!Sendable<std::string>);

// The mode of a Coordinator is one that its backend has.
struct HostAlone : PolypathBackend {
  static constexpr bool launches(LaunchMode mode) { return mode == LaunchMode::PureHost; }
};
template <typename B, LaunchMode M>
concept HasCoordinator = requires { typename Coordinator<B, M>; };
static_assert(HasCoordinator<HostAlone, LaunchMode::PureHost>);
static_assert(!HasCoordinator<HostAlone, LaunchMode::PureDevice>);
static_assert(!BackendLibrary<int>);

}  // namespace polypath::test
