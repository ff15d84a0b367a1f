// fiber.h: switching between the threads of the simulated device, under the sanitizers too. Their traps: TSan must not
// take a switch for an order between threads, and is kept from seeing the runtime itself, which is built without
// it; ASan must be told which stack is in use.
#pragma once
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif
#if defined(CED_SIM_TSAN)
extern "C" {
void *__tsan_get_current_fiber();
void *__tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void *, unsigned);
void __tsan_acquire(void *);
void __tsan_release(void *);
void AnnotateIgnoreReadsBegin(const char *, int);
void AnnotateIgnoreReadsEnd(const char *, int);
void AnnotateIgnoreWritesBegin(const char *, int);
void AnnotateIgnoreWritesEnd(const char *, int);
}
#endif

namespace sim {

#if defined(CED_SIM_TSAN)
constexpr bool kTsan = true;
inline void acquire(void *p) { __tsan_acquire(p); }
inline void release(void *p) { __tsan_release(p); }
// While it lives, TSan does not see what this thread reads and writes (memcpy, containers).
struct Hidden {
  Hidden() { AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0); }
  ~Hidden() { AnnotateIgnoreWritesEnd("", 0), AnnotateIgnoreReadsEnd("", 0); }
};
#else
constexpr bool kTsan = false;
inline void acquire(void *) {}
inline void release(void *) {}
struct Hidden {
  Hidden() {}
};
#endif

struct Stack {
  char *base = nullptr;  // usable bytes, above a guard page
  void *tsan = nullptr;  // pooled with the stack: a new one costs a millisecond
};

// A stack and where its owner stopped.
struct Context {
  void *sp = nullptr;
  Stack stack;
  void *fake = nullptr;  // ASan's
};

size_t stack_bytes();
Stack new_stack();
// Makes c start in entry() when it is first switched to.
void prepare(Context &c, void (*entry)());
// The caller's own context, to switch back to.
void adopt_thread(Context &c);
// to_thread: back to the host thread's stack. last: from never runs again.
void switch_to(Context &from, Context &to, bool to_thread, bool last);
// First thing in entry().
void entered();

}  // namespace sim
