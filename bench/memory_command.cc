// kakeya bench memory: what a token of context takes, from the ledgers of sessions.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"
#include "bench/bench_flags.h"
#include "cli/output.h"
#include "formats/named_shapes.h"

namespace kakeya::cli {
namespace {

constexpr std::pair<const char*, KvType> kTypes[] = {
    {"auto", KvType::kAuto}, {"int8", KvType::kInt8}, {"e8", KvType::kE8}};
constexpr std::array kClasses = {MemoryClass::kKvFull, MemoryClass::kKvSliding,
                                 MemoryClass::kDrafter};
// Between these contexts rings are full, so that what grows is what every token takes.
constexpr std::int64_t kShorter = 8192;
constexpr std::int64_t kLonger = 16384;

struct ClassRow {
  const char* type;
  MemoryClass memory_class;
  std::uint64_t reserved = 0;  // at kLonger tokens
  double bytes_per_token = 0.0;
  double scale = 1.0;  // to all layers of the shape
};

// Layers of the class in all of the shape, by those of the slice.
Result<double> layer_scale(const BenchFlags& flags, MemoryClass memory_class) {
  if (flags.shape.empty() || memory_class == MemoryClass::kDrafter) return 1.0;
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig slice, named_shape(flags.shape, flags.layers));
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig whole, named_shape(flags.shape, 0));
  const auto count = [&](const ModelConfig& config) {
    int layers = 0;
    for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
      const bool sliding = memory_class == MemoryClass::kKvSliding;
      if (config.owns_kv(l) && config.is_sliding(l) == sliding) ++layers;
    }
    return static_cast<double>(layers);
  };
  return count(slice) == 0.0 ? 1.0 : count(whole) / count(slice);
}

Result<std::vector<ClassRow>> measure_memory(EngineImpl& engine, const BenchFlags& flags) {
  std::vector<ClassRow> rows;
  for (const auto& [name, type] : kTypes) {
    SessionOptions options{.kv_full = type, .kv_sliding = type, .kv_drafter = type};
    std::array<Footprint, 2> footprints;
    for (const bool longer : {false, true}) {
      options.context = longer ? kLonger : kShorter;
      KAKEYA_ASSIGN_OR_RETURN(const auto session, engine.create_session(options));
      footprints[longer ? 1 : 0] = session->footprint();
    }
    for (const MemoryClass memory_class : kClasses) {
      const std::uint64_t reserved = footprints[1].reserved_bytes(memory_class);
      if (reserved == 0) continue;
      KAKEYA_ASSIGN_OR_RETURN(const double scale, layer_scale(flags, memory_class));
      rows.push_back(
          {.type = name,
           .memory_class = memory_class,
           .reserved = reserved,
           .bytes_per_token =
               static_cast<double>(reserved - footprints[0].reserved_bytes(memory_class)) /
               static_cast<double>(kLonger - kShorter),
           .scale = scale});
    }
  }
  return rows;
}

int memory_bench(const BenchFlags& flags) {
  // A drafter where one is published for the shape.
  const bool drafter = !flags.shape.empty() && named_drafter_shape(flags.shape, flags.layers);
  auto engine = open_bench_engine(flags, drafter);
  if (!engine) return report(engine.error());
  const auto rows = measure_memory(**engine, flags);
  if (!rows) return report(rows.error());
  nlohmann::ordered_json json = header_json(flags, **engine, "memory");
  if (!flags.json) {
    print("memory of sessions of {}; {}, compute {}; at {} tokens, and each token more\n",
          subject(flags), (*engine)->backend_name(), flags.model.compute, kLonger);
    print("{:<6} {:<12} {:>14} {:>12} {:>22}\n", "rows", "class", "bytes", "a token",
          "a token, all layers");
  }
  for (const ClassRow& row : *rows) {
    const double all = row.scale * row.bytes_per_token;
    if (!flags.json) {
      print("{:<6} {:<12} {:>14} {:>12.1f} {:>22.1f}\n", row.type,
            memory_class_name(row.memory_class), row.reserved, row.bytes_per_token, all);
      continue;
    }
    json["results"].push_back({{"rows", row.type},
                               {"class", memory_class_name(row.memory_class)},
                               {"bytes", row.reserved},
                               {"bytes_per_token", row.bytes_per_token},
                               {"bytes_per_token_all_layers", all}});
  }
  if (flags.json) print_json(json);
  return kExitOk;
}

}  // namespace

void add_memory_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command =
      bench.add_subcommand("memory", "What a token of context takes, from the ledgers of sessions");
  auto flags = std::make_shared<BenchFlags>();
  add_shape_flags(*command, *flags);
  add_model_flags(*command, flags->model);
  command->callback([flags, &exit_code] { exit_code = memory_bench(*flags); });
}

}  // namespace kakeya::cli
