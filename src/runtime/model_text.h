// The text side of a model folder (tokenizer.json, the chat template and the texts of the special
// tokens that templates ask for) or of a GGUF file, which has the same in its metadata.
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
  // Reads what the folder or GGUF file has; one without tokenizer or template is fine, a broken one
  // is not. A folder's template is chat_template.jinja, or the `chat_template` of
  // tokenizer_config.json.
  static Result<ModelText> load(const std::string& path);

  // Errors: kFailedPrecondition if there is none.
  Result<const Tokenizer*> tokenizer() const;
  Result<std::string> apply_chat_template(std::span<const ChatMessage> messages,
                                          const ChatOptions& options) const;

 private:
  static Result<ModelText> load_gguf(const std::string& path);
  Status read_tokenizer_config(const std::string& path);

  std::string path_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace kakeya
