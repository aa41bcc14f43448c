// What is refused: an error that names it, nothing issued, and all goes on.
#pragma once

#include "suite_collectives.hpp"

namespace polypath::test {

template <typename B>
void bad_input(SuiteRank<B>& self) {
  constexpr polypath_status kInvalid = POLYPATH_INVALID_ARGUMENT;
  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 16);
  Buffer<B> memory(self.gpu, 4096);
  auto* const word = signals.template get<std::uint64_t>();
  auto* const data = memory.template get<float>();
  auto* const none = static_cast<uc::Communicator<B>*>(nullptr);
  const int size = self.size();
  const int next = (self.rank() + 1) % size;
  const auto refused = [&](const char* text, const char* what, const auto& call) {
    const std::string message = refusal(kInvalid, what, call);
    SUITE_EXPECT(message.find(text) != std::string::npos, message);
  };

  refused("comm is null", "Post", [&] { coordinator.Post(data, data, 1, word, 1, next, none); });
  refused("comm is null", "AllGather", [&] { coordinator.AllGather(data, 1, none); });
  for (const int rank : {-1, size}) {
    refused("dest_rank is", "Post",
            [&] { coordinator.Post(data, data, 1, word, 1, rank, &self.comm); });
    refused("src_rank is", "Acknowledge",
            [&] { coordinator.Acknowledge(data, 1, word, 1, rank, &self.comm); });
    refused("root is", "Broadcast", [&] { coordinator.Broadcast(data, 1, rank, &self.comm); });
    refused("root is", "Gather", [&] { coordinator.Gather(data, 1, rank, &self.comm); });
    refused("root is", "Scatter", [&] { coordinator.Scatter(data, 1, rank, &self.comm); });
    refused("root is", "Reduce", [&] {
      coordinator.template Reduce<uc::ReductionOperator::SUM>(data, 1, rank, &self.comm);
    });
  }
  const float* const nothing = nullptr;
  refused("src is null", "Post",
          [&] { coordinator.Post(nothing, data, 1, word, 1, next, &self.comm); });
  refused("send is null", "AllGather",
          [&] { coordinator.AllGather(nothing, data, 1, &self.comm); });
  refused("recv is null", "AllGather",
          [&] { coordinator.AllGather(data, static_cast<float*>(nullptr), 1, &self.comm); });
  refused("counts is null", "AllGatherv", [&] {
    const std::size_t displs[8]{};
    coordinator.AllGatherv(data, data, nullptr, displs, &self.comm);
  });
  refused("not in place", "AlltoAll", [&] { coordinator.AlltoAll(data, data, 1, &self.comm); });
  refused("too large", "AllGather",
          [&] { coordinator.AllGather(data, data + 1, std::size_t{1} << 63U, &self.comm); });
  refused("no group", "CommEnd", [&] { coordinator.CommEnd(); });
  coordinator.CommStart();
  refused("a group already", "CommStart", [&] { coordinator.CommStart(); });
  coordinator.CommEnd();
  refused("no kernel", "LaunchKernel", [&] { coordinator.LaunchKernel(); });
  refused("not what Memory::Alloc gave", "Free",
          [&] { uc::Memory<B>::Free(static_cast<float*>(data) + 1); });
  refused("too large", "Alloc",
          [&] { static_cast<void>(uc::Memory<B>::template Alloc<double>(std::size_t{1} << 62U)); });
  refused("its GPU already", "SetDevice", [&] { self.env.SetDevice(0); });

  std::vector<float> host(8);
  if (self.is_one_sided()) {
    refused("signal is null", "Post",
            [&] { coordinator.Post(data, data, 1, nullptr, 1, next, &self.comm); });
    refused("dest is not from Memory", "Post",
            [&] { coordinator.Post(data, host.data(), 1, word, 1, next, &self.comm); });
    std::uint64_t on_host = 0;
    refused("signal is not from Memory", "Post",
            [&] { coordinator.Post(data, data, 1, &on_host, 1, next, &self.comm); });
    refused("signal is not from Memory", "Acknowledge",
            [&] { coordinator.Acknowledge(data, 1, &on_host, 1, next, &self.comm); });
    refused("signal is null", "Acknowledge", [&] {
      coordinator.Acknowledge(data, 1, static_cast<std::uint64_t*>(nullptr), 1, next, &self.comm);
    });
    refused("the memory ends", "Post",
            [&] { coordinator.Post(data, data, 100'000, word, 1, next, &self.comm); });
  } else {
    refused("not memory of a GPU", "Post",
            [&] { coordinator.Post(host.data(), data, 1, word, 1, next, &self.comm); });
    refused("not memory of a GPU", "Acknowledge",
            [&] { coordinator.Acknowledge(host.data(), 1, word, 1, next, &self.comm); });
    refused("the memory ends", "Post",
            [&] { coordinator.Post(data, data, 100'000, word, 1, next, &self.comm); });
  }
  // What is made of posts: found before any of them, or a barrier, is issued.
  refused("too large", "AlltoAll",
          [&] { coordinator.AlltoAll(data, data + 1, std::size_t{1} << 61U, &self.comm); });
  refused("too large", "Gather",
          [&] { coordinator.Gather(data, data + 1, std::size_t{1} << 61U, 0, &self.comm); });
  refused("no such reduction", "AllReduce", [&] {
    coordinator.AllReduce(uc::Element::float32, static_cast<uc::ReductionOperator>(11), data, data,
                          1, &self.comm);
  });
  const auto parts = static_cast<std::size_t>(size);
  const std::vector<std::size_t> counts(parts, 100);
  std::vector<std::size_t> places(parts);
  for (std::size_t r = 0; r < parts; ++r) places[r] = 100 * r;
  std::vector<std::size_t> past = counts;
  past[static_cast<std::size_t>(next)] = 1'000'000;
  refused("the memory ends", "AlltoAllv", [&] {
    coordinator.AlltoAllv(data, counts.data(), places.data(), data + 512, past.data(),
                          places.data(), &self.comm);
  });
  if (self.rank() == 0) {
    refused("send is null", "Gather", [&] {
      coordinator.Gather(static_cast<const float*>(nullptr), data, 1, 0, &self.comm);
    });
    refused("the memory ends", "Gather",
            [&] { coordinator.Gather(data + 900, data, 1'000'000, 0, &self.comm); });
    refused("the memory ends", "AllReduce", [&] {
      coordinator.template AllReduce<uc::ReductionOperator::LAND>(data + 512, data, 1'000'000,
                                                                  &self.comm);
    });
  }
  self.comm.Barrier(self.gpu.stream);
  // Nothing of it was issued: all still goes well.
  Buffer<B> gathered(self.gpu, 64 * static_cast<std::size_t>(size));
  memory.put(0, self.content(self.rank(), 3, 64));
  coordinator.AllGather(memory.get(), gathered.get(), 64, &self.comm);
  settle(self, coordinator);
  for (int r = 0; r < size; ++r)
    gathered.note(64 * static_cast<std::size_t>(r), self.content(r, 3, 64));
  gathered.expect_image("after what was refused");
}

template <typename B>
void a_second_environment(SuiteRank<B>& self) {
  const std::string message =
      refusal(POLYPATH_INVALID_ARGUMENT, "a second Environment", [] { uc::Environment<B> second; });
  SUITE_EXPECT(message.find("an Environment already") != std::string::npos, message);
  SUITE_EXPECT(self.env.IsInit(), "");
  SUITE_EXPECT(self.env.WorldRank() == self.rank(), "");
  SUITE_EXPECT(self.env.WorldSize() == self.size(), "");
  SUITE_EXPECT(self.env.NodeSize() == self.size(), "");
  SUITE_EXPECT(self.env.NodeRank() == self.rank(), "");
}

}  // namespace polypath::test
