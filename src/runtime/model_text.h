// The text side of a model folder: tokenizer.json, the chat template and the texts of the special
// tokens that templates ask for.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kakeya/engine.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "text/chat_template.h"

namespace kakeya {

class ModelText {
 public:
  // Reads what the folder has; a folder without tokenizer or template is fine, a broken file is
  // not. The template is chat_template.jinja, or the `chat_template` of tokenizer_config.json.
  static Result<ModelText> load(const std::string& dir);

  // Errors: kFailedPrecondition if there is none.
  Result<const Tokenizer*> tokenizer() const;
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          const ChatOptions& options) const;

 private:
  Status read_tokenizer_config(const std::string& path);

  std::string dir_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace kakeya
