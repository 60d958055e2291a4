#include "runtime/model_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/gguf_checkpoint.h"
#include "runtime/chat_context.h"
#include "runtime/tools_in_text.h"
#include "text/plain_texts.h"
#include "text/tokenizer_gguf.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// A special token is written as its text or as an object with `content`.
std::string special_token(const nlohmann::json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) {
    return (*it)["content"].get<std::string>();
  }
  return "";
}

// `chat_template` is a text, or a list of named ones of which "default" is meant.
std::string template_source(const nlohmann::json& config) {
  const auto it = config.find("chat_template");
  if (it == config.end()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return "";
  for (const auto& entry : *it) {
    if (entry.is_object() && entry.value("name", "") == "default") {
      return entry.value("template", "");
    }
  }
  return "";
}

// Cuts what the template has put behind the last message's content, of which it may leave out
// blanks at both ends.
Status end_with_content(std::string_view content, std::string& rendered) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = content.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return invalid_argument("to go on with a last message takes one with content, but it has none");
  }
  content.remove_prefix(begin);
  const std::size_t size = content.find_last_not_of(kBlanks) + 1;
  const std::size_t at = rendered.rfind(content.substr(0, size));
  if (at == std::string::npos) {
    return invalid_argument(
        "to go on with a last message: the chat template leaves its content "
        "out, or changes it");
  }
  const bool whole = rendered.compare(at, content.size(), content) == 0;
  rendered.resize(at + (whole ? content.size() : size));
  return {};
}

}  // namespace

void ModelText::set_template(std::string_view source, const std::string& path) {
  auto parsed = ChatTemplate::parse(source);
  // A server's clients read it when they chat: they are told the file's name, not where it lies.
  if (!parsed) {
    const std::string name = std::filesystem::path(path).filename();
    parsed = Unexpected(parsed.error().with_context(name));
  }
  chat_template_ = std::move(parsed);
  template_checksum_ = checksum(source);
}

std::string ModelText::template_fingerprint() const {
  if (!chat_template_) return "none";
  return fmt::format("{:016x}", checksum(bos_token_ + '\n' + eos_token_, template_checksum_));
}

Status ModelText::read_tokenizer_config(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  // Third-party code may throw on nonsense of any kind; the file is a user's.
  try {
    const auto config = nlohmann::json::parse(text_of(file), nullptr, false);
    if (config.is_discarded() || !config.is_object()) {
      return data_loss("{}: not a JSON object", path);
    }
    bos_token_ = special_token(config, "bos_token");
    eos_token_ = special_token(config, "eos_token");
    const auto add_bos = config.find("add_bos_token");
    if (add_bos != config.end() && add_bos->is_boolean()) add_bos_ = add_bos->get<bool>();
    const std::string source = template_source(config);
    if (!source.empty() && !chat_template_) {
      set_template(source, path);
    }
  } catch (const nlohmann::json::exception& failure) {
    return data_loss("{}: {}", path, failure.what());
  }
  return {};
}

Status ModelText::read_gguf() {
  KAKEYA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path_));
  if (!has_gguf_tokenizer(file)) return {};
  KAKEYA_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::load(path_));
  const auto text_of_token = [&](const char* key, std::string& to) -> Status {
    if (file.find_value(key) == nullptr) return {};
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t id, file.integer(key, {0, INT32_MAX}));
    to = tokenizer_->token_text(static_cast<TokenId>(id)).value_or("");
    return {};
  };
  // Where the file says no, load_model_config() gives no such id.
  add_bos_ = true;
  KAKEYA_TRY(text_of_token("tokenizer.ggml.bos_token_id", bos_token_));
  KAKEYA_TRY(text_of_token("tokenizer.ggml.eos_token_id", eos_token_));
  constexpr const char* kTemplate = "tokenizer.chat_template";
  if (chat_template_ || file.find_value(kTemplate) == nullptr) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::string_view source, file.text(kTemplate));
  if (is_valid_utf8(source)) {
    set_template(source, path_);
  } else {
    chat_template_ = Unexpected(data_loss("key {}: expected UTF-8, got other bytes", kTemplate));
  }
  return {};
}

Status ModelText::read_folder() {
  const std::filesystem::path folder(path_);
  std::error_code ignored;  // an unreadable folder has no such file
  const std::string tokenizer_path = folder / "tokenizer.json";
  if (std::filesystem::exists(tokenizer_path, ignored)) {
    KAKEYA_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::load(tokenizer_path));
    KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(tokenizer_path));
    tokenizer_fingerprint_ = fmt::format("{:016x}", checksum(file.bytes()));
  }
  const std::string template_path = folder / "chat_template.jinja";
  if (!chat_template_ && std::filesystem::exists(template_path, ignored)) {
    KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(template_path));
    set_template(text_of(file), template_path);
  }
  const std::string config_path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(config_path, ignored)) return {};
  return read_tokenizer_config(config_path);
}

Result<ModelText> ModelText::load(const std::string& path, const std::string& template_path) {
  ModelText text;
  text.path_ = path;
  if (!template_path.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(template_path));
    text.set_template(text_of(file), template_path);
    if (!*text.chat_template_) {
      const Error& why = text.chat_template_->error();
      const auto folder = std::filesystem::path(template_path).parent_path() / "";
      return Unexpected(Error(why.code(), folder.string() + why.message()));
    }
  }
  KAKEYA_TRY(is_gguf_path(path) ? text.read_gguf() : text.read_folder());
  text.tools_in_text_ = !text.template_shows_tools();
  return text;
}

// False if the same conversation looks the same with a tool and without.
bool ModelText::template_shows_tools() const {
  if (!chat_template_ || !*chat_template_) return true;
  const ChatMessage message = {.role = "user", .content = "a"};
  const ChatOptions tool = {
      .tools = {R"({"type":"function","function":{"name":"probed_tool","description":"b",)"
                R"("parameters":{"type":"object","properties":{"c":{"type":"string"}}}}})"}};
  const auto without = render({&message, 1}, {});
  const auto with = render({&message, 1}, tool);
  return !without || !with || with->text != without->text;
}

Result<const Tokenizer*> ModelText::tokenizer() const {
  if (tokenizer_) return &*tokenizer_;
  return error(StatusCode::kFailedPrecondition,
               "{} has no tokenizer (tokenizer.json, or tokenizer.ggml.tokens in a GGUF file)",
               path_);
}

bool ModelText::begins_texts() const {
  if (add_bos_) return *add_bos_;
  return !tokenizer_ || tokenizer_->begins_texts();
}

Status ModelText::check_template() const {
  if (!chat_template_) {
    // A server's clients read this: no path stands in it.
    return error(StatusCode::kFailedPrecondition,
                 "the model has no chat template (chat_template.jinja, chat_template in "
                 "tokenizer_config.json, or tokenizer.chat_template in a GGUF file): expected "
                 "EngineOptions::chat_template FILE, or texts to go on with as they are "
                 "(Tokenizer::encode)");
  }
  return *chat_template_ ? Status() : Unexpected(chat_template_->error());
}

Result<ChatPrompt> ModelText::apply_chat_template(std::span<const ChatMessage> messages,
                                                  const ChatOptions& options) const {
  KAKEYA_TRY(check_template());
  if (!tools_in_text_ || !has_tools(messages, options.tools)) return render(messages, options);
  const HideText as_it_is = [](std::string_view text) { return std::string(text); };
  KAKEYA_TRY(chat_context(messages, options, as_it_is));  // tools are JSON objects
  ChatOptions told = options;
  told.tools.clear();
  auto prompt = render(with_tools_in_text(messages, options.tools, ToolsPlace::kSystem), told);
  if (prompt) return prompt;
  auto elsewhere =
      render(with_tools_in_text(messages, options.tools, ToolsPlace::kFirstUser), told);
  return elsewhere ? std::move(elsewhere) : std::move(prompt);
}

Result<ChatPrompt> ModelText::render(std::span<const ChatMessage> messages,
                                     const ChatOptions& options) const {
  if (options.continue_final_message && (messages.empty() || options.add_generation_prompt)) {
    return invalid_argument(
        "to go on with a last message takes one, and no generation prompt behind it");
  }
  std::optional<PlainTexts> texts;
  if (tokenizer_) texts.emplace(*tokenizer_);
  const auto hide = [&](std::string_view text) {
    return texts ? texts->hide(text) : std::string(text);
  };
  KAKEYA_ASSIGN_OR_RETURN(nlohmann::ordered_json context, chat_context(messages, options, hide));
  context["bos_token"] = bos_token_;
  context["eos_token"] = eos_token_;
  KAKEYA_ASSIGN_OR_RETURN(std::string rendered, (*chat_template_)->render(context));
  if (options.continue_final_message) {
    const auto& last = context["messages"].back()["content"];
    KAKEYA_TRY(end_with_content(last.get_ref<const std::string&>(), rendered));
  }
  if (!texts) return ChatPrompt{std::move(rendered), {}};
  return texts->show(rendered);
}

}  // namespace kakeya
