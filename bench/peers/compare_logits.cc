// compare_logits: what share of best tokens two engines agree on, and how far their distributions
// are apart; see README.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "logit_agreement.h"

int main(int argc, char** argv) {
  CLI::App app("Compares files of logits with a reference");
  std::string reference;
  std::vector<std::string> others;
  std::int64_t columns = 0;
  bool each = false;
  app.add_option("reference", reference, "Logits to compare with")->required();
  app.add_option("others", others, "Logits of the same tokens")->required();
  app.add_option("--columns", columns, "Size of the vocabulary")->required();
  app.add_flag("--each", each, "Also best token and divergence of each row");
  CLI11_PARSE(app, argc, argv);
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  for (const std::string& other : others) {
    const auto agreement = kakeya::peers::compare_logits(reference, other, columns);
    if (!agreement) {
      fmt::print(stderr, "compare_logits: {}\n", agreement.error().message());
      return 1;
    }
    report.push_back({{"file", other},
                      {"rows", agreement->rows},
                      {"same_top", agreement->same_top},
                      {"mean_divergence", agreement->mean_divergence},
                      {"largest_divergence", agreement->largest_divergence}});
    if (!each) continue;
    report.back()["best"] = agreement->best;
    report.back()["divergences"] = agreement->divergences;
  }
  fmt::print("{}\n", report.dump(2));
  return 0;
}
