// stream.h: a stream and buffers in its memory, for tests of kernels.
//
//   test::Stream s(CED_CPU, 3);
//   ced_rope_args a{};
//   a.rows = s.rows({5, 6});                    // positions; see Rows
//   a.x = s.put(x);                             // uploads; freed with the stream
//   a.y = s.room<uint16_t>(n);                  // n elements of a pattern that no kernel writes by chance
//   REQUIRE_EQ(ced_rope(s, &a, &s.err), CED_OK);
//   std::vector<uint16_t> y = s.get<uint16_t>(a.y, n);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ced.h"
#include "test/check.h"

namespace test {

// The arrays of a ced_rows; empty ones are absent. count is the length of the longest.
struct Rows {
  std::vector<int32_t> pos, token, slot, embed_row, seq_first;
  std::vector<uint32_t> flags;
};

class Stream {
 public:
  explicit Stream(ced_kind kind, int threads = 0) {
    REQUIRE_EQ(ced_stream_open(kind, 0, threads, &stream_, &err), CED_OK);
  }
  ~Stream() {
    for (uint64_t addr : owned_) ced_free(stream_, addr);
    ced_stream_close(stream_);
  }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  operator ced_stream *() const { return stream_; }

  // bytes of stream memory filled with 0xA5.
  uint64_t bytes(uint64_t n) {
    uint64_t addr = 0;
    REQUIRE_EQ(ced_alloc(stream_, n, &addr, &err), CED_OK);
    owned_.push_back(addr);
    REQUIRE_EQ(ced_fill(stream_, addr, 0xA5, n, &err), CED_OK);
    return addr;
  }
  template <class T>
  uint64_t room(size_t n) {
    return bytes(n * sizeof(T));
  }
  template <class T>
  uint64_t put(const T *data, size_t n) {
    const uint64_t addr = bytes(n * sizeof(T));
    REQUIRE_EQ(ced_upload(stream_, addr, data, n * sizeof(T), &err), CED_OK);
    return addr;
  }
  template <class T>
  uint64_t put(const std::vector<T> &v) {
    return put(v.data(), v.size());
  }
  template <class T>
  std::vector<T> get(uint64_t addr, size_t n) {
    std::vector<T> v(n);
    REQUIRE_EQ(ced_download(stream_, v.data(), addr, n * sizeof(T), &err), CED_OK);
    return v;
  }

  // A bare row count: any struct whose first member is one.
  uint64_t count(int32_t n) { return put(std::vector<int32_t>{n, 0}); }
  uint64_t rows(const Rows &r) {
    ced_rows out{};
    const auto add = [&](const auto &v) -> uint64_t {
      if (v.empty()) return 0;
      if (static_cast<size_t>(out.count) < v.size()) out.count = static_cast<int32_t>(v.size());
      return put(v);
    };
    out.pos = add(r.pos);
    out.token = add(r.token);
    out.slot = add(r.slot);
    out.embed_row = add(r.embed_row);
    out.flags = add(r.flags);
    if (!r.seq_first.empty()) out.seq_first = put(r.seq_first);
    out.slots = static_cast<int32_t>(r.seq_first.size());
    return put(&out, 1);
  }

  // The message of a call that failed with EINVAL.
  std::string rejected(int rc) {
    CHECK_EQ(rc, CED_EINVAL);
    return err.what;
  }

  ced_err err{};

 private:
  ced_stream *stream_ = nullptr;
  std::vector<uint64_t> owned_;
};

}  // namespace test
