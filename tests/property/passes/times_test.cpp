// Times of passes under every policy on two machines: Hopper's kernels of unequal lengths pack query heads,
// FlashAttention-2's do not.
#include <algorithm>

#include "base/units.hpp"
#include "engine/engine.hpp"
#include "lower/flat.hpp"
#include "passes.hpp"
#include "simulate/cost_table.hpp"
#include "simulate/timed.hpp"

namespace kvcast::tests {
namespace {

const PassSequence kShort{4100, 1, {4096, 64}}, kMiddle{8200, 1, {8192, 64}}, kLong{32800, 1, {32768, 64}};
const PassSequence kChunk{1024, 1024, {4096, 64}};

config::Model two_layers() {
  config::Model model = config::read_model(config::find_config("models", "llama-3.1-8b", {}));
  model.layers = 2;
  return model;
}

double seconds(const policy::Policy& policy, const config::Hardware& machine, std::vector<PassSequence> sequences) {
  const config::Framework framework;
  OnePass source(policy, two_layers(), sequences);
  lower::Works works;
  const lower::FlatStream stream = lower::flatten(source, works);
  const hardware::CostModel costs(machine, framework);
  simulate::CostTable table(works, costs);
  simulate::TimedSource timed(stream, table);
  return to_seconds(engine::run(simulate::make_system(costs), timed, nullptr).makespan);
}

// Calls check(policy, machine) with every policy for models without latent attention, on both machines.
template <typename Check>
void for_all_policies(const Check& check) {
  const Profiles profiles;
  const config::Model m = two_layers();
  const std::string profile = profiles.of({.kv_heads = m.n_kv_heads, .group = m.group(), .n_layers = m.layers});
  for (const char* name : {"h100-sxm", "rtx-4090"}) {
    const config::Hardware machine = config::read_hardware(config::find_config("hardware", name, {}));
    for (const policy::Descriptor& d : policy::all_policies()) {
      if (d.for_latent) continue;
      std::string setting = declares(d, "budget") ? "budget: 1024" : "";
      if (declares(d, "profile")) setting = with(setting, "profile", profile);
      if (declares(d, "dense_below")) setting += ", sink: 64, recent: 256, dense_below: 0";
      CAPTURE(name, d.name);
      check(*make(d.name, setting, kShort.request), machine);
    }
  }
}

TEST_CASE("a batch of unequal sequences takes a time between those of its shortest and its longest") {
  for_all_policies([](const policy::Policy& policy, const config::Hardware& machine) {
    const double unequal = seconds(policy, machine, {kShort, kMiddle, kLong});
    // A budget over heads leaves a longer request fewer that keep everything, so that its steps may be the shorter
    // ones.
    const double shortest = seconds(policy, machine, {kShort, kShort, kShort}),
                 longest = seconds(policy, machine, {kLong, kLong, kLong});
    CHECK(unequal >= std::min(shortest, longest));
    CHECK(unequal <= machine.gpu.unequal_contexts * std::max(shortest, longest));
  });
}

TEST_CASE("a mixed pass takes no less than each of its parts, and no more than both where heads stay packed") {
  for_all_policies([](const policy::Policy& policy, const config::Hardware& machine) {
    const double decodes = seconds(policy, machine, {kShort, kMiddle, kLong});
    const double chunk = seconds(policy, machine, {kChunk});
    const double mixed = seconds(policy, machine, {kShort, kMiddle, kLong, kChunk});
    CHECK(mixed >= std::max(decodes, chunk));
    if (machine.gpu.mixed_pass_rereads == 0) CHECK(mixed <= decodes + chunk);
  });
}

TEST_CASE("the order of sequences changes no time") {
  for_all_policies([](const policy::Policy& policy, const config::Hardware& machine) {
    CHECK(seconds(policy, machine, {kLong, kChunk, kShort, kMiddle}) ==
          Approx(seconds(policy, machine, {kShort, kMiddle, kLong, kChunk})).epsilon(1e-9));
  });
}

}  // namespace
}  // namespace kvcast::tests
