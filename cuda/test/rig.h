// rig.h: a stream with its buffers, for kernel tests.
//
//   Rig rig(CED_CPU, 2);
//   ced_norm_quant_args a{};
//   a.rows = rig.rows(3);
//   a.x = rig.put(x);
//   a.y = rig.out<uint16_t>(3 * n);
//   rig.run(ced_norm_quant, a);
//   CHECK_BITS(rig.get<uint16_t>(a.y, 3 * n).data(), want, 3 * n);
#pragma once
#include <cstdlib>
#include <string>
#include <vector>

#include "ced.h"
#include "internal.h"
#include "test/check.h"

// The bodies of a kernel that can run here, for loops over them: REF, CPU, and CUDA where this build has the body and
// the machine (or the simulation) a device. CED_TEST_BODIES=cuda leaves that one alone.
inline std::vector<ced_kind> bodies(const char *kernel) {
  const char *only = getenv("CED_TEST_BODIES");
  std::vector<ced_kind> kinds;
  if (only == nullptr || std::string(only) != "cuda") kinds = {CED_REF, CED_CPU};
  const std::string all = ced::cuda_bodies();
  if (all.find(" " + std::string(kernel) + " ") != std::string::npos && ced_device_count(CED_CUDA) > 0)
    kinds.push_back(CED_CUDA);
  return kinds;
}

// Those that are not the reference: they share rows out, and promise equal bits however they do.
inline std::vector<ced_kind> fast_bodies(const char *kernel) {
  std::vector<ced_kind> kinds;
  for (ced_kind kind : bodies(kernel))
    if (kind != CED_REF) kinds.push_back(kind);
  return kinds;
}

class Rig {
 public:
  explicit Rig(ced_kind kind, int threads = 2) {
    ced_err err{};
    REQUIRE_EQ(ced_stream_open(kind, 0, threads, 0, &s_, &err), CED_OK);
  }
  ~Rig() {
    for (uint64_t p : buffers_) ced_free(s_, p);
    ced_stream_close(s_);
  }
  Rig(const Rig &) = delete;
  Rig &operator=(const Rig &) = delete;

  ced_stream *stream() const { return s_; }

  // A buffer with these elements.
  template <class T>
  uint64_t put(const T *data, size_t n) {
    const uint64_t p = allocate(n * sizeof(T));
    ced_err err{};
    REQUIRE_EQ(ced_upload(s_, p, data, n * sizeof(T), &err), CED_OK);
    return p;
  }
  template <class T>
  uint64_t put(const std::vector<T> &v) {
    return put(v.data(), v.size());
  }
  // A buffer of n elements that nobody has written: every byte is 0xA5.
  template <class T>
  uint64_t out(size_t n) {
    const uint64_t p = allocate(n * sizeof(T));
    ced_err err{};
    REQUIRE_EQ(ced_fill(s_, p, 0xA5, n * sizeof(T), &err), CED_OK);
    return p;
  }
  // Makes n elements NaN, as far as their format has any.
  template <class T>
  void poison(uint64_t p, size_t n) {
    ced_err err{};
    REQUIRE_EQ(ced_fill(s_, p, 0xFF, n * sizeof(T), &err), CED_OK);
  }
  template <class T>
  std::vector<T> get(uint64_t p, size_t n) {
    std::vector<T> v(n);
    ced_err err{};
    REQUIRE_EQ(ced_download(s_, v.data(), p, n * sizeof(T), &err), CED_OK);
    REQUIRE_EQ(ced_stream_sync(s_, &err), CED_OK);
    return v;
  }

  // Plain rows: a count only.
  uint64_t rows(int32_t count) { return sequence_rows({}, {}, {}, count); }
  // Rows of sequences: positions and slots, which must be grouped as ced_rows asks.
  uint64_t sequence_rows(const std::vector<int32_t> &pos, const std::vector<int32_t> &slot,
                         const std::vector<uint32_t> &flags = {}, int32_t count = -1) {
    ced_rows r{};
    r.count = count < 0 ? static_cast<int32_t>(pos.size()) : count;
    std::vector<int32_t> first;
    for (size_t i = 0; i < slot.size(); i++) {
      const auto n = static_cast<size_t>(slot[i]);
      if (first.size() <= n) first.resize(n + 1, -1);
      if (first[n] < 0) first[n] = static_cast<int32_t>(i);
    }
    r.slots = static_cast<int32_t>(first.size());
    const auto list = [&](const auto &v) { return v.empty() ? 0 : put(v); };
    r.pos = list(pos), r.slot = list(slot), r.flags = list(flags), r.seq_first = list(first);
    return put(&r, 1);
  }
  uint64_t groups(const std::vector<int32_t> &row) {
    const ced_groups g{static_cast<int32_t>(row.size()), 0, put(row)};
    return put(&g, 1);
  }

  // Runs a kernel that must accept its arguments.
  template <class A>
  void run(int (*kernel)(ced_stream *, const A *, ced_err *), const A &a) {
    ced_err err{};
    if (!CHECK_EQ(kernel(s_, &a, &err), CED_OK)) {
      CHECK_EQ(std::string(err.what), "");
      throw check::Stop{};
    }
    if (ced::kind_of(s_) == CED_CUDA) REQUIRE_EQ(ced_stream_sync(s_, &err), CED_OK);
  }
  // The message of a kernel that must refuse its arguments, "" when it does not.
  template <class A>
  std::string refusal(int (*kernel)(ced_stream *, const A *, ced_err *), const A &a) {
    ced_err err{};
    return kernel(s_, &a, &err) == CED_EINVAL ? err.what : "";
  }

 private:
  uint64_t allocate(size_t bytes) {
    uint64_t p = 0;
    ced_err err{};
    // On a device nothing is behind the buffer, so that guards see who goes there.
    const size_t more = ced::kind_of(s_) == CED_CUDA ? 0 : 64;
    REQUIRE_EQ(ced_alloc(s_, bytes + more, &p, &err), CED_OK);
    buffers_.push_back(p);
    return p;
  }

  ced_stream *s_ = nullptr;
  std::vector<uint64_t> buffers_;
};

// Whether a message says what a test expects of it.
inline bool says(const std::string &message, const std::string &part) {
  return message.find(part) != std::string::npos;
}
