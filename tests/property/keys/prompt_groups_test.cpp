// Groups of prompts that are left out, compared with all groups, for every policy that runs with its defaults.
#include "policies/all.hpp"
#include "timed.hpp"

namespace kvcast::tests {
namespace {

class Groups {
 public:
  explicit Groups(const Node& config) : prepared_(study::prepare(config)), policy_(study::make_policy(prepared_)) {
    const auto trace = study::make_trace(prepared_.run, prepared_.run.traces.front());
    replayed_ = replay::replay(replay::prepare(*trace, 1), *policy_, {.request = study::lengths_of(prepared_.run)});
  }

  simulate::Experiment at(int batch, bool all_groups) const {
    config::Run run = prepared_.run;
    run.workload.batch = batch;
    simulate::LoweringOptions what;
    what.decode = what.parts = false, what.all_warmup = all_groups;
    simulate::ExperimentOptions options;
    options.decode = false, options.effects = simulate::Effects::kDetailed;
    return simulate::simulate(simulate::lower_experiment({&run, policy_.get(), &replayed_}, what), run.hardware,
                              options);
  }

 private:
  study::Prepared prepared_;
  std::unique_ptr<policy::Policy> policy_;
  replay::ReplayResult replayed_;
};

TEST_CASE("a repeated group of prompts gives the times, memory and attribution of all groups, in as many operations") {
  for (const policy::Descriptor& d : policy::all_policies()) {
    INFO(d.name);
    std::optional<Groups> groups;
    try {
      groups.emplace(parsed(fmt::format(
          "model: llama-3.2-1b\nhardware: l40s\npolicy: {}\n"
          "workload: {{prompt_tokens: 1024, decode_tokens: 8, batch: 9, prefill_chunk: 512, prefill_batch: 2}}\n"
          "trace: {{recipe: needle, layers: 1, steps: 2}}\n",
          d.name)));
    } catch (const UserError&) {
      continue;  // needs a profile or heads that the model lacks
    }
    // Groups of 2 prompts, of which the last one may have a single one.
    for (const int batch : {5, 6, 11, 16}) {
      const simulate::Experiment all = groups->at(batch, true), few = groups->at(batch, false);
      if (few.unsettled) continue;  // all groups are then simulated
      CHECK(few.ttft_s == Approx(all.ttft_s).epsilon(2e-3));
      CHECK(few.first_ttft_s == Approx(all.first_ttft_s));
      CHECK(few.hbm.peak == Approx(all.hbm.peak).epsilon(1e-3));
      CHECK(few.dram.peak == Approx(all.dram.peak).epsilon(1e-3));
      CHECK(few.prefill.total() == Approx(all.prefill.total()).epsilon(2e-3));
      // Sources without a noticeable effect are not listed.
      const auto longer = [](const simulate::Experiment& e, const std::string& source) {
        const auto found = std::ranges::find(e.effects, source, &result::Effect::source);
        return found == e.effects.end() ? 1 : found->longer.prefill;
      };
      REQUIRE(!all.effects.empty());
      for (const result::Effect& effect : all.effects) {
        CHECK(longer(few, effect.source) == Approx(effect.longer.prefill).epsilon(5e-3));
      }
    }
    // Three groups, one that represents those left out, and the last one: the batch does not matter.
    CHECK(groups->at(64, false).engine_ops == groups->at(32, false).engine_ops);
  }
}

}  // namespace
}  // namespace kvcast::tests
