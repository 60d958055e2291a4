// The heat map of `kakeya eval niah`, written as text: it is a table of rectangles.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "eval/niah/niah_report.h"
#include "eval/report/markup.h"

namespace kakeya::cli {
namespace {

// In pixels.
constexpr int kCell = 62;
constexpr int kCellHeight = 34;
constexpr int kLeft = 84;  // of a panel, for its depths
constexpr int kTop = 64;
constexpr int kBottom = 56;
constexpr int kLegend = 120;
constexpr int kFoot = 24;
constexpr int kPanelsAcross = 3;

struct Colour {
  double red = 0.0;
  double green = 0.0;
  double blue = 0.0;
};

// Points of Nunez, Anderton and Renslow's cividis (2018): lightness grows evenly, and people who
// see fewer colours see the same order.
constexpr std::array<Colour, 5> kCividis = {
    {{0, 34, 78}, {66, 78, 108}, {124, 123, 120}, {188, 174, 108}, {254, 232, 56}}};

std::string colour_of(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (kCividis.size() - 1);
  const auto low = std::min(static_cast<std::size_t>(place), kCividis.size() - 2);
  const double part = place - static_cast<double>(low);
  const auto mixed = [&](double Colour::*channel) {
    return static_cast<int>(
        std::lround((1.0 - part) * kCividis[low].*channel + part * kCividis[low + 1].*channel));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(&Colour::red), mixed(&Colour::green),
                     mixed(&Colour::blue));
}

std::string text_at(int x, int y, const std::string& text, const std::string& more = "") {
  return fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", x, y, more.empty() ? "" : " " + more,
                     eval::escape_markup(text));
}

// Where a panel is drawn.
struct Corner {
  int left = 0;
  int top = 0;
};

std::string panel(const NiahReport& report, std::size_t mode, Corner corner) {
  const int width = kCell * static_cast<int>(report.lengths.size());
  const int height = kCellHeight * static_cast<int>(report.depths.size());
  const auto [left, top] = corner;
  std::string svg = text_at(left + width / 2, top - 12, report.modes[mode], "class=\"title\"");
  for (std::size_t row = 0; row < report.depths.size(); ++row) {
    const int y = top + kCellHeight * static_cast<int>(row);
    svg += text_at(left - 8, y + kCellHeight / 2 + 5, fmt::format("{}", report.depths[row]),
                   "style=\"text-anchor: end\"");
    for (std::size_t column = 0; column < report.lengths.size(); ++column) {
      const int x = left + kCell * static_cast<int>(column);
      const NiahCell cell = niah_cell(report, mode, report.lengths[column], report.depths[row]);
      svg += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"white\"/>\n", x,
          y, kCell, kCellHeight, colour_of(cell.share()));
      svg += text_at(x + kCell / 2, y + kCellHeight / 2 + 5,
                     fmt::format("{}/{}", cell.found, cell.samples),
                     cell.share() > 0.6 ? "fill=\"#000000\"" : "fill=\"#ffffff\"");
    }
  }
  for (std::size_t column = 0; column < report.lengths.size(); ++column) {
    svg += text_at(left + kCell * static_cast<int>(column) + kCell / 2, top + height + 18,
                   fmt::format("{}", report.lengths[column]));
  }
  svg += text_at(left + width / 2, top + height + 40, "prompt (tokens)");
  return svg + text_at(left - 48, top + height / 2, "depth of the needle (%)",
                       fmt::format("transform=\"rotate(-90 {} {})\"", left - 48, top + height / 2));
}

std::string legend(int left, int height) {
  constexpr int kSteps = 20;
  std::string svg = text_at(left + 16, kTop - 12, "share found");
  for (int step = 0; step < kSteps; ++step) {
    const int y = kTop + height * step / kSteps;
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"18\" height=\"{}\" fill=\"{}\"/>\n", left,
                       y, kTop + height * (step + 1) / kSteps - y,
                       colour_of(1.0 - (step + 0.5) / kSteps));
  }
  return svg + text_at(left + 32, kTop + 10, "1") + text_at(left + 32, kTop + height, "0");
}

}  // namespace

std::string niah_svg(const NiahReport& report, const std::string& model) {
  const int modes = static_cast<int>(report.modes.size());
  const int columns = std::min(modes, kPanelsAcross);
  const int rows = (modes + columns - 1) / columns;
  const int panel_width = kLeft + kCell * static_cast<int>(report.lengths.size());
  const int cells_height = kCellHeight * static_cast<int>(report.depths.size());
  const int panel_height = kTop + cells_height + kBottom;
  const int width = columns * panel_width + kLegend;
  const int height = rows * panel_height + kFoot;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\">\n<style>text {{ font: 13px sans-serif; text-anchor: middle; }} .title {{ "
      "font-weight: "
      "bold; }}</style>\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      width, height);
  svg += text_at(width / 2, 22,
                 "Needles found, by prompt length and depth, for ways of keeping the KV cache");
  for (int mode = 0; mode < modes; ++mode) {
    svg += panel(report, static_cast<std::size_t>(mode),
                 {.left = kLeft + mode % columns * panel_width,
                  .top = kTop + mode / columns * panel_height});
  }
  svg += legend(width - kLegend + 40, cells_height);
  return svg + text_at(width / 2, height - 12, model) + "</svg>\n";
}

}  // namespace kakeya::cli
