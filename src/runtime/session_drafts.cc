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
    return DraftChoice{.ngram = true, .drafter_dir = is_model(own) ? own : std::string()};
  }
  constexpr std::string_view kWithNgrams = "ngram+";
  const bool ngram = source.starts_with(kWithNgrams);
  DraftChoice choice{.ngram = ngram, .drafter_dir = source.substr(ngram ? kWithNgrams.size() : 0)};
  if (is_model(choice.drafter_dir)) return choice;
  return error(StatusCode::kNotFound,
               "DraftOptions::source: {} holds no drafter (config.json); expected auto, none, "
               "ngram, a drafter's folder or GGUF file, or ngram+ before one",
               choice.drafter_dir.empty() ? "\"\"" : choice.drafter_dir);
}

SessionDrafts::SessionDrafts(std::unique_ptr<DflashSource> dflash, bool ngram)
    : dflash_(std::move(dflash)) {
  if (ngram) {
    sources_[count_++] = &form_;
    sources_[count_++] = &ngram_.emplace(kNgramLength);
  }
  if (dflash_ != nullptr) sources_[count_++] = dflash_.get();
}

std::unique_ptr<SessionDrafts> SessionDrafts::fork() {
  auto copy = std::make_unique<SessionDrafts>(dflash_ == nullptr ? nullptr : dflash_->fork(),
                                              ngram_.has_value());
  if (wrapper_) copy->wrap(wrapper_);
  return copy;
}

void SessionDrafts::wrap(const DraftWrapper& wrapper) {
  wrapper_ = wrapper;
  for (std::size_t i = 0; i < count_; ++i) {
    wrapped_[i] = wrapper_(*sources_[i]);
    sources_[i] = wrapped_[i].get();
  }
}

}  // namespace kakeya
