#include "topology/fingerprint.hpp"

#include <gtest/gtest.h>

#include "topology/node_file.hpp"

namespace polypath {
namespace {

class Fingerprint : public testing::Test {
 protected:
  const Node node_ = read_node_file(find_node_file("narval"));
  const std::string print_ = fingerprint(node_, "580.1");
};

TEST_F(Fingerprint, ConsistsOfSixteenHexDigits) {
  EXPECT_EQ(print_.size(), 16u);
  EXPECT_EQ(print_.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(fingerprint(node_, "580.1"), print_);
}

TEST_F(Fingerprint, ChangesWithGpusLinksAndDriver) {
  EXPECT_NE(fingerprint(node_, "580.2"), print_);
  Node other = node_;
  other.gpus[1].uuid = "GPU-1";
  EXPECT_NE(fingerprint(other, "580.1"), print_);
  other = node_;
  other.gpus[0].pci = "0000:99:00.0";
  EXPECT_NE(fingerprint(other, "580.1"), print_);
  other = node_;
  other.links[0].width = 17;
  EXPECT_NE(fingerprint(other, "580.1"), print_);
  other = node_;
  other.links[0].type = LinkType::bounce;
  EXPECT_NE(fingerprint(other, "580.1"), print_);
}

TEST_F(Fingerprint, DoesNotChangeWithWhatIsMeasured) {
  Node other = node_;
  other.links[0].gbps = 1;
  other.ports[0].gbps = 1;
  other.costs.copy_start_us = 1;
  EXPECT_EQ(fingerprint(other, "580.1"), print_);
}

}  // namespace
}  // namespace polypath
