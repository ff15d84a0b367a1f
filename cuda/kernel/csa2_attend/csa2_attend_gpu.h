// csa2_attend_gpu.h: where a row's keys lie and what their channels are, for both forms of the CUDA body.
#pragma once
#include "kernel/csa2_attend/csa2_attend.h"
#include "kernel/operand_gpu.h"
#include "kernel/row_gpu.h"

namespace ced {

constexpr uint32_t kSplitRows = 16;  // the most rows of the form for few

// Slots of a row's key list.
__host__ __device__ inline uint32_t width_of(const ced_csa2_attend_args &a) {
  return a.window + (a.sel != 0 ? a.top_k : 0);
}

// A row's key list (spec D7).
struct RowKeys {
  int32_t slot, first, seen;  // first: position of the first window key, seen: how many there are
  int32_t row0, pos0;         // of the sequence's first row in `packed`

  RowKeys() = default;
  __device__ RowKeys(const ced_csa2_attend_args &a, size_t r) {
    const auto &rows = *at<const ced_rows>(a.rows), &keys = *at<const ced_rows>(a.key_rows);
    const int32_t pos = at<const int32_t>(rows.pos)[r];
    slot = at<const int32_t>(rows.slot)[r];
    first = pos - static_cast<int32_t>(a.window) + 1;
    if (first < 0) first = 0;
    const int32_t start = at<const int32_t>(a.window_start)[slot];
    if (first < start) first = start;
    seen = pos >= first ? pos - first + 1 : 0;
    row0 = slot < keys.slots ? at<const int32_t>(keys.seq_first)[slot] : -1;
    pos0 = row0 >= 0 ? at<const int32_t>(keys.pos)[row0] : INT32_MAX;
  }

  // Slot i; without codes it is empty.
  __device__ Key key(const ced_csa2_attend_args &a, size_t r, uint32_t i) const {
    if (i >= a.window) {
      const int32_t j = i - a.window < a.top_k ? at<const int32_t>(a.sel)[r * a.top_k + i - a.window] : -1;
      if (j < 0) return {nullptr, nullptr, true};
      const KvRow row = kv_row(a.kv, slot, j);
      return {row.main_codes, row.main_scales, true};
    }
    if (i >= static_cast<uint32_t>(seen)) return {nullptr, nullptr, false};
    const int32_t at_ = first + static_cast<int32_t>(i);
    const size_t dim = a.head_dim, bytes = dim + dim / 32;
    const uint8_t *row = at_ >= pos0
                             ? at<const uint8_t>(a.packed) + static_cast<size_t>(row0 + (at_ - pos0)) * bytes
                             : at<const uint8_t>(a.ring) + (static_cast<size_t>(slot) * a.ring_rows +
                                                            static_cast<uint32_t>(at_) % a.ring_rows) *
                                                               bytes;
    return {row, row + dim, false};
  }
};

// 16 channels of a key in BF16, which holds their values exactly, in order.
__device__ inline void expand_global(const uint32_t *codes, uint8_t scale, uint4 out[2]) {
  const uint32_t magnitude = (scale & 0x7Fu) << 4, factor = (scale & 0x80u) << 8 | magnitude;
  uint32_t v[8], times = ptx::mul_bf16x2(factor * 0x10001u, 0x7B807B80u);  // 2^120
  if (magnitude == 0x7F0u) times = 0x7FC07FC0u;
  CED_UNROLL
  for (uint32_t i = 0; i < 4; i++) {
    // Bytes of the eight magnitudes by code; the sign is the upper bit of a nibble.
    const uint32_t u = codes[i / 2] >> (16 * (i % 2)), m = u & 0x7777u;
    const uint32_t low = ptx::pick_bytes_or_signs(0xC0800000u, 0xC0804000u, m),
                   sign = ptx::pick_bytes_or_signs(0x80808080u, 0x80808080u, u) << 1 & 0x80808080u,
                   high = ptx::pick_bytes_or_signs(0x3F3F3F00u, 0x40404040u, m) | sign;
    v[2 * i] = ptx::mul_bf16x2(ptx::pick_bytes_or_signs(low, high, 0x5140), times);
    v[2 * i + 1] = ptx::mul_bf16x2(ptx::pick_bytes_or_signs(low, high, 0x7362), times);
  }
  out[0] = make_uint4(v[0], v[1], v[2], v[3]), out[1] = make_uint4(v[4], v[5], v[6], v[7]);
}
__device__ inline void expand_window(const uint32_t *codes, uint8_t scale, uint4 out[2]) {
  Raw<CED_FP8> raw;
  for (uint32_t i = 0; i < 4; i++) raw.word[i] = codes[i];
  const Words w = expand(raw, scale);
  uint32_t v[8];
  CED_UNROLL
  for (uint32_t i = 0; i < 8; i += 2) {
    v[i] = ptx::pick_bytes_or_signs(w.w[i], w.w[i + 1], 0x5410);
    v[i + 1] = ptx::pick_bytes_or_signs(w.w[i], w.w[i + 1], 0x7632);
  }
  out[0] = make_uint4(v[0], v[1], v[2], v[3]), out[1] = make_uint4(v[4], v[5], v[6], v[7]);
}

// Channels [d, d + 16 kGroups) of a key as they lie in memory, and their scales.
template <uint32_t kGroups>
struct Channels {
  uint32_t codes[4 * kGroups];  // FP4: the first half
  uint8_t scales[kGroups];
  bool global;

  // kAligned: window rows have a multiple of 16 bytes.
  template <bool kAligned>
  __device__ void load(const Key &key, uint32_t d) {
    global = key.global;
    for (uint32_t &w : codes) w = 0;
    for (uint8_t &s : scales) s = 0;
    if (key.codes == nullptr) return;
    if (key.global) {
      if constexpr (kGroups == 2) {
        const uint4 v = load16(key.codes + d / 2);
        codes[0] = v.x, codes[1] = v.y, codes[2] = v.z, codes[3] = v.w;
        const auto two = *reinterpret_cast<const uint16_t *>(key.scales + d / 16);
        scales[0] = static_cast<uint8_t>(two), scales[1] = static_cast<uint8_t>(two >> 8);
      } else {
        const uint2 v = *reinterpret_cast<const uint2 *>(key.codes + d / 2);
        codes[0] = v.x, codes[1] = v.y, scales[0] = key.scales[d / 16];
      }
      return;
    }
    CED_UNROLL
    for (uint32_t i = 0; i < kGroups; i++) {
      Raw<CED_FP8> raw;
      if (kAligned || aligned(reinterpret_cast<uint64_t>(key.codes), 16)) {
        raw.load<true, false>(key.codes, d + 16 * i, d + 16 * i + 16);
      } else {
        raw.load<false, false>(key.codes, d + 16 * i, d + 16 * i + 16);
      }
      for (uint32_t j = 0; j < 4; j++) codes[4 * i + j] = raw.word[j];
    }
    const uint8_t scale = key.scales[d / 32];
    for (uint8_t &s : scales) s = scale;
  }
  // put(i, v): channels [d + 16 i, d + 16 i + 16).
  template <class F>
  __device__ void expand_to(const F &put) const {
    uint4 v[2];
    if (global) {
      CED_UNROLL
      for (uint32_t i = 0; i < kGroups; i++) expand_global(codes + 2 * i, scales[i], v), put(i, v);
    } else {
      CED_UNROLL
      for (uint32_t i = 0; i < kGroups; i++) expand_window(codes + 4 * i, scales[i], v), put(i, v);
    }
  }
};

}  // namespace ced
