// Every selection rule implemented a second time, directly from its definition: double precision, all scores, full
// sorts, no state that could be recomputed. The code is slow, but short enough to be checked by reading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.hpp"

namespace kvcast::tests::naive {

using Positions = std::vector<std::int32_t>;  // ascending
using Heads = std::vector<Positions>;         // by selecting head
struct Steps {
  Heads resident;               // after the prompt
  std::vector<Heads> attended;  // by step
};

struct Window {
  int window = 0;
  std::string pool = "max";
  int kernel = 1;
  std::string group = "sum_weights";
};

Steps full(const trace::Layer& layer);
// Tokens that are read at every step: the first `sink` and the last `recent`.
struct Always {
  std::int64_t sink = 0, recent = 0;
  bool holds(std::int64_t i, std::int64_t tokens) const { return i < sink || i >= tokens - recent; }
};
Steps exact_topk(const trace::Layer& layer, std::int64_t budget, const std::string& group, const Always& always = {});
Steps streaming_llm(const trace::Layer& layer, std::int64_t sink, std::int64_t recent);
Steps snapkv(const trace::Layer& layer, std::int64_t budget, const Window& window);
Steps quest(const trace::Layer& layer, std::int64_t budget, std::int64_t page, std::int64_t pages,
            const std::string& group, const Always& always = {});
// The tokens whose pages have the highest summed bounds.
Steps quest_tokens(const trace::Layer& layer, std::int64_t budget, std::int64_t page, std::int64_t tokens);

struct Hsa {
  std::int64_t budget = 0;  // t
  std::int64_t length = 0;  // N
  double ratio = 1;         // c2
  bool nearest = false, correction = true, zero_is_max = false;
  std::string group = "mean_weights";
};
Steps hsa(const trace::Layer& layer, const Hsa& setting);
// t, T_max, r (negative: adaptive)
Steps rocketkv(const trace::Layer& layer, std::int64_t budget, std::int64_t max_new, double split, const Window& window,
               bool multi_turn);

struct ArkVale {
  std::int64_t budget = 0, page = 1, topk = 0, sink = 0, recent = 0;
  bool cuboid = true, layer = true;
  std::string group = "mean_scores";
};
Steps arkvale(const trace::Layer& layer, const ArkVale& setting);

struct FreeKv {
  std::int64_t budget = 0, page = 1, sink = 0, recent = 0;
  double tau = 0.8;
  bool speculation = true, correction = true, cuboid = false;
  bool pages = false, layer = false;  // corrected by the pages in common; all heads of a layer together
  std::string group = "mean_weights";
};
Steps freekv(const trace::Layer& layer, const FreeKv& setting);

}  // namespace kvcast::tests::naive
