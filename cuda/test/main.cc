// The runner of check.h: ced_test [--list] [SUBSTRING...]
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "ced.h"
#include "test/check.h"

namespace {

struct Running {
  size_t failures = 0;
  bool expected = false;  // a failure is what the test wants: count it, print nothing
  std::vector<std::string> context;
} running;

bool selected(const check::Case &c, int argc, char **argv) {
  bool any = false;
  for (int i = 1; i < argc; i++) {
    if (argv[i][0] == '-') continue;
    any = true;
    if (std::strstr(c.name, argv[i])) return true;
  }
  return !any;
}

bool passes(const check::Case &c) {
  running = {};
  try {
    c.run();
  } catch (const check::Stop &) {
  } catch (const std::exception &e) {
    check::fail(c.file, c.line, std::string("exception: ") + e.what());
  }
  if (running.failures) std::printf("FAIL %s (%zu failures)\n", c.name, running.failures);
  return running.failures == 0;
}

}  // namespace

void check::fail(const char *file, int line, const std::string &what) {
  constexpr size_t kShown = 10;
  if (running.failures++ >= kShown || running.expected) return;
  std::printf("%s:%d: %s\n", file, line, what.c_str());
  for (const std::string &c : running.context) std::printf("    %s\n", c.c_str());
}

check::Expected::Expected() : before_(running.failures) { running.expected = true; }
check::Expected::~Expected() {
  running.failures = before_;
  running.expected = false;
}
bool check::Expected::failed() const { return running.failures > before_; }

check::Context::Context(std::string text) { running.context.push_back(std::move(text)); }
check::Context::~Context() { running.context.pop_back(); }

int main(int argc, char **argv) {
  bool list = false;
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "--list") == 0) {
      list = true;
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr, "unknown option %s; usage: ced_test [--list] [SUBSTRING...]\n", argv[i]);
      return 2;
    }
  }
  // Without a device nothing would be left to run, and all of it would pass.
  const char *bodies = std::getenv("CED_TEST_BODIES");
  if (!list && bodies != nullptr && std::strcmp(bodies, "cuda") == 0 && ced_device_count(CED_CUDA) == 0) {
    std::fprintf(stderr, "CED_TEST_BODIES=cuda, but there is no CUDA device\n");
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a crash must not swallow what was printed before it
  size_t passed = 0, failed = 0;
  for (const check::Case &c : check::cases()) {
    if (!selected(c, argc, argv)) continue;
    if (list) {
      std::printf("%s\n", c.name);
      passed++;
      continue;
    }
    (passes(c) ? passed : failed)++;
  }
  if (passed + failed == 0) {
    std::fprintf(stderr, "no test matches; ced_test --list shows all\n");
    return 1;
  }
  if (!list) std::printf("%zu passed, %zu failed\n", passed, failed);
  return failed != 0;
}
