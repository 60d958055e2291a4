#include "cli/provenance.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cli/output.h"
#include "cli/system_facts.h"
#include "commit.h"
#include "kakeya/version.h"

namespace kakeya::cli {
namespace {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  ::gmtime_r(&now, &time);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &time);
  return text;
}

std::string read_all(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Words of the command line, without the folder of the program, which is no matter of the reader.
nlohmann::ordered_json command_json() {
  nlohmann::ordered_json words = nlohmann::ordered_json::array();
  for (const std::string& word : command_words()) {
    words.push_back(words.empty() ? word.substr(word.rfind('/') + 1) : word);
  }
  return words;
}

}  // namespace

RunConditions::RunConditions()
    : started_(now_utc()),
      own_start_seconds_(own_seconds()),
      start_times_(cpu_times()),
      start_load_(load_average()) {}

RunConditions::CpuTimes RunConditions::cpu_times() {
  // proc(5): user nice system idle iowait irq softirq steal, in ticks.
  std::istringstream line(read_all("/proc/stat"));
  std::string name;
  std::array<double, 8> ticks{};
  line >> name;
  for (double& value : ticks) line >> value;
  if (!line || name != "cpu") return {};
  const auto per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  CpuTimes times;
  times.known = true;
  times.busy = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / per_second;
  times.stolen = ticks[7] / per_second;
  times.total = times.busy + times.stolen + (ticks[3] + ticks[4]) / per_second;
  return times;
}

nlohmann::ordered_json RunConditions::load_average() {
  double minutes = 0.0;
  if (::getloadavg(&minutes, 1) != 1) return nullptr;
  return minutes;
}

double RunConditions::own_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

nlohmann::ordered_json RunConditions::json() const {
  nlohmann::ordered_json json = {{"started", started_},        {"seconds", clock_.seconds()},
                                 {"load_before", start_load_}, {"load_after", load_average()},
                                 {"other_cpu_share", nullptr}, {"steal_share", nullptr}};
  const CpuTimes now = cpu_times();
  const double total = now.total - start_times_.total;
  if (!now.known || !start_times_.known || total <= 0.0) return json;
  const double own = own_seconds() - own_start_seconds_;
  // Ticks of 10 ms: a short run may seem to use more than there was.
  json["other_cpu_share"] = std::max(0.0, now.busy - start_times_.busy - own) / total;
  json["steal_share"] = (now.stolen - start_times_.stolen) / total;
  return json;
}

nlohmann::ordered_json program_json() {
  return {{"commit", *kCommit == '\0' ? nlohmann::ordered_json() : nlohmann::ordered_json(kCommit)},
          {"dirty", kCommitIsDirty}};
}

nlohmann::ordered_json machine_json() {
  return {{"cpu", cpu_name()}, {"cpus", ::sysconf(_SC_NPROCESSORS_ONLN)}};
}

nlohmann::ordered_json provenance_json(const std::string& schema, const RunConditions& conditions) {
  nlohmann::ordered_json json = {{"schema", schema}, {"version", kVersion}};
  json.update(program_json());
  json["command"] = command_json();
  json["machine"] = machine_json();
  json["conditions"] = conditions.json();
  return json;
}

nlohmann::ordered_json provenance_json(const std::string& schema,
                                       const RunConditions& conditions,
                                       const EngineImpl& engine,
                                       const std::string& model,
                                       const std::string& compute) {
  nlohmann::ordered_json json = provenance_json(schema, conditions);
  json["model"] = model;
  json["weights"] = engine.model_fingerprint();
  if (engine.drafter() != nullptr) json["drafter_weights"] = engine.drafter_fingerprint();
  json["backend"] = engine.backend_name();
  json["threads"] = engine.num_threads();
  json["compute"] = compute;
  return json;
}

}  // namespace kakeya::cli
