// Traces that represent a model in predicted scores: a sample of its heads at the lengths of a task.
//
// A trace contains a sample of a model's heads, not all of them: policies that treat each KV head by itself are
// replayed over a layer with a large share of retrieval heads; the others ("coupled": they share a budget or a
// selection between heads) over layers with heads of all kinds in their usual shares.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "config/precision.hpp"
#include "synth/recipe.hpp"
#include "trace/trace.hpp"

namespace kvcast::score {

struct TraceRequest {
  std::string recipe;  // a name under traces/recipes
  std::string model;   // a name under configs/models
  std::int64_t prompt_tokens = 0;
  int steps = 0;
  std::uint64_t seed = 1;
  bool coupled = false;
  bool whole_prompt = false;  // all prompt queries captured
  int window = 0;             // otherwise the number of last ones; 0: the recipe's
  bool later_turn = false;    // the prompt's last question asked for another item of the same kind
  config::CacheFormat cache = config::Precision::kBf16;  // precision of the keys and values that policies see
  auto operator<=>(const TraceRequest&) const = default;
};

// A change to every recipe and model before traces are made from them; none by default.
struct RecipeChange {
  std::function<void(trace::Recipe&)> apply;  // empty: recipes are unchanged
  bool scales_rope = true;                    // false: no model's rotary embedding is scaled
};

// The named recipe after the change.
trace::Recipe sample_recipe(const std::string& name, const RecipeChange& change);

// Makes the trace of a request. Throws UserError if its prompt is too short for the task.
std::unique_ptr<trace::Trace> make_sample(const TraceRequest& request, const RecipeChange& change);

// Returns whether the scores of several layers do not fit in memory together, so that they are recomputed for each
// policy.
bool scores_fill_memory(const TraceRequest& request, const RecipeChange& change, const trace::Trace& trace);

}  // namespace kvcast::score
