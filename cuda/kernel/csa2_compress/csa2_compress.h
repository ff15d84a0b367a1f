// csa2_compress: latents of the groups that close in a step (spec 4.5).
//   ratio 1: latent = norm(a)                     a [rows, dim] BF16
//   ratio > 1: latent = norm(bf16(sum_t w_t a_t))  a, g [rows, dim] f32, w = softmax of g over the group, per channel
// Members of a group that came in earlier steps are read from open [slots][open_rows][2][dim] (a, then g, of
// position mod open_rows); afterwards the last open_rows rows of each sequence are stored there.
#pragma once
#include <cstring>

#include "internal.h"

namespace ced {

void csa2_compress_ref(ced_stream *s, const ced_csa2_compress_args &a);
// The mean square in f32, in the lanes of row_lanes.h.
void csa2_compress_cpu(ced_stream *s, const ced_csa2_compress_args &a);

constexpr uint32_t kMaxRatio = 16;

// The (a, g) row of a position that an earlier step left open.
CED_HD inline float *open_row(const ced_csa2_compress_args &a, int32_t slot, int32_t pos) {
  const size_t place = static_cast<size_t>(slot) * a.open_rows + static_cast<uint32_t>(pos) % a.open_rows;
  return at<float>(a.open) + place * 2 * a.dim;
}

// The members' rows of a group, oldest first.
struct GroupMembers {
  const float *a[kMaxRatio], *g[kMaxRatio];
};

// Of the group that row r closes.
CED_HD inline GroupMembers group_members(const ced_csa2_compress_args &a, const ced_rows &rows, int64_t r) {
  const int ratio = static_cast<int>(a.ratio);
  const size_t dim = a.dim;
  const int32_t slot = at<const int32_t>(rows.slot)[r], pos = at<const int32_t>(rows.pos)[r];
  GroupMembers m;
  for (int t = 0; t < ratio; t++) {
    const int64_t member = r - (ratio - 1 - t);
    if (member >= 0 && at<const int32_t>(rows.slot)[member] == slot) {
      m.a[t] = at<const float>(a.a) + static_cast<size_t>(member) * dim;
      m.g[t] = at<const float>(a.g) + static_cast<size_t>(member) * dim;
    } else {
      m.a[t] = open_row(a, slot, pos - (ratio - 1 - t));
      m.g[t] = m.a[t] + dim;
    }
  }
  return m;
}

// Stores row r, unless a later row of the step takes its place.
inline void keep_open(const ced_csa2_compress_args &a, const ced_rows &rows, int64_t r) {
  const auto *pos = at<const int32_t>(rows.pos), *slot = at<const int32_t>(rows.slot);
  const int64_t n = a.open_rows, dim = a.dim;
  if (r + n < rows.count && slot[r + n] == slot[r]) return;
  float *open = open_row(a, slot[r], pos[r]);
  memcpy(open, at<const float>(a.a) + r * dim, static_cast<size_t>(dim) * 4);
  memcpy(open + dim, at<const float>(a.g) + r * dim, static_cast<size_t>(dim) * 4);
}
int csa2_compress_cuda(ced_stream *s, const ced_csa2_compress_args &a, ced_err *err);

}  // namespace ced
