#include "runtime/session_snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {
namespace {

static_assert(std::endian::native == std::endian::little, "sections are copied as they are");

// The version of the sections' layout. Data on disk never changes its meaning: another layout is
// another version.
constexpr std::string_view kLayoutVersion = "6";

// The section "state".
struct StateRecord {
  std::int64_t length = 0;   // tokens run
  std::int64_t written = 0;  // the highest position ever written in the target's cache, plus one
  std::int64_t context_length = 0;  // the same of the drafter's context
  std::int64_t context_written = 0;
  std::int64_t waiting_taps = 0;
};
static_assert(sizeof(StateRecord) == 40);

// How one class of layers is kept, in words.
std::string describe(const LayerCacheSpec& layer) {
  std::string text(kv_format_name(layer.format));
  if (layer.one_vector) text += " one vector";
  if (layer.kept > 0) text += fmt::format(" sink {} kept {}", layer.sink, layer.kept);
  if (layer.restored) text += " restored";
  return text;
}

std::string describe(const KvCacheSpec& cache, bool sliding) {
  for (const LayerCacheSpec& layer : cache.layers) {
    if (layer.is_codes) break;  // what follows is of restoring
    if ((layer.window > 0) == sliding) return describe(layer);
  }
  return "none";
}

std::string describe_codes(const KvCacheSpec& cache) {
  if (cache.codes < 0) return "none";
  const LayerCacheSpec& codes = cache.layers[static_cast<std::size_t>(cache.codes)];
  return fmt::format("{} of {}", describe(codes), codes.head_dim);
}

// The rows of all layers of a cache as sections: NAME/LAYER/keys and NAME/LAYER/values.
struct RowSection {
  std::string name;
  std::vector<KvPiece> pieces;

  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const KvPiece& piece : pieces) sum += piece.size;
    return sum;
  }
};

void add_row_sections(std::string_view name,
                      const KvCache& cache,
                      const KvCache::Extent& extent,
                      std::vector<RowSection>& sections) {
  for (std::int64_t i = 0; i < std::ssize(cache.spec().layers); ++i) {
    for (const bool keys : {true, false}) {
      if (keys && cache.layer(i).one_vector) continue;
      sections.push_back({fmt::format("{}/{}/{}", name, i, keys ? "keys" : "values"),
                          cache.held_rows(i, keys, extent)});
    }
  }
}

template <typename T>
std::span<const std::byte> bytes_of(const T& values) {
  return std::as_bytes(std::span(values));
}

// The numbers of a section of whole Ts; empty sections give none.
template <typename T>
std::vector<T> numbers_of(std::span<const std::byte> bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

// Everything of a file, found to fit.
struct Found {
  StateRecord state;
  std::vector<TokenId> tokens;
  std::string note;

  SessionExtent extent() const {
    return {.target = {state.length, state.written},
            .drafter = {{state.context_length, state.context_written}, state.waiting_taps}};
  }
};

Result<std::span<const std::byte>> section_of(SnapshotFile& file,
                                              const std::string& name,
                                              std::size_t bytes) {
  KAKEYA_ASSIGN_OR_RETURN(const std::span<const std::byte> found, file.section(name));
  if (found.size() == bytes) return found;
  return data_loss("{}: section {}: expected {} bytes, got {}", file.path(), name, bytes,
                   found.size());
}

Result<std::vector<TokenId>> read_tokens(SnapshotFile& file, const Timeline& timeline) {
  KAKEYA_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, file.section("tokens"));
  const auto most = static_cast<std::size_t>(timeline.context()) * sizeof(TokenId);
  if (bytes.size() > most || bytes.size() % sizeof(TokenId) != 0) {
    return data_loss("{}: section tokens: expected at most {} bytes, {} for each, got {}",
                     file.path(), most, sizeof(TokenId), bytes.size());
  }
  std::vector<TokenId> tokens = numbers_of<TokenId>(bytes);
  if (const Status valid = timeline.check(tokens); !valid) {
    return Unexpected(valid.error().with_context(file.path()));
  }
  return tokens;
}

Result<Found> read_parts(SnapshotFile& file, const SessionParts& parts) {
  Found found;
  KAKEYA_ASSIGN_OR_RETURN(const std::span<const std::byte> state,
                          section_of(file, "state", sizeof(StateRecord)));
  std::memcpy(&found.state, state.data(), sizeof(StateRecord));
  KAKEYA_ASSIGN_OR_RETURN(found.tokens, read_tokens(file, *parts.timeline));
  const auto held = static_cast<std::int64_t>(found.tokens.size());
  if (found.state.length < 0 || found.state.length > std::max<std::int64_t>(0, held - 1)) {
    return data_loss("{}: section state: of {} tokens, {} cannot have been run", file.path(), held,
                     found.state.length);
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::span<const std::byte> note, file.section("note"));
  found.note.assign(reinterpret_cast<const char*>(note.data()), note.size());
  return found;
}

std::vector<RowSection> row_sections(const SessionParts& parts, const SessionExtent& extent) {
  std::vector<RowSection> sections;
  add_row_sections("target", parts.timeline->cache(), extent.target, sections);
  if (parts.dflash == nullptr) return sections;
  add_row_sections("drafter", parts.dflash->context(), extent.drafter.context, sections);
  sections.push_back({"taps", {parts.dflash->taps(extent.drafter.waiting)}});
  return sections;
}

Status check_layout(const SnapshotFile& file, const SnapshotKey& key) {
  const auto found = file.key().find("layout");
  const std::string& expected = key.at("layout");
  if (found == file.key().end() || found->second == expected) return {};
  return error(StatusCode::kFailedPrecondition, "{}: key layout: expected \"{}\", got \"{}\"",
               file.path(), expected, printable(found->second));
}

// Refuses rows of a removed type, which no key has any more.
Status check_types(const SnapshotFile& file) {
  for (const char* name : {"full layers", "sliding layers", "codes", "drafter's layers"}) {
    const auto found = file.key().find(name);
    if (found == file.key().end()) continue;
    const std::string type = found->second.substr(0, found->second.find(' '));
    const std::string removed = removed_kv_type_refusal(type);
    if (removed.empty()) continue;
    return error(StatusCode::kFailedPrecondition, "{}: key {}: {}", file.path(), name, removed);
  }
  return {};
}

// Writes rows that may lie on a device; `bounce` is memory for copies of them.
Status append_rows(MemorySpace& memory,
                   const KvPiece& piece,
                   std::vector<std::byte>& bounce,
                   SnapshotWriter& writer) {
  if (memory.is_host()) return writer.append({piece.data.address(), piece.size});
  bounce.resize(piece.size);
  memory.download(piece.data, bounce);
  return writer.append(bounce);
}

// Sections that every session has.
constexpr std::size_t kFixedSections = 3;

}  // namespace

SnapshotKey session_key(const SessionIdentity& identity,
                        Compute compute,
                        std::string_view backend,
                        const TimelinePlan& plan) {
  return {{"layout", std::string(kLayoutVersion)},
          {"model", identity.model},
          {"drafter", identity.drafter},
          {"projection", identity.projection},
          {"tokenizer", identity.tokenizer},
          {"chat template", identity.chat_template},
          {"compute", compute == Compute::kF32 ? "f32" : "fast"},
          {"backend", std::string(backend)},
          {"context", fmt::format("{}", plan.context)},
          {"rows a pass", fmt::format("{}", plan.max_rows)},
          {"full layers", describe(plan.cache, false)},
          {"sliding layers", describe(plan.cache, true)},
          {"codes", describe_codes(plan.cache)},
          {"drafter's layers", std::string(kv_format_name(plan.drafter.format))}};
}

Status write_session(const std::string& path,
                     const SnapshotKey& key,
                     const SessionParts& parts,
                     std::string_view note) {
  if (note.size() > kMaxSessionNoteBytes) {
    return invalid_argument("{}: a note may have {} bytes but has {}", path, kMaxSessionNoteBytes,
                            note.size());
  }
  const Timeline& timeline = *parts.timeline;
  const std::span<const TokenId> tokens = timeline.tokens();
  // Logits are not kept, so at least one token is to be run again.
  const Position length = std::min(timeline.position(),
                                   std::max<Position>(0, static_cast<Position>(tokens.size()) - 1));
  KAKEYA_ASSIGN_OR_RETURN(const SessionExtent extent, session_extent(parts, length));
  const StateRecord state = {.length = extent.target.length,
                             .written = extent.target.written,
                             .context_length = extent.drafter.context.length,
                             .context_written = extent.drafter.context.written,
                             .waiting_taps = extent.drafter.waiting};

  AtomicFile::remove_abandoned(path);
  KAKEYA_ASSIGN_OR_RETURN(SnapshotWriter writer, SnapshotWriter::create(path));
  KAKEYA_TRY(writer.add("state", bytes_of(std::span(&state, 1))));
  KAKEYA_TRY(writer.add("tokens", bytes_of(tokens)));
  KAKEYA_TRY(writer.add("note", bytes_of(note)));
  MemorySpace& memory = parts.timeline->cache().space();
  std::vector<std::byte> bounce;
  for (const RowSection& section : row_sections(parts, extent)) {
    KAKEYA_TRY(writer.begin(section.name));
    for (const KvPiece& piece : section.pieces) {
      KAKEYA_TRY(append_rows(memory, piece, bounce, writer));
    }
    KAKEYA_TRY(writer.end());
  }
  return writer.finish(key);
}

Result<std::string> read_session(const std::string& path,
                                 const SnapshotKey& key,
                                 const SessionParts& parts) {
  KAKEYA_ASSIGN_OR_RETURN(SnapshotFile file, SnapshotFile::open(path));
  // First: what else a key has depends on it.
  KAKEYA_TRY(check_layout(file, key));
  KAKEYA_TRY(check_types(file));
  KAKEYA_TRY(file.check_key(key));
  KAKEYA_ASSIGN_OR_RETURN(Found found, read_parts(file, parts));
  // Memory first: nothing is written before all of it is there. Only then is it known where the
  // rows go, and how many bytes they are.
  const SessionExtent extent = found.extent();
  if (const Status ready = prepare_session(parts, extent, found.state.length); !ready) {
    return Unexpected(ready.error().with_context(path));
  }
  const std::vector<RowSection> sections = row_sections(parts, extent);
  if (file.sections().size() != kFixedSections + sections.size()) {
    return data_loss("{}: expected {} sections, got {}", path, kFixedSections + sections.size(),
                     file.sections().size());
  }
  std::vector<std::span<const std::byte>> rows;
  for (const RowSection& section : sections) {
    KAKEYA_ASSIGN_OR_RETURN(const auto bytes, section_of(file, section.name, section.bytes()));
    rows.push_back(bytes);
  }
  MemorySpace& memory = parts.timeline->cache().space();
  for (std::size_t i = 0; i < sections.size(); ++i) {
    std::size_t begin = 0;
    for (const auto& piece : sections[i].pieces) {
      memory.upload(rows[i].subspan(begin, piece.size), piece.data);
      begin += piece.size;
    }
  }
  set_session(parts, found.tokens, extent);
  return std::move(found.note);
}

}  // namespace kakeya
