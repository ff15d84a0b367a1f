// cpus.h: the processors that this process may use.
#pragma once
#include <string>
#include <vector>

namespace ced {

// The affinity mask's processors, ascending; empty where the system does not say.
std::vector<int> allowed_cpus();

// Processors' worth of time that the control groups grant, 0 = no limit: the smallest quota of this process's group and
// of those above it. `memberships` is /proc/self/cgroup's text, `root` the folder that the hierarchies are mounted in.
double cpu_quota(const std::string &memberships, const std::string &root);

// How many threads can run at once: the mask's count, but no more than the quota rounded up. At least 1.
int usable_cpus();

// Binds the calling thread to a processor; without effect where the system refuses.
void pin_thread(int cpu);

}  // namespace ced
