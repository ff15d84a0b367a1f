#include "sim/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#if !defined(__x86_64__)
#include <ucontext.h>

#include <memory>
#endif

namespace sim {

// ASan: who ended on this stack left the guards of its last frames behind.
static void clear_guards(const Stack &s) {
  (void)s;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(s.base + stack_bytes() - 4096, 4096);
#endif
}

#if defined(__x86_64__)
// Saves the callee's registers, changes stacks, restores.
extern "C" void ced_sim_swap(void **save, void *to);
asm(".text\n"
    ".type ced_sim_swap,@function\n"
    "ced_sim_swap:\n"
    " push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
    " mov %rsp,(%rdi)\n"
    " mov %rsi,%rsp\n"
    " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
    " ret\n"
    ".size ced_sim_swap,.-ced_sim_swap\n");

void prepare(Context &c, void (*entry)()) {
  c.fake = nullptr;
  clear_guards(c.stack);
  auto *top = reinterpret_cast<void **>(c.stack.base + stack_bytes()) - 2;
  *top = reinterpret_cast<void *>(entry);
  void **sp = top - 6;  // six registers
  for (int i = 0; i < 6; i++) sp[i] = nullptr;
  c.sp = sp;
}

static void swap(Context &from, Context &to) { ced_sim_swap(&from.sp, to.sp); }
#else
static ucontext_t *of(Context &c) {
  if (c.sp == nullptr) c.sp = new ucontext_t;
  return static_cast<ucontext_t *>(c.sp);
}

void prepare(Context &c, void (*entry)()) {
  c.fake = nullptr;
  clear_guards(c.stack);
  ucontext_t *u = of(c);
  getcontext(u);
  u->uc_stack.ss_sp = c.stack.base, u->uc_stack.ss_size = stack_bytes(), u->uc_link = nullptr;
  makecontext(u, entry, 0);
}

static void swap(Context &from, Context &to) { swapcontext(of(from), of(to)); }
#endif

size_t stack_bytes() { return size_t{128} << 10; }

Stack new_stack() {
  constexpr size_t kGuard = 4096;
  void *p = mmap(nullptr, stack_bytes() + kGuard, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, kGuard, PROT_NONE) != 0) {
    perror("sim: mapping a thread's stack");
    abort();
  }
  Stack s;
  s.base = static_cast<char *>(p) + kGuard;
#if defined(CED_SIM_TSAN)
  s.tsan = __tsan_create_fiber(0);
#endif
  return s;
}

#if defined(__SANITIZE_ADDRESS__)
static thread_local const void *thread_stack;
static thread_local size_t thread_stack_bytes;
#endif

void adopt_thread(Context &c) {
  (void)c;
#if defined(CED_SIM_TSAN)
  c.stack.tsan = __tsan_get_current_fiber();
#endif
}

void switch_to(Context &from, Context &to, bool to_thread, bool last) {
  (void)to_thread, (void)last;
#if defined(CED_SIM_TSAN)
  __tsan_switch_to_fiber(to.stack.tsan, 1);  // 1: no order between the two
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to_thread ? thread_stack : to.stack.base,
                                 to_thread ? thread_stack_bytes : stack_bytes());
#endif
  swap(from, to);
#if defined(__SANITIZE_ADDRESS__)
  const void *base;
  size_t bytes;
  __sanitizer_finish_switch_fiber(from.fake, &base, &bytes);
#endif
}

void entered() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &thread_stack, &thread_stack_bytes);
#endif
}

}  // namespace sim
