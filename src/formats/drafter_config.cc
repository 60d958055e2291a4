#include "formats/drafter_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "formats/gguf_config.h"
#include "formats/json_document.h"
#include "formats/model_config_parts.h"
#include "formats/printable.h"
#include "formats/speculators_config.h"
#include "formats/spread_taps.h"
#include "formats/unsupported_fields.h"

namespace kakeya {

namespace {

// The Qwen3 vocabulary, and the mask token: a row of the embedding that no token uses.
constexpr std::int64_t kQwen3VocabularySize = 151936;
constexpr TokenId kQwen3MaskToken = 151669;
// Drafters that do not say it are positioned by their target, so this bounds nothing.
constexpr std::int64_t kDefaultPositions = 1 << 18;
// Far beyond any use, and far from what float cannot hold.
constexpr NumberRange kScaleRange = {1e-6, 1e6};

// The outermost fields and those of dflash_config, null if there is none.
struct Sections {
  const JsonFields* top;
  const JsonFields* dflash;
};

// Where a field may be.
struct Place {
  const JsonFields* fields;
  std::string_view key;
};

// The value that `read` finds in those of the places that have one; they must agree.
template <typename Read>
auto read_agreed(std::initializer_list<Place> places, Read read)
    -> Result<std::optional<typename std::invoke_result_t<Read, Place>::value_type>> {
  std::optional<typename std::invoke_result_t<Read, Place>::value_type> agreed;
  std::string where;
  for (const Place& place : places) {
    if (place.fields == nullptr || !place.fields->has(place.key)) continue;
    KAKEYA_ASSIGN_OR_RETURN(const auto value, read(place));
    if (agreed && *agreed != value) {
      return invalid_argument("{}: expected {} as in {}, got {}", place.fields->name(place.key),
                              *agreed, where, value);
    }
    if (!agreed) where = place.fields->name(place.key);
    agreed = value;
  }
  return agreed;
}

Result<std::optional<double>> read_number(const Sections& sections,
                                          std::string_view key,
                                          NumberRange range) {
  return read_agreed({{sections.top, key}, {sections.dflash, key}}, [&](const Place& place) {
    return place.fields->number_or(place.key, 0.0, range);
  });
}

constexpr std::string_view kDflash = "DFlashDraftModel";
constexpr std::string_view kDflash2 = "DFlash2DraftModel";

// The fields that only DFlash 2 has, and where they go.
struct Dflash2Field {
  std::string_view key;
  std::int64_t DrafterConfig::*member;
  IntegerRange range;
};

constexpr std::array kDflash2Fields = {
    Dflash2Field{
        "conv_kernel_size", &DrafterConfig::conv_kernel_size, {1, DrafterConfig::kMaxKernelSize}},
    Dflash2Field{"conv_group_size", &DrafterConfig::conv_group_size, kWidthRange},
    Dflash2Field{"selector_rank", &DrafterConfig::selector_rank, kWidthRange},
    Dflash2Field{"selector_top_k", &DrafterConfig::selector_top_k, kVocabularyRange},
};

// True for DFlash 2. Readers disagree on whether the name or the fields decide: both must.
Result<bool> read_generation(const Sections& sections) {
  KAKEYA_ASSIGN_OR_RETURN(const auto architectures, sections.top->texts("architectures"));
  KAKEYA_ASSIGN_OR_RETURN(const std::string type, sections.top->text_or("model_type", "qwen3"));
  if (type != "qwen3") {
    return error(StatusCode::kUnimplemented, "model_type: expected \"qwen3\" layers, got \"{}\"",
                 printable(type));
  }
  std::vector<std::string_view> found;
  for (const Dflash2Field& each : kDflash2Fields) {
    const bool inside = sections.dflash != nullptr && sections.dflash->has(each.key);
    if (inside || sections.top->has(each.key)) found.push_back(each.key);
  }
  bool second = !found.empty();
  for (const std::string& name : architectures) {
    if (name != kDflash && name != kDflash2) {
      return error(StatusCode::kUnimplemented, "architectures: expected {} or {}, got \"{}\"",
                   kDflash, kDflash2, printable(name));
    }
    if (name == kDflash && !found.empty()) {
      return invalid_argument("architectures: expected {} beside {}, got {}", kDflash2,
                              fmt::join(found, ", "), kDflash);
    }
    second = second || name == kDflash2;
  }
  return second;
}

// Checks that a row has so many candidates beside the mask token.
Status check_candidates(const DrafterConfig& config, std::int64_t vocabulary) {
  if (config.selector_top_k < vocabulary) return {};
  return invalid_argument("selector_top_k: expected less than vocab_size, {}, got {}", vocabulary,
                          config.selector_top_k);
}

// Rejects what a reader might ignore and change results by it: of DFlash 2 every field is known.
Status reject_unknown_fields(const JsonFields& dflash) {
  constexpr std::array<std::string_view, 10> kKnown = {
      "block_size", "mask_token_id", "target_layer_ids", "is_causal", "causal", "output_multiplier",
      "final_logit_softcapping", "input_embedding_scale",
      // For training alone.
      "num_anchors", "loss_decay_gamma"};
  for (const std::string_view key : dflash.keys()) {
    if (std::ranges::find(kKnown, key) != kKnown.end()) continue;
    if (std::ranges::find(kDflash2Fields, key, &Dflash2Field::key) != kDflash2Fields.end())
      continue;
    return error(StatusCode::kUnimplemented, "{}: what it stands for is not known",
                 printable(dflash.name(key)));
  }
  return {};
}

Status read_dflash2(const Sections& sections, DrafterConfig& config) {
  if (sections.dflash != nullptr) KAKEYA_TRY(reject_unknown_fields(*sections.dflash));
  for (const Dflash2Field& each : kDflash2Fields) {
    KAKEYA_ASSIGN_OR_RETURN(const auto value,
                            read_agreed({{sections.top, each.key}, {sections.dflash, each.key}},
                                        [&](const Place& place) {
                                          return place.fields->integer(place.key, each.range);
                                        }));
    if (!value) {
      return invalid_argument("dflash_config.{}: expected an integer from {} to {}, got nothing",
                              each.key, each.range.low, each.range.high);
    }
    config.*each.member = *value;
  }
  const ModelConfig& layers = config.layers;
  if (layers.hidden_size % config.conv_group_size != 0) {
    return invalid_argument(
        "dflash_config.conv_group_size: expected a divisor of hidden_size, {}, got {}",
        layers.hidden_size, config.conv_group_size);
  }
  if (layers.vocab_size == 0) {
    return invalid_argument("vocab_size: expected the rows of the codebooks, got nothing");
  }
  return check_candidates(config, layers.vocab_size);
}

// Rejects blocks of which implementations see different parts: longer than the window of a layer
// whose rows look both ways.
Status check_block_in_window(const DrafterConfig& config) {
  const ModelConfig& layers = config.layers;
  const bool slides =
      std::ranges::find(layers.layer_types, LayerType::kSliding) != layers.layer_types.end();
  if (!slides || config.is_causal.value_or(true) || config.block_size <= layers.sliding_window) {
    return {};
  }
  return error(StatusCode::kUnimplemented,
               "block_size: expected at most sliding_window, {}, where is_causal is false, got {}",
               layers.sliding_window, config.block_size);
}

// Checks sizes that training states beside those of the layers.
Status check_stated_sizes(const JsonFields& top, const ModelConfig& layers) {
  struct Stated {
    std::string_view key;
    std::string_view like;
    std::int64_t size;
  };
  for (const Stated each : {Stated{"draft_vocab_size", "vocab_size", layers.vocab_size},
                            Stated{"target_hidden_size", "hidden_size", layers.hidden_size}}) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t got,
                            top.integer_or(each.key, each.size, {0, kVocabularyRange.high}));
    if (got == each.size || each.size == 0) continue;
    return error(StatusCode::kUnimplemented, "{}: expected {}, {}, got {}", top.name(each.key),
                 each.like, each.size, got);
  }
  return {};
}

Status read_stack(const Sections& sections, ModelConfig& layers) {
  const JsonFields& top = *sections.top;
  layers.architecture = Architecture::kQwen3;
  layers.model_type = "qwen3";
  layers.tie_word_embeddings = true;
  KAKEYA_ASSIGN_OR_RETURN(layers.vocab_size, top.integer_or("vocab_size", 0, kVocabularyRange));
  KAKEYA_ASSIGN_OR_RETURN(
      layers.max_position_embeddings,
      top.integer_or("max_position_embeddings", kDefaultPositions, kPositionsRange));
  KAKEYA_TRY(read_sizes(top, layers));
  KAKEYA_TRY(read_activation(top, layers));
  KAKEYA_TRY(read_biases(top, layers));
  KAKEYA_TRY(read_layer_types(top, StackKind::kDrafter, layers));
  KAKEYA_TRY(read_heads(top, layers));
  KAKEYA_TRY(read_rope(top, layers));
  KAKEYA_ASSIGN_OR_RETURN(const auto cap,
                          read_number(sections, "final_logit_softcapping", kSoftCapRange));
  layers.final_logit_softcapping = static_cast<float>(cap.value_or(0.0));
  return {};
}

Status read_block(const Sections& sections, DrafterConfig& config) {
  constexpr IntegerRange kBlocks = {DrafterConfig::kMinBlockSize, DrafterConfig::kMaxBlockSize};
  KAKEYA_ASSIGN_OR_RETURN(
      const auto size,
      read_agreed({{sections.top, "block_size"}, {sections.dflash, "block_size"}},
                  [&](const Place& place) { return place.fields->integer(place.key, kBlocks); }));
  if (!size) {
    return invalid_argument("block_size: expected an integer from {} to {}, got nothing",
                            kBlocks.low, kBlocks.high);
  }
  config.block_size = *size;

  const std::int64_t vocabulary = config.layers.vocab_size;
  const IntegerRange ids = {0, (vocabulary > 0 ? vocabulary : kVocabularyRange.high) - 1};
  if (sections.dflash != nullptr && sections.dflash->has("mask_token_id")) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t id, sections.dflash->integer("mask_token_id", ids));
    config.mask_token_id = static_cast<TokenId>(id);
  } else if (vocabulary == kQwen3VocabularySize) {
    config.mask_token_id = kQwen3MaskToken;
  } else {
    return invalid_argument(
        "dflash_config.mask_token_id: expected an integer from {} to {}, got nothing", ids.low,
        ids.high);
  }
  return {};
}

// Chooses the taps where there is no list, as the training code does for a drafter of that many
// layers.
Status choose_taps(DrafterConfig& config) {
  const std::int64_t depth = config.layers.num_hidden_layers;
  if (config.num_target_layers == 0) {
    return invalid_argument(
        "dflash_config.target_layer_ids: expected a list (or num_target_layers), got nothing");
  }
  if (depth > DrafterConfig::kMaxTaps || !has_default_taps(config.num_target_layers, depth)) {
    return invalid_argument(
        "dflash_config.target_layer_ids: expected a list, for {} taps cannot be chosen from the {} "
        "layers of num_target_layers, got nothing",
        depth, config.num_target_layers);
  }
  config.target_layer_ids = default_taps(config.num_target_layers, depth);
  return {};
}

Status read_taps(const Sections& sections, DrafterConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(config.num_target_layers,
                          sections.top->integer_or("num_target_layers", 0, kLayersRange));
  if (sections.dflash == nullptr || !sections.dflash->has("target_layer_ids")) {
    return choose_taps(config);
  }
  const std::int64_t depth =
      config.num_target_layers > 0 ? config.num_target_layers : kLayersRange.high;
  KAKEYA_ASSIGN_OR_RETURN(config.target_layer_ids,
                          sections.dflash->integers("target_layer_ids", {0, depth - 1}));
  const std::string name = sections.dflash->name("target_layer_ids");
  const std::size_t count = config.target_layer_ids.size();
  if (count == 0 || count > static_cast<std::size_t>(DrafterConfig::kMaxTaps)) {
    return invalid_argument("{}: expected 1 to {} layers, got {}", name, DrafterConfig::kMaxTaps,
                            count);
  }
  std::vector<std::int64_t> sorted = config.target_layer_ids;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return invalid_argument("{}: expected distinct layers, got {} twice", name, *twice);
  }
  return {};
}

Status read_overrides(const Sections& sections, DrafterConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const auto multiplier,
                          read_number(sections, "output_multiplier", kScaleRange));
  config.output_multiplier = static_cast<float>(multiplier.value_or(1.0));
  KAKEYA_ASSIGN_OR_RETURN(const auto scale,
                          read_number(sections, "input_embedding_scale", kScaleRange));
  if (scale) config.input_embedding_scale = static_cast<float>(*scale);
  KAKEYA_ASSIGN_OR_RETURN(
      config.is_causal,
      read_agreed({{sections.top, "is_causal"},
                   {sections.dflash, "is_causal"},
                   {sections.dflash, "causal"}},
                  [](const Place& place) { return place.fields->boolean_or(place.key, false); }));
  return {};
}

Result<DrafterConfig> parse_drafter_root(const JsonFields& root) {
  if (is_speculators_config(root)) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string translated, config_of_speculators(root));
    return parse_drafter_config(translated);
  }
  KAKEYA_ASSIGN_OR_RETURN(const bool drafter, is_drafter(root));
  if (!drafter) return invalid_argument("this is not the configuration of a DFlash drafter");
  KAKEYA_ASSIGN_OR_RETURN(const auto dflash, root.object("dflash_config"));
  const Sections sections = {.top = &root, .dflash = dflash ? &*dflash : nullptr};
  DrafterConfig config;
  KAKEYA_ASSIGN_OR_RETURN(const bool second, read_generation(sections));
  for (const JsonFields* fields : {sections.top, sections.dflash}) {
    if (fields == nullptr) continue;
    KAKEYA_TRY(reject_unsupported_fields(*fields, Architecture::kQwen3, StackKind::kDrafter));
  }
  KAKEYA_TRY(check_quantization(root));
  KAKEYA_TRY(read_stack(sections, config.layers));
  KAKEYA_TRY(read_block(sections, config));
  KAKEYA_TRY(read_taps(sections, config));
  KAKEYA_TRY(read_overrides(sections, config));
  KAKEYA_TRY(check_stated_sizes(root, config.layers));
  if (second) {
    KAKEYA_TRY(read_dflash2(sections, config));
    KAKEYA_TRY(check_block_in_window(config));
  }
  KAKEYA_TRY(total_parameters(expected_tensors(config)));
  return config;
}

void add_dflash2_tensors(const DrafterConfig& config, std::vector<TensorSpec>& specs) {
  const std::int64_t hidden = config.layers.hidden_size;
  const std::int64_t taps = 2 * config.conv_kernel_size;
  for (std::int64_t layer = 0; layer < config.layers.num_hidden_layers; ++layer) {
    for (const char* conv : {"attention_conv", "mlp_conv"}) {
      const std::string prefix = fmt::format("layers.{}.{}.", layer, conv);
      specs.push_back(
          {.name = prefix + "base_kernel", .shape = {2, config.conv_kernel_size, hidden}});
      specs.push_back({.name = prefix + "kernel_projection.weight",
                       .shape = {taps * (hidden / config.conv_group_size), hidden}});
    }
  }
  const std::string selector = "candidate_selector.";
  for (const char* codebook : {"predecessor_codebook.weight", "successor_codebook.weight"}) {
    specs.push_back(
        {.name = selector + codebook, .shape = {config.layers.vocab_size, config.selector_rank}});
  }
  specs.push_back(
      {.name = selector + "hidden_projection.weight", .shape = {config.selector_rank, hidden}});
}

Result<bool> is_drafter_file(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  return is_drafter(root);
}

}  // namespace

Result<DrafterConfig> parse_drafter_config(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  return parse_drafter_root(root);
}

DrafterConfig with_mask(DrafterConfig config, DraftMask mask) {
  if (mask != DraftMask::kAuto) config.is_causal = mask == DraftMask::kCausal;
  if (mask == DraftMask::kBidirectional) {
    std::ranges::fill(config.layers.layer_types, LayerType::kFull);
  }
  return config;
}

Result<DrafterConfig> load_drafter_config(const std::string& dir) {
  if (is_gguf_path(dir)) {
    KAKEYA_ASSIGN_OR_RETURN(const GgufCheckpoint checkpoint, GgufCheckpoint::open(dir));
    return read_gguf_drafter_config(checkpoint);
  }
  const std::string path = dir + "/config.json";
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  auto config = parse_drafter_config(text);
  if (!config) return Unexpected(config.error().with_context(path));
  return config;
}

bool is_drafter_folder(const std::string& dir) {
  if (is_gguf_path(dir)) {
    const auto checkpoint = GgufCheckpoint::open(dir);
    return checkpoint && gguf_architecture(*checkpoint) == GgufArchitecture::kDflash;
  }
  return is_drafter_file(dir + "/config.json").value_or(false);
}

std::vector<TensorSpec> expected_tensors(const DrafterConfig& config) {
  const std::int64_t hidden = config.layers.hidden_size;
  const auto taps = static_cast<std::int64_t>(config.target_layer_ids.size());
  std::vector<TensorSpec> specs = {{.name = "fc.weight", .shape = {hidden, taps * hidden}},
                                   {.name = "hidden_norm.weight", .shape = {hidden}}};
  for (TensorSpec& spec : expected_tensors(config.layers)) {
    if (spec.name == "embed_tokens.weight" || spec.name == "lm_head.weight") {
      spec.presence = TensorPresence::kRedundant;
    }
    specs.push_back(std::move(spec));
  }
  if (config.has_selector()) add_dflash2_tensors(config, specs);
  return specs;
}

Status check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target) {
  const ModelConfig& own = drafter.layers;
  if (own.hidden_size != target.hidden_size) {
    return invalid_argument("drafter: hidden_size is {} but the target's is {}", own.hidden_size,
                            target.hidden_size);
  }
  if (own.vocab_size != 0 && own.vocab_size != target.vocab_size) {
    return invalid_argument("drafter: vocab_size is {} but the target's is {}", own.vocab_size,
                            target.vocab_size);
  }
  if (drafter.mask_token_id >= target.vocab_size) {
    return invalid_argument("drafter: mask_token_id is {} but the target's vocab_size is {}",
                            drafter.mask_token_id, target.vocab_size);
  }
  if (drafter.num_target_layers != 0 && drafter.num_target_layers != target.num_hidden_layers) {
    return invalid_argument("drafter: num_target_layers is {} but the target has {} layers",
                            drafter.num_target_layers, target.num_hidden_layers);
  }
  if (drafter.has_selector()) KAKEYA_TRY(check_candidates(drafter, target.vocab_size));
  for (const std::int64_t layer : drafter.target_layer_ids) {
    if (layer >= target.num_hidden_layers) {
      return invalid_argument(
          "drafter: target_layer_ids names layer {} but the target has {} layers", layer,
          target.num_hidden_layers);
    }
  }
  return {};
}

}  // namespace kakeya
