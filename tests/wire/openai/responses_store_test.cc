// Responses that are kept: by id and owner, whole, the oldest making room.
#include "wire/openai/responses_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

namespace kakeya::openai {
namespace {

using service::KeptTexts;

StoredResponse of_text(std::string text) {
  return {.json = std::move(text), .messages = {{.role = "user", .content = "a"}}};
}

// The response that a store gives; null: it has none, or none that can be read.
std::shared_ptr<const StoredResponse> found_in(const ResponseStore& store,
                                               std::string_view id,
                                               const std::string& owner) {
  return store.find(id, owner).value_or(nullptr);
}

TEST(ResponseStore, GivesResponsesToTheirOwnersAlone) {
  const auto texts = KeptTexts::open("").value();
  ResponseStore store(*texts);
  ASSERT_TRUE(store.put("resp_1", "ann", of_text("one")));
  ASSERT_NE(found_in(store, "resp_1", "ann"), nullptr);
  EXPECT_EQ(found_in(store, "resp_1", "ann")->json, "one");
  EXPECT_EQ(found_in(store, "resp_1", "bob"), nullptr);
  EXPECT_EQ(found_in(store, "resp_1", ""), nullptr);
  EXPECT_EQ(found_in(store, "resp_2", "ann"), nullptr);
  EXPECT_FALSE(store.erase("resp_1", "bob"));
  EXPECT_TRUE(store.erase("resp_1", "ann"));
  EXPECT_FALSE(store.erase("resp_1", "ann"));
  EXPECT_EQ(found_in(store, "resp_1", "ann"), nullptr);
  EXPECT_EQ(texts->size()->texts, 0);
  EXPECT_EQ(texts->size()->bytes, 0);
}

TEST(ResponseStore, ARestartGivesThemWhole) {
  const std::string folder = testing::TempDir() + "kept-responses";
  std::filesystem::remove_all(folder);
  const StoredResponse response = {
      .json = R"({"id":"resp_1","text":"\u00e9 \" \n"})",
      .messages = {{.role = "user", .content = "\xc3\xa9 \" \n"},
                   {.role = "assistant",
                    .content = "",
                    .tool_calls = {{.name = "f", .arguments = "{\"a\":1}", .id = "call_1"}},
                    .reasoning = "so"},
                   {.role = "tool", .content = "2", .tool_call_id = "call_1", .name = "f"}},
      .items = {{"msg_1", "{}"}, {"fc_1", "[1]"}}};
  ASSERT_TRUE(ResponseStore(*KeptTexts::open(folder).value()).put("resp_1", "ann", response));
  const auto texts = KeptTexts::open(folder).value();
  const auto found = found_in(ResponseStore(*texts), "resp_1", "ann");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->json, response.json);
  EXPECT_EQ(found->items, response.items);
  ASSERT_EQ(found->messages.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(found->messages[i].role, response.messages[i].role);
    EXPECT_EQ(found->messages[i].content, response.messages[i].content);
    EXPECT_EQ(found->messages[i].reasoning, response.messages[i].reasoning);
    EXPECT_EQ(found->messages[i].tool_call_id, response.messages[i].tool_call_id);
    EXPECT_EQ(found->messages[i].name, response.messages[i].name);
  }
  ASSERT_EQ(found->messages[1].tool_calls.size(), 1U);
  EXPECT_EQ(found->messages[1].tool_calls[0].arguments, "{\"a\":1}");
  EXPECT_EQ(found->messages[1].tool_calls[0].id, "call_1");
  // Another program's text is none.
  ASSERT_TRUE(texts->put("ann", "resp_2", "{\"response\":3}"));
  EXPECT_FALSE(texts->is_damaged());
  const auto none = ResponseStore(*texts).find("resp_2", "ann");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message(), "the store of responses is damaged");
  EXPECT_TRUE(texts->is_damaged());
  std::filesystem::remove_all(folder);
}

TEST(ResponseStore, NeverReplacesWhatItKeeps) {
  const auto texts = KeptTexts::open("").value();
  ResponseStore store(*texts);
  ASSERT_TRUE(store.put("resp_1", "ann", of_text("one")));
  EXPECT_FALSE(store.put("resp_1", "ann", of_text("two")));
  EXPECT_EQ(found_in(store, "resp_1", "ann")->json, "one");
  EXPECT_TRUE(store.put("resp_1", "bob", of_text("three")));
  EXPECT_EQ(found_in(store, "resp_1", "ann")->json, "one");
}

TEST(ResponseStore, TheOldestGoFirst) {
  const auto texts = KeptTexts::open("", 3).value();
  ResponseStore store(*texts);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(store.put(fmt::format("resp_{}", i), "ann", of_text("a")));
  }
  EXPECT_EQ(texts->size()->texts, 3);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(found_in(store, fmt::format("resp_{}", i), "ann") != nullptr, i >= 2) << i;
  }
}

TEST(ResponseStore, WhoAsksMuchLosesTheirOwn) {
  constexpr std::int64_t kMost = 10'000;
  const auto few = KeptTexts::open("", 8).value();
  const auto small = KeptTexts::open("", 1000, kMost).value();
  for (KeptTexts* const texts : {few.get(), small.get()}) {
    ResponseStore store(*texts);
    ASSERT_TRUE(store.put("resp_1", "ann", of_text(std::string(2000, 'a'))));
    ASSERT_TRUE(store.put("resp_2", "ann", of_text("b")));
    for (int i = 0; i < 50; ++i) {
      const std::string id = fmt::format("resp_{}", i);
      ASSERT_TRUE(store.put(id, "bob", of_text(std::string(300, 'b'))));
      EXPECT_NE(found_in(store, id, "bob"), nullptr);
    }
    EXPECT_NE(found_in(store, "resp_1", "ann"), nullptr);
    EXPECT_NE(found_in(store, "resp_2", "ann"), nullptr);
    EXPECT_EQ(found_in(store, "resp_1", "bob"), nullptr);
  }
}

TEST(ResponseStore, HoldsNoMoreBytesThanItMay) {
  constexpr std::int64_t kMost = 10'000;
  const auto texts = KeptTexts::open("", 1000, kMost).value();
  ResponseStore store(*texts);
  for (int i = 0; i < 50; ++i) {
    const std::string text(std::size_t(60 * i), 'a');
    ASSERT_TRUE(store.put(fmt::format("resp_{}", i), "ann", of_text(text)));
    EXPECT_LE(texts->size()->bytes, kMost);
    EXPECT_NE(found_in(store, fmt::format("resp_{}", i), "ann"), nullptr);
  }
  EXPECT_LT(texts->size()->texts, 10);
  const std::int64_t before = texts->size()->texts;
  const Status too_big = store.put("resp_big", "ann", of_text(std::string(kMost, 'a')));
  ASSERT_FALSE(too_big.has_value());
  EXPECT_EQ(too_big.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(found_in(store, "resp_big", "ann"), nullptr);
  EXPECT_EQ(texts->size()->texts, before) << "one that is not kept pushes out no other";
}

TEST(ResponseStore, TakesManyThreads) {
  const auto texts = KeptTexts::open("", 16).value();
  ResponseStore store(*texts);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&store, thread] {
      for (int i = 0; i < 500; ++i) {
        const std::string id = fmt::format("resp_{}_{}", thread, i);
        EXPECT_TRUE(store.put(id, "ann", of_text(id)));
        const auto found = found_in(store, id, "ann");
        EXPECT_TRUE(found == nullptr || found->json == id);
        if (i % 3 == 0) store.erase(id, "ann");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(texts->size()->texts, 16);
}

}  // namespace
}  // namespace kakeya::openai
