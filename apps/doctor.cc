// kakeya doctor: what this machine can run, and what a model would take.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "backend/backend.h"
#include "backend/cpu/probe.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "command.h"
#include "formats/model_config.h"
#include "kakeya/version.h"
#include "terminal.h"

namespace kakeya::cli {
namespace {

struct DoctorFlags {
  ModelFlags model;
  bool json = false;
};

struct Machine {
  std::string cpu;
  std::string system;
  int cpus = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t available_bytes = 0;
  std::string instruction_set;  // the one that would be picked
  std::vector<InstructionSetSupport> instruction_sets;
  double read_gb_per_s = 0.0;
};

// The value of the first line of a /proc file that starts with `key`.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "unknown";
}

std::uint64_t proc_kib(const std::string& key) {
  return 1024 * std::strtoull(proc_value("/proc/meminfo", key).c_str(), nullptr, 10);
}

Machine examine() {
  Machine machine;
  utsname name = {};
  ::uname(&name);
  machine.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  machine.cpu = proc_value("/proc/cpuinfo", "model name");
  machine.cpus = available_cpus();
  machine.memory_bytes = proc_kib("MemTotal");
  machine.available_bytes = proc_kib("MemAvailable");
  machine.instruction_sets = instruction_sets();
  for (const InstructionSetSupport& set : machine.instruction_sets) {
    if (!set.supported) continue;
    machine.instruction_set = set.name;
    break;
  }
  ThreadPool pool({});
  machine.read_gb_per_s = cpu::measure_read_bandwidth(pool, 1.0);
  return machine;
}

// What the model takes at several contexts: {context, footprint}.
Result<std::vector<std::pair<std::int64_t, Footprint>>> estimates(const ModelFlags& flags) {
  std::vector<std::pair<std::int64_t, Footprint>> rows;
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags));
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(options.model_dir));
  for (std::int64_t context = 1024;; context *= 4) {
    options.session.context = std::min(context, config.max_position_embeddings);
    KAKEYA_ASSIGN_OR_RETURN(const Footprint footprint, Engine::estimate(options));
    rows.emplace_back(options.session.context, footprint);
    if (context >= config.max_position_embeddings) return rows;
  }
}

nlohmann::ordered_json machine_json(const Machine& machine) {
  nlohmann::ordered_json sets;
  for (const InstructionSetSupport& set : machine.instruction_sets) {
    sets[std::string(set.name)] = set.supported;
  }
  return {{"version", kVersion},
          {"system", machine.system},
          {"cpu", machine.cpu},
          {"cpus", machine.cpus},
          {"memory_bytes", machine.memory_bytes},
          {"available_bytes", machine.available_bytes},
          {"instruction_set", machine.instruction_set},
          {"instruction_sets", sets},
          {"read_gb_per_s", machine.read_gb_per_s}};
}

void print_machine(const Machine& machine) {
  fmt::print("kakeya {} on {}\n", kVersion, machine.system);
  fmt::print("cpu               {}, {} CPUs usable\n", machine.cpu, machine.cpus);
  fmt::print("memory            {} in all, {} available\n", format_bytes(machine.memory_bytes),
             format_bytes(machine.available_bytes));
  fmt::print("read bandwidth    {:.1f} GB/s now, all threads\n", machine.read_gb_per_s);
  fmt::print("instruction sets ");
  for (const InstructionSetSupport& set : machine.instruction_sets) {
    fmt::print(" {}{}", set.name,
               set.name == machine.instruction_set ? " (used)"
               : set.supported                     ? ""
                                                   : " (not on this machine)");
  }
  fmt::print("\n");
}

int doctor(const DoctorFlags& flags) {
  const auto rows = estimates(flags.model);
  if (!rows && !flags.model.model.empty()) return report(rows.error());
  const Machine machine = examine();
  if (flags.json) {
    nlohmann::ordered_json json = machine_json(machine);
    for (std::size_t i = 0; rows && i < rows->size(); ++i) {
      json["model"].push_back(
          {{"context", (*rows)[i].first}, {"memory", ledger_json((*rows)[i].second)}});
    }
    fmt::print("{}\n", json.dump(2));
    return kExitOk;
  }
  print_machine(machine);
  if (!rows) return kExitOk;
  fmt::print("\nmemory of {} with one session, compute {}:\n",
             flags.model.model.empty() ? "the demo model" : flags.model.model, flags.model.compute);
  for (const auto& [context, footprint] : *rows) {
    fmt::print("  context {:>7}  {}{}\n", context, footprint.to_string(),
               footprint.total_reserved() > machine.available_bytes ? "  (does not fit now)" : "");
  }
  return kExitOk;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("doctor", "What this machine can run, and what a model would take");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_model_flags(*command, flags->model);
  flags->model.draft = "auto";  // as `run` has it: the drafter takes memory too
  command->callback([flags, &exit_code] { exit_code = doctor(*flags); });
}

}  // namespace kakeya::cli
