// golden.h: reads safetensors files of testdata/ for native tests.
//
//   const golden::Tensor &y = golden::ops()["wq_a.y"];
//   CHECK_BITS(got.data(), y.as<uint16_t>(), y.count());   // BF16 as its bits
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace golden {

struct Tensor {
  std::string name, dtype;  // BF16 F32 F8_E4M3 F8_E8M0 I8 I32 U8
  std::vector<size_t> shape;
  std::vector<unsigned char> data;  // a copy, so that elements are aligned whatever the file's offsets

  size_t count() const {
    size_t n = 1;
    for (size_t d : shape) n *= d;
    return n;
  }
  // The elements as T, whose size must be the dtype's.
  template <class T>
  const T *as() const {
    if (count() * sizeof(T) != data.size())
      throw std::runtime_error(name + " is " + dtype + ": wrong element size");
    return reinterpret_cast<const T *>(data.data());
  }
  // The values of a BF16 or F32 tensor.
  std::vector<float> f32() const {
    std::vector<float> v(count());
    if (dtype == "F32") {
      std::memcpy(v.data(), as<float>(), data.size());
    } else if (dtype == "BF16") {
      for (size_t i = 0; i < v.size(); i++) {
        uint32_t u = uint32_t(as<uint16_t>()[i]) << 16;
        std::memcpy(&v[i], &u, 4);
      }
    } else {
      throw std::runtime_error(name + " is " + dtype + ", not BF16 or F32");
    }
    return v;
  }
};

// Reader of the JSON subset that safetensors headers use: objects, arrays of numbers, plain strings.
class Header {
 public:
  Header(const char *at, const char *end) : at_(at), end_(end) {}

  // Calls field(key) for each key of an object; field consumes the value.
  template <class F>
  void object(F field) {
    expect('{');
    if (next('}')) return;
    do {
      std::string key = string();
      expect(':');
      field(key);
    } while (next(','));
    expect('}');
  }
  std::vector<size_t> numbers() {
    std::vector<size_t> v;
    expect('[');
    if (next(']')) return v;
    do {
      size_t n = 0;
      if (peek() < '0' || peek() > '9') bad();
      while (at_ < end_ && *at_ >= '0' && *at_ <= '9') n = n * 10 + size_t(*at_++ - '0');
      v.push_back(n);
    } while (next(','));
    expect(']');
    return v;
  }
  std::string string() {
    expect('"');
    const char *from = at_;
    while (at_ < end_ && *at_ != '"' && *at_ != '\\') at_++;
    if (at_ == end_ || *at_ == '\\') bad();
    return std::string(from, at_++);
  }

 private:
  char peek() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) at_++;
    return at_ < end_ ? *at_ : '\0';
  }
  bool next(char c) { return peek() == c && at_++; }
  void expect(char c) {
    if (!next(c)) bad();
  }
  [[noreturn]] void bad() { throw std::runtime_error("malformed safetensors header"); }

  const char *at_, *end_;
};

// A safetensors file read whole.
class File {
 public:
  explicit File(const std::string &path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    if (!in) throw std::runtime_error("cannot open " + path + "; CED_TESTDATA names the testdata folder");
    std::string blob(size_t(in.tellg()), '\0');
    in.seekg(0).read(blob.data(), std::streamsize(blob.size()));
    uint64_t length = 0;
    if (blob.size() >= 8) std::memcpy(&length, blob.data(), 8);
    if (!in || blob.size() < 8 || length > blob.size() - 8) throw std::runtime_error(path + " is truncated");
    Header h(blob.data() + 8, blob.data() + 8 + length);
    h.object([&](const std::string &name) {
      if (name == "__metadata__") return h.object([&](const std::string &) { h.string(); });
      tensors_[name] = tensor(h, name, blob.data() + 8 + length, blob.size() - 8 - size_t(length));
    });
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  bool has(const std::string &name) const { return tensors_.count(name) != 0; }
  const Tensor &operator[](const std::string &name) const {
    auto it = tensors_.find(name);
    if (it == tensors_.end()) throw std::runtime_error("no golden tensor " + name);
    return it->second;
  }
  const std::map<std::string, Tensor> &tensors() const { return tensors_; }

 private:
  static Tensor tensor(Header &h, const std::string &name, const char *data, size_t size) {
    Tensor t;
    t.name = name;
    std::vector<size_t> span;
    h.object([&](const std::string &key) {
      if (key == "dtype") t.dtype = h.string();
      if (key == "shape") t.shape = h.numbers();
      if (key == "data_offsets") span = h.numbers();
    });
    if (span.size() != 2 || span[0] > span[1] || span[1] > size)
      throw std::runtime_error(name + " lies outside the file");
    t.data.assign(data + span[0], data + span[1]);
    return t;
  }

  std::map<std::string, Tensor> tensors_;
};

// Path of a file under testdata/: CED_TESTDATA when set, else the source tree's.
inline std::string path(const std::string &name) {
  const char *dir = std::getenv("CED_TESTDATA");
  return std::string(dir ? dir : CED_TESTDATA_DIR) + "/" + name;
}

// Single operators at release widths; their inputs come from prng.h.
inline const File &ops() {
  static const File file(path("ops/ops.safetensors"));
  return file;
}

}  // namespace golden
