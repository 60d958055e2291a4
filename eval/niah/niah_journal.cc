#include "eval/niah/niah_journal.h"

#include <utility>

#include "base/status.h"

namespace kakeya::eval {
namespace {

constexpr const char* kSchema = "kakeya.eval.niah.journal/1";

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

}  // namespace

Result<NiahJournal> NiahJournal::open(const std::string& path, const Report& run) {
  NiahJournal journal;
  KAKEYA_ASSIGN_OR_RETURN(
      journal.file_,
      JournalFile::open(path, {.schema = kSchema, .of = "eval niah", .run = run},
                        [&](const Report& line) { return journal.take_line(line); }));
  return journal;
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
                 "{} has a reply to another prompt of length {}, depth {}, number {}", file_.path(),
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
  return file_.write(line);
}

Status NiahJournal::add(const NeedlePlace& place,
                        const std::string& prompt_sha256,
                        const NiahReply& reply) {
  Report line = place_json(place);
  line["prompt_sha256"] = prompt_sha256;
  line["reply"] = niah_reply_json(reply);
  replies_[key_of(place, reply.mode)] = {prompt_sha256, reply};
  return file_.write(line);
}

}  // namespace kakeya::eval
