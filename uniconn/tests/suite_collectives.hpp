// Collectives that move data: all forms, in place and not, with empty ranks, every root.
#pragma once

#include "suite_rank.hpp"

namespace polypath::test {

inline const std::vector<std::size_t>& counts_of_rows() {
  static const std::vector<std::size_t> counts{1, 0, 7, 1003, std::size_t{1} << 15};
  return counts;
}

/// Parts of several lengths, one of them empty, with gaps between: in elements.
struct Parts {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displs;
  std::size_t end = 0;
};
inline Parts parts_of(int ranks, std::size_t scale, int empty) {
  Parts parts;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    parts.counts.push_back(rank == empty ? 0 : scale + 3 * at);
    parts.displs.push_back(parts.end + 1 + at);
    parts.end = parts.displs.back() + parts.counts.back();
  }
  parts.end += 2;
  return parts;
}

/// All ranks are done with the memory of a case.
template <typename B>
void settle(SuiteRank<B>& self, uc::Coordinator<B>& coordinator) {
  coordinator.WaitComm();
  self.comm.Barrier(self.gpu.stream);
  coordinator.WaitComm();
}

inline Bytes slice(const Bytes& bytes, std::size_t from, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

template <typename B>
void all_gathers(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const auto ranks = static_cast<std::size_t>(self.size());
  const auto own = static_cast<std::size_t>(self.rank());
  for (const std::size_t count : counts_of_rows()) {
    const std::size_t bytes = count * sizeof(int);
    Buffer<B> send(self.gpu, bytes);
    Buffer<B> recv(self.gpu, bytes * ranks);
    for (const bool in_place : {false, true}) {
      const std::uint64_t round = 2 * count + (in_place ? 1 : 0);
      recv.poison();
      if (in_place) {
        recv.put(own * bytes, self.content(self.rank(), round, bytes));
        coordinator.AllGather(recv.template get<int>(), count, &self.comm);
      } else {
        send.put(0, self.content(self.rank(), round, bytes));
        coordinator.AllGather(send.template get<int>(), recv.template get<int>(), count,
                              &self.comm);
      }
      settle(self, coordinator);
      for (std::size_t r = 0; r < ranks; ++r)
        recv.note(r * bytes, self.content(static_cast<int>(r), round, bytes));
      recv.expect_image("AllGather of " + std::to_string(count));
      send.expect_image("AllGather: send");
    }
  }
}

template <typename B>
void all_gathervs(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const auto own = static_cast<std::size_t>(self.rank());
  std::uint64_t round = 0;
  for (const std::size_t scale : {std::size_t{1}, std::size_t{1000}, std::size_t{200'000}})
    for (int empty = -1; empty < self.size(); ++empty) {
      const Parts parts = parts_of(self.size(), scale, empty);
      Buffer<B> send(self.gpu, (scale + 32) * sizeof(short));
      Buffer<B> recv(self.gpu, parts.end * sizeof(short));
      for (const bool in_place : {false, true}) {
        ++round;
        recv.poison();
        const Bytes payload = self.content(self.rank(), round, parts.counts[own] * sizeof(short));
        if (in_place) {
          recv.put(parts.displs[own] * sizeof(short), payload);
          coordinator.AllGatherv(recv.template get<short>(), parts.counts.data(),
                                 parts.displs.data(), &self.comm);
        } else {
          send.put(0, payload);
          coordinator.AllGatherv(send.template get<short>(), recv.template get<short>(),
                                 parts.counts.data(), parts.displs.data(), &self.comm);
        }
        settle(self, coordinator);
        for (int r = 0; r < self.size(); ++r) {
          const auto at = static_cast<std::size_t>(r);
          recv.note(parts.displs[at] * sizeof(short),
                    self.content(r, round, parts.counts[at] * sizeof(short)));
        }
        recv.expect_image("AllGatherv");
      }
    }
}

template <typename B>
void all_to_alls(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const auto ranks = static_cast<std::size_t>(self.size());
  const auto own = static_cast<std::size_t>(self.rank());
  for (const std::size_t count : counts_of_rows()) {
    const std::size_t bytes = count * sizeof(double);
    Buffer<B> send(self.gpu, bytes * ranks);
    Buffer<B> recv(self.gpu, bytes * ranks);
    send.put(0, self.content(self.rank(), count, bytes * ranks));
    coordinator.AlltoAll(send.template get<double>(), recv.template get<double>(), count,
                         &self.comm);
    settle(self, coordinator);
    for (std::size_t r = 0; r < ranks; ++r)
      recv.note(r * bytes,
                slice(self.content(static_cast<int>(r), count, bytes * ranks), own * bytes, bytes));
    recv.expect_image("AlltoAll of " + std::to_string(count));
  }
}

/// Every pair has another length, some none, and each rank lays out its parts in its own way.
template <typename B>
void all_to_allvs(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const auto ranks = static_cast<std::size_t>(self.size());
  const auto own = static_cast<std::size_t>(self.rank());
  for (const std::size_t scale : {std::size_t{5}, std::size_t{60'001}}) {
    const auto count_of = [&](std::size_t from, std::size_t to) {
      return (from + 2 * to) % 3 == 1 ? std::size_t{0} : scale + 7 * from + to;
    };
    // Displacements grow by another gap on each rank.
    const auto laid_out = [&](std::size_t rank, bool sends) {
      Parts parts;
      for (std::size_t r = 0; r < ranks; ++r) {
        parts.counts.push_back(sends ? count_of(rank, r) : count_of(r, rank));
        parts.displs.push_back(parts.end + rank + 1);
        parts.end = parts.displs.back() + parts.counts.back();
      }
      return parts;
    };
    const std::size_t most = ranks * (scale + 8 * ranks + ranks + 1) * sizeof(float);
    const Parts from_me = laid_out(own, true);
    const Parts to_me = laid_out(own, false);
    Buffer<B> send(self.gpu, most);
    Buffer<B> recv(self.gpu, most);
    send.put(0, self.content(self.rank(), scale, most));
    for (int times = 0; times < 2; ++times) {
      recv.poison();
      coordinator.AlltoAllv(send.template get<float>(), from_me.counts.data(),
                            from_me.displs.data(), recv.template get<float>(), to_me.counts.data(),
                            to_me.displs.data(), &self.comm);
      settle(self, coordinator);
      for (std::size_t r = 0; r < ranks; ++r)
        recv.note(
            to_me.displs[r] * sizeof(float),
            slice(self.content(static_cast<int>(r), scale, most),
                  laid_out(r, true).displs[own] * sizeof(float), to_me.counts[r] * sizeof(float)));
      recv.expect_image("AlltoAllv of " + std::to_string(scale));
    }
  }
}

template <typename B>
void broadcasts(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  for (const std::size_t count : counts_of_rows())
    for (int root = 0; root < self.size(); ++root) {
      if (count > 10'000 && root != 1) continue;
      const std::size_t bytes = count * sizeof(float);
      const std::uint64_t round = 10 * count + static_cast<std::uint64_t>(root);
      Buffer<B> buffer(self.gpu, bytes);
      if (self.rank() == root) buffer.put(0, self.content(root, round, bytes));
      coordinator.Broadcast(buffer.template get<float>(), count, root, &self.comm);
      settle(self, coordinator);
      buffer.note(0, self.content(root, round, bytes));
      buffer.expect_image("Broadcast of " + std::to_string(count));
    }
}

template <typename B>
void gathers_and_scatters(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const auto ranks = static_cast<std::size_t>(self.size());
  const auto own = static_cast<std::size_t>(self.rank());
  for (const std::size_t count : {std::size_t{1}, std::size_t{0}, std::size_t{30'011}})
    for (int root = 0; root < self.size(); ++root) {
      const std::size_t bytes = count * sizeof(long);
      const std::uint64_t round = 10 * count + static_cast<std::uint64_t>(root);
      Buffer<B> single(self.gpu, bytes);
      Buffer<B> all(self.gpu, bytes * ranks);
      for (const bool in_place : {false, true}) {
        all.poison();
        const Bytes payload = self.content(self.rank(), round, bytes);
        if (in_place) {
          all.put(own * bytes, payload);
          coordinator.Gather(all.template get<long>(), count, root, &self.comm);
        } else {
          single.put(0, payload);
          coordinator.Gather(single.template get<long>(), all.template get<long>(), count, root,
                             &self.comm);
        }
        settle(self, coordinator);
        if (self.rank() == root)
          for (std::size_t r = 0; r < ranks; ++r)
            all.note(r * bytes, self.content(static_cast<int>(r), round, bytes));
        all.expect_image("Gather of " + std::to_string(count));

        single.poison();
        all.poison();
        const Bytes from_root = self.content(root, round + 5, bytes * ranks);
        if (self.rank() == root) all.put(0, from_root);
        if (in_place) {
          coordinator.Scatter(all.template get<long>(), count, root, &self.comm);
          all.note(own * bytes, slice(from_root, own * bytes, bytes));
        } else {
          coordinator.Scatter(all.template get<long>(), single.template get<long>(), count, root,
                              &self.comm);
          single.note(0, slice(from_root, own * bytes, bytes));
        }
        settle(self, coordinator);
        all.expect_image("Scatter of " + std::to_string(count));
        single.expect_image("Scatter of " + std::to_string(count));
      }
    }
}

template <typename B>
void gathervs_and_scattervs(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const auto own = static_cast<std::size_t>(self.rank());
  std::uint64_t round = 0;
  for (const std::size_t scale : {std::size_t{1}, std::size_t{20'011}})
    for (int empty = -1; empty < self.size(); ++empty) {
      const int root = static_cast<int>(++round % static_cast<std::uint64_t>(self.size()));
      const Parts parts = parts_of(self.size(), scale, empty);
      const std::size_t element = sizeof(int);
      Buffer<B> single(self.gpu, (scale + 32) * element);
      Buffer<B> all(self.gpu, parts.end * element);
      for (const bool in_place : {false, true}) {
        all.poison();
        const Bytes payload = self.content(self.rank(), round, parts.counts[own] * element);
        if (in_place) {
          all.put(parts.displs[own] * element, payload);
          coordinator.Gatherv(all.template get<int>(), parts.counts.data(), parts.displs.data(),
                              root, &self.comm);
        } else {
          single.put(0, payload);
          coordinator.Gatherv(single.template get<int>(), all.template get<int>(),
                              parts.counts.data(), parts.displs.data(), root, &self.comm);
        }
        settle(self, coordinator);
        if (self.rank() == root)
          for (int r = 0; r < self.size(); ++r) {
            const auto at = static_cast<std::size_t>(r);
            all.note(parts.displs[at] * element,
                     self.content(r, round, parts.counts[at] * element));
          }
        all.expect_image("Gatherv");

        single.poison();
        all.poison();
        const Bytes from_root = self.content(root, round + 500, parts.end * element);
        if (self.rank() == root) all.put(0, from_root);
        const Bytes to_me =
            slice(from_root, parts.displs[own] * element, parts.counts[own] * element);
        if (in_place) {
          coordinator.Scatterv(all.template get<int>(), parts.counts.data(), parts.displs.data(),
                               root, &self.comm);
          all.note(parts.displs[own] * element, to_me);
        } else {
          coordinator.Scatterv(all.template get<int>(), single.template get<int>(),
                               parts.counts.data(), parts.displs.data(), root, &self.comm);
          single.note(0, to_me);
        }
        settle(self, coordinator);
        all.expect_image("Scatterv");
        single.expect_image("Scatterv");
      }
    }
}

/// Several in one group, with posts among them, and the same once more: nothing of a group is left
/// to the next.
template <typename B>
void collectives_in_groups(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  const int next = (self.rank() + 1) % self.size();
  const int last = (self.rank() + self.size() - 1) % self.size();
  const auto own = static_cast<std::size_t>(self.rank());
  const Parts first = parts_of(self.size(), 500, 1);
  const Parts second = parts_of(self.size(), 900, 0);
  Buffer<B> signals(self.gpu, 8);
  self.gpu.fill(signals.get(), 0, 8);
  Buffer<B> single(self.gpu, 4000);
  Buffer<B> two(self.gpu, 8000);
  Buffer<B> source(self.gpu, 70'000);
  Buffer<B> inbox(self.gpu, 70'000);
  Buffer<B> sum(self.gpu, 64);
  Buffer<B> logical(self.gpu, 64);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (Buffer<B>* const each : {&single, &two, &inbox}) each->poison();
    single.put(first.displs[own], self.content(self.rank(), round, first.counts[own]));
    two.put(second.displs[own], self.content(self.rank(), round + 50, second.counts[own]));
    source.put(0, self.content(self.rank(), round + 90, 70'000));
    const auto number = static_cast<std::uint32_t>(self.rank() + 1);
    Bytes contribution(4);
    std::memcpy(contribution.data(), &number, 4);
    sum.put(0, contribution);
    logical.put(0, Bytes(4, std::byte{0}));
    if (self.rank() == 0) logical.put(0, contribution);
    self.comm.Barrier(self.gpu.stream);
    coordinator.CommStart();
    coordinator.Post(source.get(), inbox.get(), 70'000, signals.template get<std::uint64_t>(),
                     round, next, &self.comm);
    coordinator.AllGatherv(single.get(), first.counts.data(), first.displs.data(), &self.comm);
    coordinator.template AllReduce<uc::ReductionOperator::SUM>(sum.template get<std::uint32_t>(), 1,
                                                               &self.comm);
    coordinator.template AllReduce<uc::ReductionOperator::LXOR>(
        logical.template get<std::uint32_t>(), 1, &self.comm);
    coordinator.AllGatherv(two.get(), second.counts.data(), second.displs.data(), &self.comm);
    coordinator.Acknowledge(inbox.get(), 70'000, signals.template get<std::uint64_t>(), round, last,
                            &self.comm);
    coordinator.CommEnd();
    settle(self, coordinator);
    for (int r = 0; r < self.size(); ++r) {
      const auto at = static_cast<std::size_t>(r);
      single.note(first.displs[at], self.content(r, round, first.counts[at]));
      two.note(second.displs[at], self.content(r, round + 50, second.counts[at]));
    }
    inbox.note(0, self.content(last, round + 90, 70'000));
    single.expect_image("first AllGatherv of a group");
    two.expect_image("second AllGatherv of a group");
    inbox.expect_image("post of a group");
    const auto total = static_cast<std::uint32_t>(self.size() * (self.size() + 1) / 2);
    std::memcpy(contribution.data(), &total, 4);
    sum.note(0, contribution);
    sum.expect_image("AllReduce of a group");
    const std::uint32_t is_odd = 1;
    std::memcpy(contribution.data(), &is_odd, 4);
    logical.note(0, contribution);
    logical.expect_image("composed AllReduce of a group");
  }
}

/// Halves in the order of ranks turned around, that do different things at once; ranks are theirs.
template <typename B>
void splits(SuiteRank<B>& self) {
  const int color = self.rank() % 2;
  auto part = self.comm.Split(color, -self.rank());
  std::vector<int> members;  // in order
  for (int r = self.size() - 1; r >= 0; --r)
    if (r % 2 == color) members.push_back(r);
  const int size = static_cast<int>(members.size());
  SUITE_EXPECT(static_cast<bool>(part), "");
  SUITE_EXPECT(part.GlobalSize() == size, "");
  const int own = part.GlobalRank();
  SUITE_EXPECT(members[static_cast<std::size_t>(own)] == self.rank(), "");
  const auto none = self.comm.Split(self.rank() == 0 ? -1 : 5, 0);
  SUITE_EXPECT(static_cast<bool>(none) == (self.rank() != 0), "");
  if (self.rank() != 0) SUITE_EXPECT(none.GlobalSize() == self.size() - 1, "");

  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 8);
  self.gpu.fill(signals.get(), 0, 8);
  Buffer<B> source(self.gpu, 9000);
  Buffer<B> inbox(self.gpu, 9000);
  Buffer<B> gathered(self.gpu, 9000 * static_cast<std::size_t>(self.size()));
  source.put(0, self.content(self.rank(), 1, 9000));
  self.comm.Barrier(self.gpu.stream);
  const int next = (own + 1) % size;
  const int last = (own + size - 1) % size;
  coordinator.CommStart();
  coordinator.Post(source.get(), inbox.get(), 9000, signals.template get<std::uint64_t>(), 4, next,
                   &part);
  coordinator.Acknowledge(inbox.get(), 9000, signals.template get<std::uint64_t>(), 4, last, &part);
  coordinator.CommEnd();
  // The halves do not do the same.
  const int times = color == 0 ? 3 : 1;
  for (int i = 0; i < times; ++i) coordinator.AllGather(source.get(), gathered.get(), 9000, &part);
  std::vector<std::size_t> counts(static_cast<std::size_t>(size), 9000);
  std::vector<std::size_t> displs;
  for (int i = 0; i < size; ++i) displs.push_back(9000 * static_cast<std::size_t>(i));
  coordinator.AllGatherv(source.get(), gathered.get(), counts.data(), displs.data(), &part);
  part.Barrier(self.gpu.stream);
  coordinator.WaitComm();
  inbox.note(0, self.content(members[static_cast<std::size_t>(last)], 1, 9000));
  inbox.expect_image("post in a part");
  for (int r = 0; r < size; ++r)
    gathered.note(9000 * static_cast<std::size_t>(r),
                  self.content(members[static_cast<std::size_t>(r)], 1, 9000));
  gathered.expect_image("AllGather in a part");
  settle(self, coordinator);
}

}  // namespace polypath::test
