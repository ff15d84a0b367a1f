#include "bench/rig.h"

#include <algorithm>
#include <cmath>

#include "kernel/expert_gemm/pack.h"

namespace ced::bench {

const Geometry kRelease{129280, 5120, 2304, 384, 6, 64,   512, 64, 1280, 8,  1024,
                        128,    32,   128,  512, 8, 2048, 4,   20, 24,   256};
const Geometry kTiny{256, 128, 64, 8, 2, 4, 64, 16, 64, 2, 32, 8, 4, 64, 4, 2, 3, 4, 20, 6, 32};

namespace {

constexpr uint64_t kPiece = 1 << 20, kPagePiece = 16 << 20, kTiles = 2 * Pack::kTile;

// A byte of 0x30 with another sign and low half is a sane number, or part of one, in every format.
uint8_t number(uint8_t v) { return static_cast<uint8_t>((v & 0x8F) | 0x30); }
uint8_t scale(uint8_t v) { return static_cast<uint8_t>(0x79 + (v & 3)); }
uint8_t fp8(uint8_t v) { return v & 0xEF; }
uint8_t same(uint8_t v) { return v; }

}  // namespace

Rig::Rig(const Geometry &g, uint64_t arena) : g(g), size_(arena) {
  must([&](ced_err *err) { return ced_stream_open(CED_CUDA, 0, 0, 0, &s_, err); });
  std::vector<uint8_t> numbers = piece(kPiece / kTiles * kTiles, number);
  for (size_t i = 0; i < numbers.size(); i++)
    if (i % Pack::kTile >= Pack::kCodes) numbers[i] &= 0x7F;  // a packed expert's scales are at most 1
  arena_ = repeat(size_, numbers);
  scales_ = repeat(size_ / 16, piece(kPiece, scale));
  owned_.clear();  // until the process ends
}

Rig::~Rig() {
  reset();
  ced_stream_close(s_);
}

void Rig::reset() {
  for (uint64_t a : owned_) ced_free(s_, a);
  for (uint64_t a : host_owned_) ced_host_free(s_, a);
  owned_.clear(), host_owned_.clear();
}

uint64_t Rig::space(uint64_t bytes) {
  uint64_t addr = 0;
  must([&](ced_err *err) { return ced_alloc(s_, bytes + 64, &addr, err); });
  owned_.push_back(addr);
  return addr;
}

uint64_t Rig::host_space(uint64_t bytes) {
  uint64_t addr = 0;
  must([&](ced_err *err) { return ced_host_alloc(s_, bytes, &addr, err); });
  host_owned_.push_back(addr);
  return addr;
}

uint64_t Rig::put(const void *data, uint64_t bytes) {
  const uint64_t addr = space(bytes);
  must([&](ced_err *err) { return ced_upload(s_, addr, data, bytes, err); });
  return addr;
}

uint64_t Rig::repeat(uint64_t bytes, const std::vector<uint8_t> &piece) {
  const uint64_t addr = space(bytes);
  uint64_t have = std::min<uint64_t>(bytes, piece.size());
  must([&](ced_err *err) { return ced_upload(s_, addr, piece.data(), have, err); });
  while (have < bytes) {
    const uint64_t n = std::min(have, bytes - have);
    must([&](ced_err *err) { return ced_copy(s_, addr + have, addr, n, err); });
    have += n;
  }
  return addr;
}

std::vector<uint8_t> Rig::piece(uint64_t bytes, uint8_t (*f)(uint8_t)) {
  std::vector<uint8_t> v(std::min(bytes, kPiece));
  for (uint8_t &b : v) b = f(static_cast<uint8_t>(generator_() >> 24));
  return v;
}

uint64_t Rig::packed(uint64_t bytes) {
  cursor_ = (cursor_ + kTiles - 1) / kTiles * kTiles;
  return weights(bytes);
}

uint64_t Rig::next(uint64_t base, uint64_t size, uint64_t *cursor, uint64_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > size)
    throw Failure{"the device has no memory for weights of " + std::to_string(bytes >> 20) + " MiB"};
  if (*cursor + bytes > size) *cursor = 0;
  const uint64_t addr = base + *cursor;
  *cursor += bytes;
  return addr;
}

uint64_t Rig::bf16s(uint64_t n) {
  std::vector<uint8_t> v = piece(2 * n, same);
  for (size_t i = 1; i < v.size(); i += 2) v[i] = static_cast<uint8_t>((v[i] & 0x80) | 0x3E);
  return repeat(2 * n, v);
}

uint64_t Rig::fp8s(uint64_t n) { return repeat(n, piece(n, fp8)); }

uint64_t Rig::bytes(uint64_t n, uint8_t value) {
  return repeat(n, std::vector<uint8_t>(std::min(n, kPiece), value));
}

uint64_t Rig::f32s(uint64_t n, float low, float high) {
  std::vector<float> v(n);
  std::uniform_real_distribution<float> between(low, high);
  for (float &x : v) x = between(generator_);
  return put(v);
}

uint64_t Rig::freqs() {
  std::vector<float> v;
  for (uint32_t i = 0; i < g.rope_dim / 2; i++)
    v.push_back(std::pow(160000.0F, -2.0F * static_cast<float>(i) / static_cast<float>(g.rope_dim)));
  return put(v);
}

uint64_t Rig::rows(uint32_t n, int32_t last) {
  std::vector<int32_t> zero(n), pos(n), slot(n), first(slots(n));
  for (uint32_t i = 0; i < n; i++) {
    const auto at = static_cast<int32_t>(i);
    if (n <= kOwn) {
      pos[i] = last, slot[i] = at, first[i] = at;
    } else {
      pos[i] = last - static_cast<int32_t>(n) + 1 + at;
    }
  }
  ced_rows r{};
  r.count = static_cast<int32_t>(n), r.slots = static_cast<int32_t>(slots(n));
  r.token = put(zero), r.pos = put(pos), r.slot = put(slot), r.flags = put(zero), r.seq_first = put(first);
  return put(&r, sizeof r);
}

uint64_t Rig::groups(uint32_t n, uint32_t ratio, uint32_t *count) {
  std::vector<int32_t> row;
  for (uint32_t i = 0; i < n; i++)
    if (n <= kOwn || i % ratio == ratio - 1) row.push_back(static_cast<int32_t>(i));
  *count = static_cast<uint32_t>(row.size());
  const ced_groups set{static_cast<int32_t>(row.size()), 0, put(row)};
  return put(&set, sizeof set);
}

ced_kv Rig::kv(uint32_t ratio, uint32_t slots, uint32_t keys) {
  ced_kv kv{};
  kv.page_rows = 64 / ratio, kv.ratio = ratio, kv.head_dim = g.head_dim, kv.index_dim = g.index_dim;
  const auto plane = [&](uint32_t row_bytes) {
    const auto offset = static_cast<uint32_t>(kv.page_bytes);
    kv.page_bytes += (kv.page_rows * row_bytes + 15) / 16 * 16;
    return offset;
  };
  kv.main_codes = plane(g.head_dim / 2), kv.main_scales = plane(g.head_dim / 16);
  kv.index_codes = plane(g.index_dim / 2), kv.index_scales = plane(g.index_dim / 32);
  kv.max_pages = keys / kv.page_rows + 1;
  const uint32_t pages = slots * kv.max_pages;
  std::vector<int32_t> table(pages);
  for (uint32_t i = 0; i < pages; i++) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), generator_);
  kv.table = put(table);

  const uint64_t different = std::min<uint64_t>(pages, kPagePiece / kv.page_bytes);
  std::vector<uint8_t> piece(different * kv.page_bytes);
  for (size_t i = 0; i + 8 <= piece.size(); i += 8) {
    const uint64_t v = generator_();
    memcpy(&piece[i], &v, 8);
  }
  for (uint64_t p = 0; p < different; p++) {
    uint8_t *page = &piece[p * kv.page_bytes];
    memset(page + kv.main_scales, 0x2A, kv.index_codes - kv.main_scales);
    memset(page + kv.index_scales, 0x7D, kv.page_bytes - kv.index_scales);
  }
  kv.pages = repeat(pages * kv.page_bytes, piece);
  return kv;
}

uint64_t Rig::ring(uint64_t rows) {
  std::vector<uint8_t> v(rows * ring_row());
  for (size_t i = 0; i < v.size(); i++)
    v[i] = i % ring_row() < g.head_dim ? static_cast<uint8_t>(generator_() >> 24 & 0xBF) : 0x7C;
  return put(v);
}

std::vector<uint32_t> decode_rows(const Geometry &g, bool quick) {
  if (g.dim == kTiny.dim) return quick ? std::vector<uint32_t>{2} : std::vector<uint32_t>{1, 3};
  return quick ? std::vector<uint32_t>{1, 16} : std::vector<uint32_t>{1, 8, 16, 64};
}

std::vector<uint32_t> all_rows(const Geometry &g, bool quick) {
  std::vector<uint32_t> rows = decode_rows(g, quick);
  const bool tiny = g.dim == kTiny.dim;
  if (!quick) rows.push_back(tiny ? Rig::kOwn + 1 : 256);
  if (!tiny) rows.push_back(2048);
  return rows;
}

std::vector<Case> cases(const Geometry &g, bool quick) {
  std::vector<Case> all;
  add_products(&all, g, quick);
  add_attention(&all, g, quick);
  add_rows(&all, g, quick);
  return all;
}

}  // namespace ced::bench
