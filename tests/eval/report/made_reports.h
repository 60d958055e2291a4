// Reports that keep every rule: those in docs/results, and of runs that were made up where the
// repository keeps none of a kind.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "eval/report/report_gate.h"

namespace kakeya::eval {

// Reads docs/results/NAME.json.
Report kept_report(const std::string& name);

// An hour in six buckets. `provenance`: a report whose commit, machine and engine are taken over.
Report made_longrun_report(const Report& provenance);
// Three requests at once, in five arms.
Report made_multitenant_report(const Report& provenance);
// 24 problems each, of all verdicts that there are, with drafts and compared with plain decoding.
Report made_humaneval_report(const Report& provenance);
Report made_gsm8k_report(const Report& provenance);
Report made_served_report(const Report& provenance);  // of word problems
// A kept report of needles in haystacks with the replies of its first mode as those of a server.
Report made_served_niah_report(const Report& niah);
Report made_parity_report(const Report& provenance);
// A kept report that says how its sessions were: as it is where it does, else as its next version.
Report made_session_report(const Report& report);

// A change of a report for which a rule must reject it.
struct DoctoredReport {
  const char* rule;
  std::function<void(Report&)> doctor;
};

// Expects the gate to find that the rule of each change is broken.
void expect_rejected(const Report& report, const std::vector<DoctoredReport>& doctored);

}  // namespace kakeya::eval
