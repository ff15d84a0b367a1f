// The CPU bodies under every instruction set. It is chosen once in a process, so each has a process of its own.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "device/isa.h"
#include "test/check.h"
#include "test/prng.h"
#include "test/rig.h"
#include "test/sha256.h"

using ced::Isa;

namespace {

// Prints a line for every kernel: its name and the digest of what it wrote.
class Digests {
 public:
  template <class A>
  void run(const char *name, int (*kernel)(ced_stream *, const A *, ced_err *), const A &a,
           std::initializer_list<std::pair<uint64_t, size_t>> outputs) {
    rig_.run(kernel, a);
    std::string all;
    for (const auto &[address, bytes] : outputs) {
      const auto v = rig_.get<char>(address, bytes);
      all.append(v.begin(), v.end());
    }
    std::printf("digest %s %s\n", name, check::sha256(all.data(), all.size()).c_str());
  }

  // Rows, channels and streams that are no multiples of the tiles.
  void all() {
    constexpr uint32_t n = 160, streams = 4, experts = 45;
    for (uint32_t count : {1u, 7u, 70u}) {
      const std::string c = "isa" + std::to_string(count);
      const size_t rows = count;
      const auto values = [&](const char *what, size_t per_row, int e = 0) {
        return rig_.put(prng::xb(c + what, rows * per_row, e));
      };
      const auto floats = [&](const char *what, size_t per_row, int e = 0) {
        return rig_.put(prng::xf(c + what, rows * per_row, e));
      };
      std::vector<int32_t> pos, slot(rows);
      for (size_t r = 0; r < rows; r++) pos.push_back(static_cast<int32_t>(1001 + r));
      const uint64_t sequence = rig_.sequence_rows(pos, slot);
      const uint64_t weight = rig_.put(prng::norm("isa/w", streams * n, -2));
      const uint64_t freqs = rig_.put(prng::xf("isa/freqs", 20));

      ced_norm_quant_args q{};
      q.rows = sequence, q.x = values("x", n), q.weight = weight, q.y = rig_.out<uint16_t>(rows * n);
      q.codes = rig_.out<uint8_t>(rows * n), q.scales = rig_.out<uint8_t>(rows * n / 32);
      q.max_rows = count, q.n = n, q.eps = 1e-6f;
      run("norm_quant", ced_norm_quant, q,
          {{q.y, rows * n * 2}, {q.codes, rows * n}, {q.scales, rows * n / 32}});

      ced_rope_args r{};
      r.rows = sequence, r.x = values("rope", 3 * n), r.freqs = freqs;
      r.max_rows = count, r.heads = 3, r.dim = n, r.rope_dim = 40;
      run("rope", ced_rope, r, {{r.x, rows * 3 * n * 2}});

      ced_mhc_mix_args m{};
      m.rows = sequence, m.h = values("h", streams * n),
      m.fn = rig_.put(prng::xf("isa/fn", 24 * streams * n, -4));
      m.base = rig_.put(prng::xf("isa/base", 24)), m.scale = rig_.put(prng::xf("isa/scale", 3));
      m.pre = rig_.out<float>(rows * 4), m.post = rig_.out<float>(rows * 4),
      m.comb = rig_.out<float>(rows * 16);
      m.max_rows = count, m.dim = n, m.streams = streams, m.iters = 20, m.norm_eps = 1e-6f, m.hc_eps = 1e-6f;
      run("mhc_mix", ced_mhc_mix, m, {{m.pre, rows * 16}, {m.post, rows * 16}, {m.comb, rows * 64}});

      ced_mhc_collapse_args o{};
      o.rows = sequence, o.h = m.h, o.pre = m.pre, o.x = rig_.out<uint16_t>(rows * n);
      o.max_rows = count, o.dim = n, o.streams = streams;
      run("mhc_collapse", ced_mhc_collapse, o, {{o.x, rows * n * 2}});

      ced_mhc_expand_args e{};
      e.rows = sequence, e.y = values("y", n), e.post = m.post, e.comb = m.comb, e.h = m.h;
      e.max_rows = count, e.dim = n, e.streams = streams;
      run("mhc_expand", ced_mhc_expand, e, {{e.h, rows * streams * n * 2}});

      ced_mhc_border_args d{};
      d.rows = sequence, d.y = e.y, d.h = m.h, d.post = m.post, d.comb = m.comb, d.pre = m.pre;
      d.next = rig_.out<float>(rows * 4), d.fn = m.fn, d.base = m.base, d.scale = m.scale;
      d.weight = weight, d.x = rig_.out<uint16_t>(rows * n), d.codes = q.codes, d.scales = q.scales;
      d.max_rows = count, d.dim = n, d.streams = streams, d.iters = 20, d.norm_eps = 1e-6f, d.hc_eps = 1e-6f;
      run("mhc_border", ced_mhc_border, d,
          {{d.h, rows * streams * n * 2},
           {d.x, rows * n * 2},
           {d.codes, rows * n},
           {d.scales, rows * n / 32},
           {d.next, rows * 16},
           {d.post, rows * 16},
           {d.comb, rows * 64}});

      ced_engram_gate_args g{};
      g.rows = sequence, g.kv = values("kv", (streams + 1) * n), g.q_weight = weight, g.k_weight = weight;
      g.h = m.h, g.max_rows = count, g.dim = n, g.streams = streams, g.eps = 1e-6f;
      run("engram_gate", ced_engram_gate, g, {{g.h, rows * streams * n * 2}});

      ced_engram_gather_args t{};
      std::vector<int64_t> ids;
      for (size_t i = 0; i < rows * 3; i++) ids.push_back(static_cast<int64_t>(i * 7 % 33));
      t.rows = sequence, t.ids = rig_.put(ids), t.table = rig_.put(prng::bytes("isa/table", 32 * 64));
      t.table_scales = rig_.put(prng::bytes("isa/scales", 32 * 2)), t.e = rig_.out<uint16_t>(rows * 3 * 64);
      t.table_rows = 32, t.max_rows = count, t.cols = 3, t.dim = 64;
      run("engram_gather", ced_engram_gather, t, {{t.e, rows * 3 * 64 * 2}});

      ced_window_pack_args w{};
      w.rows = sequence, w.x = q.x, w.weight = weight, w.freqs = freqs,
      w.packed = rig_.out<uint8_t>(rows * (n + n / 32));
      w.max_rows = count, w.dim = n, w.rope_dim = 40, w.eps = 1e-6f;
      run("window_pack", ced_window_pack, w, {{w.packed, rows * (n + n / 32)}});

      for (uint32_t ratio : {1u, 3u}) {
        ced_csa2_compress_args p{};
        std::vector<int32_t> closing;
        for (size_t i = ratio - 1; i < rows; i += ratio) closing.push_back(static_cast<int32_t>(i));
        p.rows = sequence, p.groups = rig_.groups(closing), p.a = ratio == 1 ? q.x : floats("a", n);
        p.g = floats("g", n, 2), p.open = rig_.put(prng::xf("isa/open", 8 * 2 * n)), p.weight = weight;
        p.latent = rig_.out<uint16_t>(rows * n), p.max_rows = count, p.dim = n, p.ratio = ratio,
        p.open_rows = 8;
        p.eps = 1e-6f;
        run("csa2_compress", ced_csa2_compress, p,
            {{p.latent, closing.size() * n * 2}, {p.open, 8 * 2 * n * 4}});
      }

      ced_route_args b{};
      b.rows = sequence, b.logits = floats("logits", experts, 3),
      b.bias = rig_.put(prng::xf("isa/bias", experts, -2));
      b.idx = rig_.out<int32_t>(rows * 5), b.weights = rig_.out<float>(rows * 5), b.bias_format = CED_F32;
      b.max_rows = count, b.experts = experts, b.top_k = 5, b.normalise = 1, b.temperature = 0.9f,
      b.route_scale = 1.5f;
      run("route", ced_route, b, {{b.idx, rows * 20}, {b.weights, rows * 20}});
    }
  }

 private:
  Rig rig_{CED_CPU, 2};
};

// The digests that a process of this program prints under an instruction set.
std::string digests_under(Isa isa) {
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0) return "";
  const char *emulator = getenv("CED_EMULATOR");  // what runs this program, if the machine itself does not
  const std::string command = std::string("CED_PRINT_DIGESTS=1 CEDRUN_ISA=") + ced::isa_name(isa) + " " +
                              (emulator != nullptr ? emulator : "") + " '" + program + "' 'isa bits' 2>&1";
  FILE *out = popen(command.c_str(), "r");
  if (out == nullptr) return "";
  std::string lines;
  for (char line[256]; fgets(line, sizeof line, out) != nullptr;)
    if (strncmp(line, "digest ", 7) == 0) lines += line;
  return pclose(out) == 0 ? lines : "failed: " + lines;
}

}  // namespace

TEST("isa bits: every kernel writes the same under every instruction set") {
  if (getenv("CED_PRINT_DIGESTS") != nullptr) return Digests().all();
  const std::string plain = digests_under(Isa::kPlain);
  CHECK(std::count(plain.begin(), plain.end(), '\n') == 3 * 12);
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kNeon}) {
    if (!ced::isa_supported(isa)) continue;
    CONTEXT(ced::isa_name(isa));
    CHECK_EQ(digests_under(isa), plain);
  }
}
