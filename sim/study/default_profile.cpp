#include "study/default_profile.hpp"

#include "base/error.hpp"
#include "config/find.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::study {
namespace {

bool names_profile(const config::PolicyChoice& policy) {
  return policy::named_files(policy::find_policy(policy), policy.parameters).profile;
}

constexpr double kOther = 0.01;  // of a head that does not retrieve

std::shared_ptr<const policy::Profile> of_recipe(const config::Model& model, const config::TraceChoice& choice) {
  const trace::Recipe recipe = trace::read_recipe(trace::find_recipe(choice.recipe, choice.where));
  auto profile = std::make_shared<policy::Profile>();
  profile->path = "recipe " + choice.recipe, profile->model = model.name, profile->source = profile->path;
  profile->n_layers = model.layers, profile->n_q_heads = model.n_q_heads, profile->n_kv_heads = model.n_kv_heads;
  for (const int layer : trace::spread_layers(model.layers, choice.layers)) {
    std::vector<double> scores;
    for (const trace::HeadKind kind : trace::head_kinds(recipe.heads, layer, model.n_kv_heads, choice.seed)) {
      scores.insert(scores.end(), static_cast<std::size_t>(model.group()),
                    kind == trace::HeadKind::kRetrieval ? 1 : kOther);
    }
    for (const std::string& kind : policy::head_score_kinds()) profile->heads[kind][layer] = scores;
    profile->layer_errors[layer] = 1;
  }
  return profile;
}

}  // namespace

std::shared_ptr<const policy::Profile> default_profile(const config::Run& run, const config::PolicyChoice& policy,
                                                       const config::TraceChoice& trace) {
  if (!trace.file.empty()) return profile_of_model(run.model.name, policy);
  return names_profile(policy) ? nullptr : of_recipe(config::attending(run.model), trace);
}

std::shared_ptr<const policy::Profile> profile_of_model(const std::string& model, const config::PolicyChoice& policy) {
  const auto path = config::find_file("profiles/" + model + ".yaml");
  if (!path || names_profile(policy)) return nullptr;
  return std::make_shared<const policy::Profile>(policy::read_profile(*path));
}

}  // namespace kvcast::study
