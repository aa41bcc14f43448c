// Copies on streams that a library has made: of which the engine is told that nothing came between
// them and the copy before.
#include <string>

#include "shim_test.hpp"
#include "stream_library.hpp"

extern "C" const polypath::preload::test::StreamLibrary* stream_library();  // of the needed one

namespace polypath::preload::test {
namespace {

using Follows = std::vector<bool>;

class SequencesTest : public ShimTest {
 protected:
  void SetUp() override {
    ShimTest::SetUp();
    engine.answer = Answer::take;
    ASSERT_NE(nullptr, library) << dlerror();
  }
  void TearDown() override {
    for (const auto& [owner, stream] : streams) EXPECT_CUDA(CUDA_SUCCESS, owner->destroy(stream));
    ShimTest::TearDown();
  }

  CUstream make(const StreamLibrary* owner, unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, owner->make(&stream, flags));
    streams.emplace_back(owner, stream);
    return stream;
  }
  void copy(CUstream stream, std::size_t bytes = kLarge) const {
    EXPECT_CUDA(CUDA_SUCCESS, library->copy(far, near, bytes, stream));
  }
  /// Two copies with an event after each.
  void copy_two(CUstream stream) const {
    for (int i = 0; i < 2; ++i) {
      copy(stream);
      EXPECT_CUDA(CUDA_SUCCESS, library->record(stream));
    }
  }
  /// What the engine was told of the copies since it was asked last.
  Follows take_follows() {
    Follows follows;
    for (const FakeEngine::Copy& copy : engine.copies) follows.push_back(copy.follows);
    engine.copies.clear();
    return follows;
  }
  /// Whether copies follow each other on a stream that the library makes now.
  bool has_sequences(const StreamLibrary* owner) {
    copy_two(make(owner));
    const Follows follows = take_follows();
    EXPECT_EQ(2U, follows.size());
    EXPECT_FALSE(follows.at(0));
    return follows.at(1);
  }

  const StreamLibrary* library = open_stream_library(POLYPATH_TRANSPARENT_LIBRARY);
  std::vector<std::pair<const StreamLibrary*, CUstream>> streams;
};

TEST_F(SequencesTest, CopiesAndEventRecordsContinueThem) {
  const CUstream stream = make(library);
  const CUstream other = make(library);
  copy_two(stream);
  copy(other);
  copy_two(stream);
  copy(other);
  EXPECT_EQ((Follows{false, true, false, true, true, true}), take_follows());
  EXPECT_CUDA(CUDA_SUCCESS, cuCtxSynchronize());
  EXPECT_EQ(bytes_at(pointer(near), kLarge), bytes_at(pointer(far), kLarge));
}

TEST_F(SequencesTest, EndWithAnythingElse) {
  const CUstream stream = make(library);
  const auto expect_end = [&](const char* what, auto&& other) {
    SCOPED_TRACE(what);
    copy_two(stream);
    take_follows();
    engine.answer = Answer::take;
    other();
    engine.answer = Answer::take;
    take_follows();
    copy_two(stream);
    EXPECT_EQ((Follows{false, true}), take_follows());
  };
  expect_end("a wait", [&] { EXPECT_CUDA(CUDA_SUCCESS, library->wait(stream)); });
  expect_end("a callback", [&] { EXPECT_CUDA(CUDA_SUCCESS, library->call_back(stream)); });
  expect_end("a wait by others", [&] {
    CUevent event = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuEventCreate(&event, 0));
    EXPECT_CUDA(CUDA_SUCCESS, cuStreamWaitEvent(stream, event, 0));
    EXPECT_CUDA(CUDA_SUCCESS, cuEventDestroy(event));
  });
  expect_end("a small copy", [&] { copy(stream, 1000); });
  expect_end("a copy that the engine leaves to the driver", [&] {
    engine.answer = Answer::leave;
    copy(stream);
  });
  expect_end("a copy that fails", [&] {
    engine.answer = Answer::fail;
    EXPECT_NE(CUDA_SUCCESS, library->copy(far, near, kLarge, stream));
  });
  expect_end("a copy of rows that are apart", [&] {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = near;
    rows.dstDevice = far;
    rows.srcPitch = rows.dstPitch = 1024;
    rows.WidthInBytes = 512;
    rows.Height = 16;
    EXPECT_CUDA(CUDA_SUCCESS, cuMemcpy2DAsync(&rows, stream));
  });
}

TEST_F(SequencesTest, OtherStreams_HaveNone) {
  CUstream own = create_stream(0);
  copy_two(own);
  EXPECT_EQ((Follows{false, false}), take_follows()) << "the program's";
  copy_two(nullptr);
  EXPECT_EQ((Follows{false, false}), take_follows()) << "the default stream";
  copy_two(make(library, CU_STREAM_DEFAULT));
  EXPECT_EQ((Follows{false, false}), take_follows()) << "it waits for the default stream";
}

TEST_F(SequencesTest, PriorityStreams_HaveThem) {
  CUstream stream = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, library->make_with_priority(&stream, CU_STREAM_NON_BLOCKING, 0));
  streams.emplace_back(library, stream);
  copy_two(stream);
  EXPECT_EQ((Follows{false, true}), take_follows());
}

TEST_F(SequencesTest, BeginAnewOnAHandleThatIsUsedAgain) {
  for (int i = 0; i < 200; ++i) {
    CUstream stream = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, library->make(&stream, CU_STREAM_NON_BLOCKING));
    copy(stream);
    EXPECT_EQ(Follows{false}, take_follows());
    EXPECT_CUDA(CUDA_SUCCESS, library->destroy(stream));
  }
  EXPECT_TRUE(has_sequences(library));
}

TEST_F(SequencesTest, NeedALibraryAllOfWhoseCallsPassTheShim) {
  const auto opened = [](const char* path) {
    const StreamLibrary* const stream_library = open_stream_library(path);
    EXPECT_NE(nullptr, stream_library) << dlerror();
    return stream_library;
  };
  EXPECT_FALSE(has_sequences(opened(POLYPATH_MEMSET_LIBRARY)));
  EXPECT_FALSE(has_sequences(stream_library())) << "the program needs it, and may use its streams";
  EXPECT_TRUE(has_sequences(library));
}

TEST_F(SequencesTest, EndForALibraryThatLooksOtherFunctionsUp) {
  struct Way {
    const char* path;
    void* (*StreamLibrary::*look_up)(const char*);
  };
  for (const Way& way : {Way{POLYPATH_LOOKING_LIBRARY, &StreamLibrary::look_up},
                         Way{POLYPATH_ASKING_LIBRARY, &StreamLibrary::ask}}) {
    SCOPED_TRACE(way.path);
    const StreamLibrary* const looking = open_stream_library(way.path);
    ASSERT_NE(nullptr, looking) << dlerror();
    const CUstream stream = make(looking);
    for (const char* const quiet : {"cuMemcpyAsync", "cuCtxSetFlags", "cuStreamQuery"})
      EXPECT_NE(nullptr, (looking->*way.look_up)(quiet)) << quiet;
    copy_two(stream);
    EXPECT_EQ((Follows{false, true}), take_follows());
    EXPECT_NE(nullptr, (looking->*way.look_up)("cuMemsetD8Async"));
    copy_two(stream);
    EXPECT_EQ((Follows{false, false}), take_follows()) << "a stream that it has";
    EXPECT_FALSE(has_sequences(looking)) << "a stream that it makes";
    EXPECT_TRUE(has_sequences(library)) << "others are not concerned";
  }
}

}  // namespace
}  // namespace polypath::preload::test
