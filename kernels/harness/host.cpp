#include "harness/host.hpp"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <thread>

namespace kvcast::kernels {

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kBatchSeconds = 2e-3;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// "Name : value" in a /proc file; the first that matches.
std::string proc_value(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t from = line.find_first_not_of(" \t", colon + 1);
    return from == std::string::npos ? "" : line.substr(from);
  }
  return "";
}

double kibibytes(const std::string& text) { return text.empty() ? 0 : std::strtod(text.c_str(), nullptr) * 1024; }

struct Cache {
  double bytes = 0;
  std::string shared_by;
};

// The largest that this CPU reaches.
Cache largest_cache(const std::string& cpus, int cpu) {
  Cache most;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = cpus + "/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index);
    std::ifstream in(folder + "/size"), list(folder + "/shared_cpu_list");
    std::string size, shared;
    if (!(in >> size)) continue;
    list >> shared;
    const double bytes = std::strtod(size.c_str(), nullptr) * 1024 * (size.back() == 'M' ? 1024 : 1);
    if (bytes > most.bytes) most = {bytes, shared};
  }
  return most;
}

constexpr const char* kCpus = "/sys/devices/system/cpu";

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// A container sees all of its host's CPUs and memory. Threads beyond its share are throttled; memory beyond it ends the
// process. Version 2 of control groups, then 1.
constexpr const char* kGroups = "/sys/fs/cgroup/";
double granted_cpus_here() {
  const double granted = granted_cpus(first_line(std::string(kGroups) + "cpu.max"));
  if (granted > 0) return granted;
  return granted_cpus(first_line(std::string(kGroups) + "cpu/cpu.cfs_quota_us") + " " +
                      first_line(std::string(kGroups) + "cpu/cpu.cfs_period_us"));
}
double free_memory(double of_host) {
  const auto number = [](const char* file) {
    return std::strtod(first_line(std::string(kGroups) + file).c_str(), nullptr);
  };
  const double most = number("memory.max") > 0 ? number("memory.max") : number("memory/memory.limit_in_bytes");
  const double used = number("memory.max") > 0 ? number("memory.current") : number("memory/memory.usage_in_bytes");
  return most > 0 ? std::min(of_host, std::max(most - used, 0.0)) : of_host;
}

// Flushes by reading: dirty lines would be written back while the measured call runs.
class CacheFlush {
 public:
  explicit CacheFlush(double bytes) : buffer_(static_cast<std::size_t>(std::max(bytes, 1.0) / 8), 1) {}
  void operator()() const {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < buffer_.size(); i += 8) sum += buffer_[i];
    keep(sum);
  }

 private:
  std::vector<std::uint64_t> buffer_;
};

// Pins the calling thread to the CPU that a pool leaves for it, the first that it may use, while it measures: after a
// migration its caches would be cold.
class OnOneCpu {
 public:
  OnOneCpu() : known_(sched_getaffinity(0, sizeof allowed_, &allowed_) == 0) {
    for (int cpu = 0; known_ && cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed_)) continue;
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      return;
    }
  }
  ~OnOneCpu() {
    if (known_) sched_setaffinity(0, sizeof allowed_, &allowed_);
  }
  OnOneCpu(const OnOneCpu&) = delete;
  OnOneCpu& operator=(const OnOneCpu&) = delete;

 private:
  cpu_set_t allowed_;
  bool known_;
};

void measure_cold(State& state, const std::function<void()>& call, Pool* pool, Sampler& sampler) {
  const double cache = state.machine().llc_bytes > 0 ? state.machine().llc_bytes : 32.0 * (1 << 20);
  const CacheFlush flush(2 * cache);
  call();
  const auto begin = Clock::now();
  do {
    if (pool) {
      pool->run([&](int) { flush(); });
    } else {
      flush();
    }
    const auto start = Clock::now();
    call();
    sampler.add(seconds_since(start));
  } while (!sampler.done(seconds_since(begin)));
}

void measure_batch(const std::function<void()>& call, Sampler& sampler) {
  int calls = 1;
  double once = 0;
  // Warm-up; determines how many calls make one sample.
  while (true) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    once = seconds_since(start);
    if (once >= kBatchSeconds || calls >= (1 << 24)) break;
    calls *= 2;
  }
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    sampler.add(seconds_since(start) / calls, calls);
  } while (!sampler.done(seconds_since(begin)));
}

}  // namespace

double granted_cpus(const std::string& cpu_max) {
  char* end = nullptr;
  const double quota = std::strtod(cpu_max.c_str(), &end), period = std::strtod(end, nullptr);
  return quota > 0 && period > 0 ? quota / period : 0;
}

double all_caches(const std::string& cpus, const std::vector<int>& used) {
  std::map<std::string, double> distinct;
  for (const int cpu : used) {
    const Cache cache = largest_cache(cpus, cpu);
    distinct[cache.shared_by] = cache.bytes;
  }
  double sum = 0;
  for (const auto& [shared_by, bytes] : distinct) sum += bytes;
  return sum;
}

Machine host_machine() {
  Machine machine;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) machine.cores = CPU_COUNT(&allowed);
  if (const double granted = granted_cpus_here(); granted > 0)
    machine.cores = std::clamp(static_cast<int>(granted), 1, machine.cores);
  std::vector<int> used;  // in the order in which pools pin their threads
  for (int cpu = 0; cpu < CPU_SETSIZE && used.size() < static_cast<std::size_t>(machine.cores); ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) used.push_back(cpu);
  }
  if (!used.empty()) machine.llc_bytes = largest_cache(kCpus, used.front()).bytes;
  machine.llc_all_bytes = all_caches(kCpus, used);
  machine.dram_bytes = free_memory(kibibytes(proc_value("/proc/meminfo", "MemAvailable")));
  return machine;
}

Json host_environment(const std::string& program) {
  Json e = Json::object();
  const Machine machine = host_machine();
  utsname system{};
  uname(&system);
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  e["program"] = program;
  e["date"] = date;
  e["host_cpu"] = proc_value("/proc/cpuinfo", "model name");
  e["cores"] = machine.cores;
  e["llc_bytes"] = machine.llc_bytes;
  e["llc_all_bytes"] = machine.llc_all_bytes;
  e["dram_bytes"] = kibibytes(proc_value("/proc/meminfo", "MemTotal"));
  e["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
#ifdef KVCAST_COMPILER
  e["compiler"] = KVCAST_COMPILER;
#else
  e["compiler"] = __VERSION__;
#endif
#ifdef KVCAST_GIT
  e["git"] = KVCAST_GIT;
#endif
  return e;
}

void measure_host(State& state, const std::function<void()>& call, Pool* pool) {
  const OnOneCpu pinned;
  Limits limits = state.limits();
  // Flushing takes far longer than the measured call: the number of samples and the noise decide.
  if (state.mode() == Mode::kCold) limits.min_time = 0;
  Sampler sampler(limits);
  if (state.mode() == Mode::kCold) {
    measure_cold(state, call, pool, sampler);
  } else {
    measure_batch(call, sampler);
  }
  state.record(sampler);
}

}  // namespace kvcast::kernels
