// The flags of the commands that make reports, as data: what each is called, and where a report
// says what it was.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/report/report_fields.h"

namespace kakeya::eval {

enum class FlagForm : std::uint8_t {
  kText,
  kNumber,
  kFlag,     // without a value: true where it is given
  kNumbers,  // a list, whose values are those at the fields, in any order
  kNames,    // a list; without `otherwise` the report may have others that these need
  kUnsaid,   // a value that no report has
  kUnsaidFlag,
};

// `at`: the fields that repeat it ("draft|session/draft"), of which a report has those of its
// kind's version; empty: none. `otherwise`: what they say where it is not given; "-": that depends
// on other things.
struct CommandFlag {
  std::string_view name;   // "--model"; empty: no flag sets these fields
  std::string_view alias;  // "-m"; empty: none
  FlagForm form = FlagForm::kUnsaid;
  std::string_view at = {};
  std::string_view otherwise = "-";
};

// Lists all flags of `kakeya eval NAME`, or of "bench-batch", "servers" and "peers"; where a name
// is there twice, the first one counts.
std::vector<CommandFlag> command_flags(std::string_view command);

// A command line: what stands behind each flag, by its name.
struct ReportCommand {
  std::map<std::string, std::vector<std::string>, std::less<>> given;
  std::string unknown;  // the first word that is no flag of the command; empty: all are

  // The value of a flag, or what it is without.
  std::string value(std::string_view name, const std::string& otherwise) const;
};
ReportCommand parse_command(const std::vector<std::string>& words,
                            std::span<const CommandFlag> flags);

}  // namespace kakeya::eval
