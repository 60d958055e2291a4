#include "niah_journal.h"

#include <filesystem>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace kakeya::eval {
namespace {

constexpr const char* kSchema = "kakeya.eval.niah.journal/1";

std::string one_line(const Report& json) {
  return json.dump(-1, ' ', false, Report::error_handler_t::replace);
}

Report place_json(const NeedlePlace& place) {
  return {{"length", place.length}, {"depth", place.depth}, {"index", place.index}};
}

// False: it has no place.
bool read_place(const Report& json, NeedlePlace& place) {
  for (const auto& [name, to] :
       {std::pair("length", &place.length), std::pair("depth", &place.depth),
        std::pair("index", &place.index)}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number_integer()) return false;
    *to = found->get<std::int64_t>();
  }
  return true;
}

std::string text_at(const Report& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// What is not as this run has it; empty: nothing.
std::string difference(const Report& there, const Report& here) {
  for (const auto& [name, value] : here.items()) {
    const auto found = there.is_object() ? there.find(name) : there.end();
    if (!there.is_object() || found == there.end()) return name + ", which is not there";
    if (*found != value) {
      return name + ": " + one_line(*found).substr(0, 80) + " instead of " +
             one_line(value).substr(0, 80);
    }
  }
  return {};
}

}  // namespace

Result<NiahJournal> NiahJournal::open(const std::string& path, const Report& run) {
  NiahJournal journal(path);
  std::error_code failed;
  std::string text;
  if (std::filesystem::exists(path, failed)) {
    if (!std::filesystem::is_regular_file(path, failed) ||
        std::filesystem::file_size(path, failed) > kMostBytes || failed) {
      return data_loss("{}: expected a journal of at most {} bytes", path, kMostBytes);
    }
    std::ifstream file(path, std::ios::binary);
    text = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    // The program ended while it wrote the last line.
    text.resize(text.rfind('\n') + 1);
    KAKEYA_TRY(journal.read(text, run));
    std::filesystem::resize_file(path, text.size(), failed);
  }
  journal.file_.open(path, std::ios::binary | std::ios::app);
  if (!journal.file_ || failed) {
    return error(StatusCode::kNotFound, "{}: expected a file that can be written", path);
  }
  if (text.empty()) KAKEYA_TRY(journal.write({{"schema", kSchema}, {"run", run}}));
  return journal;
}

Status NiahJournal::read(const std::string& text, const Report& run) {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const Report line = Report::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                      text.begin() + static_cast<std::ptrdiff_t>(end), nullptr,
                                      /*allow_exceptions=*/false);
    begin = end + 1;
    if (++number == 1) {
      if (!line.is_object() || text_at(line, "schema") != kSchema) {
        return data_loss("{}: expected a journal of eval niah, got something else", path_);
      }
      const auto there = line.find("run");
      const std::string differs = difference(there == line.end() ? Report() : *there, run);
      if (differs.empty()) continue;
      return Unexpected(Error(StatusCode::kFailedPrecondition,
                              path_ + " is of another run; it differs in " + differs));
    }
    if (const Status taken = take_line(line); !taken) {
      return data_loss("{}:{}: {}", path_, number, taken.error().message());
    }
  }
  return {};
}

Status NiahJournal::take_line(const Report& line) {
  const auto broken = [] { return data_loss("expected a line of a journal, got something else"); };
  NeedlePlace place;
  if (!line.is_object() || !read_place(line, place)) return broken();
  if (line.contains("begin")) {
    ++attempts_[key_of(place, text_at(line, "begin"))];
    return {};
  }
  const auto found = line.find("reply");
  if (found == line.end()) return broken();
  KAKEYA_ASSIGN_OR_RETURN(NiahReply reply, parse_niah_reply(*found));
  const Key key = key_of(place, reply.mode);
  replies_[key] = {text_at(line, "prompt_sha256"), std::move(reply)};
  return {};
}

Result<const NiahReply*> NiahJournal::find(const NeedlePlace& place,
                                           const std::string& mode,
                                           const std::string& prompt_sha256) const {
  const auto found = replies_.find(key_of(place, mode));
  if (found == replies_.end()) return nullptr;
  if (found->second.prompt_sha256 != prompt_sha256) {
    return error(StatusCode::kFailedPrecondition,
                 "{} has a reply to another prompt of length {}, depth {}, number {}", path_,
                 place.length, place.depth, place.index);
  }
  return &found->second.reply;
}

int NiahJournal::attempts(const NeedlePlace& place, const std::string& mode) const {
  const auto found = attempts_.find(key_of(place, mode));
  return found == attempts_.end() ? 0 : found->second;
}

Status NiahJournal::begin(const NeedlePlace& place, const std::string& mode) {
  ++attempts_[key_of(place, mode)];
  Report line = place_json(place);
  line["begin"] = mode;
  return write(line);
}

Status NiahJournal::add(const NeedlePlace& place,
                        const std::string& prompt_sha256,
                        const NiahReply& reply) {
  Report line = place_json(place);
  line["prompt_sha256"] = prompt_sha256;
  line["reply"] = niah_reply_json(reply);
  replies_[key_of(place, reply.mode)] = {prompt_sha256, reply};
  return write(line);
}

Status NiahJournal::write(const Report& line) {
  // A program that is killed leaves what the system has; no more is needed.
  file_ << one_line(line) << '\n' << std::flush;
  if (file_) return {};
  return error(StatusCode::kUnavailable, "{}: expected a file that takes another line", path_);
}

}  // namespace kakeya::eval
