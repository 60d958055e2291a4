// How a report was made: program, commit, command, machine, weights, and what else ran meanwhile.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "runtime/engine_impl.h"

namespace kakeya::cli {

// The conditions of a run: what the machine did besides while a report was made. Construct it
// before the work.
class RunConditions {
 public:
  RunConditions();

  // "started" (UTC), "seconds", "load_before" and "load_after" (load averages of the last minute),
  // "other_cpu_share": CPU time of other processes, "steal_share": CPU time that the hypervisor
  // took, both as shares of what all CPUs could give since construction. Null where /proc does not
  // say.
  nlohmann::ordered_json json() const;

 private:
  // CPU time of the machine since it started, in seconds.
  struct CpuTimes {
    bool known = false;
    double busy = 0.0;  // of all processes
    double stolen = 0.0;
    double total = 0.0;  // busy, idle and stolen
  };
  static CpuTimes cpu_times();
  static nlohmann::ordered_json load_average();
  // CPU time of this process, in seconds.
  static double own_seconds();

  std::string started_;
  Stopwatch clock_;
  double own_start_seconds_ = 0.0;
  CpuTimes start_times_;
  nlohmann::ordered_json start_load_;
};

// The commit that this program was made of, null if that is not known, and whether its files had
// changes.
nlohmann::ordered_json program_json();
// The machine's processor and how many of them there are.
nlohmann::ordered_json machine_json();

// The first fields of every report: schema, version, commit, command, machine, conditions.
// `schema` is "kakeya.NAME/VERSION".
nlohmann::ordered_json provenance_json(const std::string& schema, const RunConditions& conditions);

// The first fields of a report with the engine that was measured; `model` as a reader would name
// it.
nlohmann::ordered_json provenance_json(const std::string& schema,
                                       const RunConditions& conditions,
                                       const EngineImpl& engine,
                                       const std::string& model,
                                       const std::string& compute);

}  // namespace kakeya::cli
