// driver.cc: loads NVIDIA's driver and says what is wrong with it. The CUDA runtime loads it the same way, but has one
// answer to everything: that the driver is too old.
#include "device/driver.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ced {
namespace {

constexpr char kName[] = "libcuda.so.1";
constexpr char kUnderWsl[] =
    "/usr/lib/wsl/lib/libcuda.so.1";  // where Windows puts it, not always on the search path

struct Driver {
  void *library = nullptr;
  char fault[192] = "";  // why it is not loaded, in the loader's words
};

Driver load() {
  Driver d;
  d.library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (d.library != nullptr) return d;
  const char *words = dlerror();
  snprintf(d.fault, sizeof d.fault, "%s", words != nullptr ? words : kName);
  if (access(kUnderWsl, F_OK) == 0) d.library = dlopen(kUnderWsl, RTLD_NOW | RTLD_LOCAL);
  return d;
}

const Driver &driver() {
  static const Driver d = load();
  return d;
}

template <typename F>
F function(const char *name) {
  return reinterpret_cast<F>(dlsym(driver().library, name));
}

const char *path() {
  link_map *map = nullptr;
  return dlinfo(driver().library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : kName;
}

// What to do about the driver's own error, for those that have one remedy.
const char *remedy(int error) {
  switch (error) {
    case 34:
      return "it is the stub that programs are linked with, not the driver: take its folder off "
             "LD_LIBRARY_PATH";
    case 46:
      return "another process has the GPU for itself";
    case 100:
      return "it sees no GPU; a container must be given one";
    case 101:
      return "no such GPU: mind CUDA_VISIBLE_DEVICES";
    case 802:
      return "the GPUs are not ready: is the fabric manager running?";
    case 803:
      return "the driver's library and its kernel module are of different versions: reboot";
    case 804:
      return "this library is for forward compatibility, which this GPU does not have: take it off "
             "LD_LIBRARY_PATH";
    default:
      return nullptr;
  }
}

int refused(int error, ced_err *err) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (error == 100 && visible != nullptr)
    return fail(err, CED_ENODEV, "%s: it sees no GPU with CUDA_VISIBLE_DEVICES=%.40s", path(), visible);
  const char *what = remedy(error);
  const auto text = function<int (*)(int, const char **)>("cuGetErrorString");
  if (what == nullptr && (text == nullptr || text(error, &what) != 0)) what = nullptr;
  return fail(err, CED_ENODEV, "%s: %s (CUDA error %d)", path(), what != nullptr ? what : "it does not start",
              error);
}

}  // namespace

void load_driver() { driver(); }

int driver_fault(int runtime, const char *said, ced_err *err) {
  const Driver &d = driver();
  if (d.library == nullptr) {
    if (strstr(d.fault, "No such file") != nullptr)
      return fail(err, CED_ENODEV, "no NVIDIA driver: no %s for this machine was found", kName);
    return fail(err, CED_ENODEV, "the NVIDIA driver cannot be loaded: %s", d.fault);
  }
  const auto init = function<int (*)(unsigned)>("cuInit");
  const auto version = function<int (*)(int *)>("cuDriverGetVersion");
  const auto count = function<int (*)(int *)>("cuDeviceGetCount");
  if (init == nullptr || version == nullptr || count == nullptr)
    return fail(err, CED_ENODEV, "%s is no NVIDIA driver: it lacks %s", path(),
                init == nullptr      ? "cuInit"
                : version == nullptr ? "cuDriverGetVersion"
                                     : "cuDeviceGetCount");
  if (const int rc = init(0); rc != 0) return refused(rc, err);
  int have = 0, devices = 0;
  version(&have);
  if (have / 1000 < runtime / 1000)
    return fail(err, CED_ENODEV,
                "the NVIDIA driver is too old: %s runs up to CUDA %d.%d, this build needs %d.0", path(),
                have / 1000, have % 1000 / 10, runtime / 1000);
  if (const int rc = count(&devices); rc != 0 || devices == 0) return refused(rc != 0 ? rc : 100, err);
  return fail(err, CED_ENODEV, "CUDA %d.%d does not start on %s, which runs up to %d.%d: %s", runtime / 1000,
              runtime % 1000 / 10, path(), have / 1000, have % 1000 / 10, said);
}

}  // namespace ced
