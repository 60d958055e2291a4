// The keys and values of one session, all layers. Rings for sliding layers, plain rows for full
// ones; both address position p as slot p mod capacity, so rolling back is lowering the length.
//
//   sliding layer, window 4, max_rows 3: capacity 6 = window + max_rows - 1
//
//     slot       0   1   2   3   4   5
//     position   6   7   2   3   4   5      length 8: the next rows go to slots 2, 3, 4
//                                           and still leave 5, 6, 7 for the first of them
//
// A layer from which rows are dropped is a ring as well, of the rows that are kept, behind slots of
// their own for the first positions (the sink).
//
// Slots lie in blocks: the keys of the block's slots, then their values. All blocks of a layer are
// charged and allocated when the cache is created; of a cache that grows, layers that keep every
// position get a block when a reservation first reaches it. fork() makes another cache that shares
// those blocks; from then on a reservation first gives each of the two blocks of their own where it
// will be written.
//
// Invariants
//   - rows of positions [oldest_held, length) are intact in every ring
//   - a reservation never overwrites a row that its first query may see
//   - truncate() succeeds exactly or refuses; it never leaves a window with missing rows
//   - a shared block is never written; every reserved slot is in a block that is there and not
//     shared
//
// One thread at a time; a cache and its forks may be used from different threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_budget.h"
#include "base/memory_space.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "kv/kv_codes.h"
#include "kv/kv_rows.h"
#include "kv/shared_block.h"
#include "tensor/kv_format.h"

namespace kakeya {

struct LayerCacheSpec {
  std::int64_t num_kv_heads = 0;  // K
  std::int64_t head_dim = 0;      // E
  std::int64_t window = 0;        // 0: a full layer
  KvFormat format = KvFormat::kF32;
  // Values only: keys are made from them (AttentionInput::derivation); of codes, keys have the
  // same.
  bool one_vector = false;
  // Eviction: of what the window leaves, positions below `sink` and the last `kept`; 0: all.
  std::int64_t sink = 0;
  std::int64_t kept = 0;
  // Evicted rows are restored from the cache's codes instead of forgotten.
  bool restored = false;
  // The layers of the cache with all rows in calibrated codes, where the evicted ones are read; -1:
  // none. Of one vector there are key_codes alone.
  std::int64_t key_codes = -1;
  std::int64_t value_codes = -1;
  // Codes: low-rank ones, of one "head" of `rank` elements, or calibrated ones.
  bool is_codes = false;
  std::int64_t code_bytes = 0;  // as KvRows::code_bytes

  bool is_coded() const { return key_codes >= 0; }
  // Positions before a query whose rows are here, without the sink; 0: all of them.
  std::int64_t reach() const { return kept == 0 || (window != 0 && window < kept) ? window : kept; }
  // Bytes of one position.
  std::int64_t position_bytes() const {
    return (one_vector ? 1 : 2) * num_kv_heads *
           (code_bytes > 0 ? code_bytes : kv_vector_bytes(format, head_dim));
  }
};

// How the slots of a layer are cut into blocks, and blocks into groups that are allocated together.
struct BlockLayout {
  // A pass reads this many rows of a head in one piece, and a copy on write costs as many.
  static constexpr std::int64_t kMostSlots = 64;
  // The size from which on a buffer is backed by huge pages: groups are not smaller where a layer
  // is not.
  static constexpr std::int64_t kGroupBytes = std::int64_t{8} << 20;

  std::int64_t block_slots = 0;
  std::int64_t block_bytes = 0;
  std::int64_t blocks = 0;
  std::int64_t groups = 0;

  BlockLayout(std::int64_t capacity, std::int64_t position_bytes);
  // Group g is of blocks group_begin(g) ... group_begin(g + 1) - 1.
  std::int64_t group_begin(std::int64_t group) const { return group * blocks / groups; }
  std::int64_t group_of(std::int64_t block) const { return ((block + 1) * groups - 1) / blocks; }
};

// The rows to keep of a KV cache, to go on with another one of the same spec.
struct KvExtent {
  Position length = 0;   // committed positions
  Position written = 0;  // the highest position ever written plus one

  bool operator==(const KvExtent&) const = default;
};

// Positions [first, last).
struct KvRun {
  Position first = 0;
  Position last = 0;
};

// Rows that lie one behind the other.
struct KvPiece {
  DevicePointer<std::byte> data;
  std::size_t size = 0;  // bytes
};

struct KvCacheSpec {
  // Only layers that own keys and values; behind those, what restoring takes.
  std::vector<LayerCacheSpec> layers;
  std::int64_t codes = -1;    // the layer with the low-rank codes; -1: none
  std::int64_t context = 0;   // most positions
  std::int64_t max_rows = 1;  // most rows reserved at once
  bool of_drafter = false;    // charged as MemoryClass::kDrafter
  bool grows = false;         // layers that keep every position take memory as they fill

  MemoryClass memory_class(const LayerCacheSpec& layer) const;
  std::int64_t capacity(const LayerCacheSpec& layer) const;
  BlockLayout layout(const LayerCacheSpec& layer) const;
  // The bytes that KvCache::create will charge.
  Footprint estimate() const;
  // True if a layer's blocks are allocated as it fills; growth(): the bytes charged for those of
  // `length` positions.
  bool grows_in(const LayerCacheSpec& layer) const { return grows && layer.reach() == 0; }
  Footprint growth(Position length) const;
  // Errors: kInvalidArgument for a format that some layer's heads do not allow.
  Status check() const;

  // The first position of the turn that a layer still has after `written`; 0 if none was
  // overwritten.
  Position oldest_held(const LayerCacheSpec& layer, Position written) const;
  // True if a cache can be left with this extent: all rows that its next query may see are there.
  bool can_hold(const KvExtent& extent) const;
  // The positions below extent.length that a layer holds: the sink's, and the last ones.
  std::array<KvRun, 2> held_runs(const LayerCacheSpec& layer, const KvExtent& extent) const;
};

class KvCache {
 public:
  // Its rows lie in `space`. Budget and space must outlive it and its forks. Errors:
  // kResourceExhausted.
  static Result<KvCache> create(const KvCacheSpec& spec,
                                MemoryBudget& budget,
                                MemorySpace& space = MemorySpace::host());

  // A cache with the same rows, without a reservation. Charges nothing until one of the two is
  // written to.
  KvCache fork();

  // Committed positions: the next token goes to this position.
  Position length() const { return length_; }
  const KvCacheSpec& spec() const { return spec_; }
  std::int64_t context() const { return spec_.context; }
  std::int64_t max_rows() const { return spec_.max_rows; }

  // Makes room for `rows` new positions from length(). Repeating it replaces the reservation.
  // Allocates only if the cache grows, was forked or is a fork. Errors: kResourceExhausted if the
  // context is full or the budget refuses a block, kInvalidArgument if rows > max_rows; nothing
  // changes then.
  Status reserve(std::int64_t rows);

  // Has the memory of the first `length` positions now, where the cache grows. Errors:
  // kResourceExhausted; nothing changes then.
  Status grow(Position length);

  // Keeps the first `rows` of the reservation, 0 <= rows <= reserved. The rest of it can be
  // committed by further calls until something else is reserved or truncated; rolling a block back
  // is not committing it.
  void commit(std::int64_t rows);

  // Lowers the length to `length`, exactly as if the later tokens had never been seen.
  // Errors: kInvalidArgument if length is above the present one or negative; kFailedPrecondition if
  // a ring no longer holds the rows of the window before `length`; nothing changes then.
  Status truncate(Position length);

  // The error that truncate(length) would give.
  Status check_truncate(Position length) const;

  // Forgets everything. Always possible.
  void clear();

  using Extent = KvExtent;

  // The present extent after truncate(length). Errors: as truncate.
  Result<Extent> extent(Position length) const;

  // Makes the rows of `extent` writable; they keep what they hold. Errors: kDataLoss for an extent
  // that no cache of this spec can have, kResourceExhausted as reserve; nothing changes then.
  Status prepare_restore(const Extent& extent);

  // Takes `extent` for its own; was prepared. The rows are those of held_rows(), for the caller to
  // fill.
  void restore(const Extent& extent);

  // The rows that owned layer `index` holds of the positions below extent.length, the sink's and
  // the last ones: the keys (nothing if they are not stored) or the values of one position after
  // the other, in as few pieces as they lie in. All caches of a spec and an extent have the same
  // bytes.
  std::vector<KvPiece> held_rows(std::int64_t index, bool keys, const Extent& extent) const;

  // The rows of any positions that layer `index` holds or that were prepared.
  std::vector<KvPiece> row_pieces(std::int64_t index, bool keys, KvRun run) const;

  // The memory in which the pieces lie.
  MemorySpace& space() const { return *space_; }

  // The storage of owned layer `index` (index into the spec's layers), for attention.
  const KvRows& rows(std::int64_t index) const {
    return layers_[static_cast<std::size_t>(index)].rows;
  }
  const LayerCacheSpec& layer(std::int64_t index) const {
    return spec_.layers[static_cast<std::size_t>(index)];
  }

  // All layers, as passes take them (Segment::layers). Valid until the cache goes away or moves.
  std::span<const KvLayer> layers() const { return table_; }
  // The decoders [rank, K * E] of a restored layer, which must outlive the cache and its forks.
  void set_decoders(std::int64_t index,
                    DevicePointer<const float> keys,
                    DevicePointer<const float> values);
  // The calibrated codes, where layers have them.
  void set_codes(std::shared_ptr<const KvCodes> codes);
  // The storage of the low-rank codes.
  const KvRows& codes() const { return rows(spec_.codes); }

  // Bytes that are allocated as long as this cache is there, shared or not, and the live part: rows
  // that a query may still see.
  Footprint footprint() const;

 private:
  struct Layer {
    std::vector<SharedBlock> blocks;
    std::vector<DevicePointer<std::byte>> keys;  // of each block; empty if not stored
    std::vector<DevicePointer<std::byte>> values;
    KvRows rows;  // points into the tables above

    // Creates a layer without memory yet.
    Layer(const KvCacheSpec& spec, const LayerCacheSpec& layer);
    void set(std::size_t block, SharedBlock memory);
  };

  // Memory for a block that a reservation writes into.
  struct Fresh {
    std::size_t layer = 0;
    std::size_t block = 0;
    SharedBlock memory;
  };

  // Fills table_, once there are all layers; decoders are left to set_decoders(), calibrated codes
  // to set_codes().
  void make_table();
  Status own_blocks(Position first, std::int64_t rows);
  Status own_run(std::size_t layer, KvRun run, std::vector<Fresh>& fresh);
  void install(std::vector<Fresh> fresh);
  Status own_block(std::size_t layer, std::size_t block, std::vector<Fresh>& fresh);
  // A block that fell free where the layer's others are, or a new one.
  Result<SharedBlock> free_block(std::size_t layer, std::size_t block) const;

  KvCacheSpec spec_;
  MemoryBudget* budget_ = nullptr;
  MemorySpace* space_ = nullptr;
  std::vector<Layer> layers_;
  std::vector<KvLayer> table_;
  std::shared_ptr<const KvCodes> codes_;
  bool partial_ = false;  // blocks may be shared, or not there
  Position length_ = 0;
  std::int64_t reserved_ = 0;
  // Highest position ever written plus one: rows below written_ - capacity are gone from a ring.
  Position written_ = 0;
};

}  // namespace kakeya
