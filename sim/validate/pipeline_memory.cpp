// What the workers of a pipeline do, and how they wait for each other.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "validate/cpu_pipeline.hpp"

namespace kvcast::validate {
namespace {

constexpr std::size_t kPage = 16 * 1024;  // keys and values of a page of 32 tokens and one head, as FreeKV recalls them
constexpr std::size_t kRow = 256;         // one key of 128 dimensions in half precision
constexpr std::size_t kCache = 16 << 20;

using Clock = std::chrono::steady_clock;

std::uint64_t sum_of(const std::uint64_t* words, std::size_t n) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += words[i];
  return sum;
}

}  // namespace

struct PipelineMemory::Body {
  std::vector<std::uint64_t> weights, pool, staging, cache;
  std::atomic<std::uint64_t> sum{0};

  // Scattered and repeatable.
  std::size_t place(std::size_t i, std::size_t slots) const { return (i * 2654435761u + 40503u) % slots; }

  void stream(std::size_t bytes, std::size_t nth) {
    const std::size_t words = std::min(bytes / sizeof(std::uint64_t), weights.size());
    const std::size_t begin = (nth * words) % (weights.size() - words + 1);
    sum += sum_of(weights.data() + begin, words);
  }

  void move(std::size_t bytes, std::size_t nth) {
    char* const to = reinterpret_cast<char*>(staging.data());
    char* const spread = reinterpret_cast<char*>(cache.data());
    const char* const from = reinterpret_cast<const char*>(pool.data());
    const std::size_t pages = std::max<std::size_t>(1, bytes / kPage),
                      slots = pool.size() * sizeof(std::uint64_t) / kPage;
    for (std::size_t p = 0; p < pages; ++p) {
      char* const buffer = to + (p % 2) * kPage;
      std::memcpy(buffer, from + place(nth * pages + p, slots) * kPage, kPage);
      // Rows of one head go to every other row of the cache.
      char* const target = spread + (p * 2 * kPage) % (kCache - 2 * kPage);
      for (std::size_t r = 0; r < kPage / kRow; ++r) std::memcpy(target + 2 * r * kRow, buffer + r * kRow, kRow);
    }
    sum += static_cast<std::uint64_t>(spread[nth % kCache]);
  }

  void rows(std::size_t bytes, std::size_t nth) {
    const std::size_t n = std::max<std::size_t>(1, bytes / kRow), slots = pool.size() * sizeof(std::uint64_t) / kRow;
    std::uint64_t found = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t* const row = pool.data() + place(nth * n + i, slots) * (kRow / sizeof(std::uint64_t));
      for (std::size_t w = 0; w < kRow / sizeof(std::uint64_t); ++w) found += row[w] * (w + 1);
    }
    sum += found;
  }
};

PipelineMemory::PipelineMemory(std::size_t weights_bytes, std::size_t pool_bytes) : body_(std::make_unique<Body>()) {
  KVCAST_CHECK(weights_bytes >= kPage && pool_bytes >= kPage);
  body_->weights.assign(weights_bytes / sizeof(std::uint64_t), 3);
  body_->pool.assign(pool_bytes / sizeof(std::uint64_t), 5);
  body_->staging.assign(2 * kPage / sizeof(std::uint64_t), 0);
  body_->cache.assign(kCache / sizeof(std::uint64_t), 0);
}

PipelineMemory::~PipelineMemory() = default;

void PipelineMemory::work(const PipelineOp& op, std::size_t nth) {
  const auto bytes = static_cast<std::size_t>(op.bytes);
  switch (op.kind) {
    case WorkKind::kDense:
      return body_->stream(bytes, nth);
    case WorkKind::kMove:
      return body_->move(bytes, nth);
    case WorkKind::kRows:
      return body_->rows(bytes, nth);
  }
}

std::uint64_t PipelineMemory::checksum() const { return body_->sum; }

std::vector<double> run_pipeline(const Pipeline& pipeline, PipelineMemory& memory, std::vector<double>* ends) {
  const std::size_t n = pipeline.ops.size();
  std::vector<std::atomic<int>> done(n);
  std::vector<double> finished(n);
  std::atomic<int> arrived{0};
  Clock::time_point start;
  const auto run_worker = [&](int worker) {
    arrived += 1;
    while (arrived < kWorkers) std::this_thread::yield();
    if (worker == 0) start = Clock::now();
    for (std::size_t i = 0; i < n; ++i) {
      const PipelineOp& op = pipeline.ops[i];
      if (op.worker != worker) continue;
      for (const int id : op.after) {
        // A worker's own ops are done already; those of the other are waited for.
        if (pipeline.ops[static_cast<std::size_t>(id)].worker != worker) done[static_cast<std::size_t>(id)].wait(0);
      }
      memory.work(op, i);
      finished[i] = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
      done[i] = 1;
      done[i].notify_all();
    }
  };
  {
    const std::jthread second([&] { run_worker(1); });
    run_worker(0);
  }
  const double zero = std::chrono::duration<double>(start.time_since_epoch()).count();
  for (double& at : finished) at -= zero;
  std::vector<double> steps;
  double before = 0;
  for (const int end : pipeline.step_ends) {
    steps.push_back(finished[static_cast<std::size_t>(end)] - before);
    before = finished[static_cast<std::size_t>(end)];
  }
  if (ends != nullptr) *ends = finished;
  return steps;
}

}  // namespace kvcast::validate
