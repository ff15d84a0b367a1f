/* ced.h: the whole boundary between Go and the kernels. C11, no CUDA types.
 *
 * One function per operation of the model, enqueued on a stream. A stream's kind chooses the body:
 *   CED_REF   scalar, the specification's canonical arithmetic (spec 3.0): bit-equal with the goldens
 *   CED_CPU   threaded and vectorised; same formats and rounding points, its own fixed order of additions
 *   CED_CUDA  the device
 * Rules for every kernel
 *   - Enqueue only: never allocates, never synchronises. Host streams run the kernel before they return.
 *   - Args are plain data, zero-initialisable. Addresses are uint64_t in the stream's memory; 0 = absent.
 *   - Buffers are dense and row-major; a row of n elements of a b-byte type takes n*b bytes. Activations are BF16
 *     unless said otherwise. Addresses of activations are 64-byte aligned; checkpoint tensors may be unaligned.
 *   - What changes from step to step (row counts, positions, ...) is read from device memory through `rows`, which
 *     addresses a ced_rows or any struct whose first member is an int32_t count; `max_rows` is the static capacity.
 *   - A row's result depends on that row, its sequence and the weights only: never on batch, chunk or thread count.
 *   - Errors: a non-zero ced_status and a message in *err; nothing was enqueued.
 *   - Scratch: ced_<kernel>_workspace() bytes at args->workspace, per stream, not shared between concurrent streams.
 * Any thread may call; one thread at a time per stream. */
#pragma once
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define CED_API __attribute__((visibility("default")))

typedef enum { CED_REF = 0, CED_CPU = 1, CED_CUDA = 2 } ced_kind;

typedef enum {
  CED_OK = 0,
  CED_EINVAL = 1, /* the caller's mistake: message names kernel, field and value */
  CED_ENOMEM = 2,
  CED_ENODEV = 3,
  CED_EDEVICE = 4 /* the device reported a fault; cuda holds its code */
} ced_status;

typedef struct {
  int32_t code, cuda;
  char what[248]; /* caller's; untouched on success */
} ced_err;

/* Digest of this header at build time; the binding refuses an archive that was built from another one. */
CED_API const char *ced_abi(void);

/* ---- devices, streams, memory ---------------------------------------------------------------------------- */
typedef struct ced_stream ced_stream; /* an ordered queue; owns its thread pool on the CPU */

CED_API int ced_device_count(ced_kind kind);
/* The instruction set of the CPU bodies: plain, avx2, avx512, avx512bf16 or neon. Chosen at run time; the environment
 * variable CEDRUN_ISA forces one. All give the same bits. */
CED_API const char *ced_isa(void);
enum {
  CED_PIN = 1
}; /* bind every worker to a processor of the affinity mask; the caller's is left free for it */
/* threads: CPU worker threads including the caller; 0 = the affinity mask's count, at most the control group's quota
 * rounded up. Ignored for REF (1) and CUDA. flags: CED_PIN. */
CED_API int ced_stream_open(ced_kind kind, int device, int threads, uint32_t flags, ced_stream **out,
                            ced_err *err);
CED_API void ced_stream_close(ced_stream *s);
CED_API int ced_stream_threads(const ced_stream *s);
CED_API int ced_stream_sync(ced_stream *s, ced_err *err);
/* 64-byte aligned; contents undefined. Freed by ced_free on the same stream's device. */
CED_API int ced_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err);
CED_API void ced_free(ced_stream *s, uint64_t addr);
CED_API int ced_fill(ced_stream *s, uint64_t dst, int byte, uint64_t bytes, ced_err *err);
/* host memory -> stream memory, stream memory -> host memory, within stream memory; ordered with the kernels.
 * The host side may be reused as soon as the call returns. */
CED_API int ced_upload(ced_stream *s, uint64_t dst, const void *src, uint64_t bytes, ced_err *err);
CED_API int ced_download(ced_stream *s, void *dst, uint64_t src, uint64_t bytes, ced_err *err);
CED_API int ced_copy(ced_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, ced_err *err);

/* Page-locked host memory, at the same address in every kernel and on the host; freed by ced_host_free. Copies between
 * it and device memory (ced_copy) are asynchronous. On host streams: like ced_alloc. */
CED_API int ced_host_alloc(ced_stream *s, uint64_t bytes, uint64_t *addr, ced_err *err);
CED_API void ced_host_free(ced_stream *s, uint64_t addr);

typedef struct {
  char name[64];
  uint64_t total_bytes, free_bytes;
  int32_t major, minor; /* compute capability */
  int32_t processors;   /* multiprocessors */
  int32_t integrated;   /* 1: device and host share their memory */
} ced_device;
/* CED_CUDA only; host kinds are refused. */
CED_API int ced_device_info(ced_kind kind, int device, ced_device *out, ced_err *err);

/* ---- order between streams, and graphs ---------------------------------------------------------------------- */
/* On host streams events are complete at once, and capturing is refused. */
typedef struct ced_event ced_event;
CED_API int ced_event_open(ced_stream *s, ced_event **out, ced_err *err);
/* One that ced_event_elapsed knows the time of; it costs the device more. Host streams refuse it. */
CED_API int ced_event_open_timed(ced_stream *s, ced_event **out, ced_err *err);
CED_API void ced_event_close(ced_event *e);
/* e completes when everything enqueued on s so far has. */
CED_API int ced_event_record(ced_stream *s, ced_event *e, ced_err *err);
/* What is enqueued on s from here on waits for e as recorded last; the caller does not. */
CED_API int ced_event_wait(ced_stream *s, ced_event *e, ced_err *err);
/* The caller waits. */
CED_API int ced_event_sync(ced_event *e, ced_err *err);
/* 1 complete, 0 not yet, negative: -ced_status. */
CED_API int ced_event_done(ced_event *e, ced_err *err);
/* Seconds of the device's clock, good to about a microsecond, from one timed event to another of the same device. Both
 * are recorded and complete. */
CED_API int ced_event_elapsed(ced_event *from, ced_event *to, double *seconds, ced_err *err);

/* Between begin and end the stream's kernels, ced_copy and ced_fill are recorded, with the bytes of their arguments, and
 * not run; ced_upload, ced_download, ced_alloc, ced_free and waiting fail, and so does the capture. Streams that wait
 * for an event recorded in a capture join it, and must be waited for before it ends. The thread that began it ends it. */
typedef struct ced_graph ced_graph;
CED_API int ced_capture_begin(ced_stream *s, ced_err *err);
CED_API int ced_capture_end(ced_stream *s, ced_graph **out, ced_err *err);
CED_API int ced_graph_launch(ced_stream *s, ced_graph *g, ced_err *err);
CED_API void ced_graph_close(ced_graph *g);

/* ---- the limits of this machine, or device ----------------------------------------------------------------- */
/* On host streams both run on all threads of the stream, with the machine's widest instructions whatever CEDRUN_ISA
 * says, and return when done: the caller times them. On a device they are enqueued as kernels are, which events time. */
/* Reads bytes at addr once; *sum is their sum as 64-bit words, so that nothing can be left out. On a device: addr and
 * bytes are multiples of 16, the words have 32 bits and so has the sum, for which the call waits; sum = NULL: it does
 * not. */
CED_API int ced_probe_read(ced_stream *s, uint64_t addr, uint64_t bytes, uint64_t *sum, ced_err *err);
/* Multiplies and adds in registers, `calls` pieces of a fraction of a millisecond; *flops counts both. bf16: products of
 * BF16 pairs (VDPBF16PS) where the machine has them; else, and for 0, F32 multiply-adds. On a device, bf16: products of
 * its matrix units with F32 sums, by the instructions that its kernels use. */
CED_API int ced_probe_multiply(ced_stream *s, int bf16, uint32_t calls, double *flops, ced_err *err);

/* ---- rows of a step -------------------------------------------------------------------------------------- */
enum { CED_ROW_IMAGE = 1 }; /* row of an image span: bias_vl in the router, Engram gate 0 */

/* One set of rows of a step, in stream memory at a fixed address. Rows of one sequence are consecutive and in
 * ascending, gap-free positions. A sequence owns a slot: its window rings, open groups, page table. */
typedef struct {
  int32_t count;      /* rows in use, 0..max_rows */
  int32_t slots;      /* length of seq_first */
  uint64_t token;     /* i32[count] */
  uint64_t pos;       /* i32[count] absolute position */
  uint64_t slot;      /* i32[count] */
  uint64_t flags;     /* u32[count] CED_ROW_* */
  uint64_t embed_row; /* i32[count] row of embed's override table, -1 = look the token up; 0 = no overrides */
  uint64_t seq_first; /* i32[slots] first row of the slot's sequence in this set, -1 = none */
} ced_rows;

/* Compressed groups (or, for ratio 1, tokens) that close in this step; same first member as ced_rows. */
typedef struct {
  int32_t count; /* groups */
  int32_t unused;
  uint64_t row; /* i32[count] row of the compressor's row set that closes the group */
} ced_groups;

/* Paged global KV of one owner layer (spec 5). Row j of a sequence lives in page table[slot*max_pages + j/page_rows]
 * at row j%page_rows of four planes. Codes are packed FP4, low nibble = even channel. */
typedef struct {
  uint64_t pages; /* base of the page pool */
  uint64_t table; /* i32[slots][max_pages] page numbers */
  uint64_t page_bytes;
  uint32_t max_pages;
  uint32_t page_rows; /* rows of this owner in a page: page tokens / ratio */
  uint32_t ratio;
  uint32_t head_dim;  /* main KV row: head_dim/2 bytes of e2m1 codes, head_dim/16 E4M3 scales */
  uint32_t index_dim; /* index key row: index_dim/2 bytes of codes, index_dim/32 UE8M0 scales */
  uint32_t main_codes, main_scales, index_codes, index_scales; /* plane offsets in a page, 16-byte aligned */
} ced_kv;

typedef enum { CED_BF16 = 0, CED_F32 = 1, CED_FP8 = 2, CED_FP4 = 3 } ced_format;

/* ---- kernels --------------------------------------------------------------------------------------------- */

/* Token embedding and the initial streams (spec 4.1). */
typedef struct {
  uint64_t rows;      /* ced_rows */
  uint64_t table;     /* BF16|F32 [vocab, dim] */
  uint64_t overrides; /* BF16 [*, dim] for rows with embed_row >= 0 */
  uint64_t h;         /* out BF16 [rows, streams, dim]: the embedding, copied to every stream */
  uint64_t pre;       /* out F32 [rows, streams]: 1, 0, 0, ... */
  uint32_t max_rows, vocab, dim, streams;
  uint32_t table_format, unused;
} ced_embed_args;
CED_API int ced_embed(ced_stream *s, const ced_embed_args *a, ced_err *err);

/* Copies rows between dense buffers: dst[i] = src[index[i]]. Compaction to the rows the next layers need. */
typedef struct {
  uint64_t rows;     /* count of dst rows */
  uint64_t index;    /* i32[count] */
  uint64_t src, dst; /* must not overlap */
  uint64_t row_bytes;
  uint32_t max_rows, unused;
} ced_row_gather_args;
CED_API int ced_row_gather(ced_stream *s, const ced_row_gather_args *a, ced_err *err);

/* RMSNorm (spec 3.1) and/or FP8 quantisation per 32 channels (spec 3.2) of what the norm wrote.
 * weight 0 = no norm: x is only quantised. y or codes may be 0 when not wanted. y may equal x. */
typedef struct {
  uint64_t rows;
  uint64_t x;      /* BF16 [rows, n] */
  uint64_t weight; /* [n] of weight_format (BF16|F32), 0 = none */
  uint64_t y;      /* out BF16 [rows, n] */
  uint64_t codes;  /* out e4m3 [rows, n] */
  uint64_t scales; /* out UE8M0 [rows, n/32] */
  uint32_t max_rows, n;
  uint32_t weight_format;
  float eps;
} ced_norm_quant_args;
CED_API int ced_norm_quant(ced_stream *s, const ced_norm_quant_args *a, ced_err *err);

/* y = x W^T, block-diagonal over `groups` (spec 3.3 - 3.6).
 *   x FP8, w FP8 (32x32 grid) or FP4 (per row per 32): y BF16       quantised linear, 32-blocks in ascending order
 *   x BF16, w BF16|F32|FP8 (dequantised exactly):      y BF16 or F32  one rounding of the sum
 * Row r of x holds groups*k elements, of w (all groups together) groups*n rows of k, of y groups*n elements. */
typedef struct {
  uint64_t rows;
  uint64_t x;        /* [rows, groups*k] BF16, or e4m3 codes */
  uint64_t x_scales; /* UE8M0 [rows, groups*k/32] when x is FP8 */
  uint64_t w;        /* [groups*n, k] */
  uint64_t w_scales; /* UE8M0: FP8 [ceil(groups*n/32), ceil(k/32)], FP4 [groups*n, k/32] */
  uint64_t y;        /* out [rows, groups*n] */
  uint32_t max_rows, n, k, groups;
  uint32_t x_format, w_format, y_format, unused;
} ced_dense_gemm_args;
CED_API int ced_dense_gemm(ced_stream *s, const ced_dense_gemm_args *a, ced_err *err);

/* Rotates the last rope_dim channels of every head in place (spec 3.7): adjacent pairs, result rounded to BF16. */
typedef struct {
  uint64_t rows;  /* ced_rows: positions */
  uint64_t x;     /* BF16 [rows, heads, dim] */
  uint64_t freqs; /* F32 [rope_dim/2] */
  uint32_t max_rows, heads, dim, rope_dim;
  uint32_t inverse, unused;
} ced_rope_args;
CED_API int ced_rope(ced_stream *s, const ced_rope_args *a, ced_err *err);

/* mHC mixes of a sub-layer (spec 4.2) from the streams that enter it. n = streams. */
typedef struct {
  uint64_t rows;
  uint64_t h;     /* BF16 [rows, n, dim] */
  uint64_t fn;    /* F32 [(2+n)*n, n*dim] */
  uint64_t base;  /* F32 [(2+n)*n] */
  uint64_t scale; /* F32 [3] */
  uint64_t pre;   /* out F32 [rows, n] */
  uint64_t post;  /* out F32 [rows, n] */
  uint64_t comb;  /* out F32 [rows, n(in), n(out)] */
  uint32_t max_rows, dim, streams, iters;
  float norm_eps, hc_eps;
} ced_mhc_mix_args;
CED_API int ced_mhc_mix(ced_stream *s, const ced_mhc_mix_args *a, ced_err *err);

/* x = bf16(sum_j pre[j] h[j]) (spec 4.2). */
typedef struct {
  uint64_t rows;
  uint64_t h;   /* BF16 [rows, streams, dim] */
  uint64_t pre; /* F32 [rows, streams] */
  uint64_t x;   /* out BF16 [rows, dim] */
  uint32_t max_rows, dim, streams, unused;
} ced_mhc_collapse_args;
CED_API int ced_mhc_collapse(ced_stream *s, const ced_mhc_collapse_args *a, ced_err *err);

/* h[k] = bf16(post[k] y + sum_j comb[j][k] h[j]), in place (spec 4.2). */
typedef struct {
  uint64_t rows;
  uint64_t y;    /* BF16 [rows, dim] */
  uint64_t post; /* F32 [rows, streams] */
  uint64_t comb; /* F32 [rows, streams(in), streams(out)] */
  uint64_t h;    /* in/out BF16 [rows, streams, dim] */
  uint32_t max_rows, dim, streams, unused;
} ced_mhc_expand_args;
CED_API int ced_mhc_expand(ced_stream *s, const ced_mhc_expand_args *a, ced_err *err);

/* The border between two sub-layers: mhc_expand, mhc_mix, mhc_collapse and norm_quant in turn, with their bits, in one
 * pass over the streams. n = streams. */
typedef struct {
  uint64_t rows;
  uint64_t y;     /* BF16 [rows, dim]: the output of the sub-layer before; 0 = the streams stay as they are */
  uint64_t h;     /* in/out BF16 [rows, n, dim] */
  uint64_t post;  /* F32 [rows, n]: in with y, out with fn */
  uint64_t comb;  /* F32 [rows, n(in), n(out)]: in with y, out with fn */
  uint64_t pre;   /* F32 [rows, n]: pre of the mix before, which makes x */
  uint64_t next;  /* out F32 [rows, n]: pre of the new mix; another buffer than pre */
  uint64_t fn;    /* F32 [(2+n)*n, n*dim], of the sub-layer behind the border; 0 = no new mix */
  uint64_t base;  /* F32 [(2+n)*n] */
  uint64_t scale; /* F32 [3] */
  uint64_t weight; /* [dim] of weight_format: that sub-layer's norm */
  uint64_t x;      /* out BF16 [rows, dim]: its input, normed */
  uint64_t codes;  /* out e4m3 [rows, dim]: x quantised; 0 = not wanted */
  uint64_t scales; /* out UE8M0 [rows, dim/32] */
  uint32_t max_rows, dim, streams, iters;
  uint32_t weight_format, unused;
  float norm_eps, hc_eps;
} ced_mhc_border_args;
CED_API int ced_mhc_border(ced_stream *s, const ced_mhc_border_args *a, ced_err *err);

/* Engram lookup (spec 4.12 step 1): e = dequantised table rows, concatenated in column order. */
typedef struct {
  uint64_t rows;
  uint64_t ids;          /* i64 [rows, cols] table rows */
  uint64_t table;        /* e4m3 [table_rows, dim] */
  uint64_t table_scales; /* UE8M0 [table_rows, dim/32] */
  uint64_t e;            /* out BF16 [rows, cols*dim] */
  uint64_t table_rows;
  uint32_t max_rows, cols, dim, unused;
} ced_engram_gather_args;
CED_API int ced_engram_gather(ced_stream *s, const ced_engram_gather_args *a, ced_err *err);

/* Engram gate and update of the streams (spec 4.12 steps 3-5). Image rows: gate 0. */
typedef struct {
  uint64_t rows;     /* ced_rows: flags */
  uint64_t kv;       /* BF16 [rows, (streams+1)*dim]: a key per stream, then the shared value */
  uint64_t q_weight; /* [streams, dim] of weight_format (BF16|F32) */
  uint64_t k_weight;
  uint64_t h; /* in/out BF16 [rows, streams, dim] */
  uint32_t max_rows, dim, streams, weight_format;
  float eps, unused;
} ced_engram_gate_args;
CED_API int ced_engram_gate(ced_stream *s, const ced_engram_gate_args *a, ced_err *err);

/* Window KV rows of this step (spec 4.3): kv_norm, RoPE at the row's position, FP8 per 32 channels. */
typedef struct {
  uint64_t rows;   /* ced_rows */
  uint64_t x;      /* BF16 [rows, dim]: wkv's output */
  uint64_t weight; /* [dim] of weight_format */
  uint64_t freqs;  /* F32 [rope_dim/2] */
  uint64_t packed; /* out [rows, dim + dim/32] bytes: e4m3 codes, then UE8M0 scales */
  uint32_t max_rows, dim, rope_dim, weight_format;
  float eps, unused;
} ced_window_pack_args;
CED_API int ced_window_pack(ced_stream *s, const ced_window_pack_args *a, ced_err *err);

/* Moves packed rows into their sequence's ring, slot = position mod ring_rows; of each sequence only its last
 * ring_rows rows. Separate from ced_window_pack so that rows rejected later never clobber visible ones. */
typedef struct {
  uint64_t rows;   /* ced_rows */
  uint64_t packed; /* [rows, row_bytes] */
  uint64_t ring;   /* [slots][ring_rows][row_bytes] */
  uint32_t max_rows, row_bytes, ring_rows, unused;
} ced_window_commit_args;
CED_API int ced_window_commit(ced_stream *s, const ced_window_commit_args *a, ced_err *err);

/* Compressor (spec 4.5): latents of the groups that close in this step.
 *   ratio 1: latent = norm(a), a BF16            ratio 2: per-channel softmax of g over the group, f32 a and g
 * Rows of open groups are kept at open[slot][position mod open_rows] = (a, g); the last open_rows rows of each sequence
 * are written, after all reads. */
typedef struct {
  uint64_t rows;   /* ced_rows of a and g */
  uint64_t groups; /* ced_groups */
  uint64_t a;      /* ratio 1: BF16 [rows, dim]; ratio 2: F32 [rows, dim] */
  uint64_t g;      /* ratio 2: F32 [rows, dim] */
  uint64_t open;   /* F32 [slots][open_rows][2][dim]; ratio 2 only */
  uint64_t weight; /* [dim] of weight_format */
  uint64_t latent; /* out BF16 [groups, dim], before RoPE */
  uint32_t max_rows, dim, ratio, open_rows;
  uint32_t weight_format;
  float eps;
} ced_csa2_compress_args;
CED_API int ced_csa2_compress(ced_stream *s, const ced_csa2_compress_args *a, ced_err *err);

/* Global rows of the closing groups (spec 4.6, 4.7): main KV = RoPE(latent) in FP4/E4M3, index key =
 * RoPE(norm(k)) in FP4/UE8M0, both at position group*ratio, written into the pages. */
typedef struct {
  uint64_t rows;     /* ced_rows the groups refer to */
  uint64_t groups;   /* ced_groups */
  uint64_t latent;   /* BF16 [groups, kv.head_dim] */
  uint64_t k;        /* BF16 [groups, kv.index_dim]: indexer.wk's output */
  uint64_t k_weight; /* [kv.index_dim] of weight_format */
  uint64_t freqs;    /* F32 [rope_dim/2] */
  ced_kv kv;
  uint32_t max_groups, rope_dim, weight_format;
  float eps;
} ced_kv_append_args;
CED_API int ced_kv_append(ced_stream *s, const ced_kv_append_args *a, ced_err *err);

/* Indexer (spec 4.8, 4.9): scores of the visible groups, candidate blocks, exact top-k.
 * q is rotated and quantised to FP4 here. Visible: j < (pos+1)/ratio. BF16 at the three roundings; ties: lower index.
 * publish: candidate source; writes the kept blocks and does not restrict itself.   restrict_: scores outside
 * the candidate blocks are -inf (and, as upstream, may still be picked when fewer than top_k remain). */
typedef struct {
  uint64_t rows;       /* ced_rows of the queries */
  uint64_t q;          /* BF16 [rows, heads, kv.index_dim]: wq_b's output; not modified */
  uint64_t w;          /* BF16 [rows, heads]: weights_proj's output, before the scale */
  uint64_t freqs;      /* F32 [rope_dim/2] */
  uint64_t candidates; /* i32 [rows, max_blocks] kept block numbers, ascending, then -1; in or out */
  uint64_t sel;        /* out i32 [rows, top_k] selected groups, ascending, then -1 */
  uint64_t scores;     /* debug out F32 [rows, score_stride], -inf where masked or unseen; 0 = not wanted */
  uint64_t workspace;
  ced_kv kv;
  uint32_t max_rows, heads, rope_dim, top_k;
  uint32_t max_groups;        /* capacity: no sequence of this stream has more visible groups */
  uint32_t block, max_blocks; /* candidate block size and number of kept blocks; 0 = no candidates */
  uint32_t publish, restrict_;
  uint32_t score_stride;
  float scale; /* index_dim^-1/2 * heads^-1/2, applied to w in f32, result rounded to BF16 */
  uint32_t unused;
} ced_csa2_index_args;
CED_API uint64_t ced_csa2_index_workspace(const ced_stream *s, const ced_csa2_index_args *a);
CED_API int ced_csa2_index(ced_stream *s, const ced_csa2_index_args *a, ced_err *err);

/* Attention core (spec 4.11): window rows [max(window_start, pos-window+1), pos], then the selected main-KV rows, one
 * joint softmax with a sink per head, in blocks of 64 slots; the window part is padded to `window` slots. Rows are
 * dequantised on read. A window position is taken from `packed` if the key row set holds it, else from the ring. */
typedef struct {
  uint64_t rows;         /* ced_rows of the queries */
  uint64_t key_rows;     /* ced_rows of packed (may equal rows) */
  uint64_t q;            /* BF16 [rows, heads, head_dim], rotated */
  uint64_t packed;       /* [key_rows, head_dim + head_dim/32] this step's window rows */
  uint64_t ring;         /* [slots][ring_rows][head_dim + head_dim/32] */
  uint64_t window_start; /* i32 [slots] first position this layer's window may see */
  uint64_t sel;          /* i32 [rows, top_k]; 0 = sliding window only */
  uint64_t sink;         /* F32 [heads] */
  uint64_t o;            /* out BF16 [rows, heads, head_dim], before the inverse RoPE */
  uint64_t workspace;
  ced_kv kv; /* owner of the selected rows */
  uint32_t max_rows, heads, head_dim, window;
  uint32_t ring_rows, top_k;
} ced_csa2_attend_args;
CED_API uint64_t ced_csa2_attend_workspace(const ced_stream *s, const ced_csa2_attend_args *a);
CED_API int ced_csa2_attend(ced_stream *s, const ced_csa2_attend_args *a, ced_err *err);

/* Router (spec 6): scores = sqrt(softplus(logits / temperature)), top_k of score + bias, weights from the unbiased
 * scores. */
typedef struct {
  uint64_t rows;    /* ced_rows: flags */
  uint64_t logits;  /* F32 [rows, experts] */
  uint64_t bias;    /* F32|BF16 [experts] */
  uint64_t bias_vl; /* for image rows; 0 = use bias */
  uint64_t idx;     /* out i32 [rows, top_k], descending biased score */
  uint64_t weights; /* out F32 [rows, top_k] */
  uint32_t max_rows, experts, top_k, normalise;
  float temperature, route_scale;
  uint32_t bias_format, unused;
} ced_route_args;
CED_API int ced_route(ced_stream *s, const ced_route_args *a, ced_err *err);

/* One expert's tensors. w1, w3: [inter, dim]; w2: [dim, inter]. Entries of the routed experts are FP4. In a packed one w1
 * is where its w1 and w3 begin, w2 where its w2 does, and the others mean nothing. */
typedef struct {
  uint64_t w1, w1_scales, w3, w3_scales, w2, w2_scales;
} ced_expert;

enum {
  CED_EXPERTS_PART = 1,     /* experts without w1 are computed elsewhere: skipped */
  CED_EXPERTS_PRODUCTS = 2, /* device only: all but the sum, whose parts stay in the workspace */
  CED_EXPERTS_SUM = 4       /* device only: the sum alone, after a call with CED_EXPERTS_PRODUCTS */
};

/* How the routed experts of a layer lie in memory: as in a checkpoint, or in the order in which a device's warps use them,
 * which ced_expert_pack makes. Packed ones are a device's alone, and have the same bits. */
typedef enum { CED_EXPERTS_RAW = 0, CED_EXPERTS_PACKED = 1 } ced_expert_layout;
/* Bytes of a packed expert, a multiple of 32, as are the addresses of both parts; *w2 is where the second one begins. dim
 * and inter are multiples of 32. */
CED_API uint64_t ced_expert_pack_bytes(uint32_t dim, uint32_t inter, uint64_t *w2);
/* Writes part `part` of `parts` of a packed expert; from has addresses of host memory, as to is. Calls for other parts may
 * run at the same time. */
CED_API int ced_expert_pack(const ced_expert *from, uint32_t dim, uint32_t inter, uint32_t part,
                            uint32_t parts, uint64_t to, ced_err *err);

/* Experts of a layer (spec 6): y = bf16(sum over the row's routed experts in ascending expert id + addend + shared expert).
 * Gate and up are rounded to BF16, clamped SwiGLU in f32, times the routing weight, rounded, re-quantised, down. */
typedef struct {
  uint64_t rows;
  uint64_t x;        /* e4m3 codes [rows, dim] */
  uint64_t x_scales; /* UE8M0 [rows, dim/32] */
  uint64_t idx;      /* i32 [rows, top_k] */
  uint64_t weights;  /* F32 [rows, top_k] */
  uint64_t experts;  /* ced_expert [experts] in stream memory, FP4 */
  ced_expert shared; /* FP8; w1 = 0: none */
  uint64_t y;        /* out [rows, dim] of y_format */
  uint64_t workspace;
  uint32_t max_rows, experts_count, top_k, dim;
  uint32_t inter, layout; /* ced_expert_layout of the routed experts */
  float limit, unused2;   /* swiglu_limit, 0 = none */
  uint64_t addend;        /* F32 [rows, dim]: the sum of what was computed elsewhere; 0 = none */
  uint32_t y_format;      /* CED_BF16, or CED_F32: the sum is not rounded */
  uint32_t flags;         /* CED_EXPERTS_* */
} ced_expert_gemm_args;
CED_API uint64_t ced_expert_gemm_workspace(const ced_stream *s, const ced_expert_gemm_args *a);
CED_API int ced_expert_gemm(ced_stream *s, const ced_expert_gemm_args *a, ced_err *err);

/* Greedy sampling: the lowest index of a row's largest logit; -1 where a logit is NaN or +Inf, or all are -Inf. */
typedef struct {
  uint64_t rows;
  uint64_t logits; /* F32 [rows, vocab] */
  uint64_t ids;    /* out i32 [rows] */
  uint32_t max_rows, vocab;
} ced_greedy_args;
CED_API int ced_greedy(ced_stream *s, const ced_greedy_args *a, ced_err *err);

#ifdef __cplusplus
}
#endif
