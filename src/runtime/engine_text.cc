#include "base/status.h"
#include "kakeya/engine.h"

namespace kakeya {

Result<std::vector<TokenId>> Engine::encode_text(std::string_view text,
                                                 const EncodeOptions& options) const {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* const own, tokenizer());
  KAKEYA_ASSIGN_OR_RETURN(std::vector<TokenId> ids, own->encode(text, options));
  const TokenId bos = bos_id();
  if (bos < 0 || (!ids.empty() && ids.front() == bos)) return ids;
  if (ids.size() >= options.most_tokens) {
    return error(StatusCode::kResourceExhausted, "expected at most {} tokens, got one more",
                 options.most_tokens);
  }
  ids.insert(ids.begin(), bos);
  return ids;
}

Result<std::vector<TokenId>> Engine::encode_chat(std::span<const ChatMessage> messages,
                                                 const ChatOptions& options,
                                                 std::size_t most_tokens) const {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* const own, tokenizer());
  KAKEYA_ASSIGN_OR_RETURN(const ChatPrompt prompt, apply_chat_template(messages, options));
  return own->encode(prompt.text, {.most_tokens = most_tokens, .plain = prompt.plain});
}

}  // namespace kakeya
