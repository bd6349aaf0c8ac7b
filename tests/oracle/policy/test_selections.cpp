// Compares every policy's selections, position by position, with a slow and obvious implementation of the same rule.
#include <algorithm>
#include <catch2/catch.hpp>
#include <list>
#include <set>

#include "compare.hpp"
#include "naive.hpp"
#include "naive_parts.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

struct Case {
  const char* name;
  TraceShape shape;
  Grain grain = Grain::kSingle;
};

// Many and few heads, prompts shorter than the budgets below, one step, lengths that are not multiples of a page,
// half-precision inputs.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"MHA", {.kv_heads = 4, .group = 1, .head_dim = 8, .prompt = 61, .steps = 6, .window = 8}},
      {"GQA 4", {.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 70, .steps = 9, .window = 8}},
      {"GQA 8", {.kv_heads = 1, .group = 8, .head_dim = 16, .prompt = 53, .steps = 5, .window = 8}},
      {"short prompt", {.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 9, .steps = 30, .window = 8}},
      {"one step", {.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 64, .steps = 1, .window = 8}},
      {"one token", {.kv_heads = 1, .group = 2, .head_dim = 8, .prompt = 1, .steps = 28, .window = 1}},
      {"many pages", {.kv_heads = 1, .group = 2, .head_dim = 8, .prompt = 160, .steps = 20, .window = 16}},
      {"half precision",
       {.kv_heads = 2, .group = 4, .head_dim = 16, .prompt = 80, .steps = 6, .window = 8},
       Grain::kHalf},
      {"ties", {.kv_heads = 2, .group = 1, .head_dim = 4, .prompt = 90, .steps = 8, .window = 8}, Grain::kQuarters},
  };
  return all;
}

// Runs body(layer) for every case and two seeds.
template <typename Body>
void for_cases(const Body& body) {
  for (const Case& c : cases()) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      CAPTURE(c.name, seed);
      const MemoryTrace trace = random_trace(c.shape, seed, c.grain);
      const auto layer = trace.load(0, 1);
      body(*layer, c);
    }
  }
}

// A sum of softmax weights rounds differently in single and double precision, which can resolve exact ties differently.
bool settles_ties(const Case& c, const std::string& group) {
  return c.grain != Grain::kQuarters || group == "per_head" || group.ends_with("scores") || group.ends_with("query");
}

constexpr const char* kGroups[] = {"per_head",     "sum_scores",  "mean_scores", "max_scores", "sum_weights",
                                   "mean_weights", "max_weights", "mean_query",  "max_query"};

TEST_CASE("full attends to everything") {
  for_cases([](const trace::Layer& layer, const Case&) { compare(select("full", "", layer), naive::full(layer)); });
}

TEST_CASE("exact_topk selects the same tokens as a full sort") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    for (const std::string group : kGroups) {
      if (!settles_ties(c, group)) continue;
      for (const std::int64_t budget : {1, 24}) {
        CAPTURE(group, budget);
        compare(select("exact_topk", fmt::format("budget: {}, group: {}", budget, group), layer),
                naive::exact_topk(layer, budget, group));
      }
      for (const naive::Always& always : {naive::Always{3, 0}, {0, 4}, {5, 6}, {12, 12}}) {
        CAPTURE(group, always.sink, always.recent);
        compare(select("exact_topk",
                       fmt::format("budget: 24, group: {}, sink: {}, recent: {}", group, always.sink, always.recent),
                       layer),
                naive::exact_topk(layer, 24, group, always));
      }
    }
  });
}

// Returns for each step the best tokens by the sum of the weights of all query heads.
std::vector<naive::Positions> indexed(const trace::Layer& layer, std::int64_t budget) {
  const trace::TraceInfo& info = layer.info();
  std::vector<naive::Positions> out;
  for (int t = 0; t < info.decode_steps; ++t) {
    naive::Vector sum(static_cast<std::size_t>(info.prompt_tokens + t + 1));
    for (int h = 0; h < info.n_kv_heads; ++h) {
      for (const naive::Vector& q : naive::queries(layer, h, t)) {
        naive::Vector x;
        for (std::size_t i = 0; i < sum.size(); ++i) {
          x.push_back(naive::product(q, naive::key(layer, h, static_cast<std::int64_t>(i))));
        }
        const naive::Vector weights = naive::softmax_of(x, naive::root(layer));
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += weights[i];
      }
    }
    out.push_back(naive::best(sum, budget));
  }
  return out;
}

TEST_CASE("dsa selects by all heads' summed weights, and hisparse fetches the tokens that its buffer lacks") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    if (!settles_ties(c, "sum_weights")) return;
    const auto& info = layer.info();
    for (const std::int64_t budget : {1, 24}) {
      CAPTURE(budget);
      const std::vector<naive::Positions> wanted = indexed(layer, budget);
      const std::int64_t size = budget + 5;
      const Selected dsa = select("dsa", fmt::format("budget: {}", budget), layer);
      const Selected got = select("hisparse", fmt::format("budget: {}, spare: 5", budget), layer);
      for (std::size_t t = 0; t < wanted.size(); ++t) {
        for (const auto& head : dsa.steps[t].heads) CHECK(head.attended == wanted[t]);
      }
      if (budget >= info.positions()) continue;
      for (int h = 0; h < info.n_kv_heads; ++h) {
        const auto head = static_cast<std::size_t>(h);
        std::list<std::int32_t> buffer;  // least recently used in front
        for (std::int64_t i = 0; i < std::min(info.prompt_tokens, size); ++i) {
          buffer.push_back(static_cast<std::int32_t>(i));
        }
        CHECK(got.resident.heads[head].attended == naive::Positions(buffer.begin(), buffer.end()));
        for (std::size_t t = 0; t < got.steps.size(); ++t) {
          CAPTURE(h, t);
          const auto newest = static_cast<std::int32_t>(info.prompt_tokens) + static_cast<std::int32_t>(t);
          std::set<std::int32_t> used(wanted[t].begin(), wanted[t].end());
          naive::Positions fetched;
          for (const std::int32_t i : wanted[t]) {
            if (i != newest && std::find(buffer.begin(), buffer.end(), i) == buffer.end()) fetched.push_back(i);
          }
          // The newest token joins the buffer only as long as every token fits into it.
          newest < size ? void(used.insert(newest)) : void(used.erase(newest));
          buffer.remove_if([&](std::int32_t i) { return used.contains(i); });
          buffer.insert(buffer.end(), used.begin(), used.end());  // in order of position among those of one step
          while (static_cast<std::int64_t>(buffer.size()) > size) buffer.pop_front();
          CHECK(got.steps[t].heads[head].attended == wanted[t]);
          CHECK(got.steps[t].heads[head].fetched == fetched);
        }
      }
    }
  });
}

TEST_CASE("streaming_llm keeps the sink and the window") {
  for_cases([](const trace::Layer& layer, const Case&) {
    for (const auto& [sink, recent] : {std::pair{4, 12}, {0, 5}, {3, 0}, {0, 1}, {20, 20}}) {
      CAPTURE(sink, recent);
      compare(select("streaming_llm", fmt::format("sink: {}, recent: {}", sink, recent), layer),
              naive::streaming_llm(layer, sink, recent));
    }
  });
}

TEST_CASE("snapkv keeps the tokens with the largest pooled attention of the window") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    if (c.grain == Grain::kQuarters) return;
    for (const naive::Window& w : {naive::Window{8, "max", 7, "sum_weights"},
                                   {3, "avg", 5, "mean_weights"},
                                   {1, "max", 1, "max_weights"},
                                   {8, "avg", 63, "per_head"},
                                   {5, "max", 3, "per_head"}}) {
      for (const std::int64_t budget : {8, 20, 48}) {
        CAPTURE(w.window, w.pool, w.kernel, w.group, budget);
        compare(select("snapkv",
                       fmt::format("budget: {}, window: {}, pool: {}, pool_kernel: {}, group: {}", budget, w.window,
                                   w.pool, w.kernel, w.group),
                       layer),
                naive::snapkv(layer, budget, w));
      }
    }
  });
}

TEST_CASE("quest reads the pages of the highest bounds") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    for (const std::string group : kGroups) {
      if (!settles_ties(c, group)) continue;
      for (const std::int64_t page : {1, 7}) {
        for (const bool force : {false, true}) {
          CAPTURE(group, page, force);
          compare(
              select("quest", fmt::format("budget: 24, page: {}, group: {}, force_last_page: {}", page, group, force),
                     layer),
              naive::quest(layer, 24, page, 24 / page, group, {0, force ? 1 : 0}));
        }
        for (const naive::Always& always : {naive::Always{3, 0}, {0, 2}, {7, 1}, {4, 6}}) {
          CAPTURE(group, page, always.sink, always.recent);
          compare(select("quest",
                         fmt::format("budget: 24, page: {}, group: {}, sink: {}, recent: {}", page, group, always.sink,
                                     always.recent),
                         layer),
                  naive::quest(layer, 24, page, 24 / page, group, always));
        }
      }
    }
  });
}

TEST_CASE("quest follows the traffic convention") {
  for_cases([](const trace::Layer& layer, const Case&) {
    const std::int64_t bound = layer.info().prompt_tokens + layer.info().decode_steps;
    for (const std::int64_t budget : {5, 17, 30}) {
      CAPTURE(budget);
      const std::int64_t page = std::max<std::int64_t>(1, (bound + budget - 1) / budget), pages = budget / 2 / page;
      const std::string config = fmt::format("budget: {}, budget_convention: traffic", budget);
      const auto cut = naive::quest_tokens(layer, budget, page, budget / 2);
      compare(select("quest", config + "_tokens", layer), cut);
      // Whole pages, or the first tokens of the best one if half of the budget is less than a page.
      compare(select("quest", config, layer), pages > 0 ? naive::quest(layer, budget, page, pages, "sum_scores") : cut);
    }
  });
}

TEST_CASE("hsa takes the tokens of the best estimates") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    const std::int64_t bound = layer.info().prompt_tokens + layer.info().decode_steps;
    for (const std::string group :
         {"mean_weights", "sum_weights", "max_weights", "sum_scores", "mean_scores", "max_scores"}) {
      if (!settles_ties(c, group)) continue;
      for (const std::int64_t budget : {2, 9, 24}) {
        for (const bool plain : {false, true}) {
          CAPTURE(group, budget, plain);
          naive::Hsa s;
          s.budget = budget, s.length = bound;
          s.ratio = std::max(1.0, static_cast<double>(bound) / static_cast<double>(budget));
          s.group = group, s.nearest = plain, s.correction = !plain, s.zero_is_max = plain;
          compare(select("hsa",
                         fmt::format("budget: {}, group: {}, dims_rounding: {}, norm_correction: {}, zero_sign: {}",
                                     budget, group, plain ? "nearest" : "down", !plain, plain ? "max" : "min"),
                         layer),
                  naive::hsa(layer, s));
        }
      }
    }
  });
}

TEST_CASE("rocketkv evicts, then retrieves from the remaining tokens") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    if (c.grain == Grain::kQuarters) return;
    const int steps = layer.info().decode_steps;
    for (const double split : {-1.0, 0.0, 0.3, 0.7, 1.0}) {
      for (const std::int64_t budget : {12, 30}) {
        for (const std::int64_t max_new : {0, 3, steps}) {
          for (const bool mt : {false, true}) {
            CAPTURE(split, budget, max_new, mt);
            const naive::Window w{4, "max", 5, "sum_weights"};
            const std::string r = split < 0 ? "adaptive" : fmt::format("{}", split);
            compare(select(mt ? "rocketkv_mt" : "rocketkv",
                           fmt::format("budget: {}, split_factor: {}, max_new_tokens: {}, window: 4, pool_kernel: 5",
                                       budget, r, max_new),
                           layer),
                    naive::rocketkv(layer, budget, max_new, split, w, mt));
          }
        }
      }
    }
  });
}

TEST_CASE("arkvale's page cache contains the pages that recalls and evictions leave") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    for (const bool whole : {true, false}) {
      for (const std::string group : {"mean_scores", "max_scores", "mean_weights"}) {
        if (!settles_ties(c, group)) continue;
        for (const naive::ArkVale& s : {naive::ArkVale{24, 4, 3, 0, 0},
                                        {24, 4, 32, 4, 8},
                                        {20, 4, 3, 4, 4},
                                        {35, 7, 1, 0, 10},
                                        {12, 1, 6, 2, 3},
                                        {30, 7, 1, 0, 0, false}}) {
          CAPTURE(whole, group, s.budget, s.page, s.topk, s.sink, s.recent);
          naive::ArkVale setting = s;
          setting.layer = whole, setting.group = group;
          compare(select("arkvale",
                         fmt::format(
                             "budget: {}, page: {}, topk: {}, sink: {}, recent: {}, selection_heads: {}, group: {}, "
                             "summary: {}",
                             s.budget, s.page, s.topk, s.sink, s.recent, whole ? "layer" : "kv_head", group,
                             s.cuboid ? "cuboid_mean" : "min_max"),
                         layer),
                  naive::arkvale(layer, setting));
        }
      }
    }
  });
}

TEST_CASE("freekv attends to the last step's selection, corrected for heads whose query turned") {
  for_cases([](const trace::Layer& layer, const Case& c) {
    for (const std::string group : {"mean_weights", "max_weights", "mean_scores", "mean_query", "max_query"}) {
      if (!settles_ties(c, group)) continue;
      for (const naive::FreeKv& s : {naive::FreeKv{24, 4, 0, 0, 0.9},
                                     {24, 4, 3, 8, 0.8},
                                     {33, 7, 5, 7, 0.95},
                                     {20, 4, 4, 4, 0.9, false},
                                     {20, 4, 4, 4, 0.9, true, false},
                                     {16, 1, 2, 5, 0.9},
                                     {26, 8, 0, 8, 0.9, true, true, true},
                                     {24, 4, 0, 0, 0.9, true, true, false, false, true},
                                     {24, 4, 3, 8, 0.8, true, true, false, true, false},
                                     {20, 2, 0, 4, 0.6, true, true, false, true, true}}) {
        CAPTURE(group, s.budget, s.page, s.sink, s.recent, s.tau, s.speculation, s.correction);
        naive::FreeKv setting = s;
        setting.group = group;
        compare(
            select("freekv",
                   fmt::format("budget: {}, page: {}, sink: {}, recent: {}, tau: {}, speculation: {}, correction: {}, "
                               "group: {}, summary: {}, identify: {}, correct: {}",
                               s.budget, s.page, s.sink, s.recent, s.tau, s.speculation, s.correction, group,
                               s.cuboid ? "cuboid_mean" : "min_max", s.pages ? "pages" : "queries",
                               s.layer ? "layer" : "head"),
                   layer),
            naive::freekv(layer, setting));
      }
    }
  });
}

}  // namespace
}  // namespace kvcast::tests
