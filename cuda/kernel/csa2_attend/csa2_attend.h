// csa2_attend: attention of one query row over its window and its selected global rows (spec 4.11, D7).
//   q [rows, heads, head_dim] BF16 -> o [rows, heads, head_dim] BF16, before the inverse RoPE
// A row's key list: its window rows in ascending position, padded to `window` slots, then the selected rows in the
// order of sel. The list is cut every 64 slots; empty slots hold no key. Online softmax over the blocks: running
// maximum from -1e30, probabilities rounded to BF16 (relative to that maximum) for P V and unrounded in the
// denominator, which the head's sink joins at the end. K = V = the dequantised rows. No key at all gives 0.
#pragma once
#include "device/isa.h"
#include "kernel/kv_rows.h"

namespace ced {

constexpr int kBlock = 64;

void csa2_attend_ref(ced_stream *s, const ced_csa2_attend_args &a);
// Dot products in f32 with 16 lanes along the head, P V along the block's keys in order: see block.h.
void csa2_attend_cpu(ced_stream *s, const ced_csa2_attend_args &a);
// With the products of an instruction set that this machine supports.
void csa2_attend_on(Isa isa, ced_stream *s, const ced_csa2_attend_args &a);

// Where a key lies: an FP8 window row with UE8M0 scales per 32, or an FP4 global row with E4M3 scales per 16.
struct Key {
  const uint8_t *codes, *scales;
  bool global;
};

// The padded key list of query row r.
class KeyList {
 public:
  KeyList(const ced_csa2_attend_args &a, int64_t r) : a_(a), window_(static_cast<int>(a.window)) {
    const auto &rows = *at<const ced_rows>(a.rows), &keys = *at<const ced_rows>(a.key_rows);
    const int32_t pos = at<const int32_t>(rows.pos)[r];
    slot_ = at<const int32_t>(rows.slot)[r];
    first_ = std::max(at<const int32_t>(a.window_start)[slot_], std::max(pos - window_ + 1, 0));
    seen_ = std::max(pos - first_ + 1, 0);
    packed_row_ = slot_ < keys.slots ? at<const int32_t>(keys.seq_first)[slot_] : -1;
    packed_pos_ = packed_row_ >= 0 ? at<const int32_t>(keys.pos)[packed_row_] : INT32_MAX;
    if (a.sel == 0) return;
    sel_ = at<const int32_t>(a.sel) + r * a.top_k;
    while (chosen_ < static_cast<int>(a.top_k) && sel_[chosen_] >= 0) chosen_++;
  }

  int blocks() const { return (window_ + chosen_ + kBlock - 1) / kBlock; }

  // The keys of block b in order; returns their number, 0..64.
  int block(int b, Key *out) const {
    const int begin = b * kBlock, end = std::min(begin + kBlock, window_ + chosen_);
    int n = 0;
    for (int i = begin; i < std::min(end, seen_); i++) out[n++] = window_key(first_ + i);
    for (int i = std::max(begin, window_); i < end; i++) {
      const KvRow row = kv_row(a_.kv, slot_, sel_[i - window_]);
      out[n++] = {row.main_codes, row.main_scales, true};
    }
    return n;
  }

 private:
  Key window_key(int32_t pos) const {
    const size_t dim = a_.head_dim, bytes = dim + dim / 32;
    const uint8_t *row =
        pos >= packed_pos_
            ? at<const uint8_t>(a_.packed) + static_cast<size_t>(packed_row_ + (pos - packed_pos_)) * bytes
            : at<const uint8_t>(a_.ring) +
                  (static_cast<size_t>(slot_) * a_.ring_rows + static_cast<uint32_t>(pos) % a_.ring_rows) *
                      bytes;
    return {row, row + dim, false};
  }

  const ced_csa2_attend_args &a_;
  const int32_t *sel_ = nullptr;
  int window_, seen_ = 0, chosen_ = 0;  // slots of the window part, keys in it, selected rows
  int32_t slot_ = 0, first_ = 0;        // first_: position of the first window key
  int32_t packed_row_ = -1, packed_pos_ = 0;
};

// One worker's part of the workspace. heads: padded to whole tiles.
struct AttendScratch {
  float *keys;   // [64, value_stride(head_dim)] dequantised block
  float *acc;    // [heads, head_dim]
  float *q;      // [heads, head_dim] the row's queries in the order of BlockOps::scores
  float *p;      // [heads, 64] logits, then probabilities
  float *top;    // [heads] running maximum
  float *total;  // [heads] running denominator
  float *carry;  // [heads] what the last block scaled the accumulator by

  static uint64_t heads(const ced_csa2_attend_args &a) { return (a.heads + uint64_t{7}) / 8 * 8; }
  static uint64_t bytes(const ced_csa2_attend_args &a) {
    const uint64_t dim = a.head_dim;
    return (kBlock * (dim + 16) + heads(a) * (2 * dim + kBlock + 3) + 15) / 16 * 16 * sizeof(float);
  }
  AttendScratch(const ced_csa2_attend_args &a, int worker) {
    keys = at<float>(a.workspace + static_cast<uint64_t>(worker) * bytes(a));
    acc = keys + kBlock * (a.head_dim + uint64_t{16});
    q = acc + heads(a) * a.head_dim;
    p = q + heads(a) * a.head_dim;
    top = p + heads(a) * kBlock;
    total = top + heads(a);
    carry = total + heads(a);
  }
};

constexpr float kNoKeyYet = -1e30f;

inline float attend_scale(const ced_csa2_attend_args &a) {
  return static_cast<float>(std::pow(static_cast<double>(a.head_dim), -0.5));
}
int csa2_attend_cuda(ced_stream *s, const ced_csa2_attend_args &a, ced_err *err);
uint64_t csa2_attend_cuda_workspace(const ced_csa2_attend_args &a);
// The CUDA body's form for steps of more rows than 16, with the same bits; scale: attend_scale.
bool csa2_attend_prefills(const ced_stream *s, const ced_csa2_attend_args &a);
int csa2_attend_prefill_cuda(ced_stream *s, const ced_csa2_attend_args &a, float scale, ced_err *err);

}  // namespace ced
