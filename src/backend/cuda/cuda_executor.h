// The operations as launches, one after the other. Meaning: backend/backend.h.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/block_tables.h"
#include "backend/cuda/cuda_matrix.h"
#include "backend/cuda/device/attention.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/fuse.h"

namespace kakeya::cuda {

struct PairTiles;

class CudaExecutor final : public Executor {
 public:
  // `scratch` is of scratch_bytes(plan), in the driver's memory, and `pinned` of
  // pinned_bytes(plan); tables of blocks are charged to `budget` as caches grow. The driver and it
  // must outlive it.
  CudaExecutor(Driver& driver,
               const ExecutorPlan& plan,
               Buffer scratch,
               std::shared_ptr<std::byte> pinned,
               MemoryBudget& budget);
  static std::uint64_t scratch_bytes(const ExecutorPlan& plan);
  static std::size_t pinned_bytes(const ExecutorPlan& plan);
  // The logits that there is room to list.
  static std::int64_t most_listed(const ExecutorPlan& plan);

  void begin(const Batch& batch) override;
  bool repeat(const PassKey& key) override;
  Status end(std::span<const ConstRows> read) override;
  void embed(const Matrix& table, float scale, Rows out) override;
  void rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) override;
  void matmul(ConstRows x, const Matrix& w, Rows out) override;
  void gated_matmul(ConstRows x,
                    const Matrix& gate,
                    const Matrix& up,
                    GateActivation activation,
                    Rows out) override;
  void gated_multiply(ConstRows gate,
                      DevicePointer<const float> other,
                      std::int64_t other_stride,
                      GateActivation activation,
                      Rows out) override;
  void make_rope_table(ConstVector inverse_frequencies, RopeTable table) override;
  void apply_rope(Rows x, RopeTable table) override;
  void store_kv(ConstRows keys, ConstRows values, std::int64_t layer) override;
  void attention(ConstRows queries,
                 const AttentionSettings& settings,
                 std::int64_t layer,
                 Rows out) override;
  void gather_logit_rows(ConstRows x, Rows out) override;
  void route(ConstRows logits,
             DevicePointer<const float> per_expert_scale,
             Routing routing) override;
  // Counts the bytes of as many experts as rows may be routed to.
  void experts(ConstRows x,
               const ExpertWeights& weights,
               const Routing& routing,
               GateActivation activation,
               Rows out) override;
  void add(ConstRows a, ConstRows b, float scale, Rows out) override;
  void add_vector(Rows x, ConstVector vector) override;
  void convolve(ConstRows x, const RowConvolution& convolution, Rows out) override;
  void softcap(Rows x, float cap) override;
  void copy_columns(ConstRows x,
                    DevicePointer<float> out,
                    std::int64_t out_width,
                    std::int64_t column) override;
  void choose(std::span<SequenceChoice> choices, HostCopies& copies) override;
  void choose_drafts(std::span<BlockChoice> choices, HostCopies& copies) override;
  void list_largest(Rows logits,
                    TokenId never,
                    HostCopies& copies,
                    std::span<TokenLogit> out) override;

 private:
  // Rows that are in one of roundings_, the last one that was used.
  struct RoundedRows {
    const float* x = nullptr;
    std::int64_t count = 0;
    std::int64_t width = 0;

    bool operator==(const RoundedRows&) const = default;
  };
  // Where rounded rows are, as in device::ProductRows. There are several, used in turn, so that
  // rows may be rounded long before they are multiplied (fuse.h).
  struct Rounding {
    std::int8_t* codes;
    float* numbers;
    float* low_sums;
  };
  static constexpr std::size_t kRoundings = 4;
  static constexpr std::int64_t kAttentionCounters = 64;
  // Kinds of passes whose launches are kept, and of lists that wait for no pass.
  static constexpr std::size_t kRecordings = 24;
  // Batches whose inputs may be on their way to the device.
  static constexpr std::size_t kBegunInputs = 4;
  // Where the tables of the blocks of keys and of values begin, in all tables; or
  // BlockTables::kNone.
  struct RowTables {
    std::int64_t keys;
    std::int64_t values;
  };
  // The tables of a layer's KvLayer.
  struct LayerTables {
    RowTables rows;
    RowTables codes;
  };

  // How attention meets keys: what launches have of the positions of rows.
  struct AttentionPlan {
    std::int64_t part_positions;
    std::int64_t spans;

    bool operator==(const AttentionPlan&) const = default;
  };
  // The attention of a segment, in all layers that are alike.
  struct PlannedAttention {
    device::AttentionParams asked;  // of the first of them, without the plan
    AttentionSettings settings;
    ConstRows queries;
    std::size_t segment;
    std::int64_t layer;
    bool on_tensor_cores;
    AttentionPlan plan;
    std::uint64_t num_layers;
  };
  // The launches of a kind of passes, and from what they follow besides the operations of the
  // network: while that stays they do.
  struct Recording {
    LaunchList launches;
    std::uint64_t last_used = 0;
    PassKey key = {};
    std::vector<std::int64_t> batch = {};  // as describe_batch() has it
    bool is_whole = false;  // the launches are those of all operations, and what follows
    std::size_t num_launches = 0;
    std::vector<PlannedAttention> attentions = {};
    // Bytes that they read: those of attention in the pass that was recorded, and all others.
    std::uint64_t attention_bytes = 0;
    std::uint64_t bytes = 0;
  };

  // Rows of logits whose lists lie in lists_, with the device's changes before.
  struct ListedRows {
    ConstRows rows;
    std::uint64_t changes = 0;
  };

  // Where the driver takes lists, kernels of a pass wait here until something needs them.
  void launch(Kernel kernel, const LaunchShape& shape, const void* parameters) {
    rounded_ = {};
    listed_rows_ = {};
    record(kernel, shape, parameters);
    if (!driver_.takes_lists()) flush();
  }
  void record(Kernel kernel, const LaunchShape& shape, const void* parameters);
  // Gives the recording that was not used for longest to another kind of passes.
  Recording& give_recording();
  // Launches are recorded there until they are handed on.
  void use(Recording& recording);
  // Makes described_ all that launches follow from, but for positions and the operations. False if
  // nobody can say.
  bool describe_batch();
  // None if the rows are not all taken at once.
  std::optional<AttentionPlan> plan_attention(device::AttentionParams p,
                                              std::int64_t rows,
                                              bool on_tensor_cores) const;
  void remember_attention(const PlannedAttention& own);
  bool has_equal_plans(const Recording& recording) const;
  std::uint64_t attention_bytes_of(const PlannedAttention& attention) const;
  // The operations of a pass that is being recorded are all there.
  void close_pass();
  // Hands on those that wait. After a failure nothing runs until end() has told it.
  void flush();
  void fail(Error error);
  // Waits for all that was begun. Errors: those of Driver::synchronize().
  Status wait();
  // Waits likewise, behind tell_host(). Errors: those of Driver::await().
  Status await();
  // Launches what writes `out` alone: rounded rows stay so where they are others.
  void launch_product(Kernel kernel, const LaunchShape& shape, const void* parameters, Rows out);
  // Rows for products with weights, of which some may be of integers: then they are rounded, unless
  // they just were.
  device::ProductRows product_rows(const float* x,
                                   std::int64_t count,
                                   std::int64_t width,
                                   bool integers);
  void integer_matmul(ConstRows x, const CudaMatrix& w, Rows out);
  void gated_in_parts(
      ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out);
  // Experts of pairs of a row and a rank, each by itself or those of an expert together.
  // Returns whether the kernel may round what it makes.
  bool launch_hidden(device::ExpertHiddenParams& parameters, const CudaMatrix& gate);
  void launch_outputs(device::ExpertOutputParams& parameters,
                      const CudaMatrix& down,
                      bool are_rounded);
  void launch_grouped_hidden(device::ExpertHiddenParams& parameters,
                             const CudaMatrix& gate,
                             std::int64_t pairs,
                             const PairTiles& tiles);
  void launch_grouped_outputs(device::ExpertOutputParams& parameters,
                              const CudaMatrix& down,
                              std::int64_t rows,
                              const PairTiles& tiles);
  // Gives the pass's positions and ids a place of their own until somebody waits, from where its
  // first kernel takes them.
  void prepare_inputs();
  // Records that kernel, once a batch.
  void take_inputs();
  // Has the host told when all that was recorded has run.
  void tell_host();
  RowTables add_tables(const KvRows& rows);
  // The tables of `layer` of the segment with this index.
  const LayerTables& layer_tables(std::size_t segment, std::int64_t layer) const;
  device::CachedRows cached_rows(const KvRows& rows, const RowTables& tables) const;
  // Rows of a pass that one launch stores: those from `first` on.
  struct PreparedRows {
    std::int64_t first = 0;
    device::CachePlaces to = {};
  };
  // Stores rows of a segment, behind those of others that were prepared and can be stored with
  // them.
  void prepare_rows(PreparedRows& prepared,
                    ConstRows keys,
                    ConstRows values,
                    const Segment& segment,
                    const device::CachedRows& cache);
  void store_prepared(PreparedRows& prepared, ConstRows keys, ConstRows values);
  template <typename Int>
  device::RowPositions<Int> row_positions(const device::AttentionParams& p) const;
  std::int64_t most_spans(const device::AttentionParams& p, std::int64_t rows, bool restored) const;
  // Attention of `rows` rows of a segment; `restored` is null where nothing is.
  void attend(device::AttentionParams p,
              std::int64_t rows,
              const RestoredRows* restored,
              const LayerTables& tables,
              const AttentionSettings& settings);
  void choose_parts(device::AttentionParams& p, std::int64_t tiles) const;
  // The rows of `rows` that have room for their sums.
  std::int64_t rows_at_once(const device::AttentionParams& p, std::int64_t rows) const;
  std::int64_t tensor_rows_at_once(device::AttentionParams p, std::int64_t rows) const;
  // For the blocks of so many kv heads; null where there are too many of them, or sequences, which
  // would wait for each other's.
  std::uint32_t* attention_counters(std::int64_t num_kv_heads) const {
    const bool have_room = num_kv_heads <= kAttentionCounters && batch().segments.size() == 1;
    return have_room ? attention_counters_ : nullptr;
  }
  std::int64_t share_of_partials() const;
  void give_partials(device::AttentionParams& p, std::size_t segment);
  // Launches attention of the sequences of sequences_ that can be launched with `p`, with it later.
  void prepare_parts(const device::AttentionParams& p);
  void attend_to_prepared_parts();
  // Attention of `rows` rows of the segment with this index.
  void attend_on_tensor_cores(device::AttentionParams p, std::int64_t rows, std::size_t segment);
  // Has the device list the largest logits of each row: where its lists will begin in lists_. None
  // if there is no room.
  std::optional<std::size_t> list_largest(ConstRows rows);
  // Behind a pass: lists its rows of logits, of which tokens are mostly chosen.
  void list_logits(std::span<const ConstRows> read);
  // Hands on what waits, and waits for all. Errors: as end().
  Status finish();
  // Where the lists of rows of the pass begin; none if something may have written them since.
  std::optional<std::size_t> find_lists(ConstRows rows) const;
  // Gives places_ to the rows of wanted_, whose lists are there or are made now, all together.
  // Errors: as end().
  Status place_lists();
  // The largest logits of one of the rows whose lists begin at `first`, without `never`; valid
  // until the next call. None if the row has a number that is not finite.
  std::optional<LargestLogits> read_largest(std::size_t first,
                                            Rows rows,
                                            std::size_t row,
                                            TokenId never);
  TokenId draft_row_from_largest(std::size_t first,
                                 const BlockChoice& choice,
                                 std::size_t row,
                                 HostCopies& copies);
  // For copies, which come behind all launches before them.
  MemorySpace& space() {
    flush();
    rounded_ = {};
    listed_rows_ = {};
    return driver_.memory();
  }

  Driver& driver_;
  const ExecutorPlan plan_;
  Buffer scratch_;
  std::shared_ptr<std::byte> pinned_;
  // The parts of scratch_.
  std::int64_t* pass_number_;
  std::int64_t* positions_;
  std::int32_t* ids_;
  float* hidden_;
  float* partials_;  // of attention
  std::int64_t num_partials_;
  std::vector<device::AttentionParams> sequences_;  // attention in parts that is launched together
  device::ExpertGroups expert_groups_ = {};
  float* expert_ranks_;
  // Zero, but while launches count their blocks.
  std::uint32_t* route_counter_;
  std::uint32_t* attention_counters_;
  std::array<Rounding, kRoundings> roundings_;

  BlockTables tables_;
  std::vector<std::size_t> first_layers_;  // of each segment, in layers_
  std::vector<LayerTables> layers_;
  device::TakeInputsParams inputs_ = {};  // of the batch, which wait to be taken
  std::uint64_t waits_ = 0;               // how often wait() or await() was called
  std::size_t begun_inputs_ = 0;          // batches with inputs since then
  std::int64_t last_number_ = 0;          // of a pass with inputs
  std::int64_t last_told_ = 0;
  // The parts of pinned_.
  std::int64_t* told_;
  device::ListedLogit* lists_;
  std::byte* input_places_;
  std::size_t input_bytes_;     // of one of them
  std::vector<float> staged_;   // rows of a table that is in host memory
  std::size_t num_listed_ = 0;  // in lists_
  ListedRows listed_rows_;
  std::vector<ConstRows> wanted_;                   // of each choice; no rows: lists do not do
  std::vector<std::optional<std::size_t>> places_;  // in lists_, of each of them
  std::vector<TokenLogit> listed_;                  // of one row
  std::size_t rounding_ = 0;                        // the one that was used last
  RoundedRows rounded_;                             // which no launch has written since
  bool remembers_rounded_ = false;                  // within a pass: nobody else writes rows there
  // Launches that wait; none: there are none. Lists that were handed on stay, for passes of their
  // kind come again: then only what differs is written.
  LaunchList* launches_ = nullptr;
  std::array<Recording, kRecordings> recordings_;
  std::uint64_t num_recordings_ = 0;
  Recording* open_ = nullptr;  // of the pass whose operations are being called
  std::vector<std::int64_t> described_;
  std::uint64_t bytes_before_ = 0;  // its operations
  FusedLists fused_;
  Status failure_;
};

}  // namespace kakeya::cuda
