#include "eval/report/claim_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "eval/report/markup.h"

namespace kakeya::eval {
namespace {

// In pixels.
constexpr double kWidth = 760;
constexpr double kLeft = 230;   // of the axis, for names
constexpr double kRight = 150;  // for numbers
constexpr double kRow = 26;
constexpr double kBar = 12;
constexpr double kTop = 6;
constexpr double kAxis = 44;  // below the rows

// Where values stand on the axis.
class Scale {
 public:
  explicit Scale(const ClaimGroup& group) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0.0;
    const auto see = [&](double value) {
      if (!std::isfinite(value) || value <= 0.0) return;
      least = std::min(least, value);
      most = std::max(most, value);
    };
    for (const Claim& claim : group.claims) {
      see(claim.value);
      if (claim.interval) see(claim.interval->second);
      for (const double sample : claim.samples) see(sample);
    }
    if (group.reference) see(*group.reference);
    if (most <= 0.0) most = 1.0;
    logarithmic_ = most > 200.0 * least;
    high_ = most;
    low_ = logarithmic_ ? std::pow(10.0, std::floor(std::log10(least))) : 0.0;
  }

  bool is_logarithmic() const { return logarithmic_; }

  double x(double value) const {
    const double part = logarithmic_
                            ? std::log(std::max(value, low_) / low_) / std::log(high_ / low_)
                            : (value - low_) / (high_ - low_);
    return kLeft + std::clamp(part, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }

  // Round numbers.
  std::vector<double> ticks() const {
    std::vector<double> at;
    if (logarithmic_) {
      for (double tick = low_; tick <= high_ * 1.0001; tick *= 10.0) at.push_back(tick);
      return at;
    }
    const double rough = high_ / 4.0;
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    double step = 10.0 * power;
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (factor * power >= rough) step = factor * power;
    }
    for (int i = 0; i * step <= high_ * 1.0001; ++i) at.push_back(i * step);
    return at;
  }

 private:
  bool logarithmic_ = false;
  double low_ = 0.0;
  double high_ = 1.0;
};

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     escape_markup(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                     x1, y1, x2, y2, kind);
}

std::string row_of(const Claim& claim, const Scale& scale, double top) {
  const double middle = top + kRow / 2;
  std::string svg = text_at(kLeft - 8, middle + 4, "end", claim.name);
  std::string said = claim_number(claim.value);
  if (std::isfinite(claim.value)) {
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" class=\"bar\"/>", kLeft,
        middle - kBar / 2, scale.x(claim.value) - kLeft, kBar);
  }
  if (claim.interval) {
    const auto [low, high] = *claim.interval;
    said += fmt::format(" ({} - {})", claim_number(low), claim_number(high));
    svg += line(scale.x(low), middle, scale.x(high), middle, "whisker");
    for (const double end : {low, high}) {
      svg += line(scale.x(end), middle - 4, scale.x(end), middle + 4, "whisker");
    }
  }
  for (const double sample : claim.samples) {
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" class=\"dot\"/>",
                       scale.x(sample), middle);
  }
  return svg + text_at(kWidth - kRight + 10, middle + 4, "start", said) + "\n";
}

}  // namespace

std::string claim_number(double value) {
  const double size = std::abs(value);
  if (size == 0.0) return "0";
  if (!std::isfinite(value)) return "none";
  if (size < 0.001) return fmt::format("{:.1e}", value);
  const int digits = size >= 100.0 ? 0 : size >= 10.0 ? 1 : size >= 1.0 ? 2 : size >= 0.1 ? 3 : 5;
  return fmt::format("{:.{}f}", value, digits);
}

std::string claim_chart(const ClaimGroup& group) {
  const Scale scale(group);
  const double bottom = kTop + kRow * static_cast<double>(group.claims.size());
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\" aria-label=\"{2}\">\n",
                  kWidth, bottom + kAxis, escape_markup(group.title));
  for (const double tick : scale.ticks()) {
    const double x = scale.x(tick);
    svg += line(x, kTop, x, bottom, "axis");
    svg += text_at(x, bottom + 16, "middle", fmt::format("{:.6g}", tick));
  }
  for (std::size_t i = 0; i < group.claims.size(); ++i) {
    svg += row_of(group.claims[i], scale, kTop + kRow * static_cast<double>(i));
  }
  if (group.reference) {
    const double x = scale.x(*group.reference);
    svg += line(x, kTop - 4, x, bottom, "reference");
  }
  const char* better = group.better == Better::kMore   ? ", more is better"
                       : group.better == Better::kLess ? ", less is better"
                                                       : "";
  svg += text_at((kLeft + kWidth - kRight) / 2, bottom + 36, "middle",
                 group.unit + better + (scale.is_logarithmic() ? " (logarithmic)" : ""));
  return svg + "</svg>\n";
}

}  // namespace kakeya::eval
