// Post and Acknowledge.
#pragma once

#include "suite_rank.hpp"

namespace polypath::test {

/// What goes to the next rank and to the one before, in groups of all sizes, with signals that do
/// not rise by one. Every rank posts before it acknowledges.
template <typename B>
void posts_in_a_group(SuiteRank<B>& self) {
  const int own = self.rank();
  const int size = self.size();
  const int next = (own + 1) % size;
  const int last = (own + size - 1) % size;
  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 64);
  self.gpu.fill(signals.get(), 0, 64);
  std::uint64_t round = 0;
  std::uint64_t value = 3;
  for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{0},
                                  std::size_t{40'003}, std::size_t{1} << 19}) {
    ++round;
    value += round * 5;
    const std::size_t bytes = count * sizeof(double);
    Buffer<B> source(self.gpu, 2 * bytes + 8);
    Buffer<B> inbox(self.gpu, 2 * bytes + 8);
    source.put(0, self.content(own, round, 2 * bytes));
    self.comm.Barrier(self.gpu.stream);
    coordinator.CommStart();
    coordinator.Post(source.template get<double>(), inbox.template get<double>(), count,
                     signals.template get<std::uint64_t>(0), value, next, &self.comm);
    coordinator.Post(source.template get<double>(bytes), inbox.template get<double>(bytes), count,
                     signals.template get<std::uint64_t>(8), value, last, &self.comm);
    coordinator.Acknowledge(inbox.template get<double>(), count,
                            signals.template get<std::uint64_t>(0), value, last, &self.comm);
    coordinator.Acknowledge(inbox.template get<double>(bytes), count,
                            signals.template get<std::uint64_t>(8), value, next, &self.comm);
    coordinator.CommEnd();
    coordinator.WaitComm();
    const Bytes from_last = self.content(last, round, 2 * bytes);
    const Bytes from_next = self.content(next, round, 2 * bytes);
    const auto half = static_cast<std::ptrdiff_t>(bytes);
    inbox.note(0, Bytes(from_last.begin(), from_last.begin() + half));
    inbox.note(bytes, Bytes(from_next.begin() + half, from_next.end()));
    inbox.expect_image("group of " + std::to_string(count));
    source.expect_image("source of " + std::to_string(count));
  }
}

/// Without a group: even ranks send first, so that it works with blocking sends, too; of
/// one-sided backends all send first.
template <typename B>
void posts_alone(SuiteRank<B>& self) {
  const int own = self.rank();
  const int size = self.size();
  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 8);
  self.gpu.fill(signals.get(), 0, 8);
  constexpr std::size_t kCount = 300'001;
  Buffer<B> source(self.gpu, kCount);
  Buffer<B> inbox(self.gpu, kCount);
  auto* const word = signals.template get<std::uint64_t>();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    inbox.poison();
    source.put(0, self.content(own, round, kCount));
    self.comm.Barrier(self.gpu.stream);
    const int other = own ^ 1;
    if (other < size) {
      const auto post = [&] {
        coordinator.Post(source.template get<char>(), inbox.template get<char>(), kCount, word,
                         round * 10, other, &self.comm);
      };
      const bool is_first = (self.is_one_sided() && !self.posts_may_wait) || own % 2 == 0;
      if (is_first) post();
      coordinator.Acknowledge(inbox.template get<char>(), kCount, word, round * 10, other,
                              &self.comm);
      if (!is_first) post();
      inbox.note(0, self.content(other, round, kCount));
    }
    coordinator.WaitComm();
    inbox.expect_image("alone, round " + std::to_string(round));
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
  }
}

template <typename B>
void posts_to_itself(SuiteRank<B>& self) {
  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 8);
  self.gpu.fill(signals.get(), 0, 8);
  Buffer<B> source(self.gpu, 5000);
  Buffer<B> inbox(self.gpu, 5000);
  source.put(0, self.content(self.rank(), 1, 5000));
  coordinator.CommStart();
  coordinator.Post(source.template get<int>(), inbox.template get<int>(), 1250,
                   signals.template get<std::uint64_t>(), 1, self.rank(), &self.comm);
  coordinator.Acknowledge(inbox.template get<int>(), 1250, signals.template get<std::uint64_t>(), 1,
                          self.rank(), &self.comm);
  coordinator.CommEnd();
  coordinator.WaitComm();
  inbox.note(0, self.content(self.rank(), 1, 5000));
  inbox.expect_image("to itself");
}

/// After CommEnd the stream overwrites what it posted, at once; the receivers find what was there.
template <typename B>
void sources_are_reused(SuiteRank<B>& self) {
  const int own = self.rank();
  const int next = (own + 1) % self.size();
  const int last = (own + self.size() - 1) % self.size();
  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 8);
  self.gpu.fill(signals.get(), 0, 8);
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  Buffer<B> source(self.gpu, kBytes);
  Buffer<B> inbox(self.gpu, kBytes);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    source.put(0, self.content(own, round, kBytes));
    inbox.poison();
    self.comm.Barrier(self.gpu.stream);
    coordinator.CommStart();
    coordinator.Post(source.template get<float>(), inbox.template get<float>(), kBytes / 4,
                     signals.template get<std::uint64_t>(), round, next, &self.comm);
    coordinator.Acknowledge(inbox.template get<float>(), kBytes / 4,
                            signals.template get<std::uint64_t>(), round, last, &self.comm);
    coordinator.CommEnd();
    self.gpu.fill(source.get(), 0xEE, kBytes);
    coordinator.WaitComm();
    inbox.note(0, self.content(last, round, kBytes));
    inbox.expect_image("sources are reused");
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
  }
}

/// One-sided: the word is what Post said, not a count of posts; and an acknowledge of an earlier
/// value does not wait.
template <typename B>
void signals_are_set(SuiteRank<B>& self) {
  if (self.is_one_sided()) {
    const int next = (self.rank() + 1) % self.size();
    uc::Coordinator<B> coordinator(self.gpu.stream);
    Buffer<B> words(self.gpu, 16);
    words.put(0, Bytes(16));
    self.comm.Barrier(self.gpu.stream);
    auto* const word = words.template get<std::uint64_t>();
    for (const std::uint64_t value :
         {std::uint64_t{7}, std::uint64_t{1000}, std::uint64_t{1} << 40U}) {
      coordinator.Post(word, word, 0, word, value, next, &self.comm);
      coordinator.Acknowledge(word, 0, word, value, 0, &self.comm);
      coordinator.Acknowledge(word, 0, word, value - 6, 0, &self.comm);
      coordinator.WaitComm();
      Bytes expected(8);
      std::memcpy(expected.data(), &value, 8);
      words.note(0, expected);
      words.expect_image("signals are set");
      self.comm.Barrier(self.gpu.stream);
      coordinator.WaitComm();
    }
  }
}

/// What is sent is what the stream makes before, and what comes is there for later work of the stream.
template <typename B>
void posts_come_behind(SuiteRank<B>& self) {
  const int own = self.rank();
  const int next = (own + 1) % self.size();
  const int last = (own + self.size() - 1) % self.size();
  uc::Coordinator<B> coordinator(self.gpu.stream);
  Buffer<B> signals(self.gpu, 8);
  self.gpu.fill(signals.get(), 0, 8);
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  Buffer<B> source(self.gpu, kBytes);
  Buffer<B> inbox(self.gpu, kBytes);
  Buffer<B> copy(self.gpu, kBytes);
  self.comm.Barrier(self.gpu.stream);
  for (int i = 0; i < 8; ++i) self.gpu.fill(source.get(), static_cast<unsigned char>(i), kBytes);
  self.gpu.fill(source.get(), static_cast<unsigned char>(100 + own), kBytes);
  coordinator.CommStart();
  coordinator.Post(source.get(), inbox.get(), kBytes, signals.template get<std::uint64_t>(), 1,
                   next, &self.comm);
  coordinator.Acknowledge(inbox.get(), kBytes, signals.template get<std::uint64_t>(), 1, last,
                          &self.comm);
  coordinator.CommEnd();
  self.gpu.cuda.check(self.gpu.cuda.copy(uc::detail::device(copy.get()),
                                         uc::detail::device(inbox.get()), kBytes, self.gpu.stream),
                      "copy");
  coordinator.WaitComm();
  copy.note(0, Bytes(kBytes, static_cast<std::byte>(100 + last)));
  copy.expect_image("what came");
  self.comm.Barrier(self.gpu.stream);
  coordinator.WaitComm();
}

}  // namespace polypath::test
