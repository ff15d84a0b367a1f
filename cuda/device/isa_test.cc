#include "device/isa.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "test/check.h"

using ced::Isa;

TEST("isa: the chosen set is one that this machine supports") {
  CHECK(ced::isa_supported(ced::isa()));
  CHECK_EQ(std::string(ced_isa()), std::string(ced::isa_name(ced::isa())));
  CHECK(ced::isa_supported(Isa::kPlain));
}

TEST("isa: a name that is unknown or not supported is refused when a CPU stream opens") {
  const char *before = getenv("CEDRUN_ISA");
  const std::string kept = before != nullptr ? before : "";
  for (const char *name : {"sse9", ced::isa_supported(Isa::kNeon) ? "avx2" : "neon"}) {
    CONTEXT(name);
    setenv("CEDRUN_ISA", name, 1);
    ced_stream *s = nullptr;
    ced_err err{};
    CHECK_EQ(ced_stream_open(CED_CPU, 0, 1, 0, &s, &err), CED_EINVAL);
    CHECK(std::string(err.what).find(std::string("CEDRUN_ISA=") + name) != std::string::npos);
    CHECK(std::string(err.what).find("plain") != std::string::npos);
  }
  if (before != nullptr) {
    setenv("CEDRUN_ISA", kept.c_str(), 1);
  } else {
    unsetenv("CEDRUN_ISA");
  }
}
