#include "runtime/session_drafts.h"

#include <filesystem>
#include <utility>

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

SessionDrafts::SessionDrafts(std::unique_ptr<DflashSource> dflash, bool ngram)
    : dflash_(std::move(dflash)), source_(dflash_.get()) {
  if (!ngram) return;
  ngram_.emplace(dflash_ != nullptr ? dflash_->max_length() : kNgramLength);
  source_ = &*ngram_;
  if (dflash_ == nullptr) return;
  chain_.emplace(*ngram_, *dflash_);
  source_ = &*chain_;
}

std::unique_ptr<SessionDrafts> SessionDrafts::fork() {
  auto copy = std::make_unique<SessionDrafts>(dflash_ == nullptr ? nullptr : dflash_->fork(),
                                              ngram_.has_value());
  if (wrapper_) copy->wrap(wrapper_);
  return copy;
}

void SessionDrafts::wrap(const DraftWrapper& wrapper) {
  wrapper_ = wrapper;
  wrapped_ = wrapper_(*source_);
  source_ = wrapped_.get();
}

}  // namespace kakeya
