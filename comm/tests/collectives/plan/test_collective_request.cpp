// Requests: what counts stand for, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.hpp"
#include "collectives/plan/request.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

TEST(CollectiveRequests, CountPartsOrTheMessage) {
  struct Row {
    CollectiveOp op;
    std::uint64_t count, elements;
    double bus;
  };
  for (const Row& row :
       {Row{CollectiveOp::allreduce, 250, 250, 1.5},
        Row{CollectiveOp::reduce_scatter, 63, 252, .75},
        Row{CollectiveOp::all_gather, 63, 252, .75}, Row{CollectiveOp::all_to_all, 63, 252, .75},
        Row{CollectiveOp::broadcast, 250, 250, 1}, Row{CollectiveOp::reduce, 250, 250, 1}}) {
    SCOPED_TRACE(to_string(row.op));
    const auto request = request_of_bytes(row.op, DataType::float32, 1000, 4);
    EXPECT_EQ(request.count, row.count);
    EXPECT_EQ(request.elements(), row.elements);
    EXPECT_EQ(request.bus_factor(), row.bus);
    EXPECT_EQ(parse_collective_op(to_string(row.op)), row.op);
  }
}

TEST(CollectiveRequests, WrongRequests_AreRefusedWithReason) {
  const Node node = mesh_node();
  const auto why = [&](const std::function<void(CollectiveRequest&)>& spoil) -> std::string {
    auto request = request_of_bytes(CollectiveOp::allreduce, DataType::float32, 1000, 4);
    spoil(request);
    try {
      validate(node, request);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(why([](auto& request) { request.gpus.clear(); }),
            "a collective needs at least one rank");
  EXPECT_EQ(why([](auto& request) { request.gpus.assign(9, 0); }),
            "collectives take up to 8 ranks of a node, not 9: --ranks 8");
  EXPECT_THAT(why([](auto& request) { request.gpus[2] = 4; }), ::testing::HasSubstr("no gpu4"));
  EXPECT_THAT(why([](auto& request) { request.gpus[2] = 0; }),
              ::testing::HasSubstr("two ranks share gpu0"));
  EXPECT_THAT(why([](auto& request) { request.root = 4; }), ::testing::HasSubstr("no rank 4"));
  EXPECT_THAT(why([](auto& request) { request.nodes = 2; }),
              ::testing::HasSubstr("rate of the network"));
  EXPECT_THAT(why([](auto& request) {
                request.nodes = 2;
                request.network_gbps = 25;
                request.op = CollectiveOp::broadcast;
              }),
              ::testing::HasSubstr("one node only"));
  EXPECT_THROW(parse_data_type("float"), InvalidArgument);
  EXPECT_THROW(parse_operator("mean"), InvalidArgument);
  EXPECT_EQ(parse_data_type("bfloat16"), DataType::bfloat16);
  EXPECT_EQ(parse_operator("avg"), Operator::avg);
}

}  // namespace
}  // namespace polypath
