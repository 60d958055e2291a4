#include "service/grammar/grammar_constraint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/token_mask.h"

namespace kakeya::service {
namespace {

// A token and its mask within this are made where they are asked for.
constexpr double kQuickSeconds = 0.002;
constexpr double kMostMaskSeconds = 0.5;

// Longer texts than this are more tokens than a block has.
constexpr std::size_t kMostLikelyBytes = 128;
// How far back an answer is asked for its spacing.
constexpr std::size_t kLookedAt = 512;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t';
}
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The spacing that came the last time behind `c`; nothing if it did not come yet.
std::optional<std::string> spacing_behind(char c, std::string_view text) {
  text = text.substr(text.size() - std::min(text.size(), kLookedAt));
  for (std::size_t i = text.size(); i-- > 1;) {
    if (text[i - 1] != c) continue;
    std::size_t end = i;
    while (end < text.size() && is_space(text[end])) ++end;
    return std::string(text.substr(i, end - i));
  }
  return std::nullopt;
}

// The text that comes next where nothing else could, but for spacing, which goes on as it was
// before, and for a quote that begins a key or a value.
std::string likely_text(xgrammar::GrammarMatcher& matcher, std::string_view before) {
  const ThreadTime time;
  std::string text;
  int steps = 0;
  const auto take = [&](const std::string& more) {
    if (more.empty() || !matcher.AcceptString(more)) return false;
    text += more;
    ++steps;
    return true;
  };
  while (text.size() < kMostLikelyBytes && time.seconds() < kQuickSeconds) {
    if (take(matcher.FindJumpForwardString())) continue;
    const char last = !text.empty() ? text.back() : before.empty() ? '\0' : before.back();
    if (std::string_view("{[,:").find(last) == std::string_view::npos) break;
    const auto spacing = spacing_behind(last, before);
    if (!spacing) break;
    take(*spacing);
    if (!take(matcher.FindJumpForwardString()) && !take("\"")) break;
  }
  if (steps > 0) matcher.Rollback(steps);
  return text;
}

}  // namespace

bool GrammarConstraint::Matching::fill(std::span<std::uint32_t> out) {
  auto words = static_cast<std::int64_t>(out.size());
  DLTensor tensor = {};
  tensor.data = out.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = xgrammar::GetBitmaskDLType();
  tensor.shape = &words;
  return matcher.FillNextTokenBitmask(&tensor);
}

void GrammarConstraint::Matching::go_on(TokenId id, bool ends) {
  const ThreadTime time;
  try {
    if (!matcher.AcceptToken(id)) failure = "the engine refuses a token that it allowed";
    std::ranges::fill(mask, 0U);
    if (failure.empty() && !ends) masks = fill(mask);
  } catch (const std::exception&) {
    failure = "the engine has failed";  // its own words name its sources
  }
  seconds = time.seconds();
}

GrammarConstraint::GrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                                     std::optional<ThoughtMarkers> markers,
                                     bool in_thought,
                                     std::int64_t vocab_size,
                                     std::shared_ptr<BackgroundWorker> worker,
                                     const Tokenizer* tokenizer)
    : matching_(std::make_shared<Matching>(grammar)),
      stop_ids_(matching_->matcher.GetStopTokenIds()),
      markers_(std::move(markers)),
      vocab_size_(vocab_size),
      worker_(std::move(worker)),
      tokenizer_(tokenizer),
      phases_{in_thought ? Phase::kThought : Phase::kBefore} {}

GrammarConstraint::~GrammarConstraint() {
  const std::lock_guard lock(matching_->mutex);
  matching_->left = true;
}

bool GrammarConstraint::is_stop_id(TokenId id) const {
  return std::ranges::find(stop_ids_, id) != stop_ids_.end();
}

bool GrammarConstraint::is_line_end(TokenId id) const {
  return std::ranges::find(markers_->line_ends, id) != markers_->line_ends.end();
}

void GrammarConstraint::wait() {
  {
    std::unique_lock lock(matching_->mutex);
    matching_->done.wait(lock, [this] { return !matching_->busy; });
  }
  if (!matching_->failure.empty()) {
    throw Error(StatusCode::kInternal, "grammar: " + matching_->failure);
  }
  if (worker_ == nullptr || matching_->seconds <= kMostMaskSeconds) return;
  throw Error(StatusCode::kInvalidArgument,
              fmt::format("the form: expected masks of at most {} s, got one that took {:.1f} s",
                          kMostMaskSeconds, matching_->seconds));
}

Constraint::Pace GrammarConstraint::pace() {
  const Phase phase = phases_.back();
  if (phase == Phase::kEnded || phase == Phase::kThought) return Pace::kAtOnce;
  const std::lock_guard lock(matching_->mutex);
  if (matching_->busy) return Pace::kNotYet;
  return matching_->seconds > kQuickSeconds ? Pace::kSlowly : Pace::kAtOnce;
}

bool GrammarConstraint::fill(std::span<std::uint32_t> mask) {
  wait();
  if (has_mask_) {
    std::ranges::copy(matching_->mask, mask.begin());
    return matching_->masks;
  }
  const ThreadTime time;
  matching_->masks = matching_->fill(mask);
  matching_->seconds = taking_seconds_ + time.seconds();
  // Kept where the token that is chosen by it goes to the worker.
  has_mask_ = worker_ != nullptr && matching_->seconds > kQuickSeconds;
  if (has_mask_) matching_->mask.assign(mask.begin(), mask.end());
  return matching_->masks;
}

bool GrammarConstraint::take(TokenId id) {
  wait();
  if (std::exchange(has_mask_, false) && matching_->seconds > kQuickSeconds) {
    if (matching_->masks && !is_allowed(matching_->mask, static_cast<std::size_t>(id))) {
      has_mask_ = true;
      return false;
    }
    matching_->busy = has_mask_ = true;
    worker_->post([matching = matching_, id, ends = is_stop_id(id)] {
      const bool left = [&] {
        const std::lock_guard lock(matching->mutex);
        return matching->left;
      }();
      if (!left) matching->go_on(id, ends);
      const std::lock_guard lock(matching->mutex);
      matching->busy = false;
      matching->done.notify_all();
    });
    return true;
  }
  const ThreadTime time;
  const bool taken = matching_->matcher.AcceptToken(id);
  matching_->seconds = taking_seconds_ = time.seconds();
  return taken;
}

bool GrammarConstraint::fill_mask(std::span<std::uint32_t> mask) {
  const Phase phase = phases_.back();
  if (phase == Phase::kEnded) return false;
  if (phase == Phase::kThought) {
    // An answer that ended here would have none of what was asked for.
    std::ranges::fill(mask, ~std::uint32_t{0});
    for (const int id : stop_ids_) set_allowed(mask, id, false);
    return true;
  }
  const bool masked = fill(mask);
  if (!masked || !markers_ || phase == Phase::kAnswer) return masked;
  set_allowed(mask, markers_->begin, true);
  if (phase == Phase::kBehindThought) {
    for (const TokenId id : markers_->line_ends) set_allowed(mask, id, true);
  }
  return true;
}

// Where thoughts may begin there is a choice.
std::int64_t GrammarConstraint::propose(std::span<TokenId> out) {
  const Phase phase = phases_.back();
  const bool is_answer = phase == Phase::kAnswer || (phase == Phase::kBefore && !markers_);
  if (!is_answer || tokenizer_ == nullptr || proposes_slowly_) return 0;
  wait();
  const ThreadTime time;
  const std::string text = likely_text(matching_->matcher, text_);
  const auto ids = tokenizer_->encode(text, {.parse_special = false});
  proposes_slowly_ = time.seconds() > kQuickSeconds;
  if (!ids || ids->empty()) return 0;
  // A tokenizer that puts a space in front of texts says something else.
  if (!text.starts_with(tokenizer_->token_bytes(ids->front()))) return 0;
  // The last word or space may go on, and be divided in another way then.
  const std::size_t whole = ids->size() - (is_word(text.back()) || is_space(text.back()) ? 1 : 0);
  const auto count = std::min(whole, out.size());
  std::copy_n(ids->begin(), count, out.begin());
  return static_cast<std::int64_t>(count);
}

bool GrammarConstraint::advance(TokenId id) {
  if (id < 0 || id >= vocab_size_) return false;
  Phase phase = phases_.back();
  if (phase == Phase::kThought) {
    if (is_stop_id(id)) return false;
    if (id == markers_->end) phase = Phase::kBehindThought;
  } else if (markers_ && id == markers_->begin && phase != Phase::kAnswer &&
             phase != Phase::kEnded) {
    phase = Phase::kThought;
  } else if (phase == Phase::kBehindThought && is_line_end(id)) {
    phase = Phase::kBefore;
  } else if (phase != Phase::kEnded) {
    if (!take(id)) return false;
    phase = is_stop_id(id) ? Phase::kEnded : Phase::kAnswer;
    if (tokenizer_ != nullptr) {
      sizes_.push_back(text_.size());
      if (phase == Phase::kAnswer) text_ += tokenizer_->token_bytes(id);
    }
  }
  phases_.push_back(phase);
  return true;
}

void GrammarConstraint::roll_back(std::int64_t count) {
  for (; count > 0; --count) {
    const Phase after = phases_.back();
    phases_.pop_back();
    const bool was_told =
        after == Phase::kAnswer || (after == Phase::kEnded && phases_.back() != Phase::kEnded);
    if (!was_told) continue;
    wait();
    matching_->matcher.Rollback(1);
    has_mask_ = false;
    if (tokenizer_ == nullptr) continue;
    text_.resize(sizes_.back());
    sizes_.pop_back();
  }
}

}  // namespace kakeya::service
