#include "eval/niah/niah_eval.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "runtime/session_impl.h"

namespace kakeya::eval {
namespace {

struct EvictedRows {
  std::int64_t evicted = 0;
  std::int64_t restored = 0;
  Position last = -1;  // the last evicted position of any restored layer
  Position first = 0;  // the first one
};

// The rows that a query at the last position of `length` cannot see of those that its layers'
// windows leave.
EvictedRows count_evicted(const KvCacheSpec& cache, Position length) {
  EvictedRows rows;
  for (const LayerCacheSpec& layer : cache.layers) {
    if (layer.kept == 0 || layer.is_codes || layer.is_coded()) continue;
    const Position query = length - 1;
    const Position last = query - layer.kept;
    const Position window_start = layer.window == 0 ? 0 : query - layer.window + 1;
    const Position first = std::max<Position>(layer.sink, window_start);
    if (last < first) continue;
    rows.evicted += last - first + 1;
    if (!layer.restored) continue;
    rows.first = rows.restored == 0 ? first : std::min(rows.first, first);
    rows.last = std::max(rows.last, last);
    rows.restored += last - first + 1;
  }
  return rows;
}

// The logits behind the last token, which is pending and stays so.
Result<std::vector<float>> last_logits(Timeline& timeline) {
  std::vector<float> logits;
  KAKEYA_TRY(
      timeline.run_with_rows(RowKind::kLogits, [&](Position, std::span<const float> row) -> Status {
        logits.assign(row.begin(), row.end());
        return {};
      }));
  KAKEYA_TRY(timeline.step_back());
  return logits;
}

// The codes of restored rows, to be taken away and given back.
class CodesOfRows {
 public:
  CodesOfRows(KvCache& cache, KvRun run) : space_(cache.space()) {
    for (const bool keys : {true, false}) {
      for (const KvPiece& piece : cache.row_pieces(cache.spec().codes, keys, run)) {
        std::vector<std::byte>& bytes = bytes_.emplace_back(piece.size);
        space_.download(piece.data, bytes);
        pieces_.push_back(piece);
      }
    }
  }
  void clear() {
    for (const KvPiece& piece : pieces_) space_.fill(piece.data, std::byte{0}, piece.size);
  }
  void give_back() {
    for (std::size_t i = 0; i < pieces_.size(); ++i) space_.upload(bytes_[i], pieces_[i].data);
  }

 private:
  MemorySpace& space_;
  std::vector<KvPiece> pieces_;
  std::vector<std::vector<std::byte>> bytes_;
};

// NiahReply::codes_matter of a session whose prompt was run but for its last token; the session is
// as before then.
Result<bool> codes_matter(Timeline& timeline, const EvictedRows& rows) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> before, last_logits(timeline));
  // Positions whose codes the last token itself writes are not among them: they are not evicted.
  CodesOfRows codes(timeline.cache(), {.first = rows.first, .last = rows.last + 1});
  codes.clear();
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> without, last_logits(timeline));
  codes.give_back();
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> again, last_logits(timeline));
  if (again != before) {
    return error(StatusCode::kInternal, "expected the same logits of the same codes, got others");
  }
  return without != before;
}

const Projection* projection_of(const NiahOptions& options, const KvMode& mode) {
  const auto found = options.projections.find(mode.projection);
  return found == options.projections.end() ? nullptr : found->second.get();
}

Status fill_reply(EngineImpl& engine,
                  const NeedlePrompt& prompt,
                  const KvMode& mode,
                  const NiahOptions& options,
                  NiahReply& reply) {
  const Stopwatch prefill;
  SessionOptions session = mode.session;
  session.context = std::ssize(prompt.ids) + options.max_tokens;
  session.max_rows = std::min(options.chunk, session.context);
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  KAKEYA_ASSIGN_OR_RETURN(
      const auto created,
      engine.create_session(
          session, {.projection = projection_of(options, mode), .comparison = mode.comparison}));
  KAKEYA_TRY(created->append(prompt.ids));
  KAKEYA_TRY(created->prefill());
  reply.seconds = prefill.seconds();
  // EngineImpl makes sessions of this kind alone.
  Timeline& timeline = static_cast<SessionImpl&>(*created).timeline();
  const EvictedRows rows =
      count_evicted(timeline.cache().spec(), static_cast<Position>(timeline.tokens().size()));
  reply.evicted_rows = rows.evicted;
  reply.restored_rows = rows.restored;
  if (rows.restored > 0) {
    KAKEYA_ASSIGN_OR_RETURN(reply.codes_matter, codes_matter(timeline, rows));
  }
  const Stopwatch decode;
  KAKEYA_ASSIGN_OR_RETURN(const GenerateResult result,
                          created->generate({.max_tokens = options.max_tokens, .draft_length = 0}));
  reply.seconds += decode.seconds();
  reply.sha256 = options.hash(result.ids);
  reply.found = answers_in(prompt, tokenizer->decode(result.ids));
  return {};
}

}  // namespace

NiahReply ask_for_needles(EngineImpl& engine,
                          const NeedlePrompt& prompt,
                          const KvMode& mode,
                          const NiahOptions& options) {
  const Stopwatch watch;
  NiahReply reply{.mode = mode.name};
  // Whatever goes wrong, the others are still asked.
  try {
    if (const Status done = fill_reply(engine, prompt, mode, options, reply); !done) {
      reply.error = done.error().message();
    }
  } catch (const std::exception& thrown) {
    reply.error = thrown.what();
  }
  if (!reply.error.empty()) {
    reply = {.mode = mode.name, .seconds = watch.seconds(), .error = reply.error.substr(0, 1000)};
  }
  return reply;
}

}  // namespace kakeya::eval
