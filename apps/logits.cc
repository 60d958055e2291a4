// kakeya logits: the numbers behind the text, for comparing with other implementations.
#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "base/status.h"
#include "cli/command.h"
#include "cli/internal_engine.h"
#include "commands.h"
#include "drafter_tensors.h"
#include "formats/safetensors.h"
#include "sampling/sampler.h"

namespace kakeya::cli {
namespace {

struct LogitsFlags {
  ModelFlags model;
  std::string ids_file;
  std::string out;
  std::string drafter_golden;
};

// Token ids from a JSON list, or from an object with `input_ids`.
Result<std::vector<TokenId>> read_ids(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("input_ids")) json = nlohmann::json(json["input_ids"]);
  if (!json.is_array() || json.empty()) {
    return invalid_argument("{} must hold a JSON list of token ids, such as [2, 105, 107]", path);
  }
  std::vector<TokenId> ids;
  for (const auto& value : json) {
    if (!value.is_number_integer() || value < INT32_MIN || value > INT32_MAX) {
      return invalid_argument("{}: element {} is no token id", path, ids.size());
    }
    ids.push_back(value.get<TokenId>());
  }
  return ids;
}

TensorView view_of(const void* data, Shape shape, DType dtype, std::string name) {
  return {.data = static_cast<const std::byte*>(data),
          .shape = std::move(shape),
          .dtype = dtype,
          .name = std::move(name)};
}

Status write_logits(const LogitsFlags& flags) {
  KAKEYA_TRY(check_session_flags(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_ids(flags.ids_file));
  ModelFlags model = flags.model;
  const auto count = static_cast<std::int64_t>(ids.size());
  model.context = std::max(model.context, count);
  model.texts = ModelTexts::kUnread;
  KAKEYA_ASSIGN_OR_RETURN(auto engine, open_internal_engine(model));
  const ModelConfig& config = engine->config();
  const std::int64_t chunk = std::min(model.chunk, count);
  SessionOptions session = engine->session_options();  // with the ways to keep rows
  session.context = model.context;
  session.max_rows = chunk;
  KAKEYA_ASSIGN_OR_RETURN(auto timeline, engine->create_timeline(session, chunk));

  // hidden_states as in transformers: the scaled embedding, each layer's output, and for the last
  // one the output of the final norm.
  std::vector<std::int64_t> taps(static_cast<std::size_t>(config.num_hidden_layers));
  std::iota(taps.begin(), taps.end(), kTapEmbedding);
  taps.push_back(config.num_hidden_layers);
  const auto num_taps = static_cast<std::int64_t>(taps.size());
  const std::int64_t width = config.hidden_size;
  std::vector<float> logits(static_cast<std::size_t>(count * config.vocab_size));
  std::vector<float> tapped(static_cast<std::size_t>(chunk * num_taps * width));
  std::vector<float> hidden(static_cast<std::size_t>(num_taps * count * width));
  for (std::int64_t begin = 0; begin < count; begin += chunk) {
    const std::int64_t rows = std::min(chunk, count - begin);
    KAKEYA_TRY(timeline->forward(
        std::span<const TokenId>(ids).subspan(static_cast<std::size_t>(begin),
                                              static_cast<std::size_t>(rows)),
        {.logits = {logits.data() + begin * config.vocab_size, rows, config.vocab_size},
         .tap_points = taps,
         .taps = {tapped.data(), rows, num_taps * width}}));
    for (std::int64_t t = 0; t < rows; ++t) {
      for (std::int64_t i = 0; i < num_taps; ++i) {
        const float* from = tapped.data() + (t * num_taps + i) * width;
        std::copy(from, from + width, hidden.data() + (i * count + begin + t) * width);
      }
    }
  }
  for (std::int64_t t = 0; t < count; ++t) {
    const float* row = logits.data() + t * config.vocab_size;
    KAKEYA_TRY(check_logits({row, static_cast<std::size_t>(config.vocab_size)}, t + 1));
  }
  std::vector<NamedTensor> drafted;
  if (!flags.drafter_golden.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(drafted, drafter_tensors(*engine, flags.drafter_golden));
  }
  std::vector<TensorView> tensors = {
      view_of(ids.data(), {count}, DType::kI32, "input_ids"),
      view_of(logits.data(), {count, config.vocab_size}, DType::kF32, "logits"),
      view_of(hidden.data(), {num_taps, count, width}, DType::kF32, "hidden_states")};
  for (const NamedTensor& tensor : drafted) {
    tensors.push_back(view_of(tensor.values.data(), tensor.shape, DType::kF32, tensor.name));
  }
  return write_safetensors(flags.out, tensors,
                           {{"backend", std::string(engine->backend_name())},
                            {"compute", model.compute},
                            {"chunk", std::to_string(chunk)}});
}

}  // namespace

void add_logits_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "logits", "Write logits and hidden states of given tokens, for comparisons");
  auto flags = std::make_shared<LogitsFlags>();
  command->add_option("--ids", flags->ids_file, "JSON list of token ids; - for standard input")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("-o,--out", flags->out,
                   "Where to write input_ids [S], logits [S, V] and hidden_states [L+1, S, D]")
      ->required()
      ->type_name("FILE.safetensors");
  command
      ->add_option(
          "--drafter-golden", flags->drafter_golden,
          "Also run the drafter over this file's aux [C, taps * D] and block_ids [B]; adds "
          "context_features and, for each mask rule, MODE.hidden and MODE.logits")
      ->type_name("FILE.safetensors");
  add_model_flags(*command, flags->model);
  add_draft_flags(*command, flags->model);
  flags->model.draft = "none";
  command->footer(
      "Example:\n  echo '[2, 105, 3833]' | kakeya logits --ids - --compute f32 -o out.safetensors");
  command->callback([flags, &exit_code] {
    const Status written = write_logits(*flags);
    exit_code = written ? kExitOk : report(written.error());
  });
}

}  // namespace kakeya::cli
