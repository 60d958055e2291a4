// Options of an engine, a session and a generation.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kakeya/logprobs.h"
#include "kakeya/types.h"

namespace kakeya {

struct RoundRecord;  // kakeya/session.h

// How products are computed. kF32: bf16 widened, f32 activations: the parity mode. kFast:
// activations are rounded to bf16 where weights, or stored keys and values, are bf16. Sums are f32
// (or wider) in both.
enum class Compute : std::uint8_t { kF32, kFast };

// How keys and values are stored. kAuto: f32 with Compute::kF32, bf16 with Compute::kFast. kInt8: a
// scale for each token and head. kE8: 4 bits an element after a Hadamard rotation, as points of a
// lattice. From kCalibrated on: codes of full layers that follow statistics of the model, which
// `kakeya calibrate` writes (calibrated_kv()). docs/memory.md has bytes and errors.
enum class KvType : std::uint8_t { kAuto, kF32, kBf16, kInt8, kE8, kCalibrated };

inline constexpr int kLeastCalibratedBits = 2;
inline constexpr int kMostCalibratedBits = 6;

// The calibrated type of so many bits for an element of a key and of a value, each from
// kLeastCalibratedBits to kMostCalibratedBits.
constexpr KvType calibrated_kv(int key_bits, int value_bits) {
  constexpr int kKinds = kMostCalibratedBits - kLeastCalibratedBits + 1;
  return static_cast<KvType>(static_cast<int>(KvType::kCalibrated) +
                             (key_bits - kLeastCalibratedBits) * kKinds + value_bits -
                             kLeastCalibratedBits);
}
constexpr bool is_calibrated(KvType type) {
  return type >= KvType::kCalibrated;
}

// Each type with its name, as commands, Python and reports have it.
inline constexpr std::pair<std::string_view, KvType> kKvTypes[] = {
    {"auto", KvType::kAuto},       {"f32", KvType::kF32},         {"bf16", KvType::kBf16},
    {"int8", KvType::kInt8},       {"e8", KvType::kE8},           {"k2v2", calibrated_kv(2, 2)},
    {"k2v3", calibrated_kv(2, 3)}, {"k2v4", calibrated_kv(2, 4)}, {"k2v5", calibrated_kv(2, 5)},
    {"k2v6", calibrated_kv(2, 6)}, {"k3v2", calibrated_kv(3, 2)}, {"k3v3", calibrated_kv(3, 3)},
    {"k3v4", calibrated_kv(3, 4)}, {"k3v5", calibrated_kv(3, 5)}, {"k3v6", calibrated_kv(3, 6)},
    {"k4v2", calibrated_kv(4, 2)}, {"k4v3", calibrated_kv(4, 3)}, {"k4v4", calibrated_kv(4, 4)},
    {"k4v5", calibrated_kv(4, 5)}, {"k4v6", calibrated_kv(4, 6)}, {"k5v2", calibrated_kv(5, 2)},
    {"k5v3", calibrated_kv(5, 3)}, {"k5v4", calibrated_kv(5, 4)}, {"k5v5", calibrated_kv(5, 5)},
    {"k5v6", calibrated_kv(5, 6)}, {"k6v2", calibrated_kv(6, 2)}, {"k6v3", calibrated_kv(6, 3)},
    {"k6v4", calibrated_kv(6, 4)}, {"k6v5", calibrated_kv(6, 5)}, {"k6v6", calibrated_kv(6, 6)}};

// Names of types that earlier versions had, all of about 4 bits an element, and what refuses them.
// docs/kv-codes.md says what they lost.
inline constexpr std::string_view kRemovedKvTypes[] = {"int4", "int4r", "d4"};
inline constexpr std::string_view kRemovedKvTypeRefusal =
    "was removed, others lose less in as many bytes: expected e8, or for full layers k4v4 after "
    "`kakeya calibrate`";
// The refusal of one of these names, with the name; empty for others.
inline std::string removed_kv_type_refusal(std::string_view name) {
  for (const std::string_view removed : kRemovedKvTypes) {
    if (name == removed) return std::string(name) + " " + std::string(kRemovedKvTypeRefusal);
  }
  return "";
}

// Ways to treat evicted rows of the KV cache. kKeep: they stay, exactly. kDrop: they are forgotten,
// and their memory is used for later ones. kRestore: as kDrop, but a projection makes about what
// they were from a code that all layers share.
enum class Evicted : std::uint8_t { kKeep, kDrop, kRestore };

struct SessionOptions {
  // Most tokens the session can hold; 0: the model's limit, at most kDefaultContext. Where full
  // layers drop rows it may exceed the model's limit, up to 2^24.
  std::int64_t context = 0;
  // Most tokens of one forward pass: prompts are run in chunks of it. Rings of sliding layers hold
  // this many rows beyond their window.
  std::int64_t max_rows = 512;
  KvType kv_full = KvType::kAuto;
  KvType kv_sliding = KvType::kAuto;
  KvType kv_drafter = KvType::kAuto;  // of the drafter's context
  // A query at position q evicts positions sink <= p <= q - window, layers of each class as they
  // are told; window 0: nothing is evicted. Positions stay absolute. A drafter's full
  // layers drop every position that the target's full layers drop or restore.
  std::int64_t sink = 4;
  std::int64_t window = 0;
  Evicted evicted_full = Evicted::kKeep;
  Evicted evicted_sliding = Evicted::kKeep;
  KvType kv_codes = KvType::kAuto;  // of restored rows
  // Exact positions of layers stored by calibrated codes: the last so many, with a query's own (1
  // or more), and the first `sink`. They are kept as bf16, or f32 with Compute::kF32.
  std::int64_t kv_exact = 64;
  // False: plain steps only, and nothing in memory for drafts, though the engine has a drafter.
  bool drafting = true;
  // True: layers that keep every token take memory as they fill, in blocks of at most 64 tokens,
  // instead of all of it when the session is made. A pass for which there is none is refused with
  // kResourceExhausted, and the session is as before. A Scheduler sets such a request aside then.
  bool grow = false;
  // The prompt cache, files of it too, and requests that run beside each other share rows within
  // one scope alone, so that nobody finds by the time of an answer what others have asked. At most
  // kMostScopeBytes; it stands in files.
  std::string cache_scope = {};

  static constexpr std::size_t kMostScopeBytes = 128;
  static constexpr std::int64_t kDefaultContext = 8192;
  static constexpr std::int64_t kMostKept = std::int64_t{1} << 30;  // of sink and of window
};

// The proposer of speculative decoding. Loaded with the engine.
struct DraftOptions {
  // "ngram": tokens that followed the same n-gram before; a drafter's folder or GGUF file; "ngram+"
  // and one of these: both, each round whichever is measured to gain more; "auto": n-grams, and the
  // drafter in the model folder's drafter/, if it has one; "none".
  std::string source = "auto";
  // Drafts also where the backend gives a row other bits among others than alone, so that drafts
  // may change the output. Where that is not known of a backend it is measured when a model is
  // loaded; without this, blocks have no more rows than were found to be exact, and where none are,
  // nothing is drafted: then open() refuses a `source` but "auto" (kFailedPrecondition).
  bool allow_inexact = false;
};

// The part of a model's texts, its tokenizer and its chat template, that Engine::open() asks for.
// kIfThere: what there is; a broken tokenizer is refused. kUnread: nothing, for token ids alone.
// kChat: a model without a chat template is refused (kFailedPrecondition) before weights are
// loaded.
enum class ModelTexts : std::uint8_t { kIfThere, kUnread, kChat };

class Constraint;  // constraint.h

struct EngineOptions {
  std::string model_dir = {};  // a folder, or a GGUF file (of a split one the first part)
  // A file with the Jinja chat template to use instead of the model's own. Empty: the model's.
  std::string chat_template = {};
  ModelTexts texts = ModelTexts::kIfThere;
  // "cpu"; "cpu/avx2" and its like for an instruction set of the machine's; "ref", the slow
  // reference; "guarded", the same on memory that stands for a device's; "cuda", an NVIDIA card, or
  // "cuda/1", another one; "mlx", MLX's GPU or, without one, its CPU device, or one of these:
  // "mlx/gpu", "mlx/cpu". `kakeya doctor` lists them.
  std::string backend = "cpu";
  Compute compute = Compute::kFast;
  static constexpr int kMostThreads = 1024;
  int num_threads = 0;  // 0: one for each CPU this process may use
  bool pin_threads = true;
  // Bytes that weights and all sessions together may take. open() refuses before loading anything
  // if the weights and one session of `session` do not fit.
  std::uint64_t memory_limit = std::numeric_limits<std::uint64_t>::max();
  // The limit of a device's memory, for backends whose memory is not the host's: weights,
  // sessions and passes lie there then. Never more than what is free there.
  std::uint64_t device_memory_limit = std::numeric_limits<std::uint64_t>::max();
  // Most bytes, within memory_limit, of a cache of what sessions have run: one whose tokens begin
  // like those of another, with the same options, starts from there instead of running them again
  // (Session::sync(), prefill(), generate()); its output is the same, bit for bit. 0: no cache. The
  // cache is not part of Engine::estimate(): it lives on what the limit leaves, and gives way,
  // oldest first, before a session is refused memory (docs/memory.md). kAutoPromptCache: a quarter
  // of what memory_limit leaves beside weights and workspace.
  std::uint64_t prompt_cache_bytes = 0;
  static constexpr std::uint64_t kAutoPromptCache = std::numeric_limits<std::uint64_t>::max();
  // A folder for what the prompt cache holds, made if it is not there: what memory gives up comes
  // back from it where that is faster than running it, and a later engine finds it. Engines that
  // run at once may share a folder: each finds the others' files. Empty: none. open() refuses it
  // without a prompt cache (kInvalidArgument), or where it takes no files (kUnavailable).
  std::string prompt_cache_dir = {};
  // Most bytes of its files: the oldest are deleted, of whatever model.
  std::uint64_t prompt_cache_dir_bytes = std::uint64_t{8} << 30;
  // Instead of refusing, open() makes the default session smaller until it fits, by a ladder:
  // exact things first, then precision, then old rows (docs/memory.md). What `session` asks for
  // explicitly stays. Engine::memory_plan() says what became of it. Where drafts are given up the
  // engine has no drafter, for other sessions neither.
  bool fit_memory = false;
  SessionOptions session = {};
  DraftOptions draft = {};
  // Restores evicted rows: a folder with f_theta_config.json and its weights. "auto", if the
  // session of `session` restores rows: the model folder's projections/codes, if there is one and
  // full layers alone are restored, else its projections/aux. "none". It needs a drafter's weights,
  // also where nothing is drafted.
  std::string projection = "auto";
  // The statistics for calibrated types of rows, as `kakeya calibrate` writes them. "auto": the
  // model folder's kv-codes.safetensors, or beside a GGUF file its name with .kv-codes.safetensors
  // behind it. Read if there is one; sessions of such a type are refused without.
  std::string kv_statistics = "auto";
  // A folder where packed weights are kept, a file for each model: the next start maps the file
  // instead of packing the weights again. "beside": where the model is. Empty: none. Files are made
  // anew when the model's files change, or when they are damaged (docs/weights-cache.md). Where the
  // folder takes none, the weights are packed without.
  std::string weights_cache = {};
  // Maps those files without comparing their bytes with their checksums.
  bool weights_cache_trust = false;
  // Called now and then while loading, with bytes done and in all; may be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
  // Called with a line on what is done without: while loading, or by any thread; may be empty.
  std::function<void(const std::string& note)> on_note = {};
};

struct SamplingOptions {
  float temperature = 0.0F;         // 0: greedy
  int top_k = 0;                    // 0: off
  float top_p = 1.0F;               // 1: off
  float min_p = 0.0F;               // 0: off; relative to the best token's probability
  float repetition_penalty = 1.0F;  // on every token of prompt and output; 1: off
  float presence_penalty = 0.0F;    // once for each distinct token of the output
  float frequency_penalty = 0.0F;   // for each occurrence in the output
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::uint64_t seed = 0;
};

inline constexpr std::int64_t kAutoDraftLength = -1;

// Called between chunks of a long prompt, with tokens done and in all; false cancels.
using PrefillProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

struct GenerateOptions {
  std::int64_t max_tokens = 256;
  SamplingOptions sampling = {};
  // Tokens drafted in each round; kAutoDraftLength: what is fastest by measured costs; 0: none.
  std::int64_t draft_length = kAutoDraftLength;
  std::vector<TokenId> stop_ids = {};  // beside those of the model
  bool ignore_model_stop_ids = false;
  // Allows tokens, of this generation alone, which it must outlive; null: all are allowed.
  // Errors of the generation then: kFailedPrecondition if it allows none.
  Constraint* constraint = nullptr;
  // Fills GenerateResult::logprobs and TokenEvent::logprobs, with so many of the likeliest tokens
  // of each position, 0 to kMostTopLogprobs. Costs a pass over the logits for each token.
  bool logprobs = false;
  int top_logprobs = 0;
  // Called while Session::generate() runs what is pending; may be empty. A scheduler, whose prompts
  // run beside other requests, takes none.
  PrefillProgress on_prefill = {};
};

}  // namespace kakeya
