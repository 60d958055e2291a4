#include "wire/openai/embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <utility>

#include "service/json_text.h"
#include "wire/fields/known_fields.h"
#include "wire/http/json_reader.h"
#include "wire/openai/completion_read.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;

void read_input(wire::JsonReader& reader,
                const wire::Json& value,
                std::vector<service::RawPrompt>& out) {
  service::RawPrompt& input = out.emplace_back();
  if (value.is_string()) {
    input.text = value.get<std::string>();
  } else if (value.is_array() && !value.empty()) {
    read_token_ids(reader, value, "input", input.ids);
  } else {
    reader.refuse("input", "texts or arrays of token ids", wire::shown(value));
  }
}

void read_inputs(wire::JsonReader& reader,
                 const wire::Json& body,
                 std::vector<service::RawPrompt>& out) {
  const wire::Json* input = reader.find(body, "input");
  if (input == nullptr) return reader.refuse("input", "a text, or texts", "nothing");
  const bool several = input->is_array() && !input->empty() && !input->front().is_number();
  if (!several) return read_input(reader, *input, out);
  if (input->size() > service::kMostEmbeddings) {
    return reader.refuse("input", fmt::format("at most {} texts", service::kMostEmbeddings),
                         std::to_string(input->size()));
  }
  for (const wire::Json& value : *input) read_input(reader, value, out);
}

// One of two words; the first one is the default. Returns whether it is the second.
bool read_choice(wire::JsonReader& reader,
                 const wire::Json& body,
                 const char* name,
                 const char* first,
                 const char* second) {
  const wire::Json* value = reader.find(body, name);
  if (value == nullptr || *value == first) return false;
  if (*value != second) {
    reader.refuse(name, fmt::format("{} or {}", first, second), wire::shown(*value));
  }
  return true;
}

ordered_json vector_json(const std::vector<float>& vector, bool base64) {
  if (!base64) return vector;
  const auto bytes = vector.size() * sizeof(float);
  std::string text((bytes + 2) / 3 * 4 + 1, '\0');  // with the end that OpenSSL writes
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(vector.data()),
                                   static_cast<int>(bytes));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

}  // namespace

service::Outcome<EmbeddingWish> read_embeddings(std::int64_t hidden_size, std::string_view body) {
  auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  wire::JsonReader reader;
  wire::refuse_unserved(reader, *parsed, wire::RequestKind::kEmbedding);
  EmbeddingWish wish;
  service::EmbeddingRequest& request = wish.request;
  read_model(reader, *parsed, request.model);
  read_inputs(reader, *parsed, request.inputs);
  wish.base64 = read_choice(reader, *parsed, "encoding_format", "float", "base64");
  if (read_choice(reader, *parsed, "pooling", "last", "mean")) {
    request.options.pooling = Pooling::kMean;
  }
  reader.read(*parsed, "normalize", request.options.normalize);
  reader.expect_dimensions(*parsed, hidden_size);
  read_priority(reader, *parsed, request.priority);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return wish;
}

std::string embeddings_json(const EmbeddingWish& wish,
                            std::string_view model_name,
                            std::int64_t tokens,
                            const std::vector<service::TextResult>& results) {
  ordered_json data = ordered_json::array();
  for (const service::TextResult& result : results) {
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", vector_json(result.embedding, wish.base64)}});
  }
  return service::json_text({{"object", "list"},
                             {"data", std::move(data)},
                             {"model", model_name},
                             {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

}  // namespace kakeya::openai
