#include "formats/projection_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "formats/scratch_files.h"

namespace kakeya {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kDemo = KAKEYA_DEMO_MODEL;

std::string folder(const std::string& features) {
  return kDemo + "/projections/" + features;
}

json demo(const std::string& features) {
  return json::parse(read_file(folder(features) + "/f_theta_config.json"));
}

std::string projection_refusal(const json& config) {
  const Error error = error_of(parse_projection_config(config.dump()));
  EXPECT_THAT(error.message(), Not(HasSubstr("\n")));
  return error.message();
}

std::string projection_refusal_with(const std::string& key, const json& value) {
  json config = demo("aux");
  config[key] = value;
  return projection_refusal(config);
}

TEST(ProjectionConfig, ReadsTheDemoModels) {
  for (const auto& [name, features, width] :
       {std::tuple("context", ProjectionFeatures::kContext, 384),
        std::tuple("aux", ProjectionFeatures::kAux, 768)}) {
    const auto config = load_projection_config(folder(name));
    ASSERT_TRUE(config.has_value()) << config.error().message();
    EXPECT_EQ(config->features, features);
    EXPECT_EQ(projection_features_name(config->features), name);
    EXPECT_EQ(config->rank, 96);
    EXPECT_EQ(config->input_width(), width);
    EXPECT_EQ(config->num_layers(), 6);
    EXPECT_EQ(config->layer_width(2), 128);
    EXPECT_TRUE(check_projection_fits(*config, load_model_config(kDemo).value(),
                                      load_drafter_config(kDemo + "/drafter").value())
                    .has_value());
    EXPECT_EQ(expected_tensors(*config).size(), 14U);
  }
}

TEST(ProjectionConfig, ReadsOneCodeAndHowItIsStored) {
  json config = demo("aux");
  EXPECT_FALSE(parse_projection_config(config.dump())->code_format.has_value());
  config["codes"] = "one";
  config["code_format"] = "int8";
  const auto one = parse_projection_config(config.dump());
  ASSERT_TRUE(one.has_value()) << one.error().message();
  EXPECT_TRUE(one->one_code);
  EXPECT_EQ(one->code_format, KvFormat::kInt8);
  const auto tensors = expected_tensors(*one);
  ASSERT_EQ(tensors.size(), 13U);
  EXPECT_EQ(tensors.front().name, "encoder.weight");
  EXPECT_EQ(tensors.front().shape, (Shape{96, 768}));
  config["codes"] = "two";
  EXPECT_FALSE(parse_projection_config(config.dump())->one_code);
  EXPECT_EQ(projection_refusal_with("codes", "three"), "codes: expected one or two, got three");
  for (const char* name : {"e8", "int3", "auto"}) {
    EXPECT_THAT(
        projection_refusal_with("code_format", name),
        AllOf(HasSubstr("code_format: expected"), HasSubstr("96 elements"), HasSubstr(name)));
  }
  EXPECT_THAT(projection_refusal_with("code_format", "int4"),
              HasSubstr("code_format: int4 was removed, others lose less in as many bytes"));
  json context = demo("context");
  context["codes"] = "one";
  EXPECT_THAT(projection_refusal(context), HasSubstr("codes: expected two"));
}

// Older files name no features; newer ones named them.
TEST(ProjectionConfig, FeaturesOfTokensAreRefusedByName) {
  const std::string removed = ": token features were removed, the others lose less in fewer bytes";
  const ScratchFolder scratch;
  for (const bool named : {true, false}) {
    json config = demo("context");
    config.erase("features");
    if (named) config["features"] = "token";
    scratch.write("f_theta_config.json", config.dump());
    const Error error = error_of(load_projection_config(scratch.root()));
    EXPECT_EQ(error.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(error.message(), scratch.path("f_theta_config.json") +
                                   ": features: expected context or aux, got " +
                                   (named ? "token" : "none, which means token") + removed);
  }
}

TEST(ProjectionConfig, WhatCannotBeIsRefusedNamingTheField) {
  EXPECT_EQ(projection_refusal_with("features", "pixels"),
            "features: expected context or aux, got pixels");
  EXPECT_THAT(projection_refusal_with("rank", 0), HasSubstr("rank"));
  EXPECT_THAT(projection_refusal_with("rank", 1 << 20), HasSubstr("rank"));
  EXPECT_THAT(projection_refusal_with("rank", nullptr), HasSubstr("rank"));
  EXPECT_EQ(projection_refusal_with("verifier_layer_kv_heads", {4, 4}),
            "verifier_layer_kv_heads: expected 6 numbers, one a layer, got 2");
  EXPECT_EQ(projection_refusal_with("feature_width", nullptr),
            "feature_width: expected the width of the layer outputs, got none");
  EXPECT_EQ(projection_refusal_with("causal_features", false),
            "causal_features: expected true, as aux features always are, got false");
  json context = demo("context");
  context["feature_width"] = 385;
  EXPECT_EQ(projection_refusal(context),
            "feature_width: expected 384 as the drafter's sizes say, got 385");
}

TEST(ProjectionConfig, OneOfAnotherModelIsRefusedWithBothSides) {
  const ModelConfig target = load_model_config(kDemo).value();
  const DrafterConfig drafter = load_drafter_config(kDemo + "/drafter").value();
  const auto misfit = [&](const std::string& key, const json& value) {
    json config = demo("aux");
    config[key] = value;
    const auto parsed = parse_projection_config(config.dump());
    EXPECT_TRUE(parsed.has_value()) << key;
    return error_of(check_projection_fits(*parsed, target, drafter)).message();
  };
  EXPECT_EQ(misfit("drafter_num_layers", 5),
            "projection: drafter_num_layers is 5 but that of the drafter is 3");
  EXPECT_EQ(misfit("feature_width", 1024),
            "projection: feature_width is 1024 but that of the drafter's taps is 768");
  EXPECT_EQ(misfit("verifier_layer_head_dims", {32, 32, 32, 32, 32, 64}),
            "projection: verifier_layer_head_dims[2] is 32 but that of the model is 64");
}

TEST(ProjectionConfig, AFolderWithoutOneIsNamed) {
  const Error error = error_of(load_projection_config("/nowhere"));
  EXPECT_EQ(error.code(), StatusCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("/nowhere/f_theta_config.json"));
}

}  // namespace
}  // namespace kakeya
