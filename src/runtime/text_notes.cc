#include "runtime/text_notes.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/mapped_file.h"
#include "base/status.h"
#include "formats/gguf_checkpoint.h"
#include "formats/printable.h"

namespace kakeya {
namespace {

// The text of a file of a folder; empty without the file.
Result<std::string> text_if_there(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::string();
  KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

// A special token is a text or an object with `content`.
std::string token_named(const nlohmann::json& config, const char* key) {
  const nlohmann::json token = config.value(key, nlohmann::json());
  const nlohmann::json text = token.is_object() ? token.value("content", nlohmann::json()) : token;
  return text.is_string() ? text.get<std::string>() : "";
}

}  // namespace

Result<TextNotes> read_text_notes(const std::string& path, const Tokenizer* tokenizer) {
  TextNotes notes;
  if (is_gguf_path(path)) return notes;
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, text_if_there(path + "/tokenizer_config.json"));
  KAKEYA_ASSIGN_OR_RETURN(std::string source, text_if_there(path + "/chat_template.jinja"));
  try {
    auto config = nlohmann::json::parse(text, nullptr, false);
    if (!config.is_object()) config = nlohmann::json::object();
    if (source.empty()) source = config.value("chat_template", nlohmann::json()).dump();
    if (token_named(config, "bos_token").empty() && source.find("bos_token") != std::string::npos) {
      notes.lines.push_back(
          fmt::format("{}: the chat template puts bos_token in front of a conversation, but "
                      "tokenizer_config.json, where it is named, {}: none is put there",
                      path, text.empty() ? "is missing" : "names none"));
    }
    const std::string eos = token_named(config, "eos_token");
    if (eos.empty() || tokenizer == nullptr) return notes;
    notes.eos_id = tokenizer->token_id(eos);
    if (!notes.eos_id) {
      notes.lines.push_back(
          fmt::format("{}/tokenizer_config.json: eos_token \"{}\" is no token: it ends no answer",
                      path, printable(eos)));
    }
  } catch (const nlohmann::json::exception& failure) {
    return data_loss("{}/tokenizer_config.json: {}", path, failure.what());
  }
  return notes;
}

}  // namespace kakeya
