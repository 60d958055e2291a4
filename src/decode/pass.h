// One forward pass of the target over rows of several timelines. What it writes is reserved before
// and committed afterwards, timeline by timeline (Timeline::accept, Timeline::commit).
#pragma once

#include <cstdint>
#include <span>

#include "decode/timeline.h"
#include "decode/workspace.h"
#include "kakeya/status.h"

namespace kakeya {

// Holds a turn of the workspace, which all timelines share, as long as it lives. Logits and taps of
// the pass are valid until then.
class Pass {
 public:
  explicit Pass(Workspace& workspace);

  // Adds the rows of `ids`, which follow what `timeline` has run, and then those of `more`; logits
  // are wanted of the last `logit_rows` of them. At most once a timeline. Errors: of the
  // reservations, kResourceExhausted; the pass is as before then.
  Status add(Timeline& timeline,
             std::span<const TokenId> ids,
             std::span<const TokenId> more,
             std::int64_t logit_rows);

  // The last hidden rows of the pass shall be kept, for which the workspace has room.
  void keep_hidden() { keeps_hidden_ = true; }

  // The number of rows that were added.
  std::int64_t rows() const { return workspace_.target_batch().batch().rows(); }

  // Runs all rows. Errors: of Executor::end; nothing may be committed then.
  Status run();
  // Runs all rows; logits go to `output` and, if it names points, so do their layer outputs, which
  // the timelines must not want for themselves then.
  Status run_into(ForwardOutput output);

  // The logits of the part that was added as number `index`: [logit_rows, V], may be overwritten.
  Rows logits(std::int64_t index) const;
  // The logits of that part, for the host.
  HostRows host_logits(std::int64_t index) const { return workspace_.download(logits(index)); }
  // The last hidden rows [rows, D] of that part, for the host; they were to be kept.
  HostRows host_hidden(std::int64_t index) const;
  // Bytes of weights and cached rows that it read.
  std::uint64_t bytes() const { return bytes_; }

 private:
  Workspace& workspace_;
  Workspace::Turn turn_;
  bool keeps_hidden_ = false;
  std::uint64_t bytes_ = 0;
};

}  // namespace kakeya
