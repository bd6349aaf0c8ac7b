// Synthetic heads attend like heads of trained models. Means over seeds and heads are compared with a margin for random
// variation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "synth/synthetic.hpp"
#include "trace/statistics.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

struct Sample {
  HeadKind kind;
  HeadStatistics head;
  double distinct = 0;  // rank correlation (Spearman) of a key's score with its cosine to the mean key
};

SynthShape llama(std::int64_t prompt_tokens, std::uint64_t seed) {
  SynthShape shape;
  shape.model = "llama-3.1-8b";
  shape.rope.theta = 500000;
  shape.rope.scaling = config::Rope::Scaling::kLlama3;
  shape.rope.factor = 8;
  shape.rope.original_context = 8192;
  shape.prompt_tokens = prompt_tokens;
  shape.seed = seed;
  return shape;
}

std::vector<double> ranks(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(x[a], a) < std::pair(x[b], b); });
  std::vector<double> rank(x.size());
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
  return rank;
}

// Products of the keys with their mean, each divided by the key's norm, and with the mean decode query.
double distinctness(const Layer& layer, int q_head) {
  const MatrixView keys = layer.keys(q_head / layer.info().group());
  std::vector<float> mean(keys.cols), query(keys.cols);
  for (std::size_t j = 0; j < keys.cols; ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < keys.rows; ++i) sum += static_cast<double>(keys.row(i)[j]);
    mean[j] = static_cast<float>(sum / static_cast<double>(keys.rows));
    for (int t = 0; t < layer.info().decode_steps; ++t) query[j] += layer.decode_query(q_head, t)[j];
  }
  std::vector<double> cosines, scores;
  for (std::size_t i = 0; i < keys.rows; ++i) {
    const float* const key = keys.row(i);
    cosines.push_back(static_cast<double>(dot(key, mean.data(), keys.cols)) / std::sqrt(dot(key, key, keys.cols)));
    scores.push_back(dot(key, query.data(), keys.cols));
  }
  const std::vector<double> a = ranks(cosines), b = ranks(scores);
  const auto n = static_cast<double>(keys.rows);
  double product = 0;
  for (std::size_t i = 0; i < a.size(); ++i) product += (a[i] - (n - 1) / 2) * (b[i] - (n - 1) / 2);
  return product / (n * (n * n - 1) / 12);
}

std::vector<Sample> sample(const Recipe& recipe, std::int64_t prompt_tokens) {
  std::vector<Sample> samples;
  for (const std::uint64_t seed : {1u, 2u}) {
    const auto trace = synthesize(recipe, llama(prompt_tokens, seed));
    const Targets targets = read_targets(trace->info());
    for (std::size_t i = 0; i < 2; ++i) {
      const auto layer = trace->load(i, 2);
      const std::vector<HeadKind> kinds = head_kinds(recipe.heads, layer->id(), 8, seed);
      const std::vector<HeadStatistics> heads = head_statistics(*layer, targets, 2);
      for (std::size_t q = 0; q < heads.size(); ++q) {
        samples.push_back({kinds[q / 4], heads[q], distinctness(*layer, static_cast<int>(q))});
      }
    }
  }
  return samples;
}

double mean_of(const std::vector<Sample>& samples, double HeadStatistics::*field) {
  double sum = 0;
  for (const Sample& s : samples) sum += s.head.*field;
  return sum / static_cast<double>(samples.size());
}

std::vector<Sample> only(const std::vector<Sample>& samples, HeadKind kind) {
  std::vector<Sample> out;
  for (const Sample& s : samples) {
    if (s.kind == kind) out.push_back(s);
  }
  return out;
}

}  // namespace

TEST_CASE("heads of the needle recipe attend in the same way as trained heads") {
  const std::int64_t tokens = 8192;
  const std::vector<Sample> all = sample(read_recipe(find_recipe("needle")), tokens);
  const auto retrieval = only(all, HeadKind::kRetrieval);
  const auto local = only(all, HeadKind::kLocal);
  const auto streaming = only(all, HeadKind::kStreaming);
  REQUIRE(retrieval.size() == 48);  // 3 of 8 groups of 4, two layers, two seeds
  REQUIRE(streaming.size() == 32);

  // FreeKV (arXiv:2505.13109) measures 0.84 .. 0.95 between the queries of adjacent decode steps.
  const double cosine = mean_of(all, &HeadStatistics::query_cosine);
  CHECK(cosine > 0.84);
  CHECK(cosine < 0.95);

  // The needle gets much of the softmax in retrieval heads (one in four is idle and gives it none), and none in other
  // heads.
  CHECK(mean_of(retrieval, &HeadStatistics::target_mass) > 0.3);
  CHECK(mean_of(retrieval, &HeadStatistics::target_mass) < 0.9);
  CHECK(mean_of(local, &HeadStatistics::target_mass) < 0.001);
  CHECK(mean_of(streaming, &HeadStatistics::target_mass) < 0.001);

  // The sink is visible everywhere and dominates streaming heads.
  CHECK(mean_of(retrieval, &HeadStatistics::sink_mass) > 0.1);
  CHECK(mean_of(local, &HeadStatistics::sink_mass) > 0.1);
  CHECK(mean_of(streaming, &HeadStatistics::sink_mass) > 0.7);

  // 64 of 8192 tokens are 0.8 %: local heads give them fifty times that, retrieval heads do not.
  CHECK(mean_of(local, &HeadStatistics::recent_mass) > 0.4);
  CHECK(mean_of(retrieval, &HeadStatistics::recent_mass) < 0.05);

  // Overlap of the top 1/16 of positions between steps: 0.06 is expected by chance.
  CHECK(mean_of(retrieval, &HeadStatistics::top_overlap) > 0.15);
  CHECK(mean_of(local, &HeadStatistics::top_overlap) > 0.7);
}

TEST_CASE("the mean query opposes the mean key, and keys that differ from the mean key are attended to") {
  // KeyDiff (arXiv:2504.15364): keys with a low cosine to the mean key get high attention.
  const std::vector<Sample> all = sample(read_recipe(find_recipe("mixed")), 4096);
  int opposed = 0, distinct = 0;
  double distinct_sum = 0;
  for (const Sample& s : all) {
    opposed += s.head.key_mean_cosine < -0.3;
    distinct += s.distinct < 0;
    distinct_sum += s.distinct;
  }
  // Heads draw two to six outlier channels; the opposition is weaker in the few that draw the fewest.
  CHECK(opposed > static_cast<int>(all.size()) * 19 / 20);
  CHECK(distinct > static_cast<int>(all.size()) * 3 / 4);
  CHECK(distinct_sum / static_cast<double>(all.size()) < -0.03);
  const auto trace = synthesize(read_recipe(find_recipe("mixed")), llama(4096, 1));
  const auto layer = trace->load(0, 2);
  for (int h = 0; h < 8; ++h) {
    const KeyStatistics keys = key_statistics(*layer, h);
    CHECK(keys.anisotropy > 0.2);
    CHECK(keys.fast_pair_mean < 0.2);  // RoPE has been applied
  }
}

TEST_CASE("recent tokens and the sink take all attention if there is nothing to find") {
  const std::vector<Sample> all = sample(read_recipe(find_recipe("local")), 4096);
  CHECK(only(all, HeadKind::kRetrieval).empty());
  CHECK(mean_of(all, &HeadStatistics::recent_mass) + mean_of(all, &HeadStatistics::sink_mass) > 0.9);
  CHECK(mean_of(all, &HeadStatistics::target_mass) == 0);
}

TEST_CASE("the question attends to the key phrase, the first value token and decoys, not to the rest of the value") {
  Recipe recipe = read_recipe(find_recipe("needle"));
  recipe.heads = {1, 0, 0, 1};  // every head retrieves
  const SynthShape shape = llama(8192, 3);
  const auto trace = synthesize(recipe, shape);
  const auto layer = trace->load(0, 2);
  // The generator's own document: the first stream below the seed.
  const Document document = make_document(recipe, 8192, 16, 128, Stream(shape.seed).child({0}));
  std::map<std::string, double> mass;
  std::map<std::string, int> count;
  for (int q = 0; q < 32; ++q) {
    const MatrixView window = layer->window_queries(q, 32);
    const MatrixView keys = layer->keys(q / 4);
    std::vector<float> scores(window.rows * keys.rows);
    multiply_transposed(window, keys, scores.data(), keys.rows);
    std::vector<double> column(keys.rows);
    for (std::size_t i = 0; i < window.rows; ++i) {
      const std::size_t visible = 8192 - 32 + i + 1;
      const std::span<float> row(scores.data() + i * keys.rows, visible);
      softmax(row, 1 / std::sqrt(128.0f));
      for (std::size_t j = 0; j < visible; ++j) column[j] += static_cast<double>(row[j]);
    }
    for (const SpecialToken& t : document.tokens) {
      if (t.kind == SpecialToken::Kind::kOdd) continue;
      const std::string kind = t.kind == SpecialToken::Kind::kPhrase  ? "phrase"
                               : t.kind == SpecialToken::Kind::kDecoy ? "decoy"
                               : t.index == 0                         ? "first value"
                                                                      : "later value";
      mass[kind] += column[static_cast<std::size_t>(t.position)];
      ++count[kind];
    }
    mass["other"] += column[4000];
    ++count["other"];
  }
  for (auto& [kind, sum] : mass) sum /= count[kind];
  REQUIRE(count["later value"] == 32 * 21);
  CHECK(mass["phrase"] > 10 * mass["later value"]);
  CHECK(mass["first value"] > 10 * mass["later value"]);
  CHECK(mass["decoy"] > 10 * mass["other"]);
}

}  // namespace kvcast::tests
