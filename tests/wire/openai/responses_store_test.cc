// Responses that are kept: by id and owner, the oldest making room.
#include "wire/openai/responses_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

namespace kakeya::openai {
namespace {

StoredResponse of_text(std::string text) {
  return {.json = std::move(text), .messages = {{.role = "user", .content = "a"}}};
}

TEST(ResponseStore, GivesResponsesToTheirOwnersAlone) {
  ResponseStore store;
  store.put("resp_1", "ann", of_text("one"));
  ASSERT_NE(store.find("resp_1", "ann"), nullptr);
  EXPECT_EQ(store.find("resp_1", "ann")->json, "one");
  EXPECT_EQ(store.find("resp_1", "bob"), nullptr);
  EXPECT_EQ(store.find("resp_1", ""), nullptr);
  EXPECT_EQ(store.find("resp_2", "ann"), nullptr);
  EXPECT_FALSE(store.erase("resp_1", "bob"));
  const auto held = store.find("resp_1", "ann");
  EXPECT_TRUE(store.erase("resp_1", "ann"));
  EXPECT_FALSE(store.erase("resp_1", "ann"));
  EXPECT_EQ(store.find("resp_1", "ann"), nullptr);
  EXPECT_EQ(store.size(), 0u);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(held->json, "one") << "whoever reads it still has it";
}

TEST(ResponseStore, TheOldestGoFirst) {
  ResponseStore store(3);
  for (int i = 0; i < 5; ++i) store.put(fmt::format("resp_{}", i), "ann", of_text("a"));
  EXPECT_EQ(store.size(), 3u);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(store.find(fmt::format("resp_{}", i), "ann") != nullptr, i >= 2) << i;
  }
}

TEST(ResponseStore, HoldsNoMoreBytesThanItMay) {
  constexpr std::size_t kMost = 10'000;
  ResponseStore store(1000, kMost);
  for (int i = 0; i < 50; ++i) {
    store.put(fmt::format("resp_{}", i), "ann", of_text(std::string(std::size_t(60 * i), 'a')));
    EXPECT_LE(store.bytes(), kMost);
    EXPECT_NE(store.find(fmt::format("resp_{}", i), "ann"), nullptr);
  }
  EXPECT_LT(store.size(), 10u);
  const std::size_t before = store.size();
  store.put("resp_big", "ann", of_text(std::string(kMost, 'a')));
  EXPECT_EQ(store.find("resp_big", "ann"), nullptr);
  EXPECT_EQ(store.size(), before) << "one that is not kept pushes out no other";
  // A message counts as much as the response itself.
  StoredResponse long_talk = of_text("a");
  long_talk.messages[0].content = std::string(kMost, 'a');
  store.put("resp_talk", "ann", std::move(long_talk));
  EXPECT_EQ(store.find("resp_talk", "ann"), nullptr);
}

TEST(ResponseStore, TakesManyThreads) {
  ResponseStore store(16);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, thread] {
      for (int i = 0; i < 500; ++i) {
        const std::string id = fmt::format("resp_{}_{}", thread, i);
        store.put(id, "ann", of_text(id));
        const auto found = store.find(id, "ann");
        EXPECT_TRUE(found == nullptr || found->json == id);
        if (i % 3 == 0) store.erase(id, "ann");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(store.size(), 16u);
}

}  // namespace
}  // namespace kakeya::openai
