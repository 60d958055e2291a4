#include "train_drafter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <system_error>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/status.h"
#include "drafter_config_writer.h"
#include "drafter_data.h"
#include "drafter_prompts.h"
#include "drafter_trainer.h"
#include "free_run.h"
#include "held_back.h"
#include "model/checkpoint_source.h"
#include "projection_writer.h"

namespace kakeya::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kHeldOutBlocks = 256;
constexpr std::size_t kFreePrompts = 64;
constexpr const char* kCheckpoint = "/checkpoint.safetensors";

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The folder of a training, removed again if nothing came into it.
class OutFolder {
 public:
  static Result<OutFolder> create(const std::string& path, bool resumed) {
    std::error_code problem;
    if (std::filesystem::exists(path, problem) && !resumed &&
        !(std::filesystem::is_directory(path, problem) &&
          std::filesystem::is_empty(path, problem))) {
      return error(StatusCode::kFailedPrecondition,
                   "{}: expected no such folder, or an empty one, got something that is there "
                   "(--resume goes on with a training)",
                   path);
    }
    std::filesystem::create_directories(path, problem);
    if (problem) {
      return error(StatusCode::kUnavailable, "cannot create {}: {}", path, problem.message());
    }
    return OutFolder(path);
  }
  OutFolder(OutFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  OutFolder& operator=(OutFolder&&) = delete;
  ~OutFolder() {
    std::error_code ignored;
    if (!path_.empty() && std::filesystem::is_empty(path_, ignored)) {
      std::filesystem::remove(path_, ignored);
    }
  }

 private:
  explicit OutFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Json json_of(const FreeRun& run) {
  return {{"prompts", run.prompts},
          {"tokens", run.tokens},
          {"rounds", run.rounds},
          {"different", run.different}};
}

FreeRun free_run_of(const Json& json) {
  const auto number = [&](const char* name) -> std::int64_t {
    return json.is_object() && json.contains(name) && json[name].is_number_integer()
               ? json[name].get<std::int64_t>()
               : 0;
  };
  return {number("prompts"), number("tokens"), number("rounds"), number("different")};
}

Json shares_of(const Acceptance& acceptance) {
  Json shares = Json::array();
  for (const std::int64_t accepted : acceptance.accepted) {
    shares.push_back(static_cast<double>(accepted) / static_cast<double>(acceptance.blocks));
  }
  return shares;
}

// The weight of the last norm for which random rows have logits of about the variance 1.
float unit_norm(const DrafterTensor& head) {
  double squares = 0.0;
  for (const float value : head.values) squares += static_cast<double>(value) * value;
  const double row = squares / static_cast<double>(head.shape.front());
  return row > 0.0 ? static_cast<float>(1.0 / std::sqrt(row)) : 1.0F;
}

// Everything of one training, stage after stage.
class Training {
 public:
  explicit Training(const DrafterTraining& options) : options_(options) {
    options_.engine.draft.source = "none";
    const std::string beside = options.engine.model_dir + "/drafter";
    if (options_.init.empty()) options_.init = is_drafter_folder(beside) ? beside : "random";
    is_random_ = options_.init == "random";
    if (options_.rate == 0.0) options_.rate = is_random_ ? 6e-4 : 2e-4;
  }

  Status open();
  Status begin();
  Status take_text();
  Status choose_steps();
  Status run_steps();
  Status finish(const DescribeDrafter& describe);
  DrafterReport report() && { return std::move(report_); }

 private:
  Status open_drafter();
  Status borrow();
  Result<std::vector<std::vector<TokenId>>> prompts() const;
  TokenId mask_id() const;
  Status save();
  Status measure(double loss);
  bool interrupted() const { return options_.interrupted != nullptr && *options_.interrupted; }
  DataProgress progress(std::string_view stage) const;
  std::vector<LabelledBlocks> blocks_of(std::int64_t step) const {
    return draw_blocks(training_, options_.anchors, config_.block_size, tap_width_, options_.seed,
                       step);
  }

  DrafterTraining options_;
  bool is_random_ = false;
  std::unique_ptr<EngineImpl> engine_;
  std::string config_text_;
  DrafterConfig config_;
  std::int64_t tap_width_ = 0;
  BorrowedWeights borrowed_;
  DepthWeights depth_;
  std::optional<DrafterNetwork> network_;
  std::optional<TrainerState> state_;
  Json settings_;
  Json record_;
  std::vector<Reply> training_;
  std::vector<Reply> held_out_;
  std::vector<LabelledBlocks> held_out_blocks_;
  AdamWOptions optimizer_;
  Stopwatch clock_;  // of the steps
  DrafterReport report_;
};

DataProgress Training::progress(std::string_view stage) const {
  if (!options_.progress) return {};
  return [this, stage](std::int64_t done, std::int64_t total) {
    options_.progress(stage, done, total);
  };
}

TokenId Training::mask_id() const {
  if (const auto tokenizer = engine_->tokenizer(); tokenizer) {
    const auto ids = (*tokenizer)->encode("<mask>", {.parse_special = true});
    if (ids && ids->size() == 1) return ids->front();
  }
  return engine_->config().pad_token_id.value_or(0);
}

Status Training::borrow() {
  const ModelConfig& target = engine_->config();
  KAKEYA_ASSIGN_OR_RETURN(const auto source, CheckpointSource::open(engine_->model_dir(), target));
  KAKEYA_ASSIGN_OR_RETURN(borrowed_.embedding, read_f32(*source, "embed_tokens.weight"));
  borrowed_.head = borrowed_.embedding;
  if (!target.tie_word_embeddings) {
    KAKEYA_ASSIGN_OR_RETURN(borrowed_.head, read_f32(*source, "lm_head.weight"));
  }
  borrowed_.embed_scale = engine_->decoder().embed_scale();
  return {};
}

Status Training::open_drafter() {
  if (is_random_) {
    KAKEYA_ASSIGN_OR_RETURN(
        config_text_,
        new_drafter_config(engine_->config(),
                           {.layers = options_.layers.value_or(3),
                            .block_size = options_.block_size == 0 ? 16 : options_.block_size,
                            .taps = options_.taps},
                           engine_->decoder().embed_scale(), mask_id()));
  } else {
    if (options_.layers || !options_.taps.empty()) {
      return invalid_argument(
          "{} are for a random drafter: expected `random` as what to begin with (--init), got {}",
          options_.layers ? "layers" : "taps", options_.init);
    }
    KAKEYA_ASSIGN_OR_RETURN(config_text_,
                            read_drafter_config_text(options_.init, options_.block_size));
  }
  KAKEYA_ASSIGN_OR_RETURN(config_, parse_drafter_config(config_text_));
  KAKEYA_TRY(check_drafter_fits(config_, engine_->config()));
  config_.layers.vocab_size = engine_->vocab_size();
  tap_width_ = std::ssize(config_.target_layer_ids) * engine_->hidden_size();
  DrafterWeights weights;
  if (is_random_) {
    weights = random_drafter_weights(config_, options_.seed, unit_norm(borrowed_.head));
  } else {
    KAKEYA_ASSIGN_OR_RETURN(weights, read_drafter_weights(options_.init, config_));
  }
  std::uint64_t hash = checksum(config_text_);
  for (const DrafterTensor& tensor : weights) {
    hash = checksum(std::as_bytes(std::span(tensor.values)), hash);
  }
  state_.emplace(std::move(weights));
  settings_ = {{"model", engine_->model_fingerprint()},
               {"start", fmt::format("{:016x}", hash)},
               {"block", config_.block_size},
               {"anchors", options_.anchors},
               {"loss", "ce"},
               {"weights", options_.weights},
               {"optimizer", "adamw"},
               {"lr", options_.rate},
               {"seed", options_.seed}};
  return {};
}

Status Training::open() {
  KAKEYA_ASSIGN_OR_RETURN(depth_, parse_depth_weights(options_.weights));
  KAKEYA_ASSIGN_OR_RETURN(engine_, EngineImpl::open(options_.engine));
  KAKEYA_TRY(borrow());
  KAKEYA_TRY(open_drafter());
  if (!options_.resume.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(TrainerState stored,
                            load_state(options_.resume + kCheckpoint, state_->weights));
    KAKEYA_TRY(check_same_settings(options_.resume, stored.settings, settings_, {}));
    state_ = std::move(stored);
    record_ = Json::parse(state_->record, nullptr, false);
    if (!record_.is_object() || !record_["losses"].is_array()) {
      return data_loss("{}{}: expected a record of its steps, got none", options_.resume,
                       kCheckpoint);
    }
  }
  network_.emplace(config_, borrowed_);
  return {};
}

Result<std::vector<std::vector<TokenId>>> Training::prompts() const {
  std::vector<std::string> requests;
  if (options_.prompts.empty()) {
    requests = make_requests(options_.num_prompts, options_.seed);
  } else {
    KAKEYA_ASSIGN_OR_RETURN(requests, read_prompts(options_.prompts));
    if (std::ssize(requests) > options_.num_prompts) {
      requests.resize(static_cast<std::size_t>(options_.num_prompts));
    }
  }
  return encode_requests(*engine_, requests);
}

Status Training::take_text() {
  const Stopwatch clock;
  KAKEYA_ASSIGN_OR_RETURN(const auto asked, prompts());
  KAKEYA_ASSIGN_OR_RETURN(
      std::vector<Reply> replies,
      make_replies(*engine_, asked, options_.reply_tokens, progress("replies")));
  std::int64_t anchors[2] = {0, 0};
  const std::vector<Part> parts = parts_of(asked);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    if (parts[i] == Part::kLeftOut || replies[i].num_anchors() == 0) continue;
    const bool held_out = parts[i] == Part::kHeldBack;
    anchors[held_out ? 1 : 0] += replies[i].num_anchors();
    (held_out ? held_out_ : training_).push_back(std::move(replies[i]));
  }
  if (anchors[0] == 0 || anchors[1] == 0) {
    return invalid_argument(
        "expected replies to train on and others to hold back, got {} and {} positions to draft "
        "from in replies to {} prompts (--prompts, --num-prompts)",
        anchors[0], anchors[1], asked.size());
  }
  for (std::vector<Reply>* part : {&training_, &held_out_}) {
    KAKEYA_TRY(add_taps(*engine_, config_.target_layer_ids, *part, progress("passes")));
  }
  held_out_blocks_ = spread_blocks(held_out_, kHeldOutBlocks, config_.block_size, tap_width_);
  settings_["texts"] = fmt::format("{:016x}", hash_of(training_));
  settings_["held_out"] = fmt::format("{:016x}", hash_of(held_out_));
  report_.training_replies = std::ssize(training_);
  report_.training_anchors = anchors[0];
  report_.held_out_replies = std::ssize(held_out_);
  report_.data_seconds = clock.seconds();
  return {};
}

// Minutes are turned into steps once, so that the rate's course and the weights follow from what
// training.json says.
Status Training::choose_steps() {
  settings_["steps"] = options_.steps;
  if (!options_.resume.empty()) {
    const bool any = options_.steps == 0;
    KAKEYA_TRY(
        check_same_settings(options_.resume, state_->settings, settings_, any ? "steps" : ""));
    settings_ = Json::parse(state_->settings);
    if (!settings_["steps"].is_number_integer()) {
      return data_loss("{}{}: expected a number of steps, got none", options_.resume, kCheckpoint);
    }
  } else if (options_.steps == 0) {
    constexpr std::int64_t kMeasured = 3;
    KAKEYA_TRY(loss_and_gradients(*network_, state_->weights, blocks_of(0), depth_));
    const Stopwatch clock;
    for (std::int64_t step = 0; step < kMeasured; ++step) {
      KAKEYA_TRY(loss_and_gradients(*network_, state_->weights, blocks_of(step), depth_));
    }
    const double steps = 60.0 * options_.minutes * kMeasured / std::max(clock.seconds(), 1e-3);
    settings_["steps"] = static_cast<std::int64_t>(
        std::clamp(steps, 1.0, static_cast<double>(DrafterTraining::kMostSteps)));
  }
  optimizer_.steps = settings_["steps"].get<std::int64_t>();
  optimizer_.rate = options_.rate;
  report_.steps = optimizer_.steps;
  return {};
}

Status Training::begin() {
  state_->settings = text_of(settings_);
  if (!options_.resume.empty()) return {};
  record_ = {{"losses", Json::array()}};
  KAKEYA_ASSIGN_OR_RETURN(const Acceptance start,
                          measure_acceptance(*network_, state_->weights, held_out_blocks_));
  record_["acceptance_before"] = shares_of(start);
  record_["losses"].push_back({0, nullptr, start.tokens()});
  KAKEYA_TRY(save());
  KAKEYA_ASSIGN_OR_RETURN(
      const FreeRun run,
      run_freely(options_.engine, options_.out,
                 std::span(held_out_).first(std::min(held_out_.size(), kFreePrompts))));
  record_["before"] = json_of(run);
  if (options_.on_line) {
    options_.on_line(fmt::format(
        "{} replies, {} positions to draft from; {} held back: {:.3f} tokens a round as it is",
        report_.training_replies, report_.training_anchors, report_.held_out_replies,
        run.tokens_per_round()));
  }
  return save();
}

Status Training::save() {
  state_->record = text_of(record_);
  KAKEYA_TRY(write_file(options_.out + "/config.json", config_text_));
  KAKEYA_TRY(write_drafter_weights(options_.out, state_->weights));
  return save_state(options_.out + kCheckpoint, *state_);
}

Status Training::measure(double loss) {
  KAKEYA_ASSIGN_OR_RETURN(const Acceptance now,
                          measure_acceptance(*network_, state_->weights, held_out_blocks_));
  record_["losses"].push_back({state_->steps_done, loss, now.tokens()});
  record_["acceptance_after"] = shares_of(now);
  if (options_.on_line) {
    std::string depths;
    for (std::size_t k = 0; k < now.accepted.size() && k < 4; ++k) {
      depths += fmt::format(
          "{}{:.1f}", k == 0 ? "" : ", ",
          100.0 * static_cast<double>(now.accepted[k]) / static_cast<double>(now.blocks));
    }
    options_.on_line(fmt::format(
        "step {} of {}: loss {:.4f}; held back: {:.3f} tokens a round, {} % right up to "
        "depth 1, 2 ...",
        state_->steps_done, report_.steps, loss, now.tokens(), depths));
  }
  return {};
}

Status Training::run_steps() {
  clock_ = {};
  Stopwatch since_save;
  double sum = 0.0;
  std::int64_t count = 0;
  while (state_->steps_done < report_.steps && !interrupted()) {
    KAKEYA_ASSIGN_OR_RETURN(const double loss, train_step(*network_, blocks_of(state_->steps_done),
                                                          depth_, optimizer_, *state_));
    sum += loss;
    ++count;
    if (options_.progress) options_.progress("steps", state_->steps_done, report_.steps);
    const bool due = since_save.seconds() >= 60.0 * options_.save_minutes;
    if (!due && state_->steps_done < report_.steps && !interrupted()) continue;
    KAKEYA_TRY(measure(sum / static_cast<double>(count)));
    KAKEYA_TRY(save());
    sum = 0.0;
    count = 0;
    since_save = {};
  }
  if (count > 0) {  // interrupted between two looks
    KAKEYA_TRY(measure(sum / static_cast<double>(count)));
    KAKEYA_TRY(save());
  }
  report_.steps_done = state_->steps_done;
  report_.finished = state_->steps_done >= report_.steps;
  report_.step_seconds = clock_.seconds();
  return {};
}

Status Training::finish(const DescribeDrafter& describe) {
  if (report_.finished) {
    KAKEYA_TRY(save());  // to another folder than it was resumed from, if need be
    KAKEYA_ASSIGN_OR_RETURN(
        report_.after,
        run_freely(options_.engine, options_.out,
                   std::span(held_out_).first(std::min(held_out_.size(), kFreePrompts))));
  }
  report_.before = free_run_of(record_["before"]);
  report_.settings = state_->settings;
  report_.losses = text_of(record_["losses"]);
  report_.acceptance =
      text_of({{"before", record_["acceptance_before"]}, {"after", record_["acceptance_after"]}});
  return write_file(options_.out + "/training.json", describe(*engine_, report_));
}

Status check_training(const DrafterTraining& training) {
  const auto in_range = [](const char* name, std::int64_t value, std::int64_t least,
                           std::int64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return invalid_argument("{}: expected {} to {}, got {}", name, least, most, value);
  };
  KAKEYA_TRY(in_range("anchors", training.anchors, 1, 4096));
  KAKEYA_TRY(in_range("num-prompts", training.num_prompts, 2, DrafterTraining::kMostPrompts));
  KAKEYA_TRY(in_range("reply-tokens", training.reply_tokens, 2, 65536));
  KAKEYA_TRY(in_range("steps", training.steps, 0, DrafterTraining::kMostSteps));
  if (training.block_size != 0) {
    KAKEYA_TRY(in_range("block", training.block_size, DrafterConfig::kMinBlockSize,
                        DrafterConfig::kMaxBlockSize));
  }
  if ((training.steps == 0) == (training.minutes == 0.0) || !(training.minutes >= 0.0) ||
      training.minutes > 100'000.0) {
    return invalid_argument("expected minutes or steps, one of the two, above 0, got {} and {}",
                            training.minutes, training.steps);
  }
  if (!(training.rate >= 0.0) || training.rate > 1.0) {
    return invalid_argument("lr: expected above 0 and at most 1, got {}", training.rate);
  }
  if (!(training.save_minutes >= 0.0)) {
    return invalid_argument("save-minutes: expected 0 or more, got {}", training.save_minutes);
  }
  return {};
}

}  // namespace

Result<DrafterReport> train_drafter(const DrafterTraining& training,
                                    const DescribeDrafter& describe) {
  KAKEYA_TRY(check_training(training));
  KAKEYA_ASSIGN_OR_RETURN(const OutFolder folder,
                          OutFolder::create(training.out, training.resume == training.out));
  Training run(training);
  KAKEYA_TRY(run.open());
  KAKEYA_TRY(run.take_text());
  KAKEYA_TRY(run.choose_steps());
  KAKEYA_TRY(run.begin());
  KAKEYA_TRY(run.run_steps());
  KAKEYA_TRY(run.finish(describe));
  return std::move(run).report();
}

}  // namespace kakeya::train
