#include "service/request_rules.h"

#include <algorithm>
#include <utility>

#include "base/token_mask.h"

namespace kakeya::service {
namespace {

class RuleConstraint final : public Constraint {
 public:
  RuleConstraint(TokenRules rules, std::int64_t vocab_size)
      : rules_(std::move(rules)), vocab_size_(vocab_size) {}

  bool fill_mask(std::span<std::uint32_t> mask) override {
    const bool may_stop = generated_ >= rules_.min_tokens;
    if (rules_.allowed_ids.empty()) {
      if (may_stop) return false;
      std::ranges::fill(mask, ~std::uint32_t{0});
    }
    for (const TokenId id : rules_.allowed_ids) set(mask, id, true);
    if (may_stop) return true;
    for (const TokenId id : rules_.stop_ids) set(mask, id, false);
    return true;
  }

  bool advance(TokenId id) override {
    const auto is = [id](const std::vector<TokenId>& ids) {
      return std::ranges::find(ids, id) != ids.end();
    };
    if (!rules_.allowed_ids.empty() && !is(rules_.allowed_ids)) return false;
    if (generated_ < rules_.min_tokens && is(rules_.stop_ids)) return false;
    ++generated_;
    return true;
  }

  void roll_back(std::int64_t count) override { generated_ -= count; }

 private:
  void set(std::span<std::uint32_t> mask, TokenId id, bool allowed) const {
    if (id >= 0 && id < vocab_size_) set_allowed(mask, id, allowed);
  }

  const TokenRules rules_;
  const std::int64_t vocab_size_;
  std::int64_t generated_ = 0;
};

}  // namespace

std::shared_ptr<Constraint> make_constraint(TokenRules rules, std::int64_t vocab_size) {
  if (rules.min_tokens <= 0 && rules.allowed_ids.empty()) return nullptr;
  return std::make_shared<RuleConstraint>(std::move(rules), vocab_size);
}

}  // namespace kakeya::service
