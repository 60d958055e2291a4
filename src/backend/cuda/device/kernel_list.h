// All kernels: name and what they are handed. Each is kakeya::cuda::device::NAME(const PARAMS&). Of
// PAIRED ones two blocks are to have room on a multiprocessor. Each waits for the launches before
// it; the others do so themselves, behind copies of weights that they have begun, or before copies
// that are to be ahead of the next launch's: EARLY ones, otherwise like PAIRED ones; LIGHT ones, of
// which four blocks have room; WIDE ones, which have blocks of 1,024 threads, or two of 512.
#pragma once

#define KAKEYA_CUDA_KERNELS(KERNEL, PAIRED, WIDE, EARLY, LIGHT) \
  EARLY(take_inputs, TakeInputsParams)                          \
  KERNEL(tell_host, TellHostParams)                             \
  KERNEL(embed, EmbedParams)                                    \
  KERNEL(rms_norm, NormParams)                                  \
  KERNEL(round_rows, RoundParams)                               \
  KERNEL(product, ProductParams)                                \
  KERNEL(row_product, ProductParams)                            \
  EARLY(early_row_product, ProductParams)                       \
  EARLY(early_route, EarlyRouteParams)                          \
  KERNEL(gated_product, GatedProductParams)                     \
  KERNEL(gated_row_product, GatedProductParams)                 \
  KERNEL(tensor_product, ProductParams)                         \
  KERNEL(tensor_product_some, ProductParams)                    \
  KERNEL(tensor_product_rows, ProductParams)                    \
  KERNEL(gated_tensor_product, GatedProductParams)              \
  KERNEL(gated_tensor_product_some, GatedProductParams)         \
  KERNEL(gated_tensor_product_rows, GatedProductParams)         \
  EARLY(integer_row_product, IntegerProductParams)              \
  EARLY(integer_product, IntegerProductParams)                  \
  EARLY(integer_product_rows, IntegerProductParams)             \
  PAIRED(integer_product_tiles, IntegerProductParams)           \
  EARLY(gated_integer_product, GatedProductParams)              \
  EARLY(gated_integer_product_rows, GatedProductParams)         \
  PAIRED(gated_integer_product_tiles, GatedProductParams)       \
  EARLY(split_integer_product, IntegerProductParams)            \
  EARLY(split_gated_product, GatedProductParams)                \
  LIGHT(plain_product, IntegerProductParams)                    \
  KERNEL(gate, GateParams)                                      \
  KERNEL(rope_table, RopeTableParams)                           \
  KERNEL(rope, RopeParams)                                      \
  KERNEL(store, StoreParams)                                    \
  KERNEL(attention, AttentionParams)                            \
  KERNEL(one_vector_attention, AttentionParams)                 \
  KERNEL(coded_attention, AttentionParams)                      \
  KERNEL(attention_spans, AttentionParams)                      \
  PAIRED(tensor_attention, AttentionParams)                     \
  PAIRED(wide_tensor_attention, AttentionParams)                \
  PAIRED(tensor_one_vector_attention, AttentionParams)          \
  EARLY(tensor_attention_part, AttentionParams)                 \
  EARLY(joined_attention_part, AttentionParams)                 \
  EARLY(wide_tensor_attention_part, AttentionParams)            \
  EARLY(tensor_one_vector_part, AttentionParams)                \
  EARLY(join_attention_parts, AttentionParams)                  \
  EARLY(tensor_parts_of_many, ManyAttentionsParams)             \
  EARLY(one_vector_parts_of_many, ManyAttentionsParams)         \
  EARLY(join_parts_of_many, ManyAttentionsParams)               \
  KERNEL(restored_attention, RestoredAttentionParams)           \
  KERNEL(restored_attention_spans, RestoredAttentionParams)     \
  WIDE(route, RouteParams)                                      \
  KERNEL(expert_hidden, ExpertHiddenParams)                     \
  KERNEL(expert_output, ExpertOutputParams)                     \
  PAIRED(integer_expert_output, ExpertOutputParams)             \
  KERNEL(split_expert_hidden, ExpertHiddenParams)               \
  WIDE(plain_expert_hidden, ExpertHiddenParams)                 \
  LIGHT(plain_expert_output, ExpertOutputParams)                \
  LIGHT(plain_outputs, PlainOutputsParams)                      \
  KERNEL(group_experts, GroupExpertsParams)                     \
  WIDE(group_many_experts, GroupExpertsParams)                  \
  KERNEL(grouped_expert_hidden, ExpertHiddenParams)             \
  KERNEL(grouped_expert_output, ExpertOutputParams)             \
  PAIRED(grouped_integer_hidden, ExpertHiddenParams)            \
  WIDE(few_expert_hidden, ExpertHiddenParams)                   \
  PAIRED(few_expert_hidden_rows, ExpertHiddenParams)            \
  PAIRED(grouped_integer_output, ExpertOutputParams)            \
  WIDE(few_expert_output, ExpertOutputParams)                   \
  PAIRED(tiled_expert_hidden, ExpertHiddenParams)               \
  PAIRED(tiled_expert_output, ExpertOutputParams)               \
  KERNEL(weigh_experts, ExpertOutputParams)                     \
  KERNEL(largest, LargestParams)                                \
  KERNEL(add, AddParams)                                        \
  KERNEL(add_vector, AddVectorParams)                           \
  KERNEL(convolve, ConvolveParams)                              \
  KERNEL(softcap, SoftcapParams)                                \
  EARLY(row_steps, RowStepsParams)                              \
  EARLY(residual_steps, ResidualStepsParams)                    \
  EARLY(head_steps, HeadStepsParams)                            \
  KERNEL(copy_columns, CopyColumnsParams)
