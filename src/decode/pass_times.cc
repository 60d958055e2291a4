#include "decode/pass_times.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kakeya {
namespace {

constexpr double kMostSlower = 0.1;
constexpr double kMostFaster = 0.4;
// The weights of a pass's news: for all sizes, and for its own size beyond that.
constexpr double kLevel = 0.15;
constexpr double kShape = 0.12;
constexpr double kFirstShape = 0.6;
constexpr int kHardlySeen = 3;

}  // namespace

PassTimes::PassTimes(double first, double each) {
  for (std::size_t i = 0; i < kNodes.size(); ++i) {
    made_up_.seconds[i] = first + each * static_cast<double>(kNodes[i]);
  }
}

std::size_t PassTimes::node_of(std::int64_t size) {
  return static_cast<std::size_t>(std::lower_bound(kNodes.begin(), kNodes.end() - 1, size) -
                                  kNodes.begin());
}

std::size_t PassTimes::index_of(Position context) {
  const auto shorts = static_cast<std::uint64_t>(std::max<Position>(context, 0) / kShortContext);
  return std::min(static_cast<std::size_t>(std::bit_width(shorts)), kContexts - 1);
}

double PassTimes::at(const Table& table, std::int64_t size) {
  if (size > kNodes.back()) {
    return table.seconds.back() * static_cast<double>(size) / static_cast<double>(kNodes.back());
  }
  const std::size_t i = std::max<std::size_t>(node_of(size), 1);
  const auto width = static_cast<double>(kNodes[i] - kNodes[i - 1]);
  const double share = static_cast<double>(size - kNodes[i - 1]) / width;
  return table.seconds[i - 1] + share * (table.seconds[i] - table.seconds[i - 1]);
}

const PassTimes::Table& PassTimes::nearest(std::size_t context) const {
  for (std::size_t away = 0; away < kContexts; ++away) {
    if (context >= away && contexts_[context - away].known) return contexts_[context - away];
    if (context + away < kContexts && contexts_[context + away].known) {
      return contexts_[context + away];
    }
  }
  return made_up_;
}

double PassTimes::at(std::int64_t size, Position context) const {
  return at(nearest(index_of(context)), size);
}

int PassTimes::seen(std::int64_t size, Position context) const {
  return contexts_[index_of(context)].seen[node_of(size)];
}

void PassTimes::scale(double factor) {
  for (double& seconds : made_up_.seconds) seconds *= factor;
  for (Table& table : contexts_) {
    for (double& seconds : table.seconds) seconds *= factor;
  }
}

double PassTimes::learn(std::int64_t size, Position context, double seconds) {
  double moved = 1.0;
  if (!known_) {
    moved = seconds / at(made_up_, size);
    scale(moved);
    known_ = true;
  }
  const std::size_t index = index_of(context);
  Table& own = contexts_[index];
  if (!own.known) {
    own = {.known = true, .seconds = nearest(index).seconds};
  }
  int& seen = own.seen[node_of(size)];
  // The first passes of a size say more of it than what was thought before, and nothing of others.
  const bool is_new = seen < kHardlySeen;
  const double most_slower = is_new ? kMostFaster : kMostSlower;
  const double shape = std::max(kShape, kFirstShape / (1.0 + seen));
  seen = std::min(seen + 1, 1000);
  const double news = std::clamp(std::log(seconds / at(own, size)), -kMostFaster, most_slower);
  for (std::size_t i = 0; i < kNodes.size(); ++i) {
    const double away =
        std::abs(std::log2(static_cast<double>(kNodes[i]) / static_cast<double>(size)));
    own.seconds[i] *= std::exp(news * shape * std::exp(-away));
  }
  const double level = std::exp(news * kLevel);
  if (is_new) {
    for (double& each : own.seconds) each *= level;
    return moved;
  }
  scale(level);
  return moved * level;
}

}  // namespace kakeya
