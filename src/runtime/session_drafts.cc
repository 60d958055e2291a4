#include "runtime/session_drafts.h"

#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "formats/gguf_checkpoint.h"

namespace kakeya {
namespace {

// A folder of a model, or a GGUF file.
bool is_model(const std::filesystem::path& path) {
  std::error_code ignored;  // an unreadable folder holds no drafter
  if (std::filesystem::exists(path / "config.json", ignored)) return true;
  return is_gguf_path(path) && std::filesystem::exists(path, ignored);
}

}  // namespace

Result<DraftChoice> resolve_draft_choice(const std::string& source, const std::string& model_dir) {
  const std::string own = std::filesystem::path(model_dir) / "drafter";
  if (source == "none") return DraftChoice{};
  if (source == "ngram") return DraftChoice{.ngram = true, .drafter_dir = {}};
  if (source == "auto") {
    return DraftChoice{.ngram = false, .drafter_dir = is_model(own) ? own : std::string()};
  }
  constexpr std::string_view kChain = "ngram+";
  DraftChoice choice{.ngram = source == "chain" || source.starts_with(kChain),
                     .drafter_dir = source};
  if (source == "chain") choice.drafter_dir = own;
  if (source.starts_with(kChain)) choice.drafter_dir = source.substr(kChain.size());
  if (is_model(choice.drafter_dir)) return choice;
  return error(StatusCode::kNotFound,
               "DraftOptions::source: {} holds no drafter (config.json); expected auto, none, "
               "ngram, chain, a drafter's "
               "folder or GGUF file, or ngram+ before one",
               choice.drafter_dir.empty() ? "\"\"" : choice.drafter_dir);
}

std::optional<MeasuredCosts> DraftStatistics::costs(std::int64_t max_length, bool with_drafter) {
  const std::lock_guard lock(mutex_);
  if (!costs_ && !cache_folder_.empty()) {
    if (const auto stored = load_costs(cache_folder_, key_)) {
      costs_ = MeasuredCosts{.verify = stored->verify, .draft = {}};
      if (!stored->draft.empty()) costs_->draft = stored->draft.front();
    }
  }
  const auto length = static_cast<std::size_t>(max_length);
  if (!costs_ || costs_->verify.size() != length + 1) return std::nullopt;
  if (with_drafter && costs_->draft.size() != length) return std::nullopt;
  return costs_;
}

void DraftStatistics::store(const MeasuredCosts& costs) {
  const std::lock_guard lock(mutex_);
  costs_ = costs;
  if (cache_folder_.empty()) return;
  RoundCosts table{.verify = costs.verify, .draft = {}};
  if (!costs.draft.empty()) table.draft.push_back(costs.draft);
  // A folder that cannot be written costs another measurement next time, nothing else.
  static_cast<void>(store_costs(cache_folder_, key_, table));
}

void DraftStatistics::seed(LengthPolicy& policy) {
  const std::lock_guard lock(mutex_);
  if (latest_) policy.seed(*latest_);
}

void DraftStatistics::remember(const LengthPolicy& policy) {
  const std::lock_guard lock(mutex_);
  latest_ = policy;
}

SessionDrafts::SessionDrafts(std::unique_ptr<DflashSource> dflash,
                             bool unfused,
                             bool ngram,
                             DraftStatistics& statistics)
    : dflash_(std::move(dflash)),
      source_(dflash_.get()),
      statistics_(statistics),
      unfused_(unfused) {
  if (!ngram) return;
  ngram_.emplace(dflash_ != nullptr ? dflash_->max_length() : kNgramLength);
  source_ = &*ngram_;
  if (dflash_ == nullptr) return;
  chain_.emplace(*ngram_, *dflash_);
  source_ = &*chain_;
}

std::unique_ptr<SessionDrafts> SessionDrafts::fork() {
  auto copy = std::make_unique<SessionDrafts>(dflash_ == nullptr ? nullptr : dflash_->fork(),
                                              unfused_, ngram_.has_value(), statistics_);
  copy->policy_ = policy_;
  if (wrapper_) copy->wrap(wrapper_);
  return copy;
}

void SessionDrafts::wrap(const DraftWrapper& wrapper) {
  wrapper_ = wrapper;
  wrapped_ = wrapper_(*source_);
  source_ = wrapped_.get();
}

Result<LengthPolicy*> SessionDrafts::policy(Timeline& timeline,
                                            Sampler& sampler,
                                            double& measured_seconds) {
  if (policy_) return &*policy_;
  const std::int64_t most = source_->max_length();
  std::optional<MeasuredCosts> costs = statistics_.costs(most, dflash_ != nullptr);
  if (!costs) {
    if (timeline.context() - timeline.position() < most + 1) return nullptr;
    const Workspace::Turn turn = timeline.workspace().take_turn();
    const Stopwatch watch;
    KAKEYA_TRY(timeline.step_back());
    KAKEYA_ASSIGN_OR_RETURN(costs, measure_round_costs(timeline, sampler, most, dflash_.get()));
    KAKEYA_TRY(timeline.run_pending());
    measured_seconds = watch.seconds();
    statistics_.store(*costs);
  }
  policy_.emplace(costs_of(*source_, *costs));
  statistics_.seed(*policy_);
  return &*policy_;
}

LengthPolicy* SessionDrafts::known_policy() {
  if (policy_) return &*policy_;
  const auto costs = statistics_.costs(source_->max_length(), dflash_ != nullptr);
  if (!costs) return nullptr;
  policy_.emplace(costs_of(*source_, *costs));
  statistics_.seed(*policy_);
  return &*policy_;
}

void SessionDrafts::remember() {
  if (policy_) statistics_.remember(*policy_);
}

}  // namespace kakeya
