// Batches of prompts of several lengths under every policy, from the configuration to the result.
#include <fmt/format.h>

#include <algorithm>

#include "passes.hpp"
#include "study/replays_in_memory.hpp"
#include "study/study.hpp"

namespace kvcast::tests {
namespace {

using result::Result;

class Batches {
 public:
  explicit Batches(std::string policy) : policy_(std::move(policy)) { options_.replays = &replays_; }

  Result of(const std::string& workload) {
    study::Point point;
    point.config = config::parse_yaml(
        "model: llama-3.2-1b\nhardware: h100-sxm\ntrace: {recipe: needle, layers: 1, steps: 6}\nscore: none\n"
        "framework: {warmup_steps: 1, measured_steps: 2, sampled_contexts: 2}\npolicy: " +
            policy_ + "\nworkload: {decode_tokens: 16, " + workload + "}\n",
        "run.yaml");
    point.ask.effects = simulate::Effects::kNone;
    return study::run_all({std::move(point)}, options_).front();
  }

 private:
  std::string policy_;
  study::ReplaysInMemory replays_;
  study::StudyOptions options_;
};

// Calls check(batches) with every policy for models without latent attention.
template <typename Check>
void for_batches(const Check& check) {
  const Profiles profiles;
  const std::string profile = profiles.of({.kv_heads = 8, .group = 4, .n_layers = 16});
  for (const policy::Descriptor& d : policy::all_policies()) {
    if (d.for_latent) continue;
    std::string setting = "name: " + d.name;
    if (declares(d, "budget")) setting += ", budget: 512";
    if (declares(d, "profile")) setting = with(setting, "profile", profile);
    if (declares(d, "dense_below")) setting += ", sink: 16, recent: 64, dense_below: 0";
    CAPTURE(d.name);
    Batches batches("{" + setting + "}");
    check(batches);
  }
}

double held(const Result& r) { return r.experiment.decode_hbm.peak; }

void check_equal(const Result& a, const Result& b) {
  CHECK(a.experiment.tpot_mean_s == Approx(b.experiment.tpot_mean_s).epsilon(1e-9));
  CHECK(a.experiment.ttft_s == Approx(b.experiment.ttft_s).epsilon(1e-9));
  CHECK(held(a) == Approx(held(b)).epsilon(1e-9));
  CHECK(a.accuracy.recall_mass_mean == Approx(b.accuracy.recall_mass_mean).epsilon(1e-9));
  CHECK(a.subject.prompt_tokens == b.subject.prompt_tokens);
}

TEST_CASE("a batch of several lengths lies between those of its shortest and its longest prompts") {
  const double spread =
      config::read_hardware(config::find_config("hardware", "h100-sxm", {})).gpu.unequal_contexts.value;
  for_batches([&](Batches& batches) {
    const Result unequal = batches.of("prompt_tokens: [1024, 2048, 2048]");
    const Result shortest = batches.of("prompt_tokens: 1024, batch: 3"),
                 longest = batches.of("prompt_tokens: 2048, batch: 3");
    REQUIRE(unequal.has_times());
    CHECK(unequal.subject.batch == 3);
    CHECK(unequal.subject.prompt_tokens == 1707);  // (1024 + 2 · 2048) / 3
    // A kernel over several sequences has their mean page and their mean number of dimensions, which may fill the GPU
    // a little better than those of each (hsa: 0.4 %).
    constexpr double kBetter = 0.005;
    const auto between = [](double value, double a, double b, double factor = 1) {
      CHECK(value >= std::min(a, b) * (1 - kBetter));
      CHECK(value <= factor * std::max(a, b) * (1 + 1e-9));
    };
    between(unequal.experiment.tpot_mean_s, shortest.experiment.tpot_mean_s, longest.experiment.tpot_mean_s, spread);
    // Weights are read once a length: where few tokens of a prompt are read, that is most of the time.
    const double lengths = policy::find_policy(unequal.subject.policy).prunes_prompt ? 2 : 1;
    between(unequal.experiment.ttft_s, shortest.experiment.ttft_s, longest.experiment.ttft_s, lengths);
    between(held(unequal), held(shortest), held(longest));
    // Each sequence has the accuracy of its own length.
    const auto mean_of = [&](double result::Accuracy::*field) {
      return (shortest.accuracy.*field + 2 * longest.accuracy.*field) / 3;
    };
    CHECK(unequal.accuracy.attended_mean == Approx(mean_of(&result::Accuracy::attended_mean)));
    CHECK(unequal.accuracy.recall_mass_mean == Approx(mean_of(&result::Accuracy::recall_mass_mean)));
    const auto& task = unequal.accuracy.task;
    REQUIRE(task.has_value() == (shortest.accuracy.task && longest.accuracy.task));
    if (task) {
      CHECK(task->share_of_full ==
            Approx((shortest.accuracy.task->share_of_full + 2 * longest.accuracy.task->share_of_full) / 3));
    }
    check_equal(unequal, batches.of("prompt_tokens: [2048, 1024, 2048]"));
    check_equal(shortest, batches.of("prompt_tokens: [1024, 1024, 1024]"));
    check_equal(longest, batches.of("prompt_tokens: [2048], batch: 3"));
  });
}

TEST_CASE("reading prompts in chunks changes neither what a policy selects nor what it holds") {
  for_batches([](Batches& batches) {
    const Result whole = batches.of("prompt_tokens: [1024, 2048], prefill: whole");
    const Result chunks = batches.of("prompt_tokens: [1024, 2048], prefill_chunk: 256");
    CHECK(chunks.accuracy.attended_mean == whole.accuracy.attended_mean);
    CHECK(chunks.accuracy.recall_mass_mean == whole.accuracy.recall_mass_mean);
    CHECK(chunks.experiment.tpot_mean_s == Approx(whole.experiment.tpot_mean_s).epsilon(1e-9));
    CHECK(held(chunks) == Approx(held(whole)).epsilon(1e-9));
  });
}

}  // namespace
}  // namespace kvcast::tests
