// check.h: the native tests' own small framework.
//
//   TEST("dense_gemm: a row alone equals the row in a batch") {
//     for (int rows : {1, 7, 64}) {
//       CONTEXT("rows=" << rows);
//       REQUIRE(open(&s) == 0);       // stops this test
//       CHECK_EQ(ced_sync(s), 0);     // goes on, prints both values
//       CHECK_BITS(got, want, n);     // arrays, bit for bit; prints the first difference
//     }
//   }
//
// A name starts with the kernel's name, so that `ced_test dense_gemm` selects its tests.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace check {

struct Case {
  const char *name, *file;
  int line;
  void (*run)();
};

// All tests in order of registration.
inline std::vector<Case> &cases() {
  static std::vector<Case> all;
  return all;
}

struct Register {
  explicit Register(Case c) { cases().push_back(c); }
};

// Thrown by REQUIRE; ends the running test only.
struct Stop {};

// fail records one failure of the running test and prints it (the first ten of a test).
void fail(const char *file, int line, const std::string &what);

// While it lives, failures are noted but neither printed nor counted.
class Expected {
 public:
  Expected();
  ~Expected();
  bool failed() const;
  Expected(const Expected &) = delete;
  Expected &operator=(const Expected &) = delete;

 private:
  size_t before_;
};

// A line printed with every failure while the object lives.
class Context {
 public:
  explicit Context(std::string text);
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;
};

template <class T, class = void>
struct Printable : std::false_type {};
template <class T>
struct Printable<T, std::void_t<decltype(std::declval<std::ostream &>() << std::declval<const T &>())>>
    : std::true_type {};

template <class T>
std::string show(const T &v) {
  std::ostringstream o;
  if constexpr (std::is_same_v<T, bool>) {
    o << (v ? "true" : "false");
  } else if constexpr (std::is_same_v<T, char> || std::is_same_v<T, signed char> ||
                       std::is_same_v<T, unsigned char>) {
    o << int(v);
  } else if constexpr (std::is_enum_v<T>) {
    o << static_cast<std::underlying_type_t<T>>(v);
  } else if constexpr (std::is_floating_point_v<T>) {
    o.precision(std::is_same_v<T, float> ? 9 : 17);
    o << v;
  } else if constexpr (Printable<T>::value) {
    o << v;
  } else {
    o << "(" << sizeof v << " bytes)";
  }
  return o.str();
}

// Equality by value: integers of any two types compare as numbers.
template <class A, class B>
bool equal(const A &a, const B &b) {
  if constexpr (std::is_integral_v<A> && std::is_integral_v<B>) {
    if constexpr (std::is_signed_v<A> != std::is_signed_v<B>) {
      if (a < A(0) || b < B(0)) return false;
      return static_cast<std::make_unsigned_t<A>>(a) == static_cast<std::make_unsigned_t<B>>(b);
    } else {
      return a == b;
    }
  } else {
    return a == b;
  }
}

template <class A, class B>
bool check_eq(const A &a, const B &b, const char *text, const char *file, int line) {
  if (equal(a, b)) return true;
  fail(file, line, std::string(text) + ": " + show(a) + " != " + show(b));
  return false;
}

template <class A, class B>
void check_near(const A &a, const B &b, double tolerance, const char *text, const char *file, int line) {
  double d = std::fabs(double(a) - double(b));
  if (d <= tolerance) return;
  fail(file, line, std::string(text) + ": " + show(a) + " and " + show(b) + " differ by " + show(d));
}

// Bit equality of n elements; NaNs with equal bits are equal, 0 and -0 are not.
template <class T>
bool check_bits(const T *got, const T *want, size_t n, const char *text, const char *file, int line) {
  if (n == 0 || std::memcmp(got, want, n * sizeof(T)) == 0) return true;
  size_t first = n, different = 0;
  for (size_t i = 0; i < n; i++) {
    if (std::memcmp(got + i, want + i, sizeof(T)) == 0) continue;
    if (different++ == 0) first = i;
  }
  fail(file, line,
       std::string(text) + ": " + show(different) + " of " + show(n) + " differ, first at " + show(first) +
           ": " + show(got[first]) + " != " + show(want[first]));
  return false;
}

}  // namespace check

#define CHECK_CAT2(a, b) a##b
#define CHECK_CAT(a, b) CHECK_CAT2(a, b)
#define TEST_NAMED(name, id)                                                                 \
  static void id();                                                                          \
  static const ::check::Register CHECK_CAT(id, _registered)({name, __FILE__, __LINE__, id}); \
  static void id()
#define TEST(name) TEST_NAMED(name, CHECK_CAT(test_at_, __COUNTER__))
#define CHECK(x) ((x) ? (void)0 : ::check::fail(__FILE__, __LINE__, "false: " #x))
#define REQUIRE(x)                                        \
  do {                                                    \
    if (!(x)) {                                           \
      ::check::fail(__FILE__, __LINE__, "required: " #x); \
      throw ::check::Stop{};                              \
    }                                                     \
  } while (0)
#define CHECK_EQ(a, b) ::check::check_eq(a, b, #a " == " #b, __FILE__, __LINE__)
#define REQUIRE_EQ(a, b)                        \
  do {                                          \
    if (!CHECK_EQ(a, b)) throw ::check::Stop{}; \
  } while (0)
#define CHECK_NEAR(a, b, tolerance) ::check::check_near(a, b, tolerance, #a " ~ " #b, __FILE__, __LINE__)
#define CHECK_BITS(got, want, n) ::check::check_bits(got, want, n, #got " == " #want, __FILE__, __LINE__)
// The statement must fail: for tests of the checks themselves.
#define CHECK_FAILS(statement)                                                          \
  do {                                                                                  \
    bool failed;                                                                        \
    {                                                                                   \
      ::check::Expected expected;                                                       \
      statement;                                                                        \
      failed = expected.failed();                                                       \
    }                                                                                   \
    if (!failed) ::check::fail(__FILE__, __LINE__, "passed, should fail: " #statement); \
  } while (0)
#define CONTEXT(stream)                                   \
  ::check::Context CHECK_CAT(context_, __COUNTER__)([&] { \
    std::ostringstream out;                               \
    out << stream;                                        \
    return out.str();                                     \
  }())
