#include "service/mailbox.h"

#include <utility>

namespace kakeya::service {

Mailbox::Mailbox(std::size_t most_tokens, std::function<void()> wake)
    : most_tokens_(most_tokens), wake_(std::move(wake)) {}

bool Mailbox::put(GeneratedToken token) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_ || overflowed_) return false;
  if (mail_.tokens.size() >= most_tokens_) {
    overflowed_ = true;
    return false;
  }
  mail_.tokens.push_back(std::move(token));
  if (mail_.tokens.size() == 1 && wake_) wake_();
  return true;
}

void Mailbox::put_cached(std::int64_t tokens) {
  const std::lock_guard lock(mutex_);
  cached_ = tokens;
}

std::int64_t Mailbox::cached() const {
  const std::lock_guard lock(mutex_);
  return cached_;
}

void Mailbox::end(RequestEnd end) {
  const std::lock_guard lock(mutex_);
  if (closed_ || ended_) return;
  ended_ = true;
  mail_.end = std::move(end);
  if (wake_) wake_();
}

Mail Mailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(mail_, {});
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  wake_ = {};
}

bool Mailbox::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

}  // namespace kakeya::service
