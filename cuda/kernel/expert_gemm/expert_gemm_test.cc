#include <algorithm>
#include <cstring>
#include <string>

#include "kernel/expert_gemm/pack.h"
#include "num/bf16.h"
#include "num/fp4.h"
#include "num/quant.h"
#include "test/check.h"
#include "test/golden.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/rules.h"

namespace {

// An expert's six tensors in host memory; in stream memory they start at odd bytes, as in a checkpoint, or aligned.
struct Expert {
  std::vector<uint8_t> tensors[6];
  uint64_t offset = 1;

  ced_expert put(Rig &rig) const {
    uint64_t addr[6];
    for (size_t i = 0; i < 6; i++) {
      std::vector<uint8_t> bytes(offset);
      bytes.insert(bytes.end(), tensors[i].begin(), tensors[i].end());
      addr[i] = rig.put(bytes) + offset;
    }
    return {addr[0], addr[1], addr[2], addr[3], addr[4], addr[5]};
  }
  ced_expert put_packed(Rig &rig, uint32_t dim, uint32_t inter, uint32_t parts = 3) const {
    uint64_t w2 = 0;
    const uint64_t at = rig.put(packed(dim, inter, parts, &w2));
    return {at, 0, 0, 0, at + w2, 0};
  }
  std::vector<uint8_t> packed(uint32_t dim, uint32_t inter, uint32_t parts, uint64_t *w2) const {
    uint64_t addr[6];
    for (size_t i = 0; i < 6; i++) addr[i] = reinterpret_cast<uint64_t>(tensors[i].data());
    const ced_expert from{addr[0], addr[1], addr[2], addr[3], addr[4], addr[5]};
    // at a multiple of 32
    std::vector<uint8_t> bytes(ced_expert_pack_bytes(dim, inter, w2) + 32);
    uint8_t *to = bytes.data() + (32 - reinterpret_cast<uintptr_t>(bytes.data()) % 32) % 32;
    ced_err err;
    for (uint32_t i = 0; i < parts; i++)
      CHECK_EQ(ced_expert_pack(&from, dim, inter, i, parts, reinterpret_cast<uint64_t>(to), &err), CED_OK);
    return std::vector<uint8_t>(to, to + bytes.size() - 32);
  }
};

Expert expert(const std::string &name, ced_format format, size_t dim, size_t inter, uint32_t base,
              uint32_t down_base) {
  Expert e;
  const char *matrices[3] = {"/w1", "/w3", "/w2"};
  for (size_t i = 0; i < 3; i++) {
    const size_t n = i == 2 ? dim : inter, k = i == 2 ? inter : dim;
    const uint32_t b = i == 2 ? down_base : base;
    const std::string m = name + matrices[i];
    e.tensors[2 * i] =
        format == CED_FP4 ? prng::bytes(m + "/weight", n * k / 2) : prng::e4m3(m + "/weight", n * k);
    e.tensors[2 * i + 1] = prng::e8m0(m + "/scale", (format == CED_FP4 ? n : (n + 31) / 32) * (k / 32), b);
  }
  return e;
}

struct Problem {
  uint32_t dim = 0, inter = 0, top_k = 0;
  std::vector<uint16_t> x;  // BF16 [rows, dim]
  std::vector<int32_t> idx;
  std::vector<float> weights;
  std::vector<Expert> experts;
  std::vector<Expert> shared;  // one or none
  float limit = 10;
  uint32_t layout = CED_EXPERTS_RAW;

  size_t rows() const { return x.size() / dim; }
};

ced_expert_gemm_args arguments(Rig &rig, const Problem &p) {
  const size_t rows = p.rows();
  std::vector<uint8_t> codes(p.x.size()), scales(p.x.size() / 32);
  for (size_t g = 0; g < scales.size(); g++) {
    float v[32];
    for (size_t i = 0; i < 32; i++) v[i] = ced::bf16_to_f32(p.x[32 * g + i]);
    ced::act_quant32(v, &codes[32 * g], &scales[g]);
  }
  ced_expert_gemm_args a{};
  a.rows = rig.rows(static_cast<int32_t>(rows));
  a.x = rig.put(codes), a.x_scales = rig.put(scales), a.idx = rig.put(p.idx), a.weights = rig.put(p.weights);
  std::vector<ced_expert> table;
  for (const Expert &e : p.experts)
    table.push_back(p.layout == CED_EXPERTS_PACKED ? e.put_packed(rig, p.dim, p.inter) : e.put(rig));
  a.experts = rig.put(table);
  if (!p.shared.empty()) a.shared = p.shared[0].put(rig);
  a.y = rig.out<uint16_t>(rows * p.dim);
  a.max_rows = static_cast<uint32_t>(rows), a.experts_count = static_cast<uint32_t>(p.experts.size());
  a.top_k = p.top_k, a.dim = p.dim, a.inter = p.inter, a.limit = p.limit;
  a.layout = p.layout;
  a.workspace = rig.out<uint8_t>(ced_expert_gemm_workspace(rig.stream(), &a));
  return a;
}

std::vector<uint16_t> run(Rig &rig, const Problem &p) {
  const auto a = arguments(rig, p);
  rig.run(ced_expert_gemm, a);
  return rig.get<uint16_t>(a.y, p.rows() * p.dim);
}

// Eight experts, rows routed to three of them in varying order, and a shared expert.
Problem small(size_t rows) {
  Problem p;
  p.dim = 96, p.inter = 64, p.top_k = 3;
  p.x = prng::xb("expert_gemm/x", rows * p.dim, -1);
  for (int e = 0; e < 8; e++)
    p.experts.push_back(expert("expert_gemm/" + std::to_string(e), CED_FP4, p.dim, p.inter, 124, 122));
  p.shared.push_back(expert("expert_gemm/shared", CED_FP8, p.dim, p.inter, 120, 118));
  for (size_t r = 0; r < rows; r++) {
    const auto first = static_cast<int32_t>(prng::Stream("expert_gemm/idx").below(r, 8));
    for (int32_t j : {5, 0, 3}) p.idx.push_back((first + j) % 8);
    for (float w : {0.5f, 0.25f, 0.75f}) p.weights.push_back(w);
  }
  return p;
}

Problem rows_of(const Problem &p, const std::vector<size_t> &rows) {
  Problem q = p;
  q.x.clear(), q.idx.clear(), q.weights.clear();
  for (size_t r : rows) {
    q.x.insert(q.x.end(), &p.x[r * p.dim], &p.x[r * p.dim] + p.dim);
    q.idx.insert(q.idx.end(), &p.idx[r * p.top_k], &p.idx[r * p.top_k] + p.top_k);
    q.weights.insert(q.weights.end(), &p.weights[r * p.top_k], &p.weights[r * p.top_k] + p.top_k);
  }
  return q;
}

}  // namespace

TEST("expert_gemm: a routed expert at release width: golden bits on the reference, tolerance on the CPU") {
  Problem p;
  p.dim = 5120, p.inter = 2304, p.top_k = 1;
  p.x = prng::xb("op/expert_fp4/x", 3 * 5120, -1);
  p.idx = {0, 0, 0}, p.weights = {0.25f, 0.5f, 1.5f};
  p.experts.push_back(expert("op/expert_fp4", CED_FP4, 5120, 2304, 121, 118));
  const auto &want = golden::ops()["expert_fp4.y"];
  for (ced_kind kind : bodies("expert_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    p.layout = kind == CED_CUDA ? CED_EXPERTS_PACKED : CED_EXPERTS_RAW;
    const auto got = run(rig, p);
    if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), got.size());
    CHECK_ROWS(got.data(), want.as<uint16_t>(), 3, 5120, check::kExpert);
  }
}

TEST("expert_gemm: the shared expert at release width: golden bits on the reference, tolerance on the CPU") {
  Problem p;
  p.dim = 5120, p.inter = 2304;
  p.x = prng::xb("op/expert_fp8/x", 3 * 5120, -1);
  p.shared.push_back(expert("op/expert_fp8", CED_FP8, 5120, 2304, 120, 117));
  const auto &want = golden::ops()["expert_fp8.y"];
  for (ced_kind kind : bodies("expert_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto got = run(rig, p);
    if (kind == CED_REF) CHECK_BITS(got.data(), want.as<uint16_t>(), got.size());
    CHECK_ROWS(got.data(), want.as<uint16_t>(), 3, 5120, check::kExpert);
  }
}

TEST("expert_gemm: experts add up in ascending id, in f32, then the shared one") {
  // The sum of single experts, each alone with its weight, in that order and not in the order of idx.
  const Problem p = small(4);
  Rig rig(CED_REF);
  const auto got = run(rig, p);
  for (size_t r = 0; r < p.rows(); r++) {
    std::vector<float> sum(p.dim);
    const auto add = [&](const Problem &q) {
      const auto y = run(rig, q);
      for (size_t d = 0; d < p.dim; d++) sum[d] += ced::bf16_to_f32(y[d]);
    };
    Problem one = rows_of(p, {r});
    one.shared.clear(), one.top_k = 1;
    std::vector<size_t> by_id{0, 1, 2};
    std::sort(by_id.begin(), by_id.end(),
              [&](size_t a, size_t b) { return p.idx[3 * r + a] < p.idx[3 * r + b]; });
    for (size_t j : by_id) {
      one.idx = {p.idx[3 * r + j]}, one.weights = {p.weights[3 * r + j]};
      add(one);
    }
    one.top_k = 0, one.idx.clear(), one.weights.clear(), one.shared = p.shared;
    add(one);
    for (size_t d = 0; d < p.dim; d++) CHECK_EQ(got[r * p.dim + d], ced::f32_to_bf16(sum[d]));
  }
}

TEST("expert_gemm: every body agrees with the reference, with and without clamp and shared expert") {
  for (float limit : {0.0f, 0.5f, 10.0f}) {
    for (bool shared : {false, true}) {
      CONTEXT("limit=" << limit << " shared=" << shared);
      Problem p = small(9);
      p.limit = limit;
      if (!shared) p.shared.clear();
      Rig ref(CED_REF);
      const auto want = run(ref, p);
      for (ced_kind kind : fast_bodies("expert_gemm")) {
        CONTEXT("kind=" << kind);
        Rig rig(kind);
        CHECK_ROWS(run(rig, p).data(), want.data(), p.rows(), p.dim, check::kExpert);
      }
    }
  }
}

TEST("expert_gemm: a row has the same bits alone, in any batch and on any number of threads") {
  for (size_t rows : {70u, 150u, 400u}) {  // tiles of 32, 64 and 128 rows in the long form
    Problem p = small(rows);
    for (ced_kind kind : bodies("expert_gemm")) {
      CONTEXT("rows=" << rows << " kind=" << kind);
      p.layout = kind == CED_CUDA ? CED_EXPERTS_PACKED : CED_EXPERTS_RAW;
      Rig one(kind, 1);
      const auto batch = run(one, p);
      for (int threads : {2, 3}) {
        Rig many(kind, threads);
        if (kind != CED_REF) CHECK_BITS(run(many, p).data(), batch.data(), batch.size());
        for (const std::vector<size_t> &some :
             {std::vector<size_t>{rows - 1}, {3, 67, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}) {
          const auto got = run(many, rows_of(p, some));
          for (size_t i = 0; i < some.size(); i++)
            CHECK_BITS(&got[i * p.dim], &batch[some[i] * p.dim], p.dim);
        }
      }
    }
  }
}

TEST(
    "expert_gemm: 1 to 1024 rows: the reference's values, a row's own bits, no NaN of what lay there "
    "before") {
  for (size_t rows : {1, 17, 65, 300, 1024}) {
    CONTEXT("rows=" << rows);
    const Problem p = small(rows);
    Rig ref(CED_REF);
    const auto want = run(ref, p);
    for (ced_kind kind : fast_bodies("expert_gemm")) {
      CONTEXT("kind=" << kind);
      Rig rig(kind);
      const auto a = arguments(rig, p);
      std::vector<uint16_t> got[2];
      for (auto &y : got) {
        rig.poison<uint16_t>(a.y, rows * p.dim);
        rig.poison<uint8_t>(a.workspace, ced_expert_gemm_workspace(rig.stream(), &a));
        rig.run(ced_expert_gemm, a);
        y = rig.get<uint16_t>(a.y, rows * p.dim);
      }
      CHECK_ROWS(got[0].data(), want.data(), rows, p.dim, check::kExpert);
      CHECK_BITS(got[1].data(), got[0].data(), got[0].size());
      for (size_t r : {size_t{0}, rows / 2, rows - 1})
        CHECK_BITS(run(rig, rows_of(p, {r})).data(), &got[0][r * p.dim], p.dim);
    }
  }
}

TEST("expert_gemm: aligned weights have the bits of those that start at any byte, in any batch") {
  const struct {
    uint32_t dim, inter;
  } cases[] = {{128, 128}, {640, 384}, {1152, 768}};
  for (const auto &c : cases) {
    Problem p;
    p.dim = c.dim, p.inter = c.inter, p.top_k = 2;
    const size_t rows = 17;
    p.x = prng::xb("expert_gemm/x", rows * p.dim, -1);
    for (int e = 0; e < 4; e++)
      p.experts.push_back(expert("expert_gemm/" + std::to_string(e), CED_FP4, p.dim, p.inter, 124, 122));
    p.shared.push_back(expert("expert_gemm/shared", CED_FP8, p.dim, p.inter, 120, 118));
    for (size_t r = 0; r < rows; r++) {
      p.idx.push_back(r % 5 == 0 ? 3 : 0), p.idx.push_back(2);  // nobody chooses expert 1
      p.weights.push_back(0.5f), p.weights.push_back(0.25f + 0.125f * static_cast<float>(r % 3));
    }
    Problem aligned = p, mixed = p;
    for (Expert &e : aligned.experts) e.offset = 0;
    aligned.shared[0].offset = 0;
    mixed.experts[2].offset = 0;
    for (ced_kind kind : fast_bodies("expert_gemm")) {
      CONTEXT("dim=" << c.dim << " inter=" << c.inter << " kind=" << kind);
      Rig rig(kind);
      const auto batch = run(rig, p);
      CHECK_BITS(run(rig, aligned).data(), batch.data(), batch.size());
      CHECK_BITS(run(rig, mixed).data(), batch.data(), batch.size());
      for (size_t n : {1u, 7u, 8u, 9u, 16u}) {
        CONTEXT("rows=" << n);
        std::vector<size_t> first;
        for (size_t r = 0; r < n; r++) first.push_back(r);
        const auto got = run(rig, rows_of(aligned, first));
        CHECK_BITS(got.data(), batch.data(), n * p.dim);
      }
    }
  }
}

TEST("expert_gemm: packed codes come out of a word in the places of BF16") {
  for (uint64_t n = 0; n < 4096; n++) {
    const auto codes = static_cast<uint32_t>(n * 0x9E3779B97F4A7C15u >> 32);
    uint32_t pairs[4];
    ced::unpack_word(ced::pack_word(codes), pairs);
    for (uint32_t e = 0; e < 8; e++) {
      const auto half = static_cast<uint16_t>(pairs[e / 4 * 2 + e % 2] >> (16 * (e % 4 / 2)));
      CHECK_EQ(ced::bf16_to_f32(half) * 0x1p126f, ced::e2m1_to_f32(codes >> (4 * e) & 15));
    }
  }
}

TEST("expert_gemm: packed experts have the bits of raw ones, in any batch, with any scales") {
  const struct {
    uint32_t dim, inter, base;
  } cases[] = {{128, 64, 124}, {96, 32, 124}, {160, 96, 128}, {640, 384, 124}, {1184, 1088, 130}};
  for (const auto &c : cases) {
    Problem p;
    p.dim = c.dim, p.inter = c.inter, p.top_k = 2;
    p.x = prng::xb("expert_gemm/x", 150 * p.dim, -1);
    for (int e = 0; e < 4; e++)
      p.experts.push_back(
          expert("expert_gemm/" + std::to_string(e), CED_FP4, p.dim, p.inter, c.base, c.base));
    p.shared.push_back(expert("expert_gemm/shared", CED_FP8, p.dim, p.inter, 120, 118));
    for (size_t r = 0; r < 150; r++) {
      p.idx.push_back(r % 5 == 0 ? 3 : 0), p.idx.push_back(2);  // nobody chooses expert 1
      p.weights.push_back(0.5f), p.weights.push_back(0.25f + 0.125f * static_cast<float>(r % 3));
    }
    for (ced_kind kind : bodies("expert_gemm")) {
      if (kind != CED_CUDA) continue;
      Rig rig(kind);
      for (size_t n : {1u, 7u, 9u, 17u, 70u, 150u}) {
        if (n > 17 && p.dim > 640) continue;
        CONTEXT("dim=" << c.dim << " inter=" << c.inter << " rows=" << n);
        std::vector<size_t> first;
        for (size_t r = 0; r < n; r++) first.push_back(r);
        Problem raw = rows_of(p, first), packed = raw;
        packed.layout = CED_EXPERTS_PACKED;
        const auto want = run(rig, raw), got = run(rig, packed);
        CHECK_BITS(got.data(), want.data(), want.size());
      }
    }
  }
}

TEST("expert_gemm: packed experts are read where they lie, in the device's memory or the host's") {
  Problem p;
  p.dim = 640, p.inter = 384, p.top_k = 2, p.layout = CED_EXPERTS_PACKED;
  p.x = prng::xb("expert_gemm/x", 70 * p.dim, -1);
  for (int e = 0; e < 4; e++)
    p.experts.push_back(expert("expert_gemm/" + std::to_string(e), CED_FP4, p.dim, p.inter, 124, 124));
  for (int32_t r = 0; r < 70; r++) {
    p.idx.push_back(r % 4), p.idx.push_back((r + 1) % 4);
    p.weights.push_back(0.5f), p.weights.push_back(0.25f);
  }
  for (ced_kind kind : bodies("expert_gemm")) {
    if (kind != CED_CUDA) continue;
    Rig rig(kind);
    std::vector<ced_expert> there(p.experts.size());  // 0 and 2 in page-locked memory of the host
    std::vector<uint64_t> locked;
    for (size_t e = 0; e < there.size(); e++) {
      if (e % 2 != 0) {
        there[e] = p.experts[e].put_packed(rig, p.dim, p.inter);
        continue;
      }
      uint64_t w2 = 0, at = 0;
      ced_err err;
      const std::vector<uint8_t> bytes = p.experts[e].packed(p.dim, p.inter, 1, &w2);
      CHECK_EQ(ced_host_alloc(rig.stream(), bytes.size(), &at, &err), CED_OK);
      std::memcpy(reinterpret_cast<void *>(at), bytes.data(), bytes.size());
      there[e] = {at, 0, 0, 0, at + w2, 0};
      locked.push_back(at);
    }
    for (size_t n : {1u, 9u, 70u}) {
      CONTEXT("rows=" << n);
      std::vector<size_t> first;
      for (size_t r = 0; r < n; r++) first.push_back(r);
      const Problem q = rows_of(p, first);
      const auto want = run(rig, q);
      auto a = arguments(rig, q);
      a.experts = rig.put(there);
      rig.run(ced_expert_gemm, a);
      const auto got = rig.get<uint16_t>(a.y, n * p.dim);
      CHECK_BITS(got.data(), want.data(), want.size());
    }
    for (uint64_t at : locked) ced_host_free(rig.stream(), at);
  }
}

TEST("expert_gemm: the order of a row's choices does not matter") {
  // Experts 0 and 1 cancel; only after that is there room in f32 for what expert 5 adds.
  Problem p = small(5);
  p.experts[1] = p.experts[0], p.shared.clear();
  for (size_t r = 0; r < 5; r++) {
    const int32_t idx[3] = {0, 1, 5};
    const float weights[3] = {4096, -4096, 0x1p-14f};
    std::copy(idx, idx + 3, &p.idx[3 * r]), std::copy(weights, weights + 3, &p.weights[3 * r]);
  }
  Problem q = p;
  for (size_t r = 0; r < 5; r++)
    std::swap(q.idx[3 * r], q.idx[3 * r + 2]), std::swap(q.weights[3 * r], q.weights[3 * r + 2]);
  for (ced_kind kind : bodies("expert_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    const auto want = run(rig, p);
    CHECK(std::count(want.begin(), want.end(), 0) < static_cast<long>(want.size()) / 2);
    CHECK_BITS(run(rig, q).data(), want.data(), want.size());
  }
}

// The experts of p without those that some other place computes: odd ones, or even ones.
void leave_out(Rig &rig, const Problem &p, ced_expert_gemm_args &a, size_t odd) {
  auto table = rig.get<ced_expert>(a.experts, p.experts.size());
  for (size_t e = 0; e < table.size(); e++)
    if (e % 2 == odd) table[e] = {};
  a.experts = rig.put(table), a.flags = CED_EXPERTS_PART;
}

TEST("expert_gemm: two places share the experts: the sum of one, in f32, comes before the shared expert") {
  for (size_t rows : {1, 9, 40}) {
    const Problem p = small(rows);
    for (ced_kind kind : bodies("expert_gemm")) {
      CONTEXT("rows=" << rows << " kind=" << kind);
      Rig rig(kind);
      auto other = arguments(rig, p), a = other;
      leave_out(rig, p, other, 0);
      other.shared = {}, other.y_format = CED_F32, other.y = rig.out<float>(rows * p.dim);
      rig.run(ced_expert_gemm, other);
      const auto sum = rig.get<float>(other.y, rows * p.dim);

      // Each expert alone says what the sums have to be.
      std::vector<float> here(rows * p.dim), there(rows * p.dim), shared(rows * p.dim);
      for (size_t r = 0; r < rows; r++)
        for (int32_t e = 0; e < 8; e++)
          for (size_t j = 0; j < 3; j++) {
            if (p.idx[3 * r + j] != e) continue;
            Problem one = rows_of(p, {r});
            one.shared.clear(), one.top_k = 1;
            one.idx = {e}, one.weights = {p.weights[3 * r + j]};
            const auto y = run(rig, one);
            for (size_t d = 0; d < p.dim; d++)
              (e % 2 == 0 ? here : there)[r * p.dim + d] += ced::bf16_to_f32(y[d]);
          }
      Problem one = p;
      one.top_k = 0, one.idx.clear(), one.weights.clear();
      const auto y = run(rig, one);
      for (size_t i = 0; i < y.size(); i++) shared[i] = ced::bf16_to_f32(y[i]);
      CHECK_BITS(sum.data(), there.data(), sum.size());

      leave_out(rig, p, a, 1);
      a.addend = other.y;
      std::vector<uint16_t> want(rows * p.dim);
      for (size_t i = 0; i < want.size(); i++) want[i] = ced::f32_to_bf16(here[i] + there[i] + shared[i]);
      rig.run(ced_expert_gemm, a);
      CHECK_BITS(rig.get<uint16_t>(a.y, want.size()).data(), want.data(), want.size());
      if (kind != CED_CUDA) continue;
      rig.poison<uint16_t>(a.y, want.size());
      a.flags |= CED_EXPERTS_PRODUCTS;
      rig.run(ced_expert_gemm, a);
      a.flags ^= CED_EXPERTS_PRODUCTS | CED_EXPERTS_SUM;
      rig.run(ced_expert_gemm, a);
      CHECK_BITS(rig.get<uint16_t>(a.y, want.size()).data(), want.data(), want.size());
    }
  }
}

TEST("expert_gemm: a row all of whose experts are here has its bits though others are elsewhere") {
  const Problem p = small(9);
  for (ced_kind kind : bodies("expert_gemm")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind);
    auto a = arguments(rig, p);
    rig.run(ced_expert_gemm, a);
    const auto want = rig.get<uint16_t>(a.y, 9 * p.dim);
    a.flags = CED_EXPERTS_PART, a.addend = rig.put(std::vector<float>(9 * p.dim));
    rig.run(ced_expert_gemm, a);
    CHECK_BITS(rig.get<uint16_t>(a.y, want.size()).data(), want.data(), want.size());
  }
}

TEST("expert_gemm: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const Problem p = small(1);
  const auto good = arguments(rig, p);
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_expert_gemm, a); };
  a.idx = rig.put(std::vector<int32_t>{1, 8, 2});
  CHECK_EQ(refusal(), "expert_gemm: idx[0][1] is 8, outside the 8 experts");
  a.idx = rig.put(std::vector<int32_t>{1, 2, -1});
  CHECK_EQ(refusal(), "expert_gemm: idx[0][2] is -1, outside the 8 experts");
  a = good;
  std::vector<ced_expert> table(8);
  a.experts = rig.put(table);
  CHECK_EQ(refusal(), "expert_gemm: experts[" + std::to_string(p.idx[0]) + "].w1 is missing");
  a = good, a.shared.w2_scales = 0;
  CHECK_EQ(refusal(), "expert_gemm: shared.w2_scales is missing");
  a = good, a.inter = 40;
  CHECK_EQ(refusal(), "expert_gemm: inter is 40, must be a positive multiple of 32");
  a = good, a.top_k = 9;
  CHECK_EQ(refusal(), "expert_gemm: top_k is 9, must be 0..8");
  a = good, a.layout = 2;
  CHECK_EQ(refusal(), "expert_gemm: layout is 2, must be 0..1");
  a = good, a.layout = CED_EXPERTS_PACKED;
  CHECK_EQ(refusal(), "expert_gemm: layout is 1, but packed experts are a device's alone");
  a = good, a.workspace = 0;
  CHECK_EQ(refusal(), "expert_gemm: workspace is missing");
  a = good, a.y_format = CED_FP8;
  CHECK_EQ(refusal(), "expert_gemm: y_format is 2, must be BF16 or F32");
  a = good, a.flags = CED_EXPERTS_SUM;
  CHECK_EQ(refusal(), "expert_gemm: flags are 4, which this stream does not do");
  a = good, a.addend = a.y + 4;
  CHECK(refusal().find("expert_gemm: addend = 0x") == 0);
  const Problem none = small(0);
  for (ced_kind kind : bodies("expert_gemm")) {
    Rig empty(kind);
    run(empty, none);
  }
}
