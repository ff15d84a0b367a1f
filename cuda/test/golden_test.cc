#include "test/golden.h"

#include "test/check.h"
#include "test/prng.h"

TEST("golden: ops.safetensors has every tensor with its dtype and shape") {
  const golden::File &ops = golden::ops();
  CHECK_EQ(ops.tensors().size(), 91);
  const golden::Tensor &y = ops["wq_b.y"];
  CHECK_EQ(y.dtype, "BF16");
  REQUIRE_EQ(y.shape.size(), 2);
  CHECK_EQ(y.shape[0], 2);
  CHECK_EQ(y.shape[1], 32768);
  CHECK_EQ(y.f32().size(), y.count());
}

TEST("golden: a missing tensor or a wrong element size is an error that names it") {
  const golden::File &ops = golden::ops();
  auto message = [&](auto f) -> std::string {
    try {
      f();
    } catch (const std::exception &e) {
      return e.what();
    }
    return "";
  };
  CHECK_EQ(message([&] { ops["nothing"]; }), "no golden tensor nothing");
  CHECK_EQ(message([&] { ops["wq_b.y"].as<float>(); }), "wq_b.y is BF16: wrong element size");
}

TEST("golden: bf16_of_f32 agrees with the generator's own rounding") {
  const golden::Tensor &in = golden::ops()["quant.f32_bits"], &want = golden::ops()["quant.bf16_of_f32"];
  for (size_t i = 0; i < in.count(); i++) {
    float f;
    std::memcpy(&f, in.as<int32_t>() + i, 4);
    if (std::isfinite(f)) CHECK_EQ(prng::bf16(f), want.as<int32_t>()[i]);
  }
}
