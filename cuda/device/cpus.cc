#include "device/cpus.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace ced {
namespace {

// quota / period of one group; 0 = no limit, or no such file.
double v2_limit(const std::string &folder) {
  std::ifstream file(folder + "/cpu.max");  // "max 100000" or "150000 100000"
  double quota = 0, period = 0;
  return file >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

double v1_limit(const std::string &folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period && quota > 0 && period > 0 ? quota / period : 0;
}

// A container may see its own group as the mount's root and still be told the host's path: missing folders count
// as unlimited, and the root is always looked at.
double least(double (*limit)(const std::string &), const std::string &mount, std::string path) {
  double lowest = 0;
  for (;;) {
    const double here = limit(mount + path);
    if (here > 0 && (lowest == 0 || here < lowest)) lowest = here;
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return lowest;
    path.resize(slash);
  }
}

bool lists(const std::string &controllers, const std::string &wanted) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == wanted) return true;
  return false;
}

}  // namespace

double cpu_quota(const std::string &memberships, const std::string &root) {
  double lowest = 0;
  std::istringstream lines(memberships);
  for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:/path
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    double here = 0;
    if (controllers.empty()) {
      here = least(v2_limit, root, path);
    } else if (lists(controllers, "cpu")) {
      here = least(v1_limit, root + "/" + controllers, path);
      if (here == 0) here = least(v1_limit, root + "/cpu", path);
    }
    if (here > 0 && (lowest == 0 || here < lowest)) lowest = here;
  }
  return lowest;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
#endif
  return cpus;
}

int usable_cpus() {
  int n = static_cast<int>(allowed_cpus().size());
  if (n == 0) n = static_cast<int>(std::thread::hardware_concurrency());
  std::ifstream file("/proc/self/cgroup");
  std::stringstream memberships;
  memberships << file.rdbuf();
  const double quota = cpu_quota(memberships.str(), "/sys/fs/cgroup");
  if (quota > 0 && quota < n) n = static_cast<int>(std::ceil(quota));
  return std::max(n, 1);
}

void pin_thread(int cpu) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
  (void)cpu;
#endif
}

}  // namespace ced
