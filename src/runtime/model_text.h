// The text side of a model folder (tokenizer.json, the chat template and the texts of the special
// tokens that templates ask for) or of a GGUF file, which has the same in its metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kakeya/chat.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "text/chat_template.h"

namespace kakeya {

class ModelText {
 public:
  // Reads what the folder or GGUF file has; one without tokenizer or template is fine. A folder's
  // template is chat_template.jinja, or the `chat_template` of tokenizer_config.json; the file
  // `template_path`, unless it is empty, replaces either. Errors: kNotFound and kDataLoss for a
  // broken tokenizer or `template_path`; a broken template of the model's own is an error of
  // apply_chat_template(), for not everybody needs it.
  static Result<ModelText> load(const std::string& path, const std::string& template_path = {});

  // Errors: kFailedPrecondition if there is none.
  Result<const Tokenizer*> tokenizer() const;
  // True if a beginning-of-sequence token goes in front of a text that no template wrote: as
  // add_bos_token says, else as the tokenizer does. True without a tokenizer.
  bool begins_texts() const;
  // Errors: kFailedPrecondition without a chat template; those of one that is broken.
  Status check_template() const;
  // Tools that the template would leave out are written into the conversation
  // (runtime/tools_in_text.h).
  Result<ChatPrompt> apply_chat_template(std::span<const ChatMessage> messages,
                                         const ChatOptions& options) const;

  // Numbers in text of the folder's tokenizer.json, and of the template with what it is told of the
  // tokenizer; "none" without. A GGUF file's tokenizer is part of its metadata, not of these.
  const std::string& tokenizer_fingerprint() const { return tokenizer_fingerprint_; }
  std::string template_fingerprint() const;

 private:
  // The conversation as the template writes it, with what it is told of tools.
  Result<ChatPrompt> render(std::span<const ChatMessage> messages,
                            const ChatOptions& options) const;
  bool template_shows_tools() const;
  Status read_gguf();
  Status read_folder();
  Status read_tokenizer_config(const std::string& path);
  void set_template(std::string_view source, const std::string& path);

  std::string path_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<Result<ChatTemplate>> chat_template_;
  std::string tokenizer_fingerprint_ = "none";
  std::uint64_t template_checksum_ = 0;
  // A template that shows no tools gets them in the contents of messages.
  bool tools_in_text_ = false;
  std::optional<bool> add_bos_;
  std::string bos_token_;
  std::string eos_token_;
};

}  // namespace kakeya
