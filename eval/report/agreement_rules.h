// Rules of several reports: what one model gives for one text is the same in all of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/report/report_gate.h"

namespace kakeya::eval {

struct PassedReport {
  std::string path;
  Report report;  // in which check_report() found nothing
};

struct FindingOfFile {
  std::string path;
  GateFinding finding;
};

// Compares reports with those before them: tokens and likelihoods of windows, references and bytes
// of keys and values, prompts of sets, bytes of passes.
std::vector<FindingOfFile> check_agreement(std::span<const PassedReport> reports);

}  // namespace kakeya::eval
