// A GGUF file from anybody: no input crashes, all of an accepted file lies inside it (each string
// and each number of floating point and quantised tensors is read) and is found by its name. What
// it says of a model, a drafter and a tokenizer is read, or refused in one line; a tokenizer that
// is accepted encodes and decodes.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "base/check.h"
#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/tensor_request.h"
#include "kakeya/tokenizer.h"
#include "memory_file.h"
#include "text/utf8.h"

namespace {

constexpr kakeya::IntegerRange kAnyInteger = {std::numeric_limits<std::int64_t>::min(),
                                              std::numeric_limits<std::int64_t>::max()};
constexpr kakeya::NumberRange kAnyNumber = {-1e300, 1e300};

template <typename T>
void check_message(const kakeya::Result<T>& result) {
  KAKEYA_CHECK(result || result.error().message().find('\n') == std::string::npos);
}

void read_value(const kakeya::GgufFile& file, std::string_view key) {
  check_message(file.text(key));
  check_message(file.integer(key, kAnyInteger));
  check_message(file.number(key, kAnyNumber));
  check_message(file.boolean(key));
  check_message(file.integers(key, kAnyInteger));
  check_message(file.numbers(key, kAnyNumber));
  check_message(file.booleans(key));
  check_message(file.arrays(key));
  const auto texts = file.texts(key);
  check_message(texts);
  std::size_t bytes = 0;
  for (const std::string_view text : texts ? *texts : std::vector<std::string_view>{}) {
    bytes += std::string(text).size();
  }
  KAKEYA_CHECK(bytes <= file.find_value(key)->bytes.size());
}

void read_model(const kakeya::GgufCheckpoint& checkpoint) {
  const auto model = kakeya::read_gguf_model_config(checkpoint);
  check_message(model);
  const auto drafter = kakeya::read_gguf_drafter_config(checkpoint);
  check_message(drafter);
  check_message(kakeya::read_gguf_generation_config(checkpoint));
  KAKEYA_CHECK(!model || !drafter);
  if (!model && !drafter) return;
  const auto wanted = model ? kakeya::expected_tensors(*model) : kakeya::expected_tensors(*drafter);
  const auto tensors = kakeya::resolve_tensors(checkpoint, wanted);
  check_message(tensors);
  if (!tensors) return;
  for (const kakeya::TensorSpec& spec : wanted) {
    const kakeya::TensorView* view = tensors->find(spec.name);
    if (view == nullptr) continue;
    KAKEYA_CHECK(view->shape == spec.shape);
    check_message(kakeya::check_finite(*view));
  }
}

void read_tokenizer(const std::string& path) {
  const auto tokenizer = kakeya::Tokenizer::load(path);
  check_message(tokenizer);
  if (!tokenizer) return;
  const auto encoded = tokenizer->encode("Hello  w\u00f6rld\n<|turn>ab");
  check_message(encoded);
  const auto ids = encoded.value_or(std::vector<kakeya::TokenId>());
  const std::string text = tokenizer->decode(ids, false);
  KAKEYA_CHECK(kakeya::is_valid_utf8(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kakeya::test::MemoryFile memory(data, size);
  const auto file = kakeya::GgufFile::open(memory.path());
  if (!file) {
    check_message(file);
    return 0;
  }
  for (const kakeya::GgufEntry& entry : file->metadata()) {
    KAKEYA_CHECK(file->find_value(entry.key) == &entry.value);
    read_value(*file, entry.key);
  }
  for (const kakeya::GgufTensor& tensor : file->tensors()) {
    check_message(kakeya::to_f32(tensor));
    KAKEYA_CHECK(file->find(tensor.name) == &tensor);
  }
  const auto checkpoint = kakeya::GgufCheckpoint::open(memory.path());
  check_message(checkpoint);
  if (checkpoint) read_model(*checkpoint);
  read_tokenizer(memory.path());
  return 0;
}
