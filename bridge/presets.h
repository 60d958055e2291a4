// The checks that may be asked for: named, compiled in, with parameters that are typed and bounded.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "envelope.h"
#include "kakeya/status.h"

namespace kakeya::bridge {

struct Parameter {
  enum class Type : std::uint8_t {
    kInteger,  // of least ... most
    kChoice,   // one of `choices`
    kModel,    // a name that the serving side gave to one of its models, never a path
  };
  std::string name;
  Type type = Type::kInteger;
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::vector<std::string> choices = {};
  std::string standard;  // where a job does not say
};

// A kind of reports, and what it is made by.
struct ReportKind {
  std::string schema = {};  // without its version: "kakeya.eval.niah"
  // With what its command begins behind the program; of a preset with one report all of the
  // preset's arguments, whatever this says.
  std::vector<std::string> command = {};
};

struct Preset {
  std::string name = {};
  std::string says = {};     // one line
  std::string program = {};  // a key of ServingPrograms::paths
  // Words of the program. {NAME} alone stands for a parameter's value, {out} for an empty folder,
  // {build} for the folder that has bin/kakeya.
  std::vector<std::string> arguments = {};
  std::vector<Parameter> parameters = {};
  double seconds = 600.0;
  std::uint64_t output_bytes = std::uint64_t{8} << 20;
  // The report: standard output, or summary.json and reports/*.json of {out}.
  bool reports_into_folder = false;
  std::vector<ReportKind> kinds = {};    // those that it may bring; none: it has no schema
  std::vector<std::string> fields = {};  // that what has no schema must have
};

// doctor, niah, perplexity, drafter-parity, code, mac-report.
std::span<const Preset> known_presets();
// Null: there is none.
const Preset* find_preset(std::span<const Preset> presets, std::string_view name);

// Values of all parameters, by their names. Errors: kInvalidArgument for one that the preset has
// not, of another type, or out of bounds.
using Values = std::map<std::string, std::string>;
Result<Values> check_parameters(const Preset& preset, const Json& given);
// Parses the words NAME=VALUE of a command line to parameters as a job has them. Errors:
// kInvalidArgument.
Result<Json> parse_parameters(const Preset& preset, const std::vector<std::string>& words);

// The programs and models that presets run on this machine.
struct ServingPrograms {
  std::map<std::string, std::string> paths = {};   // "kakeya", "mac_report"
  std::map<std::string, std::string> models = {};  // what jobs call a model, and where it lies
  std::string build = {};
};
// Errors: kFailedPrecondition for a program or a model that this machine does not have.
Result<std::vector<std::string>> command_of(const Preset& preset,
                                            const Values& values,
                                            const ServingPrograms& programs,
                                            const std::string& out);

}  // namespace kakeya::bridge
