// Transfers of a group: those that may be split are planned together, those of one stream one after
// another.
#include <fmt/format.h>

#include <set>

#include "base/error.hpp"
#include "core/transfer_dispatcher.hpp"

namespace polypath {

std::vector<TransferDispatcher::Member> TransferDispatcher::members_of(
    std::span<const Transfer> transfers) {
  std::vector<Member> members;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].bytes == 0) continue;
    try {
      Member member;
      auto classified = classify(transfers[i], nullptr, nullptr, member.pageable);
      member.index = i;
      if (auto* const splittable = std::get_if<SplittableTransfer>(&classified)) {
        member.splittable = std::move(*splittable);
      } else {
        member.reason = std::get<NativeReason>(classified);
      }
      // Transfers of one stream run one after another.
      for (const Member& earlier : members)
        if (transfers[earlier.index].stream == transfers[i].stream)
          member.round = earlier.round + 1;
      members.push_back(std::move(member));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("transfer {}: {}", i, error.what()));
    }
  }
  return members;
}

void TransferDispatcher::issue_rounds(
    std::span<const Transfer> transfers, std::span<int> issued, const PreparedPlan* prepared,
    const std::function<void(std::size_t, NativeReason)>& native) {
  std::vector<Member> members = members_of(transfers);
  std::set<CUstream> follow;  // streams whose last transfer of the round before was split
  std::size_t left = members.size();
  for (int round = 0; left > 0; ++round) {
    std::vector<SplittableTransfer> group;
    std::vector<std::size_t> indices;
    for (Member& member : members) {
      if (member.round != round) continue;
      --left;
      if (member.pageable) {
        bool is_midway = false;
        std::optional<NativeReason> why;
        try {
          why = copy_pageable(*member.pageable, is_midway);
        } catch (...) {
          if (is_midway) issued[member.index] = 1;
          throw;
        }
        if (why)
          native(member.index, *why);
        else
          issued[member.index] = 1;
        continue;
      }
      if (!member.splittable) {
        native(member.index, member.reason);
        continue;
      }
      member.splittable->transfer.follows = follow.contains(transfers[member.index].stream);
      group.push_back(std::move(*member.splittable));
      indices.push_back(member.index);
    }
    follow.clear();
    if (group.empty()) continue;
    const auto mark = [&] {
      for (const std::size_t index : indices) issued[index] = 1;
    };
    std::optional<NativeReason> reason;
    bool midway = false;
    try {
      reason = split(group, prepared, nullptr, midway);
    } catch (...) {
      if (midway) mark();
      throw;
    }
    if (reason) {
      for (const std::size_t index : indices) native(index, *reason);
      continue;
    }
    mark();
    for (const std::size_t index : indices) follow.insert(transfers[index].stream);
  }
}

void TransferDispatcher::issue_group(std::span<const Transfer> transfers,
                                     const PreparedPlan* prepared) {
  std::vector<int> issued(transfers.size());
  issue_rounds(transfers, issued, prepared, [&](std::size_t index, NativeReason reason) {
    native_copy_in_its_context(transfers[index], reason);
  });
}

void TransferDispatcher::try_issue_group(std::span<const Transfer> transfers,
                                         std::span<int> issued) {
  issue_rounds(transfers, issued, nullptr,
               [&](std::size_t index, NativeReason reason) { decline(transfers[index], reason); });
}

}  // namespace polypath
