// Which markers of thoughts a model has, by its vocabulary and its chat template.
#include "service/thought_markers.h"

#include <gtest/gtest.h>

#include "runtime/demo_sessions.h"
#include "service/thinking_model.h"

namespace kakeya::service {
namespace {

TEST(ThoughtMarkersOfModels, AreThoseThatTheTemplateKnows) {
  const auto demo = find_thought_markers(*test::open_engine(test::demo_options("none")));
  ASSERT_TRUE(demo);
  EXPECT_EQ(demo->style, ThoughtStyle::kChannel);
  for (const auto& [name, thinks] :
       {std::pair("Qwen-Qwen3-0.6B.jinja", true), std::pair("Qwen3.5-4B.jinja", true),
        std::pair("Qwen-Qwen2.5-7B-Instruct.jinja", false)}) {
    const auto engine = test::open_thinking_engine(name);
    const auto markers = find_thought_markers(*engine);
    ASSERT_EQ(markers.has_value(), thinks) << name;
    if (!thinks) continue;
    EXPECT_EQ(markers->style, ThoughtStyle::kThink) << name;
    EXPECT_EQ(markers->begin, engine->tokenizer().value()->token_id("<think>")) << name;
    EXPECT_EQ(markers->end, engine->tokenizer().value()->token_id("</think>")) << name;
  }
}

TEST(ThoughtMarkersOfModels, AreSingleTokens) {
  EXPECT_TRUE(find_think_markers(Tokenizer::parse(test::thinking_tokenizer()).value()));
  EXPECT_FALSE(find_think_markers(Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value()));
}

TEST(ThoughtMarkersOfModels, TellWhetherAPromptLeavesAThoughtOpen) {
  const struct {
    const char* chat_template;
    std::optional<bool> thinking;
    bool is_open;
  } kPrompts[] = {{"Qwen-Qwen3-0.6B.jinja", {}, false},
                  {"Qwen-Qwen3-0.6B.jinja", false, false},
                  {"Qwen3.5-4B.jinja", {}, true},
                  {"Qwen3.5-4B.jinja", false, false}};
  for (const auto& prompt : kPrompts) {
    const auto engine = test::open_thinking_engine(prompt.chat_template);
    const auto markers = find_thought_markers(*engine);
    ASSERT_TRUE(markers);
    // A user who spells a marker opens nothing.
    const ChatMessage message = {.role = "user", .content = "Where does <think> end?"};
    const auto ids = engine->encode_chat({&message, 1}, {.enable_thinking = prompt.thinking});
    ASSERT_TRUE(ids);
    EXPECT_EQ(std::ranges::count(*ids, markers->begin), prompt.is_open || prompt.thinking ? 2 : 1);
    EXPECT_EQ(ends_in_thought(*markers, *engine->tokenizer().value(), *ids), prompt.is_open)
        << prompt.chat_template;
  }
}

}  // namespace
}  // namespace kakeya::service
