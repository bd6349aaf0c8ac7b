// Passes of a small model under every policy.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <memory>

#include "graph/source.hpp"
#include "lower/pass.hpp"
#include "policies/all.hpp"
#include "property/policies/settings.hpp"
#include "support/select.hpp"
#include "support/tiny_model.hpp"

namespace kvcast::tests {

using lower::PassSequence;

// Requests of 100, 400 and 100 prompt tokens with 20, 20 and 60 expected ones, at contexts of 101, 410 and 150 tokens.
inline std::vector<PassSequence> three_decodes() {
  return {{100, 1, {100, 20}}, {409, 1, {400, 20}}, {149, 1, {100, 60}}};
}

// Calls check(policy) with every policy under small settings, so that all of them choose among 100 tokens.
template <typename Check>
void with_small_policies(const Check& check) {
  const Profiles profiles;
  const config::Model m = tiny_model();
  const std::string profile = profiles.of({.kv_heads = m.n_kv_heads, .group = m.group(), .n_layers = m.layers});
  for (const policy::Descriptor& d : policy::all_policies()) {
    const std::string setting = small_settings(d, 48, profile);
    CAPTURE(d.name, setting);
    check(*make(d.name, setting, {100, 20}));
  }
}

// Counts that depend on a sequence's context, so that an exchange of sequences would show: [sequences × KV heads].
inline std::vector<policy::HeadCounts> counts_of(std::span<const PassSequence> sequences, int heads) {
  std::vector<policy::HeadCounts> all;
  for (const PassSequence& s : sequences) {
    if (!s.decodes()) continue;
    const std::int64_t n = s.cached + 1;
    const policy::HeadCounts counts{.attended = n / 2,
                                    .cpu_attended = n / 64,
                                    .scored = n / 4,
                                    .candidates = n / 3,
                                    .fetched = n / 6,
                                    .fetched_runs = n / 12,
                                    .attended_runs = n / 8};
    all.insert(all.end(), static_cast<std::size_t>(heads), counts);
  }
  return all;
}

// One pass, as a stream of one block.
class OnePass final : public graph::WorkSource {
 public:
  OnePass(const policy::Policy& policy, const config::Model& model, std::span<const PassSequence> sequences)
      : setting_{.framework = &framework_, .policy = &policy, .rank = model},
        pass_(lower::pass_of(sequences, policy, model)),
        counts_(counts_of(sequences, model.n_kv_heads)) {
    pass_.counts = [this](int) { return std::span<const policy::HeadCounts>(counts_); };
  }

  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (done_) return false;
    done_ = true;
    lower::Events events;
    lower::LoweredBlock block(framework_, 0, -1, events, out);
    lower::PromptMemory none;
    lower::add_pass(block, setting_, pass_, none, -1);
    return true;
  }

 private:
  config::Framework framework_;
  lower::PassSetting setting_;
  lower::PassSequences pass_;
  std::vector<policy::HeadCounts> counts_;
  bool done_ = false;
};

inline std::vector<graph::Op> ops_of(const policy::Policy& policy, std::span<const PassSequence> sequences) {
  std::vector<graph::Op> ops;
  OnePass(policy, tiny_model(), sequences).next_block(ops);
  return ops;
}

}  // namespace kvcast::tests
