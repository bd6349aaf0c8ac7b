#include "policies/all.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/text.hpp"
#include "policy/fields.hpp"
#include "policy_parts/growing_budget.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {

// Each policy's file defines NAME::describe(). A new policy is one file and one line here.
#define KVCAST_POLICIES(X) \
  X(full)                  \
  X(exact_topk)            \
  X(streaming_llm)         \
  X(h2o)                   \
  X(tova)                  \
  X(raas)                  \
  X(d2o)                   \
  X(keydiff)               \
  X(keyl2norm)             \
  X(rkv)                   \
  X(snapkv)                \
  X(pyramidkv)             \
  X(adakv)                 \
  X(headkv)                \
  X(cake)                  \
  X(compresskv)            \
  X(chunkkv)               \
  X(skipkv)                \
  X(lagkv)                 \
  X(criticalkv)            \
  X(expected_attention)    \
  X(kvzip)                 \
  X(kvzap)                 \
  X(specprefill)           \
  X(duo_attention)         \
  X(razor_attention)       \
  X(quest)                 \
  X(sparq)                 \
  X(loki)                  \
  X(hsa)                   \
  X(rocketkv)              \
  X(rocketkv_mt)           \
  X(squeezed_attention)    \
  X(double_sparsity)       \
  X(infllm_v2)             \
  X(nsa)                   \
  X(seer_attention)        \
  X(gsa)                   \
  X(blasst)                \
  X(twilight)              \
  X(arkvale)               \
  X(shadowkv)              \
  X(infinigen)             \
  X(freekv)                \
  X(omnikv)                \
  X(retroinfer)            \
  X(magicpig)              \
  X(retrieval_attention)   \
  X(ctkvr)                 \
  X(dsa)                   \
  X(hisparse)              \
  X(msa)                   \
  X(qsa)                   \
  X(kivi)                  \
  X(minference)            \
  X(xattention)            \
  X(flexprefill)

#define KVCAST_DECLARE(name) \
  namespace name {           \
  Descriptor describe();     \
  }
KVCAST_POLICIES(KVCAST_DECLARE)
#undef KVCAST_DECLARE
namespace replayed {
Descriptor describe();
}

namespace {

void add_page_cache(Descriptor& d) {
  d.parameters.push_back(whole(
      "page_cache", 0, "tokens",
      "tokens of each head that stay on the GPU after leaving the selection, in an LRU cache; 0: none, as published"));
  d.make = [inner = std::move(d.make), page = d.recall_page](const ParameterValues& values) {
    const KeptPages kept{values.integer("page_cache"), page(values)};
    if (kept.tokens == 0) return inner(values);
    if (kept.page == 0) throw UserError(values.where("page_cache"), "page_cache: nothing is in host memory");
    if (kept.tokens < kept.page) {
      throw UserError(values.where("page_cache"),
                      fmt::format("page_cache ({} tokens) is smaller than one page ({} tokens); 0 disables it",
                                  kept.tokens, kept.page));
    }
    return keep_recalled(kept, inner(values));
  };
}

// Policies of which a step can have a larger budget than the steps before: nothing has been dropped, nothing stays
// where a smaller budget put it, and no index depends on it.
bool can_grow(const Descriptor& d) {
  const auto has = [&](const char* key) {
    return std::ranges::any_of(d.parameters, [&](const Parameter& p) {
      return p.key == key && std::holds_alternative<std::int64_t>(p.fallback);
    });
  };
  const bool keeps_all =
      d.category == Category::kGpuRetrieval || d.category == Category::kCpuRetrieval || d.category == Category::kOracle;
  return keeps_all && has("budget") && d.budget_counts() != BudgetRule::Counts::kTraffic;
}

void add_growing_budget(Descriptor& d) {
  d.parameters.push_back(growing_parameter());
  d.make = [inner = std::move(d.make), on_cpu = d.category == Category::kCpuRetrieval](const ParameterValues& values) {
    if (!values.flag("budget_grows")) return inner(values);
    if (values.given("budget_convention") && values.text("budget_convention").starts_with("traffic")) {
      throw UserError(values.where("budget_grows"),
                      "budget_grows: a traffic budget sets the index, which is made once after the prompt");
    }
    inner(values);  // throws for parameters that contradict each other
    return growing_budget(values.integer("budget"), on_cpu,
                          [=](std::int64_t budget) { return inner(values.with("budget", budget)); });
  };
  d.budget_rule = [inner = std::move(d.budget_rule)](const ParameterValues& values, const Lengths& request) {
    const std::int64_t budget = values.integer("budget");
    const bool grows = values.flag("budget_grows");
    const std::int64_t last = grows ? grown_budget(budget, request.prompt_tokens, request.bound()) : budget;
    BudgetRule rule = inner ? inner(values.with("budget", last), request) : BudgetRule{.tokens = last};
    if (grows) rule.slack = BudgetRule::kAny;
    return rule;
  };
}

// Adds what every policy has: how it is made from its stages, a cache of recalled pages, a budget that grows,
// uncompressed first layers.
Descriptor finished(Descriptor d) {
  if (!d.make) {
    d.make = [stages = d.stages](const ParameterValues& values) {
      Stages both = stages(values);
      return two_stages(std::move(both.first), std::move(both.second));
    };
  }
  if (d.recall_page) add_page_cache(d);
  if (can_grow(d)) add_growing_budget(d);
  if (d.uncompressed() || d.prunes_prompt) return d;  // it compresses no layer, or all of them
  d.parameters.push_back(whole("first_dense_layers", 0, "layers", "first layers that are left uncompressed", 0, 1000));
  d.uncompressed_layers.emplace_back("first_dense_layers");
  d.make = [inner = std::move(d.make)](const ParameterValues& values) {
    return dense_first(static_cast<int>(values.integer("first_dense_layers")), inner(values));
  };
  return d;
}

}  // namespace

const std::vector<Descriptor>& all_policies() {
#define KVCAST_FINISHED(name) finished(name::describe()),
  static const std::vector<Descriptor> list = {KVCAST_POLICIES(KVCAST_FINISHED)};
#undef KVCAST_FINISHED
  return list;
}

const Descriptor& replayed_policy() {
  static const Descriptor replayed = finished(replayed::describe());
  return replayed;
}

void check_model(const Descriptor& descriptor, const config::Model& model, const SourceLocation& asked_at) {
  if (model.latent && !descriptor.for_latent) {
    std::vector<std::string> known;
    for (const Descriptor& d : all_policies()) {
      if (d.for_latent) known.push_back(d.name);
    }
    throw UserError(
        asked_at,
        fmt::format(
            "policy: {} selects by the keys of single heads, but in {} all heads share one latent vector per token",
            descriptor.name, model.title),
        known);
  }
  if (model.compressed && descriptor.name != "full") {
    throw UserError(asked_at,
                    fmt::format("policy: {} selects tokens, but {} was trained to attend to compressed entries that "
                                "represent several; only full, which keeps them all, goes with it",
                                descriptor.name, model.title),
                    {"full"});
  }
  if (model.cache != config::Precision::kBf16 && descriptor.packs_cache) {
    throw UserError(
        asked_at, fmt::format("policy: {} packs the cache itself; leave deployment.kv_cache at bf16", descriptor.name));
  }
}

const Descriptor& find_policy(const std::string& name) { return find_policy(config::PolicyChoice{name, {}, {}, {}}); }

const Descriptor& find_policy(const config::PolicyChoice& choice) {
  const std::string& name = choice.name;
  std::vector<std::string> known;
  for (const Descriptor& d : all_policies()) {
    if (d.name == name) return d;
    known.push_back(d.name);
  }
  if (name == replayed_policy().name) return replayed_policy();
  for (const Descriptor& d : all_policies()) {
    if (config::loose_name(d.name) == config::loose_name(name)) return d;
  }
  known.push_back(replayed_policy().name);
  throw UserError(choice.named_at, fmt::format("unknown policy \"{}\"{}", name, config::did_you_mean(name, known)),
                  known);
}

}  // namespace kvcast::policy
