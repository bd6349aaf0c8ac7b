// The work of a pipeline's workers, and the way they wait for each other.
#include "cpu/workers.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace kvcast::kernels {

namespace {

constexpr std::size_t kPage = 16 * 1024;  // keys and values of a page of 32 tokens and one head, as FreeKV recalls them
constexpr std::size_t kRow = 256;         // one key of 128 dimensions in half precision
constexpr std::size_t kCache = 64 << 20;

using Clock = std::chrono::steady_clock;

// Scatters indices repeatably.
std::size_t slot_of(std::size_t i, std::size_t slots) { return (i * 2654435761u + 40503u) % slots; }

// Uses large pages: the cost of page walks for small ones depends on what ran before, which the rate of an op cannot
// reflect.
void fill(std::vector<std::uint64_t>& words, std::size_t bytes, std::uint64_t value) {
  constexpr std::uintptr_t kSmallPage = 4096;
  words.reserve(bytes / sizeof(std::uint64_t));
  const auto begin = reinterpret_cast<std::uintptr_t>(words.data());
  const std::uintptr_t first = (begin + kSmallPage - 1) / kSmallPage * kSmallPage;
  if (first < begin + bytes) ::madvise(reinterpret_cast<void*>(first), begin + bytes - first, MADV_HUGEPAGE);
  words.assign(bytes / sizeof(std::uint64_t), value);
}

// Number of times that the system has taken the core away from the calling thread.
long taken_away() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

// Spends some forty nanoseconds on next to nothing: a chain of dependent products leaves the core's units to the other
// hardware thread, if there is one. (A pause instruction would do the same, but hypervisors take the core away from a
// guest that pauses again and again.)
void relax() {
  std::uint64_t x = 3;
  for (int i = 0; i < 32; ++i) {
    x *= x;
    asm volatile("" : "+r"(x));
  }
}

// Gives each worker a core of its own, always the same one if the system allows it: the cores of a shared machine are
// not equally fast.
void take_core(int worker) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < kWorkers) return;
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || seen++ != worker) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

struct Shared {
  explicit Shared(std::size_t ops) : done(ops), ends(ops), away(ops) {}
  std::vector<std::atomic<bool>> done;
  std::vector<Clock::time_point> ends;
  std::vector<long> away;  // preemptions of the op's worker up to the op's end
  std::atomic<int> arrived{0};
  Clock::time_point start;
};

void run_worker(int worker, const Pipeline& pipeline, WorkerMemory& memory, Shared& shared) {
  take_core(worker);
  shared.arrived += 1;
  while (shared.arrived < kWorkers) std::this_thread::yield();
  if (worker == 0) shared.start = Clock::now();
  for (std::size_t i = 0; i < pipeline.ops.size(); ++i) {
    const WorkerOp& op = pipeline.ops[i];
    if (op.worker != worker) continue;
    // Waits without sleeping: when a sleeping thread resumes is up to the system and says nothing about the pipeline.
    for (const int id : op.after) {
      while (!shared.done[static_cast<std::size_t>(id)].load(std::memory_order_acquire)) relax();
    }
    memory.work(op);
    shared.ends[i] = Clock::now();
    shared.away[i] = taken_away();
    shared.done[i].store(true, std::memory_order_release);
  }
}

}  // namespace

int Pipeline::add(int worker, WorkKind kind, double bytes, std::vector<int> after) {
  ops.push_back({worker, kind, bytes, std::move(after)});
  return static_cast<int>(ops.size()) - 1;
}

WorkerMemory::WorkerMemory(std::size_t bytes) {
  fill(weights_, bytes, 3);
  fill(pool_, bytes, 5);
  fill(staging_, 2 * kPage, 0);
  fill(cache_, kCache, 0);
}

void WorkerMemory::stream(std::size_t bytes) {
  const std::size_t words = std::min(bytes / sizeof(std::uint64_t), weights_.size());
  const std::size_t begin = next_word_.fetch_add(words) % (weights_.size() - words + 1);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words; ++i) sum += weights_[begin + i];
  sum_ += sum;
}

void WorkerMemory::move(std::size_t bytes) {
  char* const to = reinterpret_cast<char*>(staging_.data());
  char* const spread = reinterpret_cast<char*>(cache_.data());
  const char* const from = reinterpret_cast<const char*>(pool_.data());
  const std::size_t pages = std::max<std::size_t>(1, bytes / kPage),
                    slots = pool_.size() * sizeof(std::uint64_t) / kPage, first = next_page_.fetch_add(pages);
  for (std::size_t p = 0; p < pages; ++p) {
    char* const buffer = to + (p % 2) * kPage;
    std::memcpy(buffer, from + slot_of(first + p, slots) * kPage, kPage);
    // The rows of one head go to every other row of the cache.
    char* const target = spread + ((first + p) * 2 * kPage) % (kCache - 2 * kPage);
    for (std::size_t r = 0; r < kPage / kRow; ++r) std::memcpy(target + 2 * r * kRow, buffer + r * kRow, kRow);
  }
  sum_ += static_cast<std::uint64_t>(spread[first % kCache]);
}

void WorkerMemory::rows(std::size_t bytes) {
  const std::size_t n = std::max<std::size_t>(1, bytes / kRow), words = kRow / sizeof(std::uint64_t),
                    slots = pool_.size() / words, first = next_row_.fetch_add(n);
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t* const row = pool_.data() + slot_of(first + i, slots) * words;
    for (std::size_t w = 0; w < words; ++w) found += row[w] * (w + 1);
  }
  sum_ += found;
}

void WorkerMemory::work(const WorkerOp& op) {
  const auto bytes = static_cast<std::size_t>(op.bytes);
  switch (op.kind) {
    case WorkKind::kDense:
      return stream(bytes);
    case WorkKind::kMove:
      return move(bytes);
    case WorkKind::kRows:
      return rows(bytes);
  }
}

WorkersRun run_workers(const Pipeline& pipeline, WorkerMemory& memory) {
  Shared shared(pipeline.ops.size());
  {
    const std::jthread first([&] { run_worker(0, pipeline, memory, shared); });
    const std::jthread second([&] { run_worker(1, pipeline, memory, shared); });
  }
  WorkersRun run;
  for (const Clock::time_point end : shared.ends) {
    run.op_ends.push_back(std::chrono::duration<double>(end - shared.start).count());
  }
  double before = 0;
  long away[kWorkers] = {-1, -1};
  std::size_t next = 0;
  for (const int end : pipeline.step_ends) {
    run.steps.push_back(run.op_ends[static_cast<std::size_t>(end)] - before);
    before = run.op_ends[static_cast<std::size_t>(end)];
    bool disturbed = false;
    for (; next <= static_cast<std::size_t>(end); ++next) {
      long& last = away[pipeline.ops[next].worker];
      disturbed = disturbed || (last >= 0 && shared.away[next] != last);
      last = shared.away[next];
    }
    run.disturbed.push_back(disturbed);
  }
  return run;
}

}  // namespace kvcast::kernels
