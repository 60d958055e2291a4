#include "peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <utility>

#include "base/clock.h"
#include "base/mapped_file.h"
#include "base/random.h"
#include "base/status.h"

namespace kakeya::peers {

namespace {

using Json = nlohmann::ordered_json;

// A command's words after its name.
class Arguments {
 public:
  explicit Arguments(std::istringstream words) : words_(std::move(words)) {}

  Result<std::int64_t> number(const char* what) {
    std::int64_t value = 0;
    if (words_ >> value && value >= 0) return value;
    return invalid_argument("{}: expected a number, got none", what);
  }
  Result<std::string> path(const char* what) {
    std::string value;
    if (words_ >> value) return value;
    return invalid_argument("{}: expected a path, got none", what);
  }

 private:
  std::istringstream words_;
};

Result<std::vector<std::int32_t>> read_ids(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; file >> id;) ids.push_back(id);
  if (ids.empty()) return invalid_argument("{}: expected token ids, got none", path);
  return ids;
}

class Server {
 public:
  explicit Server(Peer& peer) : peer_(peer) {}

  Result<Json> answer(const std::string& line) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    Arguments arguments(std::move(words));
    if (name == "decode") return decode(arguments);
    if (name == "batch") return batch(arguments);
    if (name == "prefill") return prefill(arguments);
    if (name == "generate") return generate(arguments);
    if (name == "logits") return logits(arguments);
    if (name == "tokens") return tokens(arguments);
    return invalid_argument(
        "command: expected decode, batch, prefill, generate, logits, tokens or quit, got {}", name);
  }

 private:
  // decode DEPTH STEPS: single tokens behind DEPTH others.
  Result<Json> decode(Arguments& arguments) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t depth, arguments.number("depth"));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t steps, arguments.number("steps"));
    KAKEYA_TRY(go_to(depth));
    Json seconds = Json::array();
    const std::uint64_t bytes_before = peer_.bytes_read();
    for (std::int64_t step = 0; step < steps; ++step) {
      KAKEYA_ASSIGN_OR_RETURN(const double each, timed_pass(1, 1));
      seconds.push_back(each);
    }
    return Json{{"seconds", seconds},
                {"bytes", bytes_since(bytes_before, std::max<std::int64_t>(1, steps))}};
  }

  // batch DEPTH ROWS REPEATS: passes with logits of all rows, each undone.
  Result<Json> batch(Arguments& arguments) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t depth, arguments.number("depth"));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t rows, arguments.number("rows"));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t repeats, arguments.number("repeats"));
    KAKEYA_TRY(go_to(depth));
    Json seconds = Json::array();
    const std::uint64_t bytes_before = peer_.bytes_read();
    for (std::int64_t i = 0; i < repeats; ++i) {
      KAKEYA_ASSIGN_OR_RETURN(const double each, timed_pass(rows, rows));
      seconds.push_back(each);
      KAKEYA_TRY(truncate(depth));
    }
    return Json{{"seconds", seconds},
                {"bytes", bytes_since(bytes_before, std::max<std::int64_t>(1, repeats))}};
  }

  // prefill ROWS REPEATS: a prompt from nothing, in the engine's largest passes, with the logits of
  // its last token.
  Result<Json> prefill(Arguments& arguments) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t rows, arguments.number("rows"));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t repeats, arguments.number("repeats"));
    Json seconds = Json::array();
    for (std::int64_t i = 0; i < repeats; ++i) {
      KAKEYA_TRY(truncate(0));
      const Stopwatch watch;
      KAKEYA_TRY(go_to(rows));
      seconds.push_back(watch.seconds());
    }
    return Json{{"seconds", seconds}};
  }

  // generate IDS_FILE COUNT
  Result<Json> generate(Arguments& arguments) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string path, arguments.path("ids"));
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t count, arguments.number("count"));
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::int32_t> prompt, read_ids(path));
    KAKEYA_TRY(truncate(0));
    KAKEYA_ASSIGN_OR_RETURN(const Generation made, peer_.generate(prompt, count));
    return Json{{"seconds", Json::array({made.seconds})},
                {"ids", made.ids},
                {"drafted", made.drafted},
                {"accepted", made.accepted},
                {"rounds", made.rounds}};
  }

  // logits IDS_FILE OUT: those of every position, as f32 in the machine's byte order.
  Result<Json> logits(Arguments& arguments) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string path, arguments.path("ids"));
    KAKEYA_ASSIGN_OR_RETURN(const std::string out, arguments.path("out"));
    KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids, read_ids(path));
    KAKEYA_TRY(truncate(0));
    std::ofstream file(out, std::ios::binary);
    const auto chunk = static_cast<std::size_t>(std::min(peer_.max_logit_rows(), peer_.max_rows()));
    for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
      const auto piece = std::span(ids).subspan(begin, std::min(chunk, ids.size() - begin));
      KAKEYA_TRY(run(piece, std::ssize(piece)));
      const auto bytes = std::as_bytes(peer_.logits());
      file.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    }
    file.flush();
    if (!file) return error(StatusCode::kUnavailable, "{}: cannot be written", out);
    KAKEYA_TRY(truncate(0));  // these were not the tokens that go_to() counts on
    return Json{{"rows", ids.size()}, {"columns", peer_.vocab_size()}};
  }

  // tokens TEXT_FILE
  Result<Json> tokens(Arguments& arguments) {
    KAKEYA_ASSIGN_OR_RETURN(const std::string path, arguments.path("text"));
    KAKEYA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    const auto text =
        std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    KAKEYA_ASSIGN_OR_RETURN(const TextTokens tokens, peer_.tokenize(text));
    return Json{{"ids", tokens.ids}, {"bos", tokens.bos}};
  }

  // The token at a position is always the same, on either side.
  std::vector<std::int32_t> ids_at(std::int64_t begin, std::int64_t count) const {
    std::vector<std::int32_t> ids;
    for (std::int64_t position = begin; position < begin + count; ++position) {
      SequenceRng rng(static_cast<std::uint64_t>(position));
      ids.push_back(
          static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(peer_.vocab_size()))));
    }
    return ids;
  }

  Status run(std::span<const std::int32_t> ids, std::int64_t logit_rows) {
    KAKEYA_TRY(peer_.run(ids, logit_rows));
    length_ += std::ssize(ids);
    return {};
  }

  Status truncate(std::int64_t length) {
    if (length == length_) return {};
    KAKEYA_TRY(peer_.truncate(length));
    length_ = length;
    return {};
  }

  // The sequence becomes the first `length` tokens.
  Status go_to(std::int64_t length) {
    if (length < length_) KAKEYA_TRY(truncate(length_ - length > peer_.max_rows() ? 0 : length));
    while (length_ < length) {
      const std::int64_t rows = std::min(peer_.max_rows(), length - length_);
      KAKEYA_TRY(run(ids_at(length_, rows), length_ + rows == length ? 1 : 0));
    }
    return {};
  }

  Result<double> timed_pass(std::int64_t rows, std::int64_t logit_rows) {
    const std::vector<std::int32_t> ids = ids_at(length_, rows);
    const Stopwatch watch;
    KAKEYA_TRY(run(ids, logit_rows));
    return watch.seconds();
  }

  std::uint64_t bytes_since(std::uint64_t before, std::int64_t passes) const {
    return (peer_.bytes_read() - before) / static_cast<std::uint64_t>(passes);
  }

  Peer& peer_;
  std::int64_t length_ = 0;
};

void say(std::ostream& out, const Json& json) {
  out << json.dump() << std::endl;  // the other side waits for the line
}

}  // namespace

Result<TextTokens> Peer::tokenize(std::string_view /*text*/) {
  return error(StatusCode::kUnimplemented, "tokens: ask Kakeya's side, not {}", name());
}

void serve(Peer& peer, double load_seconds, std::istream& in, std::ostream& out) {
  say(out,
      {{"engine", peer.name()}, {"load_seconds", load_seconds}, {"vocab_size", peer.vocab_size()}});
  Server server(peer);
  for (std::string line; std::getline(in, line) && line != "quit";) {
    const Result<Json> answer = server.answer(line);
    say(out, answer ? *answer : Json{{"error", answer.error().message()}});
  }
}

void add_peer_flags(CLI::App& app, PeerFlags& flags) {
  app.add_option("--threads", flags.threads, "0: one for each CPU")->capture_default_str();
  app.add_option("--context", flags.context, "Tokens of the sequence")->capture_default_str();
}

int serve_opened(const char* program,
                 const Result<std::unique_ptr<Peer>>& peer,
                 const Stopwatch& watch) {
  if (!peer) {
    fmt::print(stderr, "{}: {}\n", program, peer.error().message());
    return 1;
  }
  serve(**peer, watch.seconds(), std::cin, std::cout);
  return 0;
}

}  // namespace kakeya::peers
