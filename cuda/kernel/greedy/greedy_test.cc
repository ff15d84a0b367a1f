#include <algorithm>
#include <cmath>

#include "test/check.h"
#include "test/prng.h"
#include "test/rig.h"

namespace {

std::vector<int32_t> taken(ced_kind kind, const std::vector<float> &logits, uint32_t vocab) {
  Rig rig(kind);
  const size_t rows = logits.size() / vocab;
  ced_greedy_args a{};
  a.rows = rig.rows(static_cast<int32_t>(rows)), a.logits = rig.put(logits), a.ids = rig.out<int32_t>(rows);
  a.max_rows = static_cast<uint32_t>(rows), a.vocab = vocab;
  rig.run(ced_greedy, a);
  return rig.get<int32_t>(a.ids, rows);
}

}  // namespace

TEST("greedy: the largest logit, the lower id where several are") {
  constexpr float inf = INFINITY;
  const struct {
    const char *what;
    std::vector<float> logits;
    int32_t want;
  } cases[] = {
      {"largest", {1, 3, 2, -7}, 1},
      {"equal", {-1, 5, 5, 5}, 1},
      {"all equal", {2, 2, 2, 2}, 0},
      {"both zeros", {-1, -0.0f, 0.0f, -1}, 1},
      {"negative", {-4, -2, -3, -2}, 1},
      {"banned", {-inf, -inf, -9, -inf}, 2},
      {"nothing left", {-inf, -inf, -inf, -inf}, -1},
      {"NaN", {1, NAN, 2, 3}, -1},
      {"+Inf", {1, 2, 3, inf}, -1},
      {"lowest", {-3.4e38f, -inf, -3.4e38f, -inf}, 0},
  };
  for (ced_kind kind : bodies("greedy"))
    for (const auto &c : cases) {
      CONTEXT(c.what << " kind=" << kind);
      CHECK_EQ(taken(kind, c.logits, 4)[0], c.want);
    }
}

TEST("greedy: rows of the released vocabulary, each by itself") {
  constexpr uint32_t vocab = 129280;
  std::vector<float> logits;
  std::vector<int32_t> want;
  for (size_t r = 0; r < 3; r++) {
    const prng::Stream random("greedy");
    for (size_t i = 0; i < vocab; i++)
      logits.push_back(static_cast<float>(random[r * vocab + i] % 4096) / 64 - 40);
    const auto begin = logits.begin() + static_cast<long>(r * vocab);
    want.push_back(static_cast<int32_t>(std::max_element(begin, logits.end()) - begin));
  }
  for (ced_kind kind : bodies("greedy")) {
    CONTEXT("kind=" << kind);
    const auto got = taken(kind, logits, vocab);
    CHECK_BITS(got.data(), want.data(), want.size());
  }
}

TEST("greedy: refuses bad arguments and accepts no rows") {
  Rig rig(CED_CPU);
  ced_greedy_args good{};
  good.rows = rig.rows(1), good.logits = rig.put(std::vector<float>{1, 2}), good.ids = rig.out<int32_t>(1);
  good.max_rows = 1, good.vocab = 2;
  rig.run(ced_greedy, good);
  auto a = good;
  a.vocab = 0;
  CHECK_EQ(rig.refusal(ced_greedy, a), "greedy: vocab is 0, must be 1..1073741824");
  a = good, a.ids = 0;
  CHECK_EQ(rig.refusal(ced_greedy, a), "greedy: ids is missing");
  a = good, a.rows = rig.rows(0), a.max_rows = 0;
  rig.run(ced_greedy, a);
}
