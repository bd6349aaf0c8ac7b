// Times of passes over unequal sequences, for every policy on two machines: Hopper's kernels of unequal lengths pack
// query heads, FlashAttention-2's do not.
#include <catch2/catch.hpp>

#include <algorithm>

#include "base/units.hpp"
#include "engine/engine.hpp"
#include "lower/flat.hpp"
#include "lower/pass.hpp"
#include "policies/all.hpp"
#include "simulate/cost_table.hpp"
#include "simulate/timed.hpp"
#include "support/select.hpp"

namespace kvcast::simulate {
namespace {

using lower::PassSequence;
using policy::HeadCounts;

const PassSequence kShort{4100, 1, {4096, 64}}, kMiddle{8200, 1, {8192, 64}}, kLong{32800, 1, {32768, 64}};
const PassSequence kChunk{1024, 1024, {4096, 64}};

config::Model two_layers() {
  config::Model model = config::read_model(config::find_config("models", "llama-3.1-8b", {}));
  model.layers = 2;
  return model;
}

class OnePass final : public graph::WorkSource {
 public:
  OnePass(const policy::Policy& policy, const config::Framework& framework, std::span<const PassSequence> sequences)
      : setting_{.framework = &framework, .policy = &policy, .rank = two_layers()},
        pass_(lower::pass_of(sequences, policy, setting_.rank)) {
    // Each head of a sequence reads a quarter of its context, scores a sixteenth and recalls an eighth of what it
    // reads.
    for (const policy::Sequence& s : pass_.decodes) {
      const HeadCounts counts{.attended = s.tokens / 4,
                              .cpu_attended = s.tokens / 64,
                              .scored = s.tokens / 16,
                              .candidates = s.tokens / 32,
                              .fetched = s.tokens / 32,
                              .fetched_runs = s.tokens / 512,
                              .attended_runs = s.tokens / 64};
      counts_.insert(counts_.end(), static_cast<std::size_t>(setting_.rank.n_kv_heads), counts);
    }
    pass_.counts = [this](int) { return std::span<const HeadCounts>(counts_); };
  }

  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (done_) return false;
    done_ = true;
    lower::Events events;
    lower::Block block(*setting_.framework, 0, -1, events, out);
    lower::PromptMemory none;
    lower::add_pass(block, setting_, pass_, none, -1);
    return true;
  }

 private:
  lower::PassSetting setting_;
  lower::Pass pass_;
  std::vector<HeadCounts> counts_;
  bool done_ = false;
};

double seconds(const policy::Policy& policy, const config::Hardware& machine, std::vector<PassSequence> sequences) {
  const config::Framework framework;
  OnePass source(policy, framework, sequences);
  lower::Works works;
  const lower::FlatStream stream = lower::flatten(source, works);
  const hardware::CostModel costs(machine, framework);
  CostTable table(works, costs);
  TimedSource timed(stream, table);
  return to_seconds(engine::run(make_system(costs), timed, nullptr).makespan);
}

// Calls check(policy) with every policy that needs no scores of heads and reads the prompt at once.
template <typename Check>
void for_all_policies(const Check& check) {
  for (const policy::Descriptor& d : policy::all_policies()) {
    const auto has = [&](const char* key) {
      return std::ranges::any_of(d.parameters, [&](const policy::Parameter& p) { return p.key == key; });
    };
    if (has("profile") || d.for_latent) continue;
    std::string setting = has("budget") ? "budget: 1024" : "";
    if (has("dense_below")) setting += ", sink: 64, recent: 256, dense_below: 0";
    CAPTURE(d.name);
    check(*tests::make(d.name, setting, kShort.request));
  }
}

TEST_CASE("a batch of unequal sequences takes a time between those of its shortest and its longest") {
  for (const char* name : {"h100-sxm", "rtx-4090"}) {
    const config::Hardware machine = config::read_hardware(config::find_config("hardware", name, {}));
    CAPTURE(name);
    for_all_policies([&](const policy::Policy& policy) {
      const double unequal = seconds(policy, machine, {kShort, kMiddle, kLong});
      CHECK(unequal >= seconds(policy, machine, {kShort, kShort, kShort}));
      CHECK(unequal <= machine.gpu.unequal_contexts * seconds(policy, machine, {kLong, kLong, kLong}));
    });
  }
}

TEST_CASE("a mixed pass takes no less than each of its parts, and no more than both where heads stay packed") {
  for (const char* name : {"h100-sxm", "rtx-4090"}) {
    const config::Hardware machine = config::read_hardware(config::find_config("hardware", name, {}));
    CAPTURE(name);
    for_all_policies([&](const policy::Policy& policy) {
      const double decodes = seconds(policy, machine, {kShort, kMiddle, kLong});
      const double chunk = seconds(policy, machine, {kChunk});
      const double mixed = seconds(policy, machine, {kShort, kMiddle, kLong, kChunk});
      CHECK(mixed >= std::max(decodes, chunk));
      if (machine.gpu.mixed_pass_rereads == 0) CHECK(mixed <= decodes + chunk);
    });
  }
}

}  // namespace
}  // namespace kvcast::simulate
