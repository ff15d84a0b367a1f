// ced_bench: the kernels of this build on a device, against what its memory and matrix units can do, measured in the
// same run.
//
//   ced_bench [--tiny] [--quick] [--once] [--rows N] [--seconds N] [--json FILE] [--device | --list] [SUBSTRING...]
//
// --tiny takes a mini model's widths, --quick fewer rows and samples, --once a single sample of two calls: for a
// simulated device, where a thread of the kernel is slower by a factor of thousands.
// --json writes one object a line: the device, the limits, then a benchmark as soon as it is done. Status 0: all were
// measured; 1: some were not; 2: usage; 77: no device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bench/rig.h"
#include "device/probe.h"

namespace ced::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

#ifdef CED_SIM
constexpr bool kSimulated = true;
#else
constexpr bool kSimulated = false;
#endif
constexpr int kNoDevice = 77;

struct Options {
  bool tiny = false, quick = false, once = false, list = false, device = false;
  uint32_t rows = 0;  // 0: all
  double seconds = 1e9;
  const char *json = nullptr;
  std::vector<std::string> only;
};

// Bytes and operations a second; 0: not measured.
struct Limits {
  double read = 0, copy = 0, bf16_warp = 0, bf16_group = 0, int8 = 0, bus_read = 0, bus_copy = 0;
  double bf16() const { return std::max(bf16_warp, bf16_group); }
};

std::string quoted(const std::string &s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

// One JSON object a line, each complete when it is written.
class Record {
 public:
  explicit Record(FILE *f) : f_(f) {}
  ~Record() {
    if (f_ == nullptr) return;
    fprintf(f_, "{%s}\n", text_.c_str());
    fflush(f_);
  }
  Record(const Record &) = delete;
  Record &operator=(const Record &) = delete;
  Record &text(const char *key, const std::string &v) { return raw(key, quoted(v)); }
  Record &number(const char *key, double v) {
    char b[32];
    snprintf(b, sizeof b, "%.6g", v);
    return raw(key, b);
  }
  Record &whole(const char *key, uint64_t v) { return raw(key, std::to_string(v)); }

 private:
  Record &raw(const char *key, const std::string &v) {
    if (!text_.empty()) text_ += ",";
    text_ += quoted(key) + ":" + v;
    return *this;
  }
  FILE *f_;
  std::string text_;
};

struct Times {
  double graph = 0, launched = 0;  // seconds a call; graph 0: the kernel cannot be captured
  int calls = 0;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

class Timer {
 public:
  Timer(ced_stream *s, const Options &o) : s_(s), samples_(o.once ? 1 : o.quick ? 3 : 7), once_(o.once) {}

  // Seconds a call of what is enqueued n times: the median of some samples, the first of which is not counted.
  template <class F>
  double operator()(int n, const F &enqueue) const {
    std::vector<double> v;
    for (int i = once_ ? 1 : 0; i <= samples_; i++) {
      const auto begin = Clock::now();
      enqueue();
      sync();
      if (i > 0) v.push_back(seconds_since(begin) / n);
    }
    return median(v);
  }

  Times measure(const Call &c) const {
    const auto some = [&](int n) {
      for (int i = 0; i < n; i++) must(c.run);
    };
    some(1);  // loads the kernel
    sync();
    Times t;
    t.calls = 2;
    if (!once_) {
      const auto begin = Clock::now();
      some(3);
      sync();
      t.calls = std::clamp(static_cast<int>(3e-3 / (seconds_since(begin) / 3)), 4, 400);
    }
    t.launched = (*this)(t.calls, [&] { some(t.calls); });

    // A graph has no cost of launching, which on short kernels is all that the other figure shows.
    ced_graph *graph = nullptr;
    ced_err err{};
    must([&](ced_err *e) { return ced_capture_begin(s_, e); });
    int rc = CED_OK;
    for (int i = 0; i < t.calls && rc == CED_OK; i++) rc = c.run(&err);
    const int end = ced_capture_end(s_, &graph, &err);
    if (rc != CED_OK || end != CED_OK) {
      if (end == CED_OK) ced_graph_close(graph);
      return t;
    }
    t.graph = (*this)(t.calls, [&] { must([&](ced_err *e) { return ced_graph_launch(s_, graph, e); }); });
    ced_graph_close(graph);
    return t;
  }

  void sync() const {
    must([&](ced_err *e) { return ced_stream_sync(s_, e); });
  }

 private:
  ced_stream *s_;
  int samples_;
  bool once_;
};

template <class T>
std::vector<T> read_back(Rig &r, uint64_t addr, size_t n) {
  std::vector<T> v(n);
  must([&](ced_err *e) { return ced_download(r.stream(), v.data(), addr, n * sizeof(T), e); });
  return v;
}

// A wrong sum means that the limit was not measured.
void check_read(Rig &r, uint64_t addr, uint64_t bytes) {
  const std::vector<uint32_t> words = read_back<uint32_t>(r, addr, bytes / 4);
  uint32_t want = 0;
  for (uint32_t w : words) want += w;
  const uint64_t sum = r.bytes(64, 0);
  must([&](ced_err *e) { return device_read(r.stream(), addr, bytes, sum, e); });
  if (read_back<uint32_t>(r, sum, 1)[0] != want) throw Failure{"read: the sum is wrong"};
}

template <class T>
void check_matrix(Rig &r, Product kind) {
  std::vector<T> once;
  for (uint32_t rounds : {1U, 3U}) {
    const uint64_t n = product_threads(r.stream()), out = r.space(n * sizeof(T));
    double ops = 0;
    must([&](ced_err *e) { return device_products(r.stream(), kind, rounds, out, &ops, e); });
    const std::vector<T> got = read_back<T>(r, out, n);
    if (rounds == 1) once = got;
    bool any = false;
    for (size_t i = 0; i < n; i++) {
      any = any || got[i] != 0;
      if (got[i] != static_cast<T>(rounds) * once[i]) throw Failure{"products: a product is wrong"};
    }
    if (!any) throw Failure{"products: every product is 0"};
  }
}

Limits measure_limits(Rig &r, const Timer &time, const Options &o) {
  Limits l;
  check_read(r, r.arena(), std::min<uint64_t>(r.arena_bytes(), (1 << 20) - 4096));
  check_matrix<float>(r, Product::kBf16);
  check_matrix<int32_t>(r, Product::kInt8);
  const bool groups = has_groups(r.stream());
  if (groups) check_matrix<float>(r, Product::kBf16Group);
  const uint64_t sum = r.bytes(64, 0), half = r.arena_bytes() / 2;
  const auto rate = [&](double amount, const auto &call) { return amount / time(1, [&] { must(call); }); };
  l.read = rate(static_cast<double>(r.arena_bytes()),
                [&](ced_err *e) { return device_read(r.stream(), r.arena(), r.arena_bytes(), sum, e); });
  l.copy = rate(static_cast<double>(2 * half),
                [&](ced_err *e) { return ced_copy(r.stream(), r.arena() + half, r.arena(), half, e); });
  const uint64_t out = r.space(kProductThreads * 4);
  double ops = 0;
  const auto products = [&](Product kind, uint32_t rounds) {
    const double t = time(1, [&] {
      must([&](ced_err *e) { return device_products(r.stream(), kind, rounds, out, &ops, e); });
    });
    return ops / t;
  };
  l.bf16_warp = products(Product::kBf16, o.once ? 2 : 16384);
  l.int8 = products(Product::kInt8, o.once ? 2 : 16384);
  if (groups) l.bf16_group = products(Product::kBf16Group, o.once ? 1 : 1024);
  const uint64_t bytes = o.once ? 1 << 16 : 256 << 20, host = r.host_space(bytes), device = r.space(bytes);
  memset(reinterpret_cast<void *>(host), 1, bytes);
  l.bus_copy = rate(static_cast<double>(bytes),
                    [&](ced_err *e) { return ced_copy(r.stream(), device, host, bytes, e); });
  l.bus_read = rate(static_cast<double>(bytes),
                    [&](ced_err *e) { return device_read(r.stream(), host, bytes, sum, e); });
  r.reset();
  return l;
}

void print_limits(const Limits &l, FILE *json) {
  const struct {
    const char *name, *unit;
    double rate, by;
  } all[] = {
      {"read", "TB/s", l.read, 1e12},
      {"copy (read and write)", "TB/s", l.copy, 1e12},
      {"BF16 products of warps", "TFLOP/s", l.bf16_warp, 1e12},
      {"BF16 products of warpgroups", "TFLOP/s", l.bf16_group, 1e12},
      {"8-bit products of warps", "TOP/s", l.int8, 1e12},
      {"copy from page-locked memory", "GB/s", l.bus_copy, 1e9},
      {"read of page-locked memory", "GB/s", l.bus_read, 1e9},
  };
  for (const auto &x : all) {
    if (x.rate == 0) continue;
    printf("  %-30s %9.4g %s\n", x.name, x.rate / x.by, x.unit);
    Record(json).text("limit", x.name).number("rate", x.rate / x.by).text("unit", x.unit);
  }
}

// What bounds a call: the longest of what its bytes and products take.
struct Floor {
  double seconds;
  const char *by;
};
Floor floor_of(const Call &c, const Limits &l) {
  const double bytes = static_cast<double>(c.weights + c.activations);
  const bool moves = c.weights < c.activations && c.flops + c.integer_ops == 0;
  Floor f = moves ? Floor{bytes / l.copy, "copy"} : Floor{bytes / l.read, "read"};
  if (c.flops / l.bf16() > f.seconds) f = {c.flops / l.bf16(), "bf16"};
  if (c.integer_ops / l.int8 > f.seconds) f = {c.integer_ops / l.int8, "int8"};
  return f;
}

// Whether it was measured.
bool run(Rig &r, const Timer &time, const Limits &l, const Case &c, uint32_t rows, FILE *json) {
  Record record(json);
  record.text("benchmark", c.kernel).text("what", c.what).whole("rows", rows);
  printf("%-14s %-28s %5u ", c.kernel.c_str(), c.what.c_str(), rows);
  try {
    const Call call = c.prepare(r, rows);
    const Times t = time.measure(call);
    const double best = t.graph > 0 ? t.graph : t.launched;
    const double bytes = static_cast<double>(call.weights + call.activations),
                 ops = call.flops + call.integer_ops;
    const Floor f = floor_of(call, l);
    printf("%10.2f %10.2f %8.0f %8.1f %9.2f %5.0f%% of %s\n", best * 1e6, t.launched * 1e6,
           bytes / best / 1e9, ops / best / 1e12, f.seconds * 1e6, 100 * f.seconds / best, f.by);
    record.number("us", best * 1e6).number("us_launched", t.launched * 1e6).number("bytes", bytes);
    record.number("ops", ops).number("floor_us", f.seconds * 1e6).text("limit", f.by);
    record.number("share", f.seconds / best).whole("calls", static_cast<uint64_t>(t.calls));
    if (t.graph == 0) record.text("graph", "cannot be captured");
  } catch (const Failure &f) {
    printf("failed: %s\n", f.what.c_str());
    record.text("error", f.what);
    if (f.sticky) throw;
    r.reset();
    return false;
  }
  r.reset();
  return true;
}

bool selected(const Case &c, const Options &o) {
  const std::string name = c.kernel + ": " + c.what;
  return o.only.empty() || std::any_of(o.only.begin(), o.only.end(), [&](const std::string &s) {
           return name.find(s) != std::string::npos;
         });
}

int bench(const Options &o, FILE *json) {
  ced_device d{};
  ced_err err{};
  if (const int rc = ced_device_info(CED_CUDA, 0, &d, &err); rc != CED_OK) {
    if (rc != CED_ENODEV) throw Failure{err.what};
    fprintf(stderr, "%s\n", err.what);
    return kNoDevice;
  }
  printf("%s, capability %d.%d, %d processors, %.1f of %.1f GiB free%s\n", d.name, d.major, d.minor,
         d.processors, static_cast<double>(d.free_bytes) / (1 << 30),
         static_cast<double>(d.total_bytes) / (1 << 30),
         kSimulated ? " (simulated: its times say nothing of a GPU's)" : "");
  Record(json)
      .text("device", d.name)
      .text("capability", std::to_string(d.major) + "." + std::to_string(d.minor))
      .whole("processors", static_cast<uint64_t>(d.processors))
      .whole("memory", d.total_bytes)
      .whole("free", d.free_bytes)
      .text("kernels", cuda_bodies())
      .whole("simulated", kSimulated);
  if (o.device) return 0;

  const auto begin = Clock::now();
  const Geometry &g = o.tiny ? kTiny : kRelease;
  const std::vector<Case> all = cases(g, o.quick);
  const uint64_t arena =
      o.tiny ? 8 << 20 : std::min<uint64_t>(uint64_t{12} << 30, d.free_bytes / 5 * 3) >> 20 << 20;
  Rig r(g, arena);
  const Timer time(r.stream(), o);
  const Limits l = measure_limits(r, time, o);
  print_limits(l, json);
  const bool used = uses_groups(r.stream());
  if (l.bf16_group > 0)
    printf("  instructions of warpgroups %s\n",
           used ? "add as those of warps do: prefill uses them"
                : "are not used: they add in another way than those of warps, or CEDRUN_WGMMA=0");
  Record(json).text("instructions", "warpgroups").whole("used", used);
  printf("\n%-14s %-28s %5s %10s %10s %8s %8s %9s  share\n", "kernel", "", "rows", "us", "launched", "GB/s",
         "TOP/s", "floor us");
  int missing = 0, measured = 0;
  for (const Case &c : all) {
    if (!selected(c, o)) continue;
    for (uint32_t rows : c.rows) {
      if (o.rows != 0 && rows != o.rows) continue;
      if (seconds_since(begin) > o.seconds) {
        missing++;
        Record(json)
            .text("benchmark", c.kernel)
            .text("what", c.what)
            .whole("rows", rows)
            .text("error", "out of time");
        printf("%-14s %-28s %5u out of time\n", c.kernel.c_str(), c.what.c_str(), rows);
      } else {
        (run(r, time, l, c, rows, json) ? measured : missing)++;
      }
    }
  }
  printf("%d measured, %d not\n", measured, missing);
  return missing > 0;
}

int usage() {
  fprintf(stderr,
          "usage: ced_bench [--tiny] [--quick] [--once] [--rows N] [--seconds N] [--json FILE] [--device | "
          "--list] [SUBSTRING...]\n");
  return 2;
}

}  // namespace

int main(int argc, char **argv) {
  Options o;
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    if (a == "--tiny") {
      o.tiny = o.once = true;
    } else if (a == "--once") {
      o.once = true;
    } else if (a == "--rows" && i + 1 < argc) {
      o.rows = static_cast<uint32_t>(atoi(argv[++i]));
    } else if (a == "--quick") {
      o.quick = true;
    } else if (a == "--list") {
      o.list = true;
    } else if (a == "--device") {
      o.device = true;
    } else if (a == "--json" && i + 1 < argc) {
      o.json = argv[++i];
    } else if (a == "--seconds" && i + 1 < argc) {
      o.seconds = atof(argv[++i]);
    } else if (a[0] == '-') {
      return usage();
    } else {
      o.only.push_back(a);
    }
  }
  if (o.list) {
    for (const Case &c : cases(o.tiny ? kTiny : kRelease, o.quick))
      if (selected(c, o)) printf("%s: %s\n", c.kernel.c_str(), c.what.c_str());
    return 0;
  }
  setvbuf(stdout, nullptr, _IOLBF, 0);
  FILE *json = nullptr;
  if (o.json != nullptr && (json = fopen(o.json, "w")) == nullptr) {
    perror(o.json);
    return 1;
  }
  int rc = 1;
  try {
    rc = bench(o, json);
  } catch (const Failure &f) {
    fprintf(stderr, "ced_bench: %s\n", f.what.c_str());
  }
  if (json != nullptr) fclose(json);
  return rc;
}

}  // namespace ced::bench

int main(int argc, char **argv) { return ced::bench::main(argc, argv); }
