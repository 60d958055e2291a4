#include "envelope.h"

#include <utility>

#include "base/json_size.h"
#include "base/status.h"

namespace kakeya::bridge {
namespace {

constexpr int kFormat = 1;

std::string_view kind_name(Kind kind) {
  return kind == Kind::kJob ? "job" : "result";
}

std::string signed_text(Kind kind, std::string_view payload) {
  return fmt::format("kakeya bridge {} {}\n{}", kind_name(kind), kFormat, payload);
}

// A field that is a text; empty: there is none.
std::string text_field(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<Json> parse_object(std::string_view text) {
  const JsonSize size = json_size(text);
  if (size.depth > kMostJsonDepth || size.values > kMostJsonValues) {
    return invalid_argument("expected JSON of at most {} levels and {} values, got {} and {}",
                            kMostJsonDepth, kMostJsonValues, size.depth, size.values);
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return invalid_argument("expected a JSON object");
  return json;
}

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> seal(Kind kind, const Json& payload, const SigningKey& key) {
  const std::string text = json_line(payload);
  KAKEYA_ASSIGN_OR_RETURN(const Signature signature, key.sign(signed_text(kind, text)));
  const Json sealed = {{"kakeya_bridge", kFormat},
                       {"payload", text},
                       {"key", to_hex(key.public_key())},
                       {"signature", to_hex(signature)}};
  std::string line = json_line(sealed) + "\n";
  if (line.size() > most_bytes(kind)) {
    return error(StatusCode::kResourceExhausted, "a {}: expected at most {} bytes, got {}",
                 kind_name(kind), most_bytes(kind), line.size());
  }
  return line;
}

Result<Opened> open_sealed(Kind kind, std::string_view text, const Peers& peers) {
  if (text.size() > most_bytes(kind)) {
    return error(StatusCode::kResourceExhausted, "expected at most {} bytes, got {}",
                 most_bytes(kind), text.size());
  }
  KAKEYA_ASSIGN_OR_RETURN(const Json sealed, parse_object(text));
  const auto format = sealed.find("kakeya_bridge");
  if (format == sealed.end() || !format->is_number_integer() || *format != kFormat) {
    return invalid_argument("expected a text of kakeya bridge, format {}", kFormat);
  }
  const std::string payload = text_field(sealed, "payload");
  Opened opened;
  Signature signature = {};
  if (!from_hex(text_field(sealed, "key"), opened.signer.key) ||
      !from_hex(text_field(sealed, "signature"), signature)) {
    return error(StatusCode::kFailedPrecondition, "it is not signed");
  }
  const Peers::Peer* const signer = peers.find(opened.signer.key);
  if (signer == nullptr) {
    return error(StatusCode::kFailedPrecondition, "signed with an unknown key, {}",
                 to_hex(opened.signer.key));
  }
  opened.signer = *signer;
  if (!is_signed_by(signer->key, signed_text(kind, payload), signature)) {
    return error(StatusCode::kFailedPrecondition, "the signature is not that of {} for this {}",
                 signer->name, kind_name(kind));
  }
  opened.sha256 = sha256_hex(payload);
  auto parsed = parse_object(payload);
  if (!parsed) return Unexpected(parsed.error().with_context("the payload"));
  opened.payload = std::move(parsed).value();
  return opened;
}

}  // namespace kakeya::bridge
