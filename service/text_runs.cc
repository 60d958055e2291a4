#include "service/text_runs.h"

#include <utility>

#include "service/mailbox.h"

namespace kakeya::service {
namespace {

// The most texts of one client that have or want a place in the scheduler.
constexpr std::size_t kMostAtOnce = 8;

}  // namespace

// A text that the driver has.
struct TextRuns::Running {
  std::size_t index = 0;
  std::shared_ptr<Mailbox> mailbox = {};
  std::shared_ptr<TextResult> result = {};  // there when the mailbox has the end
  std::unique_ptr<Ticket> ticket = {};
};

TextRuns::TextRuns(Driver& driver, std::vector<Request> texts, std::function<void()> wake)
    : driver_(driver), texts_(std::move(texts)), wake_(std::move(wake)), results_(texts_.size()) {}

TextRuns::~TextRuns() = default;

Outcome<bool> TextRuns::advance() {
  if (auto taken = take(); !taken) return tl::unexpected(std::move(taken).error());
  if (auto submitted = submit(); !submitted) return tl::unexpected(std::move(submitted).error());
  return next_ == texts_.size() && running_.empty();
}

Outcome<void> TextRuns::take() {
  for (Running& text : running_) {
    const Mail mail = text.mailbox->take();
    if (!mail.end) continue;
    if (!mail.end->has_value()) return tl::unexpected(refusal_of(mail.end->error()));
    results_[text.index] = std::move(*text.result);
    text.ticket.reset();
  }
  std::erase_if(running_, [](const Running& text) { return text.ticket == nullptr; });
  return {};
}

Outcome<void> TextRuns::submit() {
  while (next_ < texts_.size() && running_.size() < kMostAtOnce) {
    Running text = {.index = next_,
                    .mailbox = std::make_shared<Mailbox>(1, wake_),
                    .result = std::make_shared<TextResult>()};
    const auto id = driver_.submit(texts_[next_], text.mailbox,
                                   [result = text.result](const RequestResult& of) {
                                     result->embedding = of.embedding;
                                     result->scores = of.scores;
                                   });
    // A full queue may have room when one of these has ended.
    const bool full = !id && id.error().code() == StatusCode::kResourceExhausted;
    if (full && !running_.empty()) break;
    if (!id) return tl::unexpected(refusal_of(id.error()));
    text.ticket = std::make_unique<Ticket>(driver_, *id, text.mailbox);
    running_.push_back(std::move(text));
    ++next_;
  }
  return {};
}

}  // namespace kakeya::service
