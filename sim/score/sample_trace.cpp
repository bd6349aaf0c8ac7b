#include "score/sample_trace.hpp"

#include <algorithm>

#include "config/model.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::score {
namespace {

// The scores of thousands of steps fill the memory, so fewer heads are made, and fewer query heads per group.
trace::SynthShape long_generation(const TraceRequest& request, trace::SynthShape shape, int group,
                                  trace::Recipe& recipe) {
  shape.n_kv_heads = request.coupled ? 8 : std::max(4, 8 / group);
  shape.n_q_heads = shape.n_kv_heads * std::min(group, request.coupled ? 2 : 4);
  if (!request.coupled) {
    recipe.heads.retrieval = 0.5;
    recipe.heads.local = recipe.heads.streaming = 0.25;
  }
  if (request.whole_prompt) shape.window = static_cast<int>(request.prompt_tokens);
  return shape;
}

// A sample of the model's heads. The trace has no layers other than the captured ones, so that a policy that works
// across layers sees all of them.
trace::SynthShape sample_shape(const TraceRequest& request, const config::Model& model, trace::Recipe& recipe) {
  trace::SynthShape shape = trace::synth_shape(model, request.prompt_tokens, request.steps, 1, request.seed);
  const int group = model.group();
  int heads = group >= 3 ? 6 : group == 2 ? 8 : 12;
  if (request.coupled) {
    heads = group >= 3 ? 8 : 16;
    shape.captured_layers = 2;
    recipe.heads.retrieval = 0.25;
    recipe.heads.local = 0.5;
    recipe.heads.streaming = 0.25;
  } else {
    recipe.heads.retrieval = 2.0 / 3;
    recipe.heads.local = recipe.heads.streaming = 1.0 / 6;
  }
  shape.n_layers = shape.captured_layers;
  if (recipe.task.section_steps > 0) return long_generation(request, shape, group, recipe);
  shape.n_kv_heads = request.coupled ? heads : std::min(heads, std::max(model.n_kv_heads, 6));
  shape.window = request.window;
  if (request.whole_prompt) {  // its cost grows with the square of the prompt: fewer heads
    shape.window = static_cast<int>(request.prompt_tokens);
    shape.n_kv_heads = group >= 3 ? 4 : 8;
    if (!request.coupled) {  // heads of every kind
      recipe.heads.retrieval = 0.5;
      recipe.heads.local = recipe.heads.streaming = 0.25;
    }
  }
  shape.n_q_heads = shape.n_kv_heads * group;
  return shape;
}

// The question that a policy saw was about another needle of the same kind: it shares with the later one what all
// needles share. Passages share nothing that a question about another one would seek.
void ask_for_another(trace::Recipe& recipe) {
  trace::QuestionModel& question = recipe.question;
  if (recipe.task.needles > 0) {
    question.type_queries += recipe.task.needles * question.key_queries + question.value_queries;
  }
  question.key_queries = question.value_queries = 0;
}

}  // namespace

trace::Recipe sample_recipe(const std::string& name, const RecipeChange& change) {
  trace::Recipe recipe = trace::read_recipe(trace::find_recipe(name));
  if (change.apply) change.apply(recipe);
  return recipe;
}

std::unique_ptr<trace::Trace> make_sample(const TraceRequest& request, const RecipeChange& change) {
  trace::Recipe recipe = sample_recipe(request.recipe, change);
  if (request.later_turn) ask_for_another(recipe);
  config::Model model = config::model_named(request.model);
  if (!change.scales_rope) model.rope.scaling = config::Rope::Scaling::kNone;
  const trace::SynthShape shape = sample_shape(request, model, recipe);
  return trace::synthesize(recipe, shape);
}

bool scores_fill_memory(const TraceRequest& request, const RecipeChange& change, const trace::Trace& trace) {
  return sample_recipe(request.recipe, change).task.section_steps > 0 && trace.info().layers.size() > 1;
}

}  // namespace kvcast::score
