// Writes the answers to one request in a client's dialect: whole, or as events of a stream. A
// dialect of HTTP is a table of routes (routes.h) and a writer for each kind of answer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "service/answer.h"
#include "service/refusal.h"

namespace kakeya::wire {

// "event: NAME", unless that is empty, "data: TEXT" and an empty line, as event streams have it
// (https://html.spec.whatwg.org, server-sent events). TEXT is of one line.
inline std::string server_event(std::string_view text, std::string_view name = {}) {
  std::string event;
  if (!name.empty()) event.append("event: ").append(name).append("\n");
  return event.append("data: ").append(text).append("\n\n");
}

// Adds "kakeya": {"not_kept": {WHAT: WHY}} to the object that ends an answer; nothing if `why` is
// empty. An answer that is there is given though its session or response could not be kept.
inline void add_not_kept(nlohmann::ordered_json& object, const char* what, const std::string& why) {
  if (!why.empty()) object["kakeya"]["not_kept"][what] = why;
}

// How the pieces of a stream are written.
struct StreamForm {
  std::string_view content_type = "text/event-stream";
  // Tells a client that waits that the server is there; empty: the form has nothing to say so.
  std::string_view ping = ": ping\n\n";
};

// Functions of a stream return events, or nothing where the dialect has none. `index` counts the
// answers. One thread at a time.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  virtual StreamForm stream_form() const { return {}; }

  // An answer begins, before its first piece.
  virtual std::string begin(int index) = 0;
  virtual std::string piece(int index, const service::AnswerPiece& piece) = 0;
  virtual std::string end(int index, const service::AnswerEnd& end) = 0;
  // All answers have ended.
  virtual std::string done(const service::Usage& usage) = 0;
  // Nothing more comes, for this reason.
  virtual std::string error(const service::Refusal& refusal) = 0;

  // The body of a response that has all answers.
  virtual std::string whole(const std::vector<service::WholeAnswer>& answers,
                            const service::Usage& usage) = 0;
};

}  // namespace kakeya::wire
