// Compares what two configurations say of a network.
#pragma once

#include <gtest/gtest.h>

#include "formats/model_config.h"
#include "formats/model_tensors.h"

namespace kakeya {

inline void expect_same_rope(const RopeParameters& got,
                             const RopeParameters& expected,
                             std::int64_t head_dim) {
  EXPECT_EQ(got.rope_theta, expected.rope_theta);
  EXPECT_EQ(got.partial_rotary_factor, expected.partial_rotary_factor);
  EXPECT_EQ(got.factor, expected.factor);
  EXPECT_EQ(rope_divisors(got, head_dim), rope_divisors(expected, head_dim));
}

// All that the network computes with.
inline void expect_same_network(const ModelConfig& got, const ModelConfig& expected) {
  EXPECT_EQ(got.architecture, expected.architecture);
  EXPECT_EQ(got.vocab_size, expected.vocab_size);
  EXPECT_EQ(got.num_attention_heads, expected.num_attention_heads);
  EXPECT_EQ(got.max_position_embeddings, expected.max_position_embeddings);
  EXPECT_EQ(got.sliding_window, expected.sliding_window);
  EXPECT_EQ(got.layer_types, expected.layer_types);
  EXPECT_EQ(got.rms_norm_eps, expected.rms_norm_eps);
  EXPECT_EQ(got.final_logit_softcapping, expected.final_logit_softcapping);
  EXPECT_EQ(got.hidden_activation, expected.hidden_activation);
  EXPECT_EQ(got.tie_word_embeddings, expected.tie_word_embeddings);
  EXPECT_EQ(got.attention_k_eq_v, expected.attention_k_eq_v);
  EXPECT_FLOAT_EQ(got.attention_scale(0), expected.attention_scale(0));
  EXPECT_EQ(got.qkv_bias, expected.qkv_bias);
  EXPECT_EQ(got.o_bias, expected.o_bias);
  EXPECT_EQ(got.mlp_bias, expected.mlp_bias);
  EXPECT_EQ(got.top_k_experts, expected.top_k_experts);
  EXPECT_EQ(got.num_kv_shared_layers, expected.num_kv_shared_layers);
  EXPECT_EQ(got.bos_token_id, expected.bos_token_id);
  expect_same_rope(got.rope_full, expected.rope_full, expected.global_head_dim);
  if (expected.sliding_window > 0) {
    expect_same_rope(got.rope_sliding, expected.rope_sliding, expected.head_dim);
  }
  const auto specs = expected_tensors(expected);
  const auto got_specs = expected_tensors(got);
  ASSERT_EQ(got_specs.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(got_specs[i].name, specs[i].name);
    EXPECT_EQ(got_specs[i].shape, specs[i].shape) << specs[i].name;
    EXPECT_EQ(got_specs[i].presence, specs[i].presence) << specs[i].name;
  }
}

}  // namespace kakeya
