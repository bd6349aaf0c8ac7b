// The results in a store, for comparing one sweep with another.
#pragma once

#include <csignal>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "app/process.hpp"
#include "base/random.hpp"
#include "result/json.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

// A quick run, swept over contexts and GPUs; further axes follow.
inline const std::string kContextsAndGpus =
    "model: llama-3.2-1b\n"
    "workload: {decode_tokens: 16}\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\n"
    "framework: {warmup_steps: 3, measured_steps: 3, sampled_contexts: 2}\n"
    "sweep:\n"
    "  workload.prompt_tokens: [300, 600]\n"
    "  hardware: [a100-40gb-pcie4, h100-sxm]\n";

// Contexts, GPUs, batches and policies. Its axes are not in alphabetical order.
inline const std::string kSweep = "name: policies\n" + kContextsAndGpus +
                                  "  workload.batch: [1, 3]\n"
                                  "  cases:\n"
                                  "    - policy: full\n"
                                  "    - {policy.name: [quest, snapkv, exact_topk], policy.budget: [64, 128]}\n";
// 2 contexts, 2 GPUs, 2 batches; full once, 3 policies at 2 budgets
inline constexpr std::size_t kPoints = 2 * 2 * 2 * (1 + 3 * 2);

// Results by key, without the parts that may differ between two runs of one sweep.
inline std::map<std::string, nlohmann::json> stored_results(const std::string& dir) {
  std::map<std::string, nlohmann::json> rows;
  const auto store = store::Store::open(dir, store::Store::Open::kExisting);
  store.for_each([&rows](const store::Stored& s) {
    nlohmann::json result = result::to_json(s.result);
    result["engine"].erase("wall_s");
    result.erase("timeline");  // which experiments are drawn depends on where the sweep resumes
    CHECK(rows.emplace(s.result.key, result).second);
  });
  return rows;
}

// Runs a sweep into a folder until it ends by itself. The first `kills` processes are killed less than `wait_ms`
// after they have stored another of the `all` results. Returns how many of them left some results, but not all.
inline int resume_once(const std::vector<std::string>& arguments, const std::string& dir, std::size_t all,
                       std::uint64_t kills, const Stream& random, std::uint64_t wait_ms) {
  const Scratch scratch;
  const auto stored = [&dir]() -> std::size_t {
    try {
      return store::Store::open(dir, store::Store::Open::kExisting).keys().size();
    } catch (const UserError&) {
      return 0;  // no store yet
    }
  };
  int partial = 0;
  for (std::uint64_t attempt = 0;; ++attempt) {
    REQUIRE(attempt < kills + 100);
    const std::size_t before = stored();
    const pid_t child = start(arguments, scratch / "out", scratch / "err");
    siginfo_t ended{};
    const auto runs = [&] {
      return waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
    };
    while (attempt < kills && stored() == before && runs()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (attempt < kills) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random.below(attempt, wait_ms)));
      kill(child, SIGKILL);
    }
    if (wait_for(child) == 0) return partial;
    const std::size_t left = stored();
    partial += 0 < left && left < all ? 1 : 0;
  }
}

// The same, from an empty folder again and with shorter waits while no kill fell between the first result and the
// last: a small sweep can end before the signal arrives.
inline int resume_after_kills(const std::vector<std::string>& arguments, const std::string& dir, std::size_t all,
                              std::uint64_t kills) {
  constexpr std::uint64_t kRounds = 40;
  for (std::uint64_t round = 0;; ++round) {
    const int partial = resume_once(arguments, dir, all, kills, Stream(kills).child({round}), 1 + 30 / (1 + round));
    if (partial > 0 || round + 1 == kRounds) return partial;
    std::filesystem::remove_all(dir);
  }
}

}  // namespace kvcast::tests
