#include "made_up_vocabulary.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace kakeya::peers {

namespace {

// Kinds of tokens in a file's list.
constexpr std::int32_t kText = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kByte = 6;

std::uint32_t id_or(std::optional<TokenId> id, std::uint32_t fallback) {
  return id ? static_cast<std::uint32_t>(*id) : fallback;
}

}  // namespace

std::vector<GgufMetadata> made_up_vocabulary(const ModelConfig& config) {
  const auto size = static_cast<std::size_t>(config.vocab_size);
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"};
  std::vector<std::int32_t> types(tokens.size(), kControl);
  const auto add = [&](std::string token, std::int32_t type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
  };
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), kByte);
  for (char letter = 'a'; letter <= 'z'; ++letter) add(std::string(1, letter), kText);
  add("ab", kText);
  while (tokens.size() < size) add(fmt::format("<unused{}>", tokens.size()), kText);
  tokens.resize(size);
  types.resize(size);
  return {{"tokenizer.ggml.model", std::string("gemma4")},
          {"tokenizer.ggml.tokens", std::move(tokens)},
          {"tokenizer.ggml.scores", std::vector<float>(size, 0.0F)},
          {"tokenizer.ggml.token_type", std::move(types)},
          {"tokenizer.ggml.merges", std::vector<std::string>{"a b"}},
          {"tokenizer.ggml.bos_token_id", id_or(config.bos_token_id, 2)},
          {"tokenizer.ggml.eos_token_id", std::uint32_t{1}},
          {"tokenizer.ggml.unknown_token_id", std::uint32_t{3}},
          {"tokenizer.ggml.padding_token_id", id_or(config.pad_token_id, 0)},
          {"tokenizer.ggml.add_bos_token", true},
          {"tokenizer.ggml.add_space_prefix", false}};
}

}  // namespace kakeya::peers
