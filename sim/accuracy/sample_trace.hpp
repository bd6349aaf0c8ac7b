// Traces that stand for a model in predicted scores: a sample of its heads at the lengths of a task.
//
// A trace holds a sample of a model's heads, not all of them: policies that treat each KV head by itself are replayed
// over a layer that is rich in retrieving heads; the others ("coupled": they share a budget or a choice between heads)
// over layers with heads of all kinds in their usual shares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/recipe.hpp"
#include "trace/trace.hpp"

namespace kvcast::accuracy {

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
  auto operator<=>(const TraceRequest&) const = default;
};

struct Ablation;  // accuracy/ablation.hpp

// The recipe of the request's name; with an ablation, what it leaves of it.
trace::Recipe sample_recipe(const std::string& name, const Ablation* ablation);

// The trace of a request. UserError where its prompt is too short for the task.
std::unique_ptr<trace::Trace> make_sample(const TraceRequest& request, const Ablation* ablation);

// Whether the scores of several layers do not fit in memory together, so that they are made again for each policy.
bool scores_fill_memory(const TraceRequest& request, const Ablation* ablation, const trace::Trace& trace);

}  // namespace kvcast::accuracy
