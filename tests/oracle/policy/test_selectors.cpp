// Double Sparsity, InfLLM-V2, SeerAttention-R, Twilight, OmniKV and RetroInfer by their definitions: double precision,
// full sorts, no shared state.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <iterator>
#include <set>

#include "compare.hpp"
#include "naive_parts.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {
namespace {

using naive::at;
using naive::Heads;
using naive::Matrix;
using naive::Positions;
using naive::Steps;
using naive::Vector;

// choose(KV head, step, tokens) for every KV head of every step.
template <typename Choose>
Steps for_heads(const trace::Layer& layer, const Heads& resident, const Choose& choose) {
  return naive::by_step(layer, resident, [&](int t) {
    Heads out;
    for (int h = 0; h < layer.info().n_kv_heads; ++h) choose(h, t, layer.info().prompt_tokens + t + 1, out);
    return out;
  });
}

Heads whole_prompt(const trace::Layer& layer, int lists) {
  return Heads(at(lists), naive::range(0, layer.info().prompt_tokens));
}

Vector products(const trace::Layer& layer, int head, const Vector& query, const Positions& tokens) {
  Vector out;
  for (const auto i : tokens) out.push_back(naive::product(query, naive::key(layer, head, i)));
  return out;
}

// To `bits` bits between the least and the largest number, in single precision as policies round.
Vector rounded(const Vector& x, int bits) {
  const auto low = static_cast<float>(*std::min_element(x.begin(), x.end()));
  const auto high = static_cast<float>(*std::max_element(x.begin(), x.end()));
  const float step = (high - low) / static_cast<float>((1 << bits) - 1);
  Vector out;
  for (const double v : x)
    out.push_back(static_cast<double>(std::nearbyint((static_cast<float>(v) - low) / step) * step + low));
  return out;
}

TEST_CASE("double sparsity ranks by a few channels in few bits") {
  for_random_layers(6, 51, [](const trace::Layer& layer) {
    const auto& info = layer.info();
    for (const std::string on : {"qk", "q", "k"}) {
      for (const std::string group : {"per_head", "sum_scores", "max_weights"}) {
        for (const int bits : {4, 16}) {
          CAPTURE(on, group, bits);
          const auto channels = [&](int head) {
            Vector heavy(at(info.head_dim));
            for (std::size_t j = 0; j < heavy.size(); ++j) {
              double k = 0, q = 0, both = 0;
              for (std::int64_t i = 0; i < info.prompt_tokens; ++i) k += std::abs(naive::key(layer, head, i)[j]);
              for (int g = 0; g < info.group(); ++g) {
                const MatrixView rows = layer.queries(head * info.group() + g);
                for (std::int64_t i = 1; i <= 4; ++i) {
                  const double x = rows.row(at(info.prompt_queries() - i))[j];
                  q += std::abs(x), both += std::abs(x * naive::key(layer, head, info.prompt_tokens - i)[j]);
                }
              }
              heavy[j] = on == "qk" ? both : on == "q" ? q : k;
            }
            return naive::best(heavy, 3);
          };
          const auto label = [&](const Vector& x, const Positions& of) {
            Vector out;
            for (const auto j : of) out.push_back(x[at(j)]);
            return bits < 16 ? rounded(out, bits) : out;
          };
          const bool per_head = group == "per_head";
          const Steps wanted =
              for_heads(layer, whole_prompt(layer, per_head ? info.n_q_heads : info.n_kv_heads),
                        [&](int h, int t, std::int64_t n, Heads& out) {
                          const Positions of = channels(h);
                          const auto score = [&](const Vector& q) {
                            Vector x;
                            for (std::int64_t i = 0; i < n; ++i) {
                              x.push_back(naive::product(label(q, of), label(naive::key(layer, h, i), of)));
                            }
                            return x;
                          };
                          const Matrix queries = naive::queries(layer, h, t);
                          if (!per_head) {
                            out.push_back(naive::best(naive::agree(queries, group, 1 / std::sqrt(3.0), score), 12));
                            return;
                          }
                          for (const Vector& q : queries) out.push_back(naive::best(score(q), 12));
                        });
          compare(select("double_sparsity",
                         fmt::format("budget: 12, channels: 3, label_bits: {}, calibrate_on: {}, window: 4, group: {}",
                                     bits, on, group),
                         layer),
                  wanted);
        }
      }
    }
  });
}

struct Blocks {
  std::int64_t page = 4, sink = 0, recent = 0, kernel = 4, stride = 2, dense = 0;
};

Positions infllm(const trace::Layer& layer, int head, int t, std::int64_t n, const Blocks& s) {
  if (n <= std::max<std::int64_t>(24, s.dense)) return naive::range(0, n);
  Matrix means;
  std::vector<std::int64_t> starts;
  for (std::int64_t first = 0; first + s.kernel <= n; first += s.stride) {
    Vector mean(at(layer.info().head_dim));
    for (std::int64_t i = first; i < first + s.kernel; ++i) {
      const Vector key = naive::key(layer, head, i);
      for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += key[j] / static_cast<double>(s.kernel);
    }
    means.push_back(mean), starts.push_back(first);
  }
  const Vector scores =
      naive::agree(naive::queries(layer, head, t), "sum_weights", naive::root(layer), [&](const Vector& q) {
        Vector x;
        for (const Vector& mean : means) x.push_back(naive::product(q, mean));
        return x;
      });
  const std::vector<Positions> pages = naive::paged(naive::range(0, n), s.page);
  const auto all = static_cast<std::int64_t>(pages.size());
  Vector of_pages(pages.size(), -1);
  for (std::size_t b = 0; b < pages.size(); ++b) {
    for (std::size_t m = 0; m < means.size(); ++m) {
      if (starts[m] <= pages[b].back() && starts[m] + s.kernel > pages[b].front())
        of_pages[b] = std::max(of_pages[b], scores[m]);
    }
    // A page that is not full has its end where a full one would.
    if (static_cast<std::int64_t>(b) * s.page < s.sink) of_pages[b] = 1e30;
    if (static_cast<std::int64_t>(b) >= all - (s.recent + s.page - 1) / s.page - 1) of_pages[b] = 1e30;
  }
  Positions out;
  for (const auto b : naive::best(of_pages, 24 / s.page)) naive::add(out, pages[at(b)]);
  return out;
}

TEST_CASE("infllm_v2 reads the blocks that mean keys point to") {
  for_random_layers(6, 51, [](const trace::Layer& layer) {
    for (const Blocks& s :
         {Blocks{}, Blocks{.sink = 3, .recent = 8}, Blocks{.page = 6, .recent = 6, .kernel = 5, .stride = 3},
          Blocks{.page = 3, .sink = 4, .kernel = 7, .stride = 1}, Blocks{.recent = 4, .dense = 66}}) {
      CAPTURE(s.page, s.sink, s.kernel);
      const Steps wanted =
          for_heads(layer, whole_prompt(layer, layer.info().n_kv_heads),
                    [&](int h, int t, std::int64_t n, Heads& out) { out.push_back(infllm(layer, h, t, n, s)); });
      compare(select("infllm_v2",
                     fmt::format("budget: 24, page: {}, sink: {}, recent: {}, kernel: {}, stride: {}, dense_below: {}",
                                 s.page, s.sink, s.recent, s.kernel, s.stride, s.dense),
                     layer),
              wanted);
    }
  });
}

TEST_CASE("seer_attention reads the blocks of the largest weights") {
  for_random_layers(6, 51, [](const trace::Layer& layer) {
    for (const auto& [page, threshold] : {std::pair(4, 0.0), {5, 0.0}, {4, 0.06}, {1, 0.03}}) {
      CAPTURE(page, threshold);
      const Steps wanted =
          for_heads(layer, whole_prompt(layer, layer.info().n_kv_heads), [&](int h, int t, std::int64_t n, Heads& out) {
            if (n <= 20 && threshold == 0) return out.push_back(naive::range(0, n));
            const std::vector<Positions> pages = naive::paged(naive::range(0, n), page);
            Vector scores(pages.size());
            for (const Vector& q : naive::queries(layer, h, t)) {
              const Vector weights = naive::softmax_of(products(layer, h, q, naive::range(0, n)), naive::root(layer));
              for (std::size_t i = 0; i < weights.size(); ++i) {
                double& best = scores[i / at(page)];
                best = std::max(best, weights[i]);
              }
            }
            double sum = 0;
            for (const double x : scores) sum += x;
            const auto last = static_cast<std::int32_t>(pages.size()) - 1;
            Positions tokens;
            for (const auto b : naive::best(scores, 20 / page)) {
              if (b != last && scores[at(b)] > threshold * sum) naive::add(tokens, pages[at(b)]);
            }
            naive::add(tokens, pages.back());
            out.push_back(tokens);
          });
      compare(select("seer_attention", fmt::format("budget: 20, page: {}, threshold: {}", page, threshold), layer),
              wanted);
    }
  });
}

TEST_CASE("twilight takes the fewest tokens that make up its share") {
  for_random_layers(6, 51, [](const trace::Layer& layer) {
    const auto& info = layer.info();
    for (const std::string group : {"per_head", "sum_scores"}) {
      for (const auto& [p, bits] : {std::pair(0.85, 4), {0.3, 8}, {0.0, 4}}) {
        CAPTURE(group, p, bits);
        const Steps chosen = naive::exact_topk(layer, 14, group);
        Steps wanted = chosen;
        for (int t = 0; t < info.decode_steps; ++t) {
          for (std::size_t list = 0; list < chosen.attended[at(t)].size(); ++list) {
            const Positions& tokens = chosen.attended[at(t)][list];
            const int each = group == "per_head" ? 1 : info.group();
            std::set<std::int32_t> taken;
            for (int g = 0; g < each; ++g) {
              const int q_head = static_cast<int>(list) * each + g;
              const int head = q_head / info.group();
              const Vector query = naive::queries(layer, head, t)[at(q_head % info.group())];
              Vector logits;
              for (const auto i : tokens)
                logits.push_back(naive::product(query, rounded(naive::key(layer, head, i), bits)));
              const Vector weights = naive::softmax_of(logits, naive::root(layer));
              std::int64_t count = 0;
              double sum = 0;
              do {
                sum = 0;
                for (const auto i : naive::best(weights, ++count)) sum += weights[at(i)];
              } while (sum < p);
              for (const auto i : naive::best(weights, count)) taken.insert(tokens[at(i)]);
            }
            wanted.attended[at(t)][list] = {taken.begin(), taken.end()};
          }
        }
        compare(select("twilight",
                       fmt::format("p: {}, bits: {}, selector: {{name: exact_topk, budget: 14, group: {}}}", p, bits,
                                   group),
                       layer),
                wanted);
      }
    }
  });
}

TEST_CASE("omnikv's layers read the tokens that their filter layer chose") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .prompt = 50, .steps = 6, .layers = {0, 2, 3, 5}, .n_layers = 8};
  // Filters 1, 3 and 5. The trace lacks layer 1, and 0 is the first of its neighbours: 0 and 2 choose for each other.
  const std::vector<std::pair<std::size_t, std::size_t>> sources = {{0, 1}, {1, 0}, {2, 2}, {3, 3}};
  for (const std::string group : {"max_weights", "max_scores"}) {
    const MemoryTrace trace = random_trace(shape, 61);
    std::vector<std::unique_ptr<trace::Layer>> layers;
    std::vector<std::unique_ptr<policy::LayerInput>> inputs;
    std::vector<const policy::LayerInput*> views;
    for (std::size_t i = 0; i < shape.layers.size(); ++i) {
      layers.push_back(trace.load(i, 1));
      views.push_back(inputs.emplace_back(std::make_unique<policy::LayerInput>(*layers.back())).get());
    }
    const auto policy = make("omnikv", "budget: 9, first_filter: 1, group: " + group, {shape.prompt, shape.steps});
    policy->survey(views, {shape.prompt, shape.steps});
    for (const auto& [layer, source] : sources) {
      CAPTURE(group, layer);
      const auto selector = policy->selector(*views[layer]);
      policy::LayerSelection step;
      selector->prefill(step);
      CHECK(step.heads[0].attended.empty());
      for (int t = 0; t < shape.steps; ++t) {
        selector->step(t, step);
        Vector best(at(shape.prompt), -1e30);
        for (int h = 0; h < shape.kv_heads; ++h) {
          for (const Vector& q : naive::queries(*layers[source], h, t)) {
            Vector x = products(*layers[source], h, q, naive::range(0, shape.prompt));
            if (group == "max_weights") x = naive::softmax_of(x, naive::root(*layers[source]));
            for (std::size_t i = 0; i < x.size(); ++i) best[i] = std::max(best[i], x[i]);
          }
        }
        const Positions chosen = naive::best(best, 9);
        Positions wanted = chosen;
        naive::add(wanted, naive::range(shape.prompt, shape.prompt + t + 1));
        for (const auto& head : step.heads) {
          CHECK(head.attended == wanted);
          CHECK(head.fetched == chosen);
          CHECK(head.evicted == chosen);
        }
      }
    }
  }
}

// softmax over the tokens of q·k/√d, times their values.
Vector attention(const trace::Layer& layer, int head, const Vector& query, const Positions& tokens) {
  const Vector weights = naive::softmax_of(products(layer, head, query, tokens), naive::root(layer));
  Vector out(query.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Vector value = naive::row(layer.values(head).row(at(tokens[i])), layer.info().head_dim);
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += weights[i] * value[j];
  }
  return out;
}

TEST_CASE("with clusters of one token, retroinfer's estimates are exact and its cache keeps the tokens read last") {
  for_random_layers(6, 51, [](const trace::Layer& layer) {
    const auto& info = layer.info();
    const std::int64_t end = info.prompt_tokens - 5, n = end - 2;  // 2 first and 5 last tokens stay
    const auto share = [&](double x) { return std::int64_t{std::llround(x * static_cast<double>(n))}; };
    const auto policy =
        make("retroinfer", "sink: 2, recent: 5, cluster_tokens: 1, retrieved: 0.15, estimated: 0.3, cache: 0.4",
             {info.prompt_tokens, info.decode_steps});
    const policy::LayerInput input(layer);
    const auto selector = policy->selector(input);
    policy::LayerSelection step;
    selector->prefill(step);
    std::vector<std::vector<std::int64_t>> used(at(info.n_kv_heads), std::vector<std::int64_t>(at(n), -1));
    std::vector<std::set<std::int32_t>> cached(at(info.n_kv_heads));
    for (int t = 0; t < info.decode_steps; ++t) {
      CAPTURE(t);
      selector->step(t, step);
      for (int h = 0; h < info.n_kv_heads; ++h) {
        const Matrix queries = naive::queries(layer, h, t);
        const Vector scores = naive::agree(queries, "sum_weights", naive::root(layer), [&](const Vector& q) {
          return products(layer, h, q, naive::range(2, end));
        });
        Positions read = naive::range(0, 2), all = read, chosen, missing;
        for (const auto i : naive::best(scores, share(0.15))) chosen.push_back(i + 2);
        naive::add(read, chosen);
        naive::add(read, naive::range(end, info.prompt_tokens + t + 1));
        for (const auto i : naive::best(scores, share(0.15) + share(0.3))) all.push_back(i + 2);
        naive::add(all, naive::range(end, info.prompt_tokens + t + 1));
        const auto& got = step.heads[at(h)];
        CHECK(got.attended == read);
        std::set<std::int32_t>& cache = cached[at(h)];
        std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(missing),
                     [&](auto i) { return !cache.contains(i); });
        CHECK(got.fetched == missing);
        cache.insert(missing.begin(), missing.end());
        for (const auto i : chosen) used[at(h)][at(i - 2)] = t;
        // Only tokens that no longer fit are evicted, and none of them was read later than one that stays.
        const auto slots = std::max(chosen.size(), at(share(0.4)));
        CHECK(got.evicted.size() == cache.size() - std::min(cache.size(), slots));
        for (const auto i : got.evicted) CHECK(cache.erase(i) == 1);
        for (const auto gone : got.evicted) {
          for (const auto i : cache) CHECK(used[at(h)][at(i - 2)] >= used[at(h)][at(gone - 2)]);
        }
        for (int g = 0; g < info.group(); ++g) {
          const Vector wanted = attention(layer, h, queries[at(g)], all);
          const std::span<const float> output = selector->output(h * info.group() + g);
          REQUIRE(output.size() == wanted.size());
          for (std::size_t j = 0; j < wanted.size(); ++j) {
            CHECK(static_cast<double>(output[j]) == Approx(wanted[j]).margin(2e-5).epsilon(2e-4));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace kvcast::tests
