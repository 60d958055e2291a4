// config.json of a drafter, of DFlash or DFlash 2: a Qwen3-style stack of layers that reads outputs
// of its target's layers (taps) and borrows the target's embedding and head. Field names are those
// of the published files. Which tensors a drafter has, and whether it fits a target, is told from
// sizes alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

struct DrafterConfig {
  // The layers, as those of a Qwen3 model: sizes, layer types (sliding ones allowed), window, RoPE,
  // norms. hidden_size D is the target's. vocab_size is the target's, 0 if the file does not say;
  // final_logit_softcapping is the drafter's own (top level or in dflash_config). Embedding and
  // head count as tied, stop ids are left out: all of that is the target's.
  ModelConfig layers;
  std::int64_t block_size = 0;  // rows of a block: the known token and block_size - 1 drafts
  TokenId mask_token_id = 0;    // stands for what is to be drafted
  std::vector<std::int64_t> target_layer_ids;  // T taps: 0-based layers, in the order of fc's input
  std::int64_t num_target_layers = 0;          // of the target it was trained for; 0: not said
  float output_multiplier = 1.0F;              // of the logits, before the soft-cap
  std::optional<bool> is_causal;               // is_causal, or dflash_config.causal
  std::optional<float> input_embedding_scale;  // top level or in dflash_config
  // For a DFlash 2 drafter, whose layers have convolutions over the rows of a block, and whose
  // tokens a selector of paths chooses; all 0 for DFlash. Either place, too.
  std::int64_t conv_kernel_size = 0;  // K taps: the row itself and K - 1 before it
  std::int64_t conv_group_size = 0;   // neighbouring channels that share a row's coefficients
  std::int64_t selector_rank = 0;     // R, width of a token's codes
  std::int64_t selector_top_k = 0;    // candidates of a row

  bool has_selector() const { return selector_rank > 0; }

  static constexpr std::int64_t kMinBlockSize = 2;
  static constexpr std::int64_t kMaxBlockSize = 64;
  static constexpr std::int64_t kMaxTaps = 64;
  static constexpr std::int64_t kMaxKernelSize = 64;
};

// A rule for the block rows that a row of the drafter's block may see; implementations disagree.
// kAuto: the config's (is_causal, dflash_config.causal), else causal on sliding layers and
// bidirectional on full ones. kCausal: causal on all layers. kBidirectional: every row sees the
// whole block and all of the context, without windows. Output never depends on it, only acceptance
// does.
enum class DraftMask : std::uint8_t { kAuto, kCausal, kBidirectional };
// The config of the same drafter with another rule, for comparisons with implementations that have
// it.
DrafterConfig with_mask(DrafterConfig config, DraftMask mask);

// A field may be at the top, in dflash_config, or in both with the same value. A value that parses
// is consistent as that of parse_model_config() is; taps are distinct and within num_target_layers.
// Reads the configurations of vLLM's speculators, too (formats/speculators_config.h). Errors:
// kInvalidArgument for malformed JSON, an impossible value (which field, expected, got) or a file
// that is no drafter's; kUnimplemented for a network that is neither DFlash nor DFlash 2, and for
// what parse_model_config() does not support.
Result<DrafterConfig> parse_drafter_config(std::string_view json);

// Reads DIR/config.json, or what a GGUF file says instead. Errors as above and kNotFound, with the
// path; those of read_gguf_drafter_config().
Result<DrafterConfig> load_drafter_config(const std::string& dir);

// True if DIR/config.json is that of a drafter, of DFlash or of a successor that cannot be read, or
// a GGUF file says so. False as well for a file that is absent or malformed.
bool is_drafter_folder(const std::string& dir);

// Every tensor of the drafter by its name without prefix; fc.weight is [D, T * D]. Codebooks are
// named as tables are, with ".weight", which files may leave out. Copies of the target's embedding
// and head are redundant.
std::vector<TensorSpec> expected_tensors(const DrafterConfig& config);

// Checks that the drafter fits the target: hidden size, vocabulary, mask token, number of layers,
// tapped layers. Errors: kInvalidArgument, naming the field and both sides' values.
Status check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target);

// The published drafter of a named target shape ("gemma4-26b-a4b") for the target's first
// `target_layers` layers, 0 for all. With fewer than published, its taps, as many as published, are
// spread over those layers. Errors: kNotFound for a shape without a published drafter (lists those
// that have one); kInvalidArgument for more layers than the target has or fewer than there are
// taps.
Result<DrafterConfig> named_drafter_shape(std::string_view target_name, std::int64_t target_layers);

}  // namespace kakeya
