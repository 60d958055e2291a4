// The sections of a session's snapshot, once the frame and its checksums are right: whatever they
// say, restoring them succeeds or is refused in one line with the session as it was, and a session
// that took them over generates without a crash. Networks of random weights, in every kind of
// storage; an input is a mode and a list of edits to a file that such a session wrote.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/snapshot_layout.h"
#include "memory_file.h"
#include "model/random_source.h"
#include "model/restore/projection.h"
#include "runtime/engine_impl.h"

namespace {

using kakeya::EngineImpl;
using kakeya::Evicted;
using kakeya::KvType;
using kakeya::Session;
using kakeya::TokenId;

using Bytes = std::vector<std::byte>;

// Both kinds of layers, experts, one vector for key and value; rings wrap within the texts below.
constexpr std::string_view kModel = R"({"model_type": "gemma4_text", "vocab_size": 64,
  "hidden_size": 32, "intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 32,
  "num_global_key_value_heads": 1, "hidden_activation": "gelu_pytorch_tanh",
  "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
  "rope_parameters": {
    "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                       "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
  "sliding_window": 8, "final_logit_softcapping": 30.0, "attention_k_eq_v": true,
  "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
  "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16})";

constexpr std::string_view kDrafter = R"({"model_type": "qwen3", "hidden_size": 32,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
  "max_position_embeddings": 128, "vocab_size": 64, "block_size": 4, "num_target_layers": 3,
  "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6,
  "use_sliding_window": true, "hidden_act": "silu",
  "dflash_config": {"mask_token_id": 4, "target_layer_ids": [0, 2]}})";

constexpr std::string_view kProjection = R"({"features": "context",
  "drafter_num_layers": 2, "drafter_num_kv_heads": 1, "drafter_head_dim": 16, "rank": 8,
  "verifier_num_layers": 3, "verifier_layer_kv_heads": [1, 1, 1],
  "verifier_layer_head_dims": [16, 16, 32]})";

constexpr kakeya::Position kContext = 64;

struct Mode {
  const char* name;
  kakeya::SessionOptions options;
  bool restores = false;
};

std::vector<Mode> all_modes() {
  const auto of = [](KvType full, KvType sliding, Evicted on_full, Evicted on_sliding) {
    kakeya::SessionOptions options{.context = kContext,
                                   .max_rows = 8,
                                   .kv_full = full,
                                   .kv_sliding = sliding,
                                   .kv_drafter = full};
    options.evicted_full = on_full;
    options.evicted_sliding = on_sliding;
    if (on_full == Evicted::kKeep && on_sliding == Evicted::kKeep) return options;
    options.sink = 2;
    options.window = 6;
    return options;
  };
  kakeya::SessionOptions plain = of(KvType::kAuto, KvType::kAuto, Evicted::kKeep, Evicted::kKeep);
  plain.drafting = false;
  return {
      {"auto", of(KvType::kAuto, KvType::kAuto, Evicted::kKeep, Evicted::kKeep)},
      {"plain", plain},
      {"coded", of(KvType::kE8, KvType::kInt8, Evicted::kKeep, Evicted::kKeep)},
      {"drop", of(KvType::kInt8, KvType::kF32, Evicted::kDrop, Evicted::kDrop)},
      {"restore", of(KvType::kAuto, KvType::kAuto, Evicted::kRestore, Evicted::kRestore), true}};
}

// The content of the file of a session, to be edited.
struct Content {
  kakeya::SnapshotKey key;
  std::vector<std::pair<std::string, Bytes>> sections;
};

// The whole file, with checksums as they must be.
std::vector<std::uint8_t> file_of(const Content& content) {
  std::vector<std::uint8_t> bytes(sizeof(kakeya::SnapshotPreamble));
  const auto align = [&] { bytes.resize(kakeya::align_snapshot_offset(bytes.size())); };
  std::vector<std::string> entries;
  for (const auto& [name, data] : content.sections) {
    align();
    entries.push_back(fmt::format(R"({{"name":"{}","offset":{},"length":{},"checksum":"{:016x}"}})",
                                  name, bytes.size(), data.size(),
                                  kakeya::snapshot_checksum(data)));
    const auto* first = reinterpret_cast<const std::uint8_t*>(data.data());
    bytes.insert(bytes.end(), first, first + data.size());
  }
  align();
  std::vector<std::string> key;
  for (const auto& [name, value] : content.key) {
    key.push_back(fmt::format(R"("{}":"{}")", name, value));
  }
  const std::string header = fmt::format(R"({{"key":{{{}}},"sections":[{}]}})", fmt::join(key, ","),
                                         fmt::join(entries, ","));
  kakeya::SnapshotPreamble preamble;
  preamble.file_bytes = bytes.size() + header.size();
  preamble.header_bytes = header.size();
  preamble.header_checksum = kakeya::snapshot_checksum(std::as_bytes(std::span(header)));
  std::memcpy(bytes.data(), &preamble, sizeof(preamble));
  bytes.insert(bytes.end(), header.begin(), header.end());
  return bytes;
}

void expect_one_line(const kakeya::Error& error) {
  KAKEYA_CHECK(error.message().find('\n') == std::string::npos);
}

kakeya::Result<std::string> restore(Session& session, const Content& content) {
  const std::vector<std::uint8_t> bytes = file_of(content);
  const kakeya::test::MemoryFile file(bytes.data(), bytes.size());
  return session.restore(file.path());
}

// The value of a call that must succeed, or the target itself is wrong.
template <typename T>
T must(kakeya::Result<T> result) {
  if (!result) fmt::print(stderr, "session_fuzz: {}\n", result.error().message());
  KAKEYA_CHECK(result.has_value());
  return std::move(result).value();
}

std::vector<TokenId> generate(Session& session, std::int64_t count, std::int64_t draft_length) {
  return must(session.generate({.max_tokens = count,
                                .sampling = {.temperature = 0.0F},
                                .draft_length = draft_length,
                                .ignore_model_stop_ids = true}))
      .ids;
}

// A session whose content changes with every input, and what it is set back to.
struct Subject {
  std::unique_ptr<Session> session;
  Content base;                   // the session's own, when nothing was restored into it
  Content other;                  // of a longer session: what inputs edit
  std::vector<TokenId> tokens;    // of base
  std::vector<TokenId> expected;  // how base goes on

  void set_back() const { must(restore(*session, base)); }
};

Content snapshot_of(Session& session, const std::string& path) {
  KAKEYA_CHECK(session.snapshot(path, "a note").has_value());
  kakeya::SnapshotFile file = must(kakeya::SnapshotFile::open(path));
  Content content{file.key(), {}};
  for (const kakeya::SnapshotSection& section : file.sections()) {
    const auto bytes = must(file.section(section.name));
    content.sections.emplace_back(section.name, Bytes(bytes.begin(), bytes.end()));
  }
  std::filesystem::remove(path);
  return content;
}

// Everything that inputs share; it lives as long as the program.
class Subjects {
 public:
  Subjects() {
    std::string folder = std::filesystem::temp_directory_path() / "session_fuzz-XXXXXX";
    KAKEYA_CHECK(::mkdtemp(folder.data()) != nullptr);
    engine_ = open();
    kakeya::ThreadPool pool({.num_threads = 1, .pin = false});
    const kakeya::ProjectionConfig config = must(kakeya::parse_projection_config(kProjection));
    kakeya::RandomSource source(expected_tensors(config), /*seed=*/3, pool);
    kakeya::WeightLoader loader(source, engine_->backend(), budget_, {});
    projection_ = must(kakeya::Projection::load(config, loader, kakeya::Compute::kFast));
    for (const Mode& mode : all_modes()) subjects_.push_back(create(mode, folder + "/session"));
    std::filesystem::remove(folder);
  }

  const Subject& at(std::uint8_t index) const { return subjects_[index % subjects_.size()]; }

 private:
  static std::unique_ptr<EngineImpl> open() {
    const kakeya::ModelConfig model = must(kakeya::parse_model_config(kModel));
    const kakeya::DrafterConfig drafter = must(kakeya::parse_drafter_config(kDrafter));
    const kakeya::EngineOptions options{.num_threads = 1, .pin_threads = false};
    return must(EngineImpl::open_random(model, options, drafter));
  }

  Subject create(const Mode& mode, const std::string& path) {
    EngineImpl& engine = *engine_;
    const auto session_of = [&](TokenId first, std::int64_t count) {
      auto session = must(engine.create_session(
          mode.options, {.projection = mode.restores ? projection_.get() : nullptr}));
      std::vector<TokenId> prompt;
      for (TokenId id = 0; id < count; ++id) prompt.push_back((first + 5 * id) % 64);
      KAKEYA_CHECK(session->append(prompt).has_value());
      generate(*session, 6, kakeya::kAutoDraftLength);
      return session;
    };
    Subject subject;
    subject.other = snapshot_of(*session_of(1, 30), path);
    subject.session = session_of(2, 21);
    subject.base = snapshot_of(*subject.session, path);
    subject.set_back();
    subject.tokens.assign(subject.session->tokens().begin(), subject.session->tokens().end());
    subject.expected = generate(*subject.session, 3, 3);
    subject.set_back();
    return subject;
  }

  std::unique_ptr<EngineImpl> engine_;
  kakeya::MemoryBudget budget_;
  std::unique_ptr<kakeya::Projection> projection_;
  std::vector<Subject> subjects_;
};

// The bytes of an input, zeros behind its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  bool empty() const { return rest_.empty(); }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    bytes = std::min(bytes, rest_.size());
    std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  std::span<const std::uint8_t> bytes(std::size_t count) {
    const auto found = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(found.size());
    return found;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

// How a section is changed.
enum Edit : std::uint8_t { kPut, kAdd, kFill, kResize, kTake, kDrop, kMore, kEdits };

void edit(Input& input, Content& content) {
  const auto which = static_cast<Edit>(input.number(1) % kEdits);
  auto& sections = content.sections;
  if (sections.empty()) return;
  const std::size_t index = input.number(1) % sections.size();
  Bytes& bytes = sections[index].second;
  const std::size_t at = input.number(2) % (bytes.size() + 1);
  const std::size_t room = bytes.size() - at;
  switch (which) {
    case kPut: {
      const auto put = input.bytes(std::min<std::size_t>(input.number(1), room));
      std::copy(put.begin(), put.end(), reinterpret_cast<std::uint8_t*>(bytes.data()) + at);
      break;
    }
    case kAdd: {  // to one of the state's numbers, or what lies there
      std::uint64_t value = 0;
      const std::size_t place = at / sizeof(value) * sizeof(value);
      if (bytes.size() - place < sizeof(value)) break;
      std::memcpy(&value, bytes.data() + place, sizeof(value));
      value += input.number(1) - 128;  // wraps around
      std::memcpy(bytes.data() + place, &value, sizeof(value));
      break;
    }
    case kFill: {
      const auto byte = static_cast<std::byte>(input.number(1));
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  std::min<std::size_t>(input.number(2), room), byte);
      break;
    }
    case kResize:
      bytes.resize(input.number(2) % 8192);
      break;
    case kTake:  // what another section holds
      bytes = Bytes(sections[at % sections.size()].second);
      break;
    case kDrop:
      sections.erase(sections.begin() + static_cast<std::ptrdiff_t>(index));
      break;
    case kMore:
      sections.emplace_back(fmt::format("more/{}", sections.size()), Bytes(at));
      break;
    case kEdits:
      break;
  }
}

// The use of a session that took over what it was given.
struct Use {
  bool sampled = false;
  bool fixed_length = false;
  kakeya::Position back = 0;  // where it is taken back to afterwards
};

// Refusals are fine; what it says must make sense.
void use(Session& session, const Use& how) {
  const auto held = static_cast<kakeya::Position>(session.tokens().size());
  KAKEYA_CHECK(held <= kContext && session.position() >= 0);
  KAKEYA_CHECK(held == 0 ? session.position() == 0 : session.position() < held);
  const kakeya::GenerateOptions options{
      .max_tokens = 2,
      .sampling = {.temperature = how.sampled ? 1.0F : 0.0F, .top_p = 0.9F},
      .draft_length = how.fixed_length ? 3 : kakeya::kAutoDraftLength,
      .ignore_model_stop_ids = true};
  // Rows that were no numbers give logits that are none, which is said.
  const auto sound = [&] {
    const auto generated = session.generate(options);
    if (generated) return true;
    expect_one_line(generated.error());
    KAKEYA_CHECK(generated.error().code() == kakeya::StatusCode::kDataLoss);
    return false;
  };
  if (held == 0) {
    KAKEYA_CHECK(!session.generate(options).has_value());
  } else {
    sound();
  }
  if (const auto status = session.truncate(how.back); !status) {
    return expect_one_line(status.error());
  }
  if (how.back > 0) sound();
}

// Says whether the session took over `content`; if not, it says why in one line and is as it was.
bool takes_over(Session& session, const Content& content) {
  const std::vector<TokenId> tokens(session.tokens().begin(), session.tokens().end());
  const kakeya::Position position = session.position();
  const auto restored = restore(session, content);
  if (restored) return true;
  expect_one_line(restored.error());
  KAKEYA_CHECK(std::ranges::equal(session.tokens(), tokens) && session.position() == position);
  return false;
}

}  // namespace

// Mode, use, then edits: each is tried, and stays if it was taken over. With a fork, which shares
// its blocks with the session, nothing of that may reach the session.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Subjects subjects;
  Input input(data, size);
  const Subject& subject = subjects.at(static_cast<std::uint8_t>(input.number(1)));
  const std::uint64_t flags = input.number(1);
  const Use how{.sampled = (flags & 1) != 0,
                .fixed_length = (flags & 2) != 0,
                .back = static_cast<kakeya::Position>(input.number(1) % kContext)};
  const std::unique_ptr<Session> fork = (flags & 8) == 0 ? nullptr : must(subject.session->fork());
  Session& session = fork == nullptr ? *subject.session : *fork;
  Content content = subject.other;
  bool changed = false;
  for (int edits = 0; edits < 32 && !input.empty(); ++edits) {
    Content edited = content;
    edit(input, edited);
    if (!takes_over(session, edited)) continue;
    content = std::move(edited);
    changed = true;
  }
  if (changed) {
    use(session, how);
    if (fork == nullptr) subject.set_back();
  }
  KAKEYA_CHECK(std::ranges::equal(subject.session->tokens(), subject.tokens));
  KAKEYA_CHECK(generate(*subject.session, 3, 3) == subject.expected);
  subject.set_back();
  return 0;
}
