#include "wire/openai/sampling_read.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "wire/openai/completion_read.h"

namespace kakeya::openai {
namespace {

// {"106": -100}
void read_logit_bias(wire::JsonReader& reader, const wire::Json& body, service::SamplingWish& out) {
  const wire::Json* biases = reader.find(body, "logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() || biases->size() > kMostLogitBiases) {
    return reader.refuse(
        "logit_bias", fmt::format("an object of at most {} token ids", kMostLogitBiases),
        biases->is_object() ? std::to_string(biases->size()) : wire::shown(*biases));
  }
  for (const auto& [key, value] : biases->items()) {
    TokenId id = 0;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (key.empty() || parsed.ec != std::errc() || parsed.ptr != end || id < 0) {
      return reader.refuse("logit_bias", "token ids as keys", wire::shown(key));
    }
    const double bias = value.is_number() ? value.get<double>() : NAN;
    if (!(bias >= -100.0 && bias <= 100.0)) {
      return reader.refuse("logit_bias", "numbers from -100 to 100", wire::shown(value));
    }
    out.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

// Any whole number of 64 bits, with a sign or without.
void read_seed(wire::JsonReader& reader, const wire::Json& body, service::SamplingWish& out) {
  const wire::Json* seed = reader.find(body, "seed");
  if (seed == nullptr) return;
  if (seed->is_number_unsigned()) {
    out.seed = seed->get<std::uint64_t>();
  } else if (const auto number = wire::whole_number(*seed)) {
    out.seed = static_cast<std::uint64_t>(*number);
  } else {
    reader.refuse("seed", "a whole number of 64 bits", wire::shown(*seed));
  }
}

}  // namespace

void read_sampling(wire::JsonReader& reader, const wire::Json& body, service::SamplingWish& out) {
  reader.read(body, "temperature", 0.0F, 2.0F, out.temperature);
  reader.read(body, "top_p", 0.0F, 1.0F, out.top_p);
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  reader.read(body, "top_k", -1, kMost, out.top_k);
  if (out.top_k == -1) out.top_k = 0;  // off, in others' words
  reader.read(body, "min_p", 0.0F, 1.0F, out.min_p);
  // llama.cpp's name, and vLLM's.
  constexpr float kLeastPenalty = 0.01F;
  reader.read(body, "repeat_penalty", kLeastPenalty, 100.0F, out.repetition_penalty);
  reader.read(body, "repetition_penalty", kLeastPenalty, 100.0F, out.repetition_penalty);
  reader.read(body, "presence_penalty", -2.0F, 2.0F, out.presence_penalty);
  reader.read(body, "frequency_penalty", -2.0F, 2.0F, out.frequency_penalty);
  read_seed(reader, body, out);
  read_logit_bias(reader, body, out);
}

}  // namespace kakeya::openai
