// What must hold of every policy's selection, whatever the policy is.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "policy/recorder.hpp"
#include "settings.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

using policy::HeadSelection;
using Positions = std::vector<std::int32_t>;

// The last layer, which takes over another's choice where layers do. All prompt queries are there: some policies sum
// their weights.
const std::vector<TraceShape>& shapes() {
  static const std::vector<TraceShape> all = {
      {.kv_heads = 4,
       .group = 1,
       .head_dim = 8,
       .prompt = 61,
       .steps = 7,
       .window = 99,
       .layers = {3}},  // MHA; no page divides
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

// body(descriptor, setting, layer, selected) for every policy, setting and shape.
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

bool ascending_below(const Positions& list, std::int64_t end) {
  return std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end() &&
         (list.empty() || (list.front() >= 0 && list.back() < end));
}

TEST_CASE("lists are ascending, without repetition, and of the past") {
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

// The most that a head may attend to at step t under the policy's convention.
std::int64_t allowed(const policy::Descriptor& d, const std::string& setting, std::int64_t prompt, std::int64_t t) {
  constexpr std::int64_t budget = kBudget;
  const std::int64_t tokens = prompt + t + 1;
  if (!has_budget(setting) || budget >= tokens) return tokens;
  if (d.budget_convention.starts_with("traffic")) return prompt <= budget ? budget : budget / 2;
  const bool evicts_once = setting.find("decode_eviction: false") != std::string::npos;
  if (evicts_once || d.budget_convention.find(": of the prompt") != std::string::npos)
    return std::min(prompt, budget) + t + 1;
  if (d.budget_convention.find("budget + 1 tokens") != std::string::npos) return budget + 1;  // attends, then evicts
  if (d.budget_convention.find("budget + buffer tokens") != std::string::npos) return budget + 8;
  if (d.category == "retrieval (CPU)") {
    if (setting.find("rerank: false") != std::string::npos) return tokens;  // as many as were recalled
    const std::int64_t stay = setting.find("generated: gpu") != std::string::npos ? t + 1 : 0;
    return budget + 2 + 8 + stay;  // sink and window on the GPU
  }
  if (d.budget_convention.find("come beside them") != std::string::npos) {
    return budget + 8 * 4 + 32 + 3 + t + 1;  // 8 outlier chunks of 4, 32 local tokens and a part of a chunk, generated
  }
  if (d.budget_convention.find("come on top") != std::string::npos) return budget + 2 + 3;  // sink 2, pages of 4
  if (d.budget_convention.find("a page more") != std::string::npos) return budget + 3;      // pages of 4
  return budget;
}

TEST_CASE("no head attends to more than its budget allows") {
  for_all(kBudget,
          [](const policy::Descriptor& d, const auto& setting, const trace::Layer& layer, const Selected& got) {
            const bool dense = setting.find("first_dense_layers: 1") != std::string::npos;
            // Budgets that layers share can only be judged by all of them together.
            const bool by_layer = d.budget_convention.find("average over layers") != std::string::npos ||
                                  d.budget_convention.find("over all") != std::string::npos ||
                                  setting.find("layers: ") != std::string::npos;
            const bool by_head = d.budget_convention.find("average over the heads of a layer") != std::string::npos;
            for (std::size_t t = 0; t < got.steps.size(); ++t) {
              const std::int64_t most = allowed(d, setting, layer.info().prompt_tokens, static_cast<std::int64_t>(t));
              std::int64_t total = 0;
              CAPTURE(t);
              for (const HeadSelection& head : got.steps[t].heads) {
                CHECK_FALSE(head.attended.empty());
                total += static_cast<std::int64_t>(head.attended.size());
                if (!dense && !by_layer && !by_head) CHECK(static_cast<std::int64_t>(head.attended.size()) <= most);
              }
              // Shares of heads are rounded one by one.
              const auto heads = static_cast<std::int64_t>(got.steps[t].heads.size());
              if (!dense && by_head && !by_layer) CHECK(total <= heads * (most + 1));
            }
          });
}

TEST_CASE("what is resident follows from what was, what came and what went") {
  for_all(kBudget, [](const policy::Descriptor& d, const auto&, const trace::Layer& layer, const Selected& got) {
    const bool on_cpu = d.category == "retrieval (CPU)";  // some of what is attended to stays in host memory
    for (std::size_t h = 0; h < got.resident.heads.size(); ++h) {
      const Positions& start = got.resident.heads[h].attended;
      std::set<std::int32_t> resident(start.begin(), start.end());
      for (std::size_t t = 0; t < got.steps.size(); ++t) {
        CAPTURE(h, t);
        const HeadSelection& head = got.steps[t].heads[h];
        resident.insert(static_cast<std::int32_t>(layer.info().prompt_tokens + static_cast<std::int64_t>(t)));
        for (const auto i : head.fetched) CHECK(resident.insert(i).second);  // nothing comes that is there
        // A step reads what was there before it and what came during it.
        if (!on_cpu) CHECK(std::includes(resident.begin(), resident.end(), head.attended.begin(), head.attended.end()));
        for (const auto i : head.evicted) CHECK(resident.erase(i) == 1);  // nothing goes that is not there
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

TEST_CASE("a budget that covers all tokens is full attention") {
  // A budget of the whole sequence, to the token, and a much larger one.
  const Profiles profiles;
  for (const TraceShape& shape : shapes()) {
    const MemoryTrace trace = random_trace(shape, 12);
    const auto layer = trace.load(0, 1);
    const Selected full = select("full", "", *layer);
    for (const policy::Descriptor& d : policy::all_policies()) {
      if (!has_budget(small_settings(d, 1, ""))) continue;  // thresholds instead: their limits are tested by policy
      for (const std::int64_t budget : {shape.prompt + shape.steps, std::int64_t{100000}}) {
        for (const std::string& setting : settings_of(d, budget, profiles.of(shape))) {
          CAPTURE(d.name, setting, shape.prompt);
          const auto policy = make(d.name, setting, {shape.prompt, shape.steps});
          const Selected got = select(*policy, *layer);
          const std::size_t per = got.steps[0].heads.size() / full.steps[0].heads.size();
          for (std::size_t t = 0; t < got.steps.size(); ++t) {
            for (std::size_t h = 0; h < got.steps[t].heads.size(); ++h) {
              CHECK(got.steps[t].heads[h].attended == full.steps[t].heads[h / per].attended);
              CHECK(got.steps[t].heads[h].fetched.empty());
            }
          }
          if (setting == small_settings(d, budget, profiles.of(shape))) CHECK(policy->growth().attended == 1);
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

TEST_CASE("the same input gives the same selection, alone or beside other policies") {
  const Profiles profiles;
  for (const TraceShape& shape : shapes()) {
    const MemoryTrace trace = random_trace(shape, 13);
    const auto layer = trace.load(0, 1);
    const policy::LayerInput shared(*layer);  // what others derived is used again
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

TEST_CASE("bytes that the cost states are bytes that the selection implies") {
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
          policy->decode_layer({&model, layer.id(), 1, info.prompt_tokens + static_cast<std::int64_t>(t) + 1, counts,
                                got.steps[t].per_query_head},
                               ops);
          CAPTURE(t);
          const double pair = 2 * 2.0 * info.head_dim;  // key and value of one head, 2 bytes each
          if (d.category == "retrieval (CPU)") {
            // The GPU reads its static part, once a KV head; outputs come back: d elements and a log-sum-exp of 4
            // bytes.
            const double share = got.steps[t].per_query_head ? info.group() : 1;
            double on_gpu = 0;
            for (const policy::HeadCounts& c : counts) on_gpu += static_cast<double>(c.attended) / share;
            CHECK(ops.traffic().kv_read == on_gpu * pair);
            CHECK(ops.traffic().cpu_dram >= (attended - on_gpu * share) * pair);
            if (on_gpu * share < attended) CHECK(ops.traffic().h2d >= info.n_q_heads * (2.0 * info.head_dim + 4));
            continue;
          }
          if (d.name == "kivi" || setting.find("quantisation: kivi") !=
                                      std::string::npos) {  // packed: less than in half precision once something is
            CHECK(ops.traffic().kv_read <= attended * pair * 1.01);
            continue;
          }
          // RazorAttention's compensation pair stands for all dropped tokens and for none of them.
          const bool stand_in = declares(d, "compensation") && setting.find("compensation: false") == std::string::npos;
          if (stand_in) {
            CHECK(ops.traffic().kv_read >= attended * pair);
            CHECK(ops.traffic().kv_read <= (attended + static_cast<double>(counts.size())) * pair);
          } else {
            CHECK(ops.traffic().kv_read == attended * pair);
          }
          const double brought = d.name == "shadowkv" ? pair / 2 : pair;  // keys are rebuilt, values come
          CHECK(ops.traffic().h2d == fetched * brought);
        }
      });
}

}  // namespace
}  // namespace kvcast::tests
