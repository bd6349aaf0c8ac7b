// Traces that stand for a model in predicted scores: a sample of its heads at the lengths of a task.
//
// A trace holds a sample of a model's heads, not all of them: policies that treat each KV head by itself are replayed
// over a layer that is rich in retrieving heads; the others ("coupled": they share a budget or a choice between heads)
// over layers with heads of all kinds in their usual shares.
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
  int window = 0;             // else so many of the last ones; 0: as many as the recipe says
  bool later_turn = false;    // the prompt's last question asked for something else of the kind
  config::Precision cache = config::Precision::kBf16;  // that policies see keys and values in
  auto operator<=>(const TraceRequest&) const = default;
};

// A change to every recipe and model before traces are made of them; by default none.
struct RecipeChange {
  std::function<void(trace::Recipe&)> apply;  // none: recipes stay as they are
  bool scales_rope = true;                    // false: no model's rotary embedding is scaled
};

// The recipe of the request's name, changed.
trace::Recipe sample_recipe(const std::string& name, const RecipeChange& change);

// The trace of a request. UserError where its prompt is too short for the task.
std::unique_ptr<trace::Trace> make_sample(const TraceRequest& request, const RecipeChange& change);

// Whether the scores of several layers do not fit in memory together, so that they are made again for each policy.
bool scores_fill_memory(const TraceRequest& request, const RecipeChange& change, const trace::Trace& trace);

}  // namespace kvcast::score
