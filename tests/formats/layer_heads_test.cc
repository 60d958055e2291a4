// Heads by layer, as transformers >= 5.15 saves them: published configurations in both forms.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "formats/config_comparison.h"
#include "formats/published_configs.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// The configuration as it is saved now: the fields of full layers are gone, and an object has what
// differs in each of these from the fields for all, under its number, padded with zeros.
json saved_by_layer(const std::string& name) {
  json config = published(name);
  json& text = config["text_config"];
  json overrides = json::object();
  for (std::size_t layer = 0; layer < text["layer_types"].size(); ++layer) {
    if (text["layer_types"][layer] != "full_attention") continue;
    json& heads = overrides[fmt::format("{:02}", layer)];
    heads["head_dim"] = text["global_head_dim"];
    const json full = text.value("num_global_key_value_heads", json());
    if (text.value("attention_k_eq_v", false) && !full.is_null()) {
      heads["num_key_value_heads"] = full;
    }
  }
  text.erase("global_head_dim");
  text.erase("num_global_key_value_heads");
  text["per_layer_config"] = overrides;
  return config;
}

std::string layer_heads_refusal(const json& config) {
  const std::string message = message_of(parse_model_config(config.dump()));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

TEST(LayerHeads, AreThoseOfTheOlderForm) {
  for (const char* name :
       {"google-gemma-4-12B-it", "google-gemma-4-26B-A4B-it", "google-gemma-4-31B-it",
        "google-gemma-4-E2B-it", "google-gemma-4-E4B-it"}) {
    SCOPED_TRACE(name);
    const auto expected = parse_model_config(published(name).dump());
    const auto got = parse_model_config(saved_by_layer(name).dump());
    ASSERT_TRUE(got.has_value()) << got.error().message();
    expect_same_network(*got, *expected);
  }
}

TEST(LayerHeads, AreThoseForAllWhereNothingDiffers) {
  json config = published("google-gemma-4-E2B-it");
  json& text = config["text_config"];
  text.erase("global_head_dim");
  for (const json& nothing : {json::object(), json{{"4", nullptr}}, json{{"4", json::object()}},
                              json{{"4", {{"head_dim", nullptr}, {"skip", json::array()}}}}}) {
    text["per_layer_config"] = nothing;
    const auto got = parse_model_config(config.dump());
    ASSERT_TRUE(got.has_value()) << got.error().message();
    EXPECT_EQ(got->global_head_dim, 256);
  }
}

TEST(LayerHeads, MayBeOverriddenInSlidingLayers) {
  json config = saved_by_layer("google-gemma-4-E2B-it");
  json& text = config["text_config"];
  text["head_dim"] = 512;
  json overrides = json::object();
  for (std::size_t layer = 0; layer < text["layer_types"].size(); ++layer) {
    if (text["layer_types"][layer] == "full_attention") continue;
    overrides[std::to_string(layer)] = {{"head_dim", 256}};
  }
  text["per_layer_config"] = overrides;
  const auto got = parse_model_config(config.dump());
  ASSERT_TRUE(got.has_value()) << got.error().message();
  expect_same_network(*got, parse_model_config(published("google-gemma-4-E2B-it").dump()).value());
}

TEST(LayerHeads, ThatDifferWithinATypeAreRefused) {
  json config = saved_by_layer("google-gemma-4-26B-A4B-it");
  config["text_config"]["per_layer_config"]["11"]["head_dim"] = 128;
  EXPECT_THAT(layer_heads_refusal(config),
              HasSubstr("text_config.per_layer_config: expected the same heads in all full layers, "
                        "got 2 of 512 in layer 5 and 2 of 128 in layer 11"));
  config = saved_by_layer("google-gemma-4-26B-A4B-it");
  config["text_config"]["per_layer_config"].erase("29");
  EXPECT_THAT(layer_heads_refusal(config),
              HasSubstr("got 2 of 512 in layer 5 and 8 of 256 in layer 29"));
  config = saved_by_layer("google-gemma-4-26B-A4B-it");
  config["text_config"]["per_layer_config"]["00"]["num_key_value_heads"] = 4;
  EXPECT_THAT(layer_heads_refusal(config), HasSubstr("same heads in all sliding layers"));
}

TEST(LayerHeads, RefuseWhatTheyCannotMeanByName) {
  const json good = saved_by_layer("google-gemma-4-26B-A4B-it");
  const auto refusal_with = [&](const std::string& key, const json& value) {
    json config = good;
    config["text_config"]["per_layer_config"][key] = value;
    return layer_heads_refusal(config);
  };
  for (const char* key : {"30", "-1", "", "full_attention", "5.0", "99999999999999999999"}) {
    EXPECT_THAT(refusal_with(key, json::object()),
                HasSubstr("expected the number of a layer from 0 to 29, got another key"))
        << key;
  }
  EXPECT_THAT(refusal_with("5", json::object()), HasSubstr("one entry for layer 5, got two"));
  EXPECT_THAT(refusal_with("05", {{"head_dim", 512}, {"intermediate_size", 64}}),
              HasSubstr("per_layer_config.05.intermediate_size: expected head_dim or "
                        "num_key_value_heads, got another field"));
  EXPECT_THAT(refusal_with("05", {{"skip", {"mlp"}}}), HasSubstr("per_layer_config.05.skip"));
  EXPECT_THAT(refusal_with("05", {{"head_dim", 0}}),
              HasSubstr("per_layer_config.05.head_dim: expected an integer from 2 to 4096, got 0"));
  EXPECT_THAT(refusal_with("05", 512), HasSubstr("per_layer_config.05: expected an object"));
  json config = good;
  config["text_config"]["per_layer_config"] = {{{"head_dim", 512}}};
  EXPECT_THAT(layer_heads_refusal(config),
              HasSubstr("per_layer_config: expected an object, got a list"));
}

TEST(LayerHeads, MustAgreeWithTheFieldsOfTheOlderForm) {
  json config = saved_by_layer("google-gemma-4-26B-A4B-it");
  json& text = config["text_config"];
  text["global_head_dim"] = 512;
  text["num_global_key_value_heads"] = 2;
  EXPECT_TRUE(parse_model_config(config.dump()).has_value());
  text["num_global_key_value_heads"] = 1;
  EXPECT_THAT(layer_heads_refusal(config),
              HasSubstr("text_config.num_global_key_value_heads: expected 2, "
                        "as per_layer_config says, got 1"));
  text["num_global_key_value_heads"] = nullptr;
  text["global_head_dim"] = 256;
  EXPECT_THAT(layer_heads_refusal(config), HasSubstr("global_head_dim: expected 512"));
}

TEST(LayerHeads, AreGemmasOnly) {
  json config = published("Qwen-Qwen3-0.6B");
  config["per_layer_config"] = json::object();
  EXPECT_TRUE(parse_model_config(config.dump()).has_value());
  config["per_layer_config"] = {{"3", {{"head_dim", 64}}}};
  EXPECT_THAT(layer_heads_refusal(config),
              HasSubstr("per_layer_config: what it stands for is not"));
}

}  // namespace
}  // namespace kakeya
