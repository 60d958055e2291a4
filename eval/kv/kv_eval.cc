#include "eval/kv/kv_eval.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "eval/prompts/needle_prompts.h"
#include "eval/report/field_reader.h"

namespace kakeya::eval {
namespace {

// Contexts between which the cost of a token is taken.
constexpr std::int64_t kLongContext = 4096;

SessionOptions with_size(SessionOptions session, std::int64_t context, std::int64_t chunk) {
  session.context = context;
  session.max_rows = std::min(chunk, context);
  return session;
}

Report kv_result_json(const KvTextResult& result) {
  return {{"statistics", distribution_json(result.statistics)},
          {"full", result.bytes.full},
          {"sliding", result.bytes.sliding},
          {"codes", result.bytes.codes}};
}

// Adds what a mode gave on a text.
Status add_kv_result(const Report& json, KvTextResult& to) {
  Report statistics;
  KAKEYA_TRY(FieldReader(json)
                 .take("statistics", statistics)
                 .take("full", to.bytes.full)
                 .take("sliding", to.bytes.sliding)
                 .take("codes", to.bytes.codes)
                 .status("a mode's result on a text"));
  KAKEYA_ASSIGN_OR_RETURN(const DistributionStatistics of_text, parse_distribution(statistics));
  to.statistics.add(of_text);
  return {};
}

// The parts of a result that modes have, one each.
Result<std::vector<Report>> modes_of(const Report& result, std::size_t count) {
  std::vector<Report> modes;
  const Status taken = FieldReader(result).take("modes", modes).status("a result of each mode");
  if (taken && modes.size() == count) return modes;
  return data_loss("expected a result of each of {} modes, got {}", count, modes.size());
}

// The reference and all modes over one set of texts.
class TextEvaluation {
 public:
  TextEvaluation(EngineImpl& engine,
                 std::span<const KvMode> modes,
                 std::int64_t length,
                 const KvEvalOptions& options)
      : engine_(engine),
        modes_(modes),
        length_(length),
        chunk_(std::min(options.chunk, length)),
        options_(options),
        reference_logits_(logits_size()),
        mode_logits_(logits_size()) {
    report_.length = length;
    for (const KvMode& mode : modes) report_.modes.push_back({.mode = mode.name});
  }

  Status run(const PromptSet& texts);
  KvTextReport report() && { return std::move(report_); }

 private:
  std::size_t logits_size() const {
    return static_cast<std::size_t>(chunk_ * engine_.vocab_size());
  }
  Result<std::unique_ptr<Timeline>> timeline(const KvMode& mode);
  // The results of each mode for one text.
  Result<Report> run_text(const std::vector<TokenId>& ids);
  Status add_text(const EvalPrompt& text, std::int64_t index);
  Status forward(Timeline& timeline, std::span<const TokenId> ids, std::vector<float>& logits);
  Status compare(std::span<const TokenId> ids,
                 std::int64_t begin,
                 DistributionStatistics& statistics);

  EngineImpl& engine_;
  std::span<const KvMode> modes_;
  std::int64_t length_;
  std::int64_t chunk_;
  const KvEvalOptions& options_;
  std::vector<float> reference_logits_;  // [chunk, V]
  std::vector<float> mode_logits_;       // [chunk, V]
  KvTextReport report_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

Status TextEvaluation::run(const PromptSet& texts) {
  report_.set = texts.name;
  report_.texts = static_cast<std::int64_t>(texts.prompts.size());
  total_ = report_.texts * length_ * (1 + static_cast<std::int64_t>(modes_.size()));
  for (std::size_t i = 0; i < modes_.size(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(report_.modes[i].bytes_per_token,
                            kv_bytes_per_token(engine_, modes_[i], options_.chunk,
                                               find_projection(options_, modes_[i])));
  }
  for (const EvalPrompt& text : texts.prompts) {
    if (static_cast<std::int64_t>(text.ids.size()) != length_) {
      return invalid_argument("{} {}: expected {} tokens, got {}", texts.name, text.id, length_,
                              text.ids.size());
    }
    if (const Status ran = add_text(text, &text - texts.prompts.data()); !ran) {
      return Unexpected(ran.error().with_context(texts.name + " " + text.id));
    }
  }
  return {};
}

Status TextEvaluation::add_text(const EvalPrompt& text, std::int64_t index) {
  KAKEYA_ASSIGN_OR_RETURN(
      const Report result,
      PartJournal::result(options_.journal, part_of(report_.set, index, text.ids),
                          [&] { return run_text(text.ids); }));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Report> modes, modes_of(result, modes_.size()));
  for (std::size_t mode = 0; mode < modes.size(); ++mode) {
    KAKEYA_TRY(add_kv_result(modes[mode], report_.modes[mode]));
  }
  const std::int64_t end = total_ / report_.texts * (index + 1);
  if (done_ == end) return {};  // it ran
  done_ = end;
  if (options_.on_progress) options_.on_progress(done_, total_);
  return {};
}

Result<std::unique_ptr<Timeline>> TextEvaluation::timeline(const KvMode& mode) {
  // The rows of logits go to vectors of this class; the timeline needs none for them.
  return engine_.create_timeline(with_size(mode.session, length_, chunk_), 1,
                                 find_projection(options_, mode), mode.comparison);
}

Result<Report> TextEvaluation::run_text(const std::vector<TokenId>& ids) {
  KAKEYA_ASSIGN_OR_RETURN(const auto reference,
                          timeline({.name = "reference", .session = options_.reference}));
  std::vector<std::unique_ptr<Timeline>> timelines;
  for (const KvMode& mode : modes_) {
    auto created = timeline(mode);
    if (!created) return Unexpected(created.error().with_context(mode.name));
    timelines.push_back(std::move(created).value());
  }
  std::vector<KvTextResult> results(modes_.size());
  for (std::int64_t begin = 0; begin < length_; begin += chunk_) {
    const auto chunk = std::span<const TokenId>(ids).subspan(
        static_cast<std::size_t>(begin),
        static_cast<std::size_t>(std::min(chunk_, length_ - begin)));
    KAKEYA_TRY(forward(*reference, chunk, reference_logits_));
    for (std::size_t mode = 0; mode < timelines.size(); ++mode) {
      Status compared = forward(*timelines[mode], chunk, mode_logits_);
      if (compared) compared = compare(ids, begin, results[mode].statistics);
      if (!compared) return Unexpected(compared.error().with_context(modes_[mode].name));
    }
  }
  Report json = {{"modes", Report::array()}};
  for (std::size_t mode = 0; mode < timelines.size(); ++mode) {
    results[mode].bytes = kv_bytes(timelines[mode]->footprint());
    json["modes"].push_back(kv_result_json(results[mode]));
  }
  return json;
}

Status TextEvaluation::forward(Timeline& timeline,
                               std::span<const TokenId> ids,
                               std::vector<float>& logits) {
  const auto rows = static_cast<std::int64_t>(ids.size());
  KAKEYA_TRY(timeline.forward(ids, {.logits = {logits.data(), rows, engine_.vocab_size()}}));
  done_ += rows;
  if (options_.on_progress) options_.on_progress(done_, total_);
  return {};
}

// The rows of the chunk from position `begin` on; the text's last one has no next token.
Status TextEvaluation::compare(std::span<const TokenId> ids,
                               std::int64_t begin,
                               DistributionStatistics& statistics) {
  const auto vocab = static_cast<std::size_t>(engine_.vocab_size());
  const std::int64_t end = std::min(begin + chunk_, length_ - 1);
  for (std::int64_t position = begin; position < end; ++position) {
    const std::size_t offset = static_cast<std::size_t>(position - begin) * vocab;
    const PositionDifference difference =
        compare_logits(std::span<const float>(reference_logits_).subspan(offset, vocab),
                       std::span<const float>(mode_logits_).subspan(offset, vocab),
                       ids[static_cast<std::size_t>(position) + 1]);
    if (!difference.finite()) {
      return error(StatusCode::kInternal, "expected finite logits, got others at position {}",
                   position);
    }
    statistics.add(difference);
  }
  return {};
}

// The replies of the reference and of all modes to one set of prompts.
class NeedleEvaluation {
 public:
  NeedleEvaluation(EngineImpl& engine,
                   const Tokenizer& tokenizer,
                   std::span<const KvMode> modes,
                   const KvEvalOptions& options)
      : engine_(engine), tokenizer_(tokenizer), modes_(modes), options_(options) {
    for (const KvMode& mode : modes) report_.modes.push_back({.mode = mode.name});
  }

  Status run(const PromptSet& prompts, std::int64_t length);
  KvNeedleReport report() && { return std::move(report_); }

 private:
  // The replies of the reference, and of each mode.
  Result<Report> run_prompt(const EvalPrompt& prompt);
  Status add_prompt(const EvalPrompt& prompt, std::int64_t index);
  Result<std::vector<TokenId>> reply(const KvMode& mode, const EvalPrompt& prompt);
  bool found(const std::vector<TokenId>& ids, const std::string& answer) const {
    return contains_whole(tokenizer_.decode(ids), answer);
  }

  EngineImpl& engine_;
  const Tokenizer& tokenizer_;
  std::span<const KvMode> modes_;
  const KvEvalOptions& options_;
  KvNeedleReport report_;
  std::int64_t done_ = 0;
};

Status NeedleEvaluation::run(const PromptSet& prompts, std::int64_t length) {
  report_.set = prompts.name;
  report_.length = length;
  report_.prompts = static_cast<std::int64_t>(prompts.prompts.size());
  for (const EvalPrompt& prompt : prompts.prompts) {
    report_.prompt_tokens += static_cast<std::int64_t>(prompt.ids.size());
    if (const Status ran = add_prompt(prompt, &prompt - prompts.prompts.data()); !ran) {
      return Unexpected(ran.error().with_context(prompts.name + " " + prompt.id));
    }
  }
  return {};
}

Status NeedleEvaluation::add_prompt(const EvalPrompt& prompt, std::int64_t index) {
  Report part = part_of(report_.set, index, prompt.ids);
  part["answer"] = prompt.answer;
  KAKEYA_ASSIGN_OR_RETURN(const Report result, PartJournal::result(options_.journal, part, [&] {
                            return run_prompt(prompt);
                          }));
  bool reference_found = false;
  KAKEYA_TRY(
      FieldReader(result).take("reference_found", reference_found).status("replies to a prompt"));
  report_.reference_found += reference_found ? 1 : 0;
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Report> modes, modes_of(result, modes_.size()));
  for (std::size_t i = 0; i < modes.size(); ++i) {
    bool finds = false;
    bool same = false;
    KAKEYA_TRY(FieldReader(modes[i])
                   .take("found", finds)
                   .take("same_output", same)
                   .status("a mode's reply"));
    report_.modes[i].found += finds ? 1 : 0;
    report_.modes[i].same_output += same ? 1 : 0;
  }
  const std::int64_t ways = 1 + std::ssize(modes_);
  if (done_ == ways * (index + 1)) return {};  // it ran
  done_ = ways * (index + 1);
  if (options_.on_progress) options_.on_progress(done_, report_.prompts * ways);
  return {};
}

Result<Report> NeedleEvaluation::run_prompt(const EvalPrompt& prompt) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenId> expected,
                          reply({.name = "reference", .session = options_.reference}, prompt));
  Report json = {{"reference_found", found(expected, prompt.answer)}, {"modes", Report::array()}};
  for (const KvMode& mode : modes_) {
    const auto ids = reply(mode, prompt);
    if (!ids) return Unexpected(ids.error().with_context(mode.name));
    json["modes"].push_back(
        {{"found", found(*ids, prompt.answer)}, {"same_output", *ids == expected}});
  }
  return json;
}

Result<std::vector<TokenId>> NeedleEvaluation::reply(const KvMode& mode, const EvalPrompt& prompt) {
  const std::int64_t context =
      static_cast<std::int64_t>(prompt.ids.size()) + options_.needle_tokens;
  KAKEYA_ASSIGN_OR_RETURN(const auto created,
                          engine_.create_session(with_size(mode.session, context, options_.chunk),
                                                 {.projection = find_projection(options_, mode),
                                                  .comparison = mode.comparison}));
  KAKEYA_TRY(created->append(prompt.ids));
  KAKEYA_ASSIGN_OR_RETURN(
      GenerateResult result,
      created->generate({.max_tokens = options_.needle_tokens, .draft_length = 0}));
  ++done_;
  const std::int64_t ways = 1 + static_cast<std::int64_t>(modes_.size());
  if (options_.on_progress) options_.on_progress(done_, report_.prompts * ways);
  return std::move(result.ids);
}

}  // namespace

const Projection* find_projection(const KvEvalOptions& options, const KvMode& mode) {
  const auto found = options.projections.find(mode.projection);
  return found == options.projections.end() ? nullptr : found->second.get();
}

KvBytes kv_bytes(const Footprint& footprint) {
  return {.full = footprint.reserved_bytes(MemoryClass::kKvFull),
          .sliding = footprint.reserved_bytes(MemoryClass::kKvSliding),
          .codes = footprint.reserved_bytes(MemoryClass::kCodes)};
}

Result<double> kv_bytes_per_token(const EngineImpl& engine,
                                  const KvMode& mode,
                                  std::int64_t chunk,
                                  const Projection* projection) {
  const std::int64_t longer = std::min(kLongContext, engine.max_context());
  const std::int64_t shorter = std::max<std::int64_t>(1, longer / 2);
  if (shorter == longer) return 0.0;
  const auto planned = [&](std::int64_t context) -> Result<std::uint64_t> {
    KAKEYA_ASSIGN_OR_RETURN(const TimelinePlan plan,
                            engine.plan_session(with_size(mode.session, context, chunk),
                                                /*logit_rows=*/1, projection, mode.comparison));
    return kv_bytes(plan.cache.estimate()).total();
  };
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t more, planned(longer));
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t less, planned(shorter));
  return (static_cast<double>(more) - static_cast<double>(less)) /
         static_cast<double>(longer - shorter);
}

Result<PromptSet> cut_texts(const PromptSet& texts, std::int64_t length) {
  const auto size = static_cast<std::size_t>(length);
  PromptSet cut{.name = texts.name, .prompts = {}};
  std::size_t longest = 0;
  for (const EvalPrompt& text : texts.prompts) {
    longest = std::max(longest, text.ids.size());
    if (text.ids.size() < size) continue;
    cut.prompts.push_back(text);
    cut.prompts.back().ids.resize(size);
  }
  if (cut.prompts.empty()) {
    return invalid_argument("{}: expected texts of {} tokens, the longest has {}", texts.name,
                            length, longest);
  }
  return cut;
}

Result<KvTextReport> evaluate_kv_texts(EngineImpl& engine,
                                       std::span<const KvMode> modes,
                                       const PromptSet& texts,
                                       std::int64_t length,
                                       const KvEvalOptions& options) {
  if (length < 2) return invalid_argument("length must be at least 2 but is {}", length);
  if (options.chunk < 1)
    return invalid_argument("chunk must be at least 1 but is {}", options.chunk);
  TextEvaluation evaluation(engine, modes, length, options);
  KAKEYA_TRY(evaluation.run(texts));
  return std::move(evaluation).report();
}

Result<KvNeedleReport> evaluate_kv_needles(EngineImpl& engine,
                                           std::span<const KvMode> modes,
                                           const PromptSet& prompts,
                                           std::int64_t length,
                                           const KvEvalOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  NeedleEvaluation evaluation(engine, *tokenizer, modes, options);
  KAKEYA_TRY(evaluation.run(prompts, length));
  return std::move(evaluation).report();
}

}  // namespace kakeya::eval
