// Rules that every policy's selection must keep.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "policies/all.hpp"
#include "policy/growth.hpp"
#include "policy/recorder.hpp"
#include "policy_parts/stages.hpp"
#include "settings.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

using policy::HeadSelection;
using Positions = std::vector<std::int32_t>;

// The last layer, which reuses another layer's selection if layers do so. All prompt queries are captured: some
// policies sum their weights.
const std::vector<TraceShape>& shapes() {
  static const std::vector<TraceShape> all = {
      {.kv_heads = 4,
       .group = 1,
       .head_dim = 8,
       .prompt = 61,
       .steps = 7,
       .window = 99,
       .layers = {3}},  // MHA; not a multiple of any page
      {.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 72, .steps = 10, .window = 99, .layers = {3}},  // GQA 4
      {.kv_heads = 1, .group = 8, .head_dim = 16, .prompt = 50, .steps = 6, .window = 99, .layers = {3}},  // GQA 8
      {.kv_heads = 2,
       .group = 2,
       .head_dim = 8,
       .prompt = 11,
       .steps = 30,
       .window = 99,
       .layers = {3}},  // shorter than the budget,
                        // outgrows it
      {.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 65, .steps = 1, .window = 99, .layers = {3}},  // one step
  };
  return all;
}

constexpr std::int64_t kBudget = 24;

// Calls body(descriptor, setting, layer, selected) for every policy, setting and shape.
template <typename Body>
void for_all(std::int64_t budget, const Body& body) {
  const Profiles profiles;
  for (const TraceShape& shape : shapes()) {
    const MemoryTrace trace = random_trace(shape, 11);
    const auto layer = trace.load(0, 1);
    const std::string profile = profiles.of(shape);
    for (const policy::Descriptor& d : policy::all_policies()) {
      for (const std::string& setting : settings_of(d, budget, profile)) {
        CAPTURE(d.name, setting, shape.prompt, shape.group);
        body(d, setting, *layer, select(d.name, setting, *layer));
      }
    }
  }
}

bool reads_on_cpu(const policy::Descriptor& d, const std::string& setting) {
  return d.category == policy::Category::kCpuRetrieval || setting.find("attention: cpu") != std::string::npos;
}

bool ascending_below(const Positions& list, std::int64_t end) {
  return std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end() &&
         (list.empty() || (list.front() >= 0 && list.back() < end));
}

TEST_CASE("lists are ascending, have no repetitions and contain only past tokens") {
  for_all(kBudget, [](const auto&, const auto&, const trace::Layer& layer, const Selected& got) {
    const std::int64_t prompt = layer.info().prompt_tokens;
    for (const HeadSelection& head : got.resident.heads) CHECK(ascending_below(head.attended, prompt));
    for (std::size_t t = 0; t < got.steps.size(); ++t) {
      const std::int64_t end = prompt + static_cast<std::int64_t>(t) + 1;
      for (const HeadSelection& head : got.steps[t].heads) {
        CHECK(ascending_below(head.attended, end));
        CHECK(ascending_below(head.fetched, end));
        CHECK(ascending_below(head.evicted, end));
      }
    }
  });
}

TEST_CASE("a head attends to as many tokens as the rule of its budget allows") {
  for_all(kBudget,
          [](const policy::Descriptor& d, const auto& setting, const trace::Layer& layer, const Selected& got) {
            if (setting.find("first_dense_layers: 1") != std::string::npos) return;
            const std::int64_t prompt = layer.info().prompt_tokens, steps = layer.info().decode_steps;
            const policy::ParameterValues values(d, config::parse_yaml("{" + setting + "}", d.name));
            const std::optional<policy::BudgetRule> rule = policy::budget_rule(d, values, {prompt, steps});
            for (std::size_t t = 0; t < got.steps.size(); ++t) {
              const auto generated = static_cast<std::int64_t>(t) + 1;
              std::int64_t total = 0;
              CAPTURE(t);
              for (const HeadSelection& head : got.steps[t].heads) {
                const auto attended = static_cast<std::int64_t>(head.attended.size());
                CHECK(attended > 0);
                CHECK(attended <= prompt + generated);
                total += attended;
                if (!rule || rule->over != policy::BudgetRule::Over::kHead) continue;
                CHECK(attended <= rule->most(prompt, generated));
                CHECK(attended >= rule->least(prompt, generated));
              }
              // Budgets that layers share can only be judged by all of them together; shares of heads are rounded one
              // by one.
              if (!rule || rule->over != policy::BudgetRule::Over::kLayer) continue;
              const auto heads = static_cast<std::int64_t>(got.steps[t].heads.size());
              CHECK(total <= heads * (rule->most(prompt, generated) + 1));
              CHECK(total >= heads * (rule->least(prompt, generated) - 1));
            }
          });
}

TEST_CASE("the resident tokens follow from those before, the arrivals and the evictions") {
  for_all(kBudget,
          [](const policy::Descriptor& d, const auto& setting, const trace::Layer& layer, const Selected& got) {
            const bool on_cpu = reads_on_cpu(d, setting);  // some attended tokens stay in host memory
            for (std::size_t h = 0; h < got.resident.heads.size(); ++h) {
              const Positions& start = got.resident.heads[h].attended;
              std::set<std::int32_t> resident(start.begin(), start.end());
              for (std::size_t t = 0; t < got.steps.size(); ++t) {
                CAPTURE(h, t);
                const HeadSelection& head = got.steps[t].heads[h];
                resident.insert(static_cast<std::int32_t>(layer.info().prompt_tokens + static_cast<std::int64_t>(t)));
                for (const auto i : head.fetched) CHECK(resident.insert(i).second);  // no resident token arrives
                // A step reads tokens that were resident before it or arrived during it.
                if (!on_cpu)
                  CHECK(std::includes(resident.begin(), resident.end(), head.attended.begin(), head.attended.end()));
                for (const auto i : head.evicted) CHECK(resident.erase(i) == 1);  // only resident tokens are evicted
                const auto elsewhere = std::count_if(head.attended.begin(), head.attended.end(),
                                                     [&](std::int32_t i) { return !resident.contains(i); });
                if (on_cpu) {
                  CHECK(elsewhere == head.counts.cpu_attended);
                  CHECK(head.counts.attended == static_cast<std::int64_t>(resident.size()));
                }
              }
            }
          });
}

// Layers by their errors: some have less than a mean budget that covers all tokens.
bool by_errors(const policy::Descriptor& d, const std::string& setting) {
  return setting.find("layers: errors") != std::string::npos ||
         (d.name == "compresskv" && setting.find("layers: uniform") == std::string::npos);
}

TEST_CASE("a budget that covers all tokens is full attention") {
  // A budget of exactly the whole sequence, and a much larger one.
  const Profiles profiles;
  for (const TraceShape& shape : shapes()) {
    const MemoryTrace trace = random_trace(shape, 12);
    const auto layer = trace.load(0, 1);
    const Selected full = select("full", "", *layer);
    for (const policy::Descriptor& d : policy::all_policies()) {
      // Thresholds replace the budget of these; their limits are tested for each policy.
      if (!has_budget(small_settings(d, 1, ""))) continue;
      for (const std::int64_t budget : {shape.prompt + shape.steps, std::int64_t{100000}}) {
        for (const std::string& setting : settings_of(d, budget, profiles.of(shape))) {
          CAPTURE(d.name, setting, shape.prompt);
          if (!has_budget(setting) || (budget == shape.prompt + shape.steps && by_errors(d, setting))) continue;
          const auto policy = make(d.name, setting, {shape.prompt, shape.steps});
          const Selected got = select(*policy, *layer);
          const std::size_t per = got.steps[0].heads.size() / full.steps[0].heads.size();
          for (std::size_t t = 0; t < got.steps.size(); ++t) {
            for (std::size_t h = 0; h < got.steps[t].heads.size(); ++h) {
              CHECK(got.steps[t].heads[h].attended == full.steps[t].heads[h / per].attended);
              CHECK(got.steps[t].heads[h].fetched.empty());
            }
          }
          if (setting != small_settings(d, budget, profiles.of(shape))) continue;
          const auto growth = policy->growth({shape.prompt, shape.steps});
          const policy::HeadCounts later = policy::grown({}, growth, shape.prompt + 1, shape.prompt + shape.steps);
          CHECK(later.attended == shape.steps - 1);
          CHECK(later.scored == 0);
        }
      }
    }
  }
}

bool same(const policy::LayerSelection& a, const policy::LayerSelection& b) {
  if (a.heads.size() != b.heads.size() || a.per_query_head != b.per_query_head) return false;
  for (std::size_t h = 0; h < a.heads.size(); ++h) {
    const HeadSelection &x = a.heads[h], &y = b.heads[h];
    if (x.attended != y.attended || x.fetched != y.fetched || x.evicted != y.evicted) return false;
  }
  return true;
}

TEST_CASE("the same input gives the same selection, alone or together with other policies") {
  const Profiles profiles;
  for (const TraceShape& shape : shapes()) {
    const MemoryTrace trace = random_trace(shape, 13);
    const auto layer = trace.load(0, 1);
    const policy::LayerInput shared(*layer);  // results derived for other policies are reused
    for (const policy::Descriptor& d : policy::all_policies()) {
      for (const std::string& setting : settings_of(d, kBudget, profiles.of(shape))) {
        CAPTURE(d.name, setting, shape.prompt);
        const Selected alone = select(d.name, setting, *layer);
        const auto policy = make(d.name, setting, {shape.prompt, shape.steps});
        const auto selector = policy->selector(shared);
        policy::LayerSelection selection;
        selector->prefill(selection);
        CHECK(same(selection, alone.resident));
        for (int t = 0; t < shape.steps; ++t) {
          selector->step(t, selection);
          CHECK(same(selection, alone.steps[static_cast<std::size_t>(t)]));
        }
      }
    }
  }
}

TEST_CASE("a first stage keeps as many tokens as its memory counts") {
  for_all(kBudget, [](const policy::Descriptor& d, const auto& setting, const trace::Layer& layer, const Selected&) {
    if (!d.stages || setting.find("attention: cpu") != std::string::npos) return;
    if (setting.find("decode_eviction: true") != std::string::npos) return;  // cannot be a first stage
    const policy::Lengths lengths{layer.info().prompt_tokens, layer.info().decode_steps};
    const policy::ParameterValues values(d, config::parse_yaml("{" + setting + "}", d.name));
    const auto rule = policy::budget_rule(d, values, lengths);
    if (rule && rule->over != policy::BudgetRule::Over::kHead) return;  // heads differ, and mean_kept() counts them
    const policy::Stages stages = d.stages(values);
    const policy::LayerInput input(layer);
    const policy::LayerInput* const all[] = {&input};
    stages.first->survey(all, lengths);
    const auto lists = stages.first->keep(input, lengths);
    double kept = lists.empty() ? static_cast<double>(lengths.prompt_tokens) : 0;
    for (const auto& list : lists) kept += static_cast<double>(list.size()) / static_cast<double>(lists.size());
    CHECK(std::abs(kept - static_cast<double>(stages.first->kept(lengths))) <= 1);
  });
}

// Means over heads of the counts that grow with the context.
struct MeanCounts {
  double attended = 0, scored = 0;
};
MeanCounts mean_counts(const policy::LayerSelection& selection) {
  MeanCounts mean;
  for (const HeadSelection& head : selection.heads) {
    const auto heads = static_cast<double>(selection.heads.size());
    mean.attended += static_cast<double>(head.counts.attended) / heads;
    mean.scored += static_cast<double>(head.counts.scored) / heads;
  }
  return mean;
}

TEST_CASE("counts grow with the context as each policy states") {
  // The prompt fills the first budget. The second one is not full at the step 32, at which everything is attended to,
  // and full at the step 63.
  const auto [prompt, budget, later] =
      GENERATE(table<std::int64_t, std::int64_t, int>({{72, kBudget, 63}, {11, 48, 32}, {11, 48, 63}}));
  const Profiles profiles;
  const TraceShape shape{
      .kv_heads = 2, .group = 4, .head_dim = 8, .prompt = prompt, .steps = 64, .window = 99, .layers = {3}};
  const MemoryTrace trace = random_trace(shape, 11);
  const auto layer = trace.load(0, 1);
  for (const policy::Descriptor& d : policy::all_policies()) {
    for (const std::string& setting : settings_of(d, budget, profiles.of(shape))) {
      // The counts of these follow from thresholds, or from the kinds and budgets of other layers and heads.
      constexpr const char* kOthers[] = {"d2o",   "duo_attention", "squeezed_attention", "twilight", "infinigen",
                                         "kvzap", "blasst"};
      if (std::find(std::begin(kOthers), std::end(kOthers), d.name) != std::end(kOthers)) continue;
      CAPTURE(d.name, setting, prompt);
      const auto policy = make(d.name, setting, {shape.prompt, shape.steps});
      const Selected got = select(*policy, *layer);
      const MeanCounts first = mean_counts(got.steps.front()),
                       last = mean_counts(got.steps.at(static_cast<std::size_t>(later)));
      const policy::HeadCounts start{.attended = std::llround(first.attended), .scored = std::llround(first.scored)};
      const policy::HeadCounts more =
          policy::grown(start, policy->growth({prompt, shape.steps}), prompt + 1, prompt + 1 + later);
      CHECK(std::abs(last.attended - static_cast<double>(more.attended)) <= 8);
      if (budget > prompt) continue;  // some policies score no token until the budget is full
      CHECK(std::abs(last.scored - static_cast<double>(more.scored)) <= 8);
    }
  }
}

TEST_CASE("the bytes that the cost states are those that the selection implies") {
  for_all(
      kBudget, [](const policy::Descriptor& d, const auto& setting, const trace::Layer& layer, const Selected& got) {
        const trace::TraceInfo& info = layer.info();
        config::Model model;
        model.layers = 4, model.n_q_heads = info.n_q_heads, model.n_kv_heads = info.n_kv_heads,
        model.head_dim = info.head_dim;
        const auto policy = make(d.name, setting, {info.prompt_tokens, info.decode_steps});
        for (std::size_t t = 0; t < got.steps.size(); ++t) {
          std::vector<policy::HeadCounts> counts;
          double attended = 0, fetched = 0;
          for (const HeadSelection& head : got.steps[t].heads) {
            counts.push_back(head.counts);
            attended += static_cast<double>(head.attended.size()), fetched += static_cast<double>(head.fetched.size());
          }
          policy::Recorder ops;
          const policy::Sequence sequence{info.prompt_tokens + static_cast<std::int64_t>(t) + 1,
                                          {info.prompt_tokens, info.decode_steps}};
          policy->decode_layer({model, layer.id(), {&sequence, 1}, counts, got.steps[t].per_query_head}, ops);
          CAPTURE(t);
          const double pair = 2 * 2.0 * info.head_dim;  // key and value of one head, 2 bytes each
          if (reads_on_cpu(d, setting)) {
            // The GPU reads its static part, once a KV head; outputs come back: d elements, and a log-sum-exp of 4
            // bytes where they are merged with the GPU's.
            const double share = got.steps[t].per_query_head ? info.group() : 1;
            double on_gpu = 0;
            for (const policy::HeadCounts& c : counts) on_gpu += static_cast<double>(c.attended) / share;
            CHECK(ops.traffic().kv_read == on_gpu * pair);
            CHECK(ops.traffic().cpu_dram >= (attended - on_gpu * share) * pair);
            const double sum = d.name == "full" ? 0 : 4;
            if (on_gpu * share < attended) CHECK(ops.traffic().h2d >= info.n_q_heads * (2.0 * info.head_dim + sum));
            continue;
          }
          if (d.name == "kivi" || setting.find("quantisation: kivi") !=
                                      std::string::npos) {  // packed: less than in half precision once a pair is packed
            CHECK(ops.traffic().kv_read <= attended * pair * 1.01);
            continue;
          }
          if (d.name == "nsa") {  // runs in addition; blocks and window overlap, and half of the last block is full
            constexpr double kPage = 4;
            CHECK(ops.traffic().kv_read >= (attended - kPage * info.n_kv_heads) * pair);
            continue;
          }
          // Keys of skipped tiles are read, and so are masked pairs.
          if (d.name == "blasst" || setting.find("dropped: masked") != std::string::npos) {
            const double all = static_cast<double>(info.prompt_tokens + static_cast<std::int64_t>(t) + 1) * pair;
            const double heads = info.n_kv_heads * all;
            CHECK(ops.traffic().kv_read == Approx(d.name == "blasst" ? (heads + attended * pair) / 2 : heads));
            continue;
          }
          // RazorAttention's compensation pair replaces all dropped tokens, and represents none of them singly.
          const bool stand_in = declares(d, "compensation") && setting.find("compensation: false") == std::string::npos;
          if (stand_in) {
            CHECK(ops.traffic().kv_read >= attended * pair);
            CHECK(ops.traffic().kv_read <= (attended + static_cast<double>(counts.size())) * pair);
          } else {
            // Query heads that read everything from one cache share its pairs.
            const auto tokens = static_cast<std::size_t>(info.prompt_tokens) + t + 1;
            const bool all = std::ranges::all_of(got.steps[t].heads,
                                                 [&](const HeadSelection& h) { return h.attended.size() == tokens; });
            const bool shares = all && got.steps[t].per_query_head && d.category != policy::Category::kDrop;
            CHECK(ops.traffic().kv_read == attended * pair / (shares ? info.group() : 1));
          }
          const double brought = d.name == "shadowkv" ? pair / 2 : pair;  // keys are reconstructed, values are fetched
          CHECK(ops.traffic().h2d == fetched * brought);
        }
      });
}

}  // namespace
}  // namespace kvcast::tests
