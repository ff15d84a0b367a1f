// rig.h: a device stream with operands for kernels: random numbers of sane size, weights that no cache holds.
#pragma once
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ced.h"

namespace ced::bench {

// A refusal or a fault, in the library's words. sticky: the device is lost to this process.
struct Failure {
  std::string what;
  bool sticky = false;
};

// Throws what a call of the library reports.
template <class F>
void must(const F &call) {
  ced_err err{};
  const int rc = call(&err);
  if (rc != CED_OK) throw Failure{err.what, rc == CED_EDEVICE};
}

// The widths of a model (spec 1.1).
struct Geometry {
  uint32_t vocab, dim, inter, experts, top_k, heads, head_dim, rope_dim, q_lora, o_groups, o_lora, window;
  uint32_t index_heads, index_dim, index_top_k, block, max_blocks, streams, iters, engram_columns, engram_dim;
};
extern const Geometry kRelease, kTiny;

class Rig {
 public:
  // arena: bytes of weights.
  Rig(const Geometry &g, uint64_t arena);
  ~Rig();
  Rig(const Rig &) = delete;
  Rig &operator=(const Rig &) = delete;

  const Geometry g;
  ced_stream *stream() const { return s_; }
  uint64_t arena() const { return arena_; }
  uint64_t arena_bytes() const { return size_; }

  // Frees what was made since the rig was.
  void reset();

  // Bytes in device memory, in page-locked host memory.
  uint64_t space(uint64_t bytes);
  uint64_t host_space(uint64_t bytes);
  template <class T>
  uint64_t put(const std::vector<T> &v) {
    return put(v.data(), v.size() * sizeof(T));
  }
  uint64_t put(const void *data, uint64_t bytes);
  // Fills n bytes with a piece, over and over.
  uint64_t repeat(uint64_t bytes, const std::vector<uint8_t> &piece);

  // The next bytes of the arena: numbers in every format; and of scales, UE8M0.
  uint64_t weights(uint64_t bytes) { return next(arena_, size_, &cursor_, bytes); }
  uint64_t packed(uint64_t bytes);  // of packed experts
  uint64_t scales(uint64_t bytes) { return next(scales_, size_ / 16, &scale_cursor_, bytes); }

  uint64_t bf16s(uint64_t n);  // +-0.25 to 0.5
  uint64_t fp8s(uint64_t n);   // e4m3 codes up to 60
  uint64_t bytes(uint64_t n, uint8_t value);
  uint64_t f32s(uint64_t n, float low, float high);
  uint64_t freqs();

  // Rows of a step, the last of each sequence at position last. Up to kOwn rows are sequences of their own.
  static constexpr uint32_t kOwn = 64;
  static uint32_t slots(uint32_t rows) { return rows <= kOwn ? rows : 1; }
  uint64_t rows(uint32_t n, int32_t last);
  // The groups of `ratio` that close in n rows of a chunk, or one for each row that is alone.
  uint64_t groups(uint32_t n, uint32_t ratio, uint32_t *count);
  // Pages of one owner for `keys` rows of each of `slots` sequences.
  ced_kv kv(uint32_t ratio, uint32_t slots, uint32_t keys);
  uint64_t ring(uint64_t rows);  // packed window rows
  uint32_t ring_row() const { return g.head_dim + g.head_dim / 32; }

  uint32_t random(uint32_t below) { return static_cast<uint32_t>(generator_() % below); }

 private:
  uint64_t next(uint64_t base, uint64_t size, uint64_t *cursor, uint64_t bytes);
  std::vector<uint8_t> piece(uint64_t bytes, uint8_t (*f)(uint8_t));

  ced_stream *s_ = nullptr;
  std::mt19937_64 generator_{1};
  std::vector<uint64_t> owned_, host_owned_;
  uint64_t arena_ = 0, size_ = 0, cursor_ = 0, scales_ = 0, scale_cursor_ = 0;
};

// A kernel call to be timed.
struct Call {
  uint64_t weights = 0;               // bytes read of weights and caches
  uint64_t activations = 0;           // bytes read and written otherwise
  double flops = 0;                   // of matrix products, multiplications and additions
  double integer_ops = 0;             // the same in integers
  std::function<int(ced_err *)> run;  // the next call, on other weights
};

struct Case {
  std::string kernel, what;
  std::vector<uint32_t> rows;  // that it is measured with
  std::function<Call(Rig &, uint32_t rows)> prepare;
};

// Every kernel at a model's widths, those of matrices once per matrix of a layer.
std::vector<Case> cases(const Geometry &g, bool quick);
void add_products(std::vector<Case> *all, const Geometry &g, bool quick);
void add_attention(std::vector<Case> *all, const Geometry &g, bool quick);
void add_rows(std::vector<Case> *all, const Geometry &g, bool quick);

// Rows of decode steps, and of prefill chunks as well.
std::vector<uint32_t> decode_rows(const Geometry &g, bool quick);
std::vector<uint32_t> all_rows(const Geometry &g, bool quick);

constexpr int32_t kPosition = 8191;  // of the last rows

}  // namespace ced::bench
