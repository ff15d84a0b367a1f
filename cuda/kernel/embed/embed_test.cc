#include "num/bf16.h"
#include "test/check.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

constexpr uint32_t kVocab = 11, kDim = 96, kStreams = 4;

uint64_t token_rows(Rig &rig, const std::vector<int32_t> &token, const std::vector<int32_t> &embed_row = {}) {
  ced_rows r{};
  r.count = static_cast<int32_t>(token.size());
  r.token = rig.put(token);
  if (!embed_row.empty()) r.embed_row = rig.put(embed_row);
  return rig.put(&r, 1);
}

ced_embed_args arguments(Rig &rig, const std::vector<uint16_t> &table, uint64_t rows, size_t count) {
  ced_embed_args a{};
  a.rows = rows, a.table = rig.put(table);
  a.h = rig.out<uint16_t>(count * kStreams * kDim), a.pre = rig.out<float>(count * kStreams);
  a.max_rows = static_cast<uint32_t>(count), a.vocab = kVocab, a.dim = kDim, a.streams = kStreams;
  a.table_format = CED_BF16;
  return a;
}

}  // namespace

TEST("embed: every stream gets the token's row, or the row that overrides it; pre selects the first") {
  const auto table = prng::xb("embed/table", kVocab * kDim, 0),
             overrides = prng::xb("embed/overrides", 3 * kDim, 0);
  const std::vector<int32_t> token{3, 0, 10, -5}, embed_row{-1, 2, -1, 0};
  for (ced_kind kind : bodies("embed")) {
    CONTEXT("kind=" << kind);
    Rig rig(kind, 3);
    auto a = arguments(rig, table, token_rows(rig, token, embed_row), token.size());
    a.overrides = rig.put(overrides);
    rig.run(ced_embed, a);
    const auto h = rig.get<uint16_t>(a.h, token.size() * kStreams * kDim);
    const auto pre = rig.get<float>(a.pre, token.size() * kStreams);
    for (size_t r = 0; r < token.size(); r++) {
      const auto row = static_cast<size_t>(embed_row[r] >= 0 ? embed_row[r] : token[r]);
      const uint16_t *want = &(embed_row[r] >= 0 ? overrides : table)[row * kDim];
      for (size_t j = 0; j < kStreams; j++) {
        CHECK_BITS(&h[(r * kStreams + j) * kDim], want, kDim);
        CHECK_EQ(pre[r * kStreams + j], j == 0 ? 1.0f : 0.0f);
      }
    }
  }
}

TEST("embed: the ends of the released vocabulary of 129,280") {
  constexpr uint32_t kReleased = 129280;
  std::vector<uint16_t> table(static_cast<size_t>(kReleased) * kDim);
  for (size_t i = 0; i < table.size(); i++) table[i] = static_cast<uint16_t>(i / kDim * 31 + i % kDim);
  const std::vector<int32_t> token{0, 128825, kReleased - 1};
  for (ced_kind kind : bodies("embed")) {
    Rig rig(kind);
    auto a = arguments(rig, table, token_rows(rig, token), token.size());
    a.vocab = kReleased;
    rig.run(ced_embed, a);
    const auto h = rig.get<uint16_t>(a.h, token.size() * kStreams * kDim);
    for (size_t r = 0; r < token.size(); r++)
      CHECK_BITS(&h[r * kStreams * kDim], &table[static_cast<size_t>(token[r]) * kDim], kDim);
  }
}

TEST("embed: an F32 table at any byte is rounded to BF16") {
  const auto table = prng::xf("embed/table", kVocab * kDim, -3);
  std::vector<char> bytes(1 + 4 * table.size());
  memcpy(&bytes[1], table.data(), 4 * table.size());
  for (ced_kind kind : bodies("embed")) {
    Rig rig(kind);
    auto a = arguments(rig, {}, token_rows(rig, {7}), 1);
    a.table = rig.put(bytes) + 1, a.table_format = CED_F32;
    rig.run(ced_embed, a);
    const auto h = rig.get<uint16_t>(a.h, kDim);
    for (size_t i = 0; i < kDim; i++) CHECK_EQ(h[i], ced::f32_to_bf16(table[7 * kDim + i]));
  }
}

TEST("embed: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  const std::vector<uint16_t> table(kVocab * kDim);
  const auto good = arguments(rig, table, token_rows(rig, {1}), 1);
  auto a = good;
  const auto refusal = [&] { return rig.refusal(ced_embed, a); };
  a.rows = token_rows(rig, {static_cast<int32_t>(kVocab)});
  CHECK_EQ(refusal(), "embed: token[0] is 11, outside the vocabulary of 11");
  a.rows = token_rows(rig, {-1});
  CHECK_EQ(refusal(), "embed: token[0] is -1, outside the vocabulary of 11");
  a.rows = token_rows(rig, {1}, {0});
  CHECK_EQ(refusal(), "embed: overrides is missing");
  a = good, a.table_format = CED_FP8;
  CHECK_EQ(refusal(), "embed: table_format is 2, must be BF16 or F32");
  a = good, a.pre = 0;
  CHECK_EQ(refusal(), "embed: pre is missing");
  rig.run(ced_embed, arguments(rig, table, token_rows(rig, {}), 0));
}
