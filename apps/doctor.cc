// kakeya doctor: what this machine can run, and what a model would take.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "backend/cpu/probe.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/failure.h"
#include "cli/machine_memory.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/system_facts.h"
#include "cli/terminal.h"
#include "commands.h"
#include "doctor_sizes.h"
#include "formats/model_config.h"
#include "formats/named_shapes.h"
#include "kakeya/version.h"
#include "runtime/model_text.h"

namespace kakeya::cli {
namespace {

struct DoctorFlags {
  ModelFlags model;
  std::string shape;
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
  std::vector<BackendSupport> backends;
  std::optional<double> read_gb_per_s = {};
};

// All but the bandwidth, which takes a second and a buffer of four caches.
Machine examine() {
  Machine machine;
  utsname name = {};
  ::uname(&name);
  machine.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  machine.cpu = cpu_name();
  machine.cpus = available_cpus();
  machine.memory_bytes = machine_memory();
  machine.available_bytes = available_memory();
  machine.instruction_sets = instruction_sets();
  machine.backends = backends();
  for (const InstructionSetSupport& set : machine.instruction_sets) {
    if (!set.supported) continue;
    machine.instruction_set = set.name;
    break;
  }
  return machine;
}

// The memory that the model takes at several contexts, that of --ctx among them: {context,
// footprint}.
Result<std::vector<std::pair<std::int64_t, Footprint>>> estimates(const ModelFlags& flags) {
  std::vector<std::pair<std::int64_t, Footprint>> rows;
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags));
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(options.model_dir));
  const auto contexts = contexts_to_tell(config.max_position_embeddings, flags.context);
  for (const std::int64_t context : contexts) {
    options.session.context = context;
    KAKEYA_ASSIGN_OR_RETURN(const Footprint footprint, Engine::estimate(options));
    rows.emplace_back(context, footprint);
  }
  return rows;
}

// Bytes of the model's tokenizer, which no budget is charged with; 0 without one.
Result<std::uint64_t> tokenizer_bytes(const ModelFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const EngineOptions options, engine_options(flags));
  KAKEYA_ASSIGN_OR_RETURN(const ModelText text, ModelText::load(options.model_dir));
  const auto tokenizer = text.tokenizer();
  return tokenizer ? (*tokenizer)->memory_bytes() : 0;
}

// A way to keep the KV cache, as flags of `run`.
struct KvWay {
  const char* flags;
  KvType type;
  std::int64_t window;  // what is behind it is evicted from full layers; 0: nothing
  Evicted on_full;
};
constexpr KvWay kKvWays[] = {
    {"(default)", KvType::kAuto, 0, Evicted::kKeep},
    {"--kv-full int8 --kv-sliding int8 --kv-drafter int8", KvType::kInt8, 0, Evicted::kKeep},
    {"--kv-full e8 --kv-sliding e8 --kv-drafter e8", KvType::kE8, 0, Evicted::kKeep},
    {"--kv-full k4v4 --kv-sliding int8 --kv-drafter int8", calibrated_kv(4, 4), 0, Evicted::kKeep},
    {"--window 1024 --evicted-full restore", KvType::kAuto, 1024, Evicted::kRestore},
    {"--window 1024 --evicted-full drop", KvType::kAuto, 1024, Evicted::kDrop}};

struct KvWayReport {
  std::string flags;
  std::vector<std::uint64_t> session_bytes;  // at the contexts of estimates()
  std::int64_t longest = 0;                  // context that fits into the limit; 0: none
};

// Bytes of one session, without the weights.
std::uint64_t session_bytes(const Footprint& footprint) {
  return footprint.total_reserved() - footprint.reserved_bytes(MemoryClass::kWeights);
}

// The largest context of 1 ... most whose estimate is at most `limit`; 0 if none is.
Result<std::int64_t> longest_context(EngineOptions options,
                                     std::int64_t most,
                                     std::uint64_t limit) {
  std::int64_t fits = 0;
  std::int64_t too_long = most + 1;
  while (too_long - fits > 1) {
    options.session.context = fits + (too_long - fits) / 2;
    KAKEYA_ASSIGN_OR_RETURN(const Footprint footprint, Engine::estimate(options));
    (footprint.total_reserved() <= limit ? fits : too_long) = options.session.context;
  }
  return fits;
}

// The memory that each way takes at `contexts`, the last of which is the model's limit, and how far
// `limit` bytes reach. Ways that the model's heads do not allow, or for which it has no projection
// or no statistics, are left out.
Result<std::vector<KvWayReport>> compare_kv_ways(const ModelFlags& flags,
                                                 const std::vector<std::int64_t>& contexts,
                                                 std::uint64_t limit) {
  std::vector<KvWayReport> reports;
  for (const KvWay& way : kKvWays) {
    KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags));
    SessionOptions& session = options.session;
    session.kv_full = way.type;
    session.kv_sliding = session.kv_drafter = is_calibrated(way.type) ? KvType::kInt8 : way.type;
    session.window = way.window;
    session.evicted_full = way.on_full;
    KvWayReport report{.flags = way.flags, .session_bytes = {}, .longest = 0};
    bool allowed = true;
    for (const std::int64_t context : contexts) {
      session.context = context;
      const auto footprint = Engine::estimate(options);
      allowed = allowed && footprint.has_value();
      if (!allowed) break;
      report.session_bytes.push_back(session_bytes(*footprint));
    }
    if (!allowed) continue;
    KAKEYA_ASSIGN_OR_RETURN(report.longest, longest_context(options, contexts.back(), limit));
    reports.push_back(std::move(report));
  }
  return reports;
}

void print_kv_ways(const std::vector<KvWayReport>& reports,
                   const std::vector<std::int64_t>& contexts,
                   std::uint64_t limit) {
  print("\none session, without weights, by how the KV cache is kept (flags of run):\n  {:<52}",
        "context");
  for (const std::int64_t context : contexts) print("{:>11}", context);
  print("  longest in {}\n", format_bytes(limit));
  for (const KvWayReport& report : reports) {
    print("  {:<52}", report.flags);
    for (const std::uint64_t bytes : report.session_bytes) print("{:>11}", format_bytes(bytes));
    print("  {}\n", report.longest == 0 ? "none" : fmt::to_string(report.longest));
  }
}

nlohmann::ordered_json machine_json(const Machine& machine) {
  nlohmann::ordered_json sets;
  for (const InstructionSetSupport& set : machine.instruction_sets) {
    sets[std::string(set.name)] = set.supported;
  }
  nlohmann::ordered_json available;
  nlohmann::ordered_json devices = nlohmann::ordered_json::object();
  for (const BackendSupport& backend : machine.backends) {
    const std::string name(backend.name);
    available[name] = backend.missing.empty() ? "available" : backend.missing;
    if (!backend.device) continue;
    devices[name] = {{"name", backend.device->name},
                     {"capability", backend.device->capability},
                     {"memory_bytes", backend.device->memory_bytes},
                     {"free_bytes", backend.device->free_bytes}};
    if (!backend.device->note.empty()) devices[name]["note"] = backend.device->note;
  }
  nlohmann::ordered_json json = {{"version", kVersion},
                                 {"system", machine.system},
                                 {"cpu", machine.cpu},
                                 {"cpus", machine.cpus},
                                 {"memory_bytes", machine.memory_bytes},
                                 {"available_bytes", machine.available_bytes},
                                 {"instruction_set", machine.instruction_set},
                                 {"instruction_sets", sets},
                                 {"backends", available},
                                 {"devices", devices}};
  if (machine.read_gb_per_s) json["read_gb_per_s"] = *machine.read_gb_per_s;
  return json;
}

// Backends that add_emulated_backends() has named, and MLX's on a CPU.
bool is_for_tests(std::string_view backend) {
#ifndef __APPLE__
  if (backend == "mlx") return true;
#endif
  return backend == "guarded" || backend == "cuda-emulated";
}

void print_machine(const Machine& machine) {
  print("kakeya {} on {}\n", kVersion, machine.system);
  print("cpu               {}, {} CPUs usable\n", machine.cpu, machine.cpus);
  print("memory            {} in all, {} available\n", format_bytes(machine.memory_bytes),
        format_bytes(machine.available_bytes));
  if (machine.read_gb_per_s) {
    print("read bandwidth    {:.1f} GB/s now, all threads\n", *machine.read_gb_per_s);
  }
  print("backends         ");
  for (const BackendSupport& backend : machine.backends) {
    if (is_for_tests(backend.name)) continue;
    print(" {}{}", backend.name,
          backend.missing.empty() ? "" : fmt::format(" (not available: {})", backend.missing));
  }
  print("\n");
  for (const BackendSupport& backend : machine.backends) {
    if (!backend.device) continue;
    const DeviceDescription& device = *backend.device;
    print("{:<18}{}, {} {}, {} in all, {} free\n", backend.name, device.name,
          backend.name == "cuda" ? "compute capability" : "architecture", device.capability,
          format_bytes(device.memory_bytes), format_bytes(device.free_bytes));
    if (!device.note.empty()) print("{:<18}{}\n", "", device.note);
  }
  print("instruction sets ");
  for (const InstructionSetSupport& set : machine.instruction_sets) {
    print(" {}{}", set.name,
          set.name == machine.instruction_set ? " (used)"
          : set.supported                     ? ""
                                              : " (not on this machine)");
  }
  print("\n");
}

// The bytes that are to be filled: --memory, or what is free.
Result<std::uint64_t> limit_of(const ModelFlags& flags, const Machine& machine) {
  if (flags.memory.empty()) return machine.available_bytes;
  return parse_bytes(flags.memory);
}

// The shape that is asked about in place of a whole model.
Result<std::optional<KnownShape>> shape_asked_for(const DoctorFlags& flags) {
  if (flags.shape.empty()) {
    if (flags.model.model.empty()) return std::nullopt;
    KAKEYA_ASSIGN_OR_RETURN(const std::string path,
                            path_of_model(flags.model.model, Purpose::kLookAt));
    return shape_without_weights(path);
  }
  if (!flags.model.model.empty()) return bad_usage("--shape and --model exclude each other");
  KAKEYA_ASSIGN_OR_RETURN(KnownShape shape, shape_by_name(flags.shape));
  return std::optional(std::move(shape));
}

Status tell_sizes(const DoctorFlags& flags, const KnownShape& shape) {
  ModelFlags model = flags.model;
  model.model = "/";  // no name is looked up, no folder read
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(model));
  options.model_dir = shape.name;
  const auto contexts =
      contexts_to_tell(shape.model.config->max_position_embeddings, model.context);
  const Machine machine = examine();
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t limit, limit_of(model, machine));
  KAKEYA_ASSIGN_OR_RETURN(const ShapeSizes sizes, measure_shape(shape, options, contexts, limit));
  if (flags.json) {
    nlohmann::ordered_json json = machine_json(machine);
    json["sizes"] = sizes_json(shape, sizes);
    print_json(json);
    return {};
  }
  print_machine(machine);
  print("{}", sizes_text(shape, sizes));
  return {};
}

void print_model(const ModelFlags& flags,
                 const std::vector<std::pair<std::int64_t, Footprint>>& rows,
                 std::uint64_t available_bytes,
                 std::uint64_t tokenizer_bytes) {
  print("\nmemory of {} with one session, compute {}:\n",
        flags.model.empty() ? "the demo model" : flags.model, flags.compute);
  for (const auto& [context, footprint] : rows) {
    print("  context {:>7}  {}{}\n", context, footprint.to_string(),
          footprint.total_reserved() > available_bytes ? "  (does not fit now)" : "");
  }
  print("  beside that, in no budget: the tokenizer, {}\n", format_bytes(tokenizer_bytes));
}

int doctor(const DoctorFlags& flags) {
  const auto shape = shape_asked_for(flags);
  if (!shape) return report(shape.error());
  if (*shape) {
    const Status told = tell_sizes(flags, **shape);
    return told ? kExitOk : report(told.error());
  }
  const auto rows = estimates(flags.model);
  // Without a model named it is the machine that is asked about.
  const bool about_model = !flags.model.model.empty() || !flags.model.memory.empty();
  if (!rows && about_model) return report(rows.error());
  Machine machine = examine();
  ThreadPool pool({});
  machine.read_gb_per_s = cpu::measure_read_bandwidth(pool, 1.0);
  std::vector<std::int64_t> contexts;
  std::vector<KvWayReport> ways;
  std::uint64_t limit = machine.available_bytes;
  std::uint64_t uncharged = 0;
  if (rows) {
    const auto text = tokenizer_bytes(flags.model);
    if (!text) return report(text.error());
    uncharged = *text;
    for (const auto& [context, footprint] : *rows) contexts.push_back(context);
    const auto bytes = limit_of(flags.model, machine);
    if (!bytes) return report(bytes.error());
    limit = *bytes;
    auto compared = compare_kv_ways(flags.model, contexts, limit);
    if (!compared) return report(compared.error());
    ways = std::move(compared).value();
  }
  if (flags.json) {
    nlohmann::ordered_json json = machine_json(machine);
    for (std::size_t i = 0; rows && i < rows->size(); ++i) {
      json["model"].push_back(
          {{"context", (*rows)[i].first}, {"memory", ledger_json((*rows)[i].second)}});
    }
    if (rows) json["tokenizer_bytes"] = uncharged;
    for (const KvWayReport& way : ways) {
      json["kv"].push_back({{"flags", way.flags},
                            {"contexts", contexts},
                            {"session_bytes", way.session_bytes},
                            {"limit_bytes", limit},
                            {"longest_context", way.longest}});
    }
    print_json(json);
    return kExitOk;
  }
  print_machine(machine);
  if (!rows) return kExitOk;
  print_model(flags.model, *rows, machine.available_bytes, uncharged);
  print_kv_ways(ways, contexts, limit);
  if (!flags.model.memory.empty()) {
    print(
        "`kakeya run --memory {}` makes its session smaller than these until it fits: shorter "
        "passes, no drafts, fewer bits (docs/memory.md)\n",
        flags.model.memory);
  }
  return kExitOk;
}

}  // namespace

void add_doctor_command(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("doctor", "What this machine can run, and what a model would take");
  auto flags = std::make_shared<DoctorFlags>();
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_leading_flags(*command, flags->model, true);
  add_model_flags(*command, flags->model);
  std::string names;
  for (const std::string_view name : shape_names()) names += " " + std::string(name);
  command
      ->add_option("--shape", flags->shape,
                   "The sizes of a published model, without any file of it:" + names)
      ->type_name("NAME");
  flags->model.draft = "auto";  // as `run` has it: the drafter takes memory too
  command->footer(
      "Examples:\n"
      "  kakeya doctor                                this machine, and what the demo model takes\n"
      "  kakeya doctor DIR                            the bytes of DIR at several contexts\n"
      "  kakeya doctor DIR --memory 16GB              the longest context that 16 GB hold\n"
      "  kakeya doctor --shape llama3.1-8b            sizes before a download; also of a folder "
      "with\n"
      "                                               config.json alone, or half of a GGUF file");
  command->callback([flags, &exit_code] { exit_code = doctor(*flags); });
}

}  // namespace kakeya::cli
