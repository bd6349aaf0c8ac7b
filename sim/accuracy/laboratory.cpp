#include "accuracy/laboratory.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "accuracy/ablation.hpp"
#include "base/hash.hpp"
#include "base/parallel.hpp"
#include "config/find.hpp"
#include "policy/policy.hpp"
#include "policy/profile.hpp"
#include "trace/synthetic.hpp"

namespace kvcast::accuracy {
namespace {

using nlohmann::json;

std::mutex results_mutex;

std::string policy_key(const config::PolicyChoice& policy) { return policy.name + " " + policy.parameters.canonical(); }

// The scores of thousands of steps fill the memory: fewer heads, of each group no more than these.
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

// A sample of the model's heads; its layers are all there are, so that what runs over layers is whole.
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
    if (!request.coupled) {  // of every kind
      recipe.heads.retrieval = 0.5;
      recipe.heads.local = recipe.heads.streaming = 0.25;
    }
  }
  shape.n_q_heads = shape.n_kv_heads * group;
  return shape;
}

// The question that a policy saw asked for another needle of the kind: it shares with the later one what all needles
// share. Passages share nothing that a question about another one would seek.
void ask_for_another(trace::Recipe& recipe) {
  trace::QuestionModel& question = recipe.question;
  if (recipe.task.needles > 0) {
    question.type_queries += recipe.task.needles * question.key_queries + question.value_queries;
  }
  question.key_queries = question.value_queries = 0;
}

// What policies that choose heads beforehand must know: how much of its attention each head puts on targets.
policy::Profile profile_of(const std::vector<std::unique_ptr<replay::FullMass>>& masses) {
  const trace::TraceInfo& info = masses[0]->layer().info();
  policy::Profile profile;
  profile.model = info.model;
  profile.source = "the trace itself";
  profile.n_layers = info.n_layers;
  profile.n_q_heads = info.n_q_heads;
  profile.n_kv_heads = info.n_kv_heads;
  for (const auto& mass : masses) {
    std::vector<double> scores;
    for (int q = 0; q < info.n_q_heads; ++q) {
      double sum = 0;
      for (int t = 0; t < info.decode_steps; ++t) sum += mass->target_mass(q, t);
      scores.push_back(sum / info.decode_steps);
    }
    for (const char* kind : {"retrieval", "semantic", "echo", "induction"}) {
      profile.heads[kind][mass->layer().id()] = scores;
    }
    profile.layer_errors[mass->layer().id()] = 1;
  }
  return profile;
}

class ProfileFile {
 public:
  explicit ProfileFile(const policy::Profile& profile) {
    path_ = (std::filesystem::temp_directory_path() /
             fmt::format("kvcast-profile-{}-{}.yaml", ::getpid(), reinterpret_cast<std::uintptr_t>(this)))
                .string();
    std::ofstream(path_) << policy::write_profile(profile);
  }
  ~ProfileFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ProfileFile(const ProfileFile&) = delete;
  ProfileFile& operator=(const ProfileFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool wants_profile(const policy::Descriptor& descriptor) {
  return std::any_of(descriptor.parameters.begin(), descriptor.parameters.end(),
                     [](const policy::Parameter& p) { return p.key == "profile"; });
}

}  // namespace

Laboratory::Laboratory(std::string cache, int threads, const Ablation* ablation)
    : cache_(std::move(cache)), threads_(threads), ablation_(ablation) {
  load_cache();
}

trace::Recipe Laboratory::recipe_of(const std::string& name) const {
  trace::Recipe recipe = trace::read_recipe(trace::find_recipe(name));
  if (ablation_ != nullptr) ablate(*ablation_, recipe);
  return recipe;
}

const std::string& Laboratory::recipe_hash(const std::string& recipe) const {
  const auto [at, fresh] = hashes_.try_emplace(recipe);
  if (fresh) at->second = content_hash(trace::canonical(recipe_of(recipe)));
  return at->second;
}

std::string Laboratory::key_of(const TraceRequest& t, const config::PolicyChoice& policy) const {
  return fmt::format("v{} {} {} {} {}+{} seed {} coupled {} whole {} window {} | {}", trace::kGeneratorVersion,
                     t.recipe, recipe_hash(t.recipe), t.model, t.prompt_tokens, t.steps, t.seed, t.coupled,
                     t.whole_prompt, t.window,
                     std::string(ablation_ == nullptr || ablation_->scales_rope ? "" : "rope unscaled | ") +
                         (t.later_turn ? "later turn | " : "") + policy_key(policy));
}

void Laboratory::load_cache() {
  std::ifstream in(cache_);
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("key")) continue;  // a line cut short by an interruption
    results_[j["key"].get<std::string>()] = {replay::target_recall_from(j), ""};
  }
}

void Laboratory::want(const TraceRequest& trace, const config::PolicyChoice& policy) {
  const std::string key = key_of(trace, policy);
  if (results_.count(key) > 0) return;
  Wanted& wanted = wanted_[trace];
  wanted.trace = trace;
  wanted.policies.emplace(key, policy);
}

void Laboratory::keep(const std::string& key, Outcome outcome) {
  const std::lock_guard lock(results_mutex);
  if (!cache_.empty() && outcome.refused.empty()) {
    json line = replay::to_json(outcome.recall);
    line["key"] = key;
    std::ofstream(cache_, std::ios::app) << line.dump() << '\n';
  }
  results_[key] = std::move(outcome);
}

void Laboratory::refuse(const Wanted& wanted, const std::string& why, const std::function<void()>& advance) {
  for (const auto& [key, choice] : wanted.policies) {
    keep(key, {{}, why});
    advance();
  }
}

void Laboratory::run_trace(const Wanted& wanted, const std::function<void()>& advance) {
  trace::Recipe recipe = recipe_of(wanted.trace.recipe);
  if (wanted.trace.later_turn) ask_for_another(recipe);
  config::Model model = config::read_model(config::find_config("models", wanted.trace.model, {}));
  if (ablation_ != nullptr && !ablation_->scales_rope) model.rope.scaling = config::Rope::Scaling::kNone;
  const trace::SynthShape shape = sample_shape(wanted.trace, model, recipe);
  const auto made = trace::synthesize(recipe, shape);
  const trace::Targets targets = trace::read_targets(made->info());
  // Scores of several layers of a long generation do not fit beside each other; they are made again.
  const bool one_at_a_time = recipe.task.section_steps > 0 && made->info().layers.size() > 1;
  std::vector<std::unique_ptr<trace::Layer>> layers;
  std::vector<std::unique_ptr<policy::LayerInput>> inputs;
  std::vector<std::unique_ptr<replay::FullMass>> masses;
  for (std::size_t i = 0; i < made->info().layers.size(); ++i) {
    layers.push_back(made->load(i, 1));
    masses.push_back(std::make_unique<replay::FullMass>(*layers.back(), targets, 1));
    if (one_at_a_time) layers.back()->drop_scores();
    inputs.push_back(std::make_unique<policy::LayerInput>(*layers.back()));
  }
  std::vector<const policy::LayerInput*> surveyed;
  for (const auto& input : inputs) surveyed.push_back(input.get());
  std::optional<ProfileFile> profile;
  for (const auto& [key, choice] : wanted.policies) {
    Outcome outcome;
    try {
      const policy::Descriptor& descriptor = policy::find_policy(choice.name, choice.where);
      config::Node parameters = choice.parameters;
      if (wants_profile(descriptor)) {
        if (!profile) profile.emplace(profile_of(masses));
        parameters = parameters.with("profile", config::Node::scalar(profile->path(), choice.where));
      }
      const policy::Lengths lengths{wanted.trace.prompt_tokens, wanted.trace.steps};
      const auto policy = policy::make_policy(descriptor, parameters, lengths);
      policy->survey(surveyed);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const auto selector = policy->selector(*inputs[i]);
        replay::TargetMeter meter(*masses[i]);
        policy::LayerSelection selection;
        selector->prefill(selection);
        for (int t = 0; t < wanted.trace.steps; ++t) {
          selector->step(t, selection);
          meter.measure(t, selection, *selector);
        }
        if (i == 0) {
          outcome.recall = meter.result();
        } else {
          outcome.recall += meter.result();
        }
        if (one_at_a_time) layers[i]->drop_scores();
      }
    } catch (const UserError& error) {
      outcome.refused = error.what();
    }
    keep(key, std::move(outcome));
    advance();
  }
}

void Laboratory::run(const std::function<void(std::int64_t done, std::int64_t total)>& advance) {
  std::vector<const Wanted*> todo;
  std::int64_t total = 0;
  for (const auto& [trace, wanted] : wanted_) {
    todo.push_back(&wanted);
    total += static_cast<std::int64_t>(wanted.policies.size());
  }
  // The longest first, so that the last one to end is short: the tokens of its heads, once made and once a policy.
  const auto work = [](const Wanted* w) {
    const double tokens = static_cast<double>(w->trace.prompt_tokens) * (w->trace.coupled ? 3 : 1);
    return tokens * (w->trace.whole_prompt ? static_cast<double>(w->trace.prompt_tokens) / 100 : 1) *
           static_cast<double>(5 + w->policies.size());
  };
  std::stable_sort(todo.begin(), todo.end(), [&](const Wanted* a, const Wanted* b) { return work(a) > work(b); });
  std::atomic<std::int64_t> done{0};
  parallel_for(todo.size(), threads_, [&](std::size_t i) {
    const auto one_more = [&] { advance(++done, total); };
    try {
      run_trace(*todo[i], one_more);
    } catch (const UserError& error) {  // no such trace (a prompt too short for its task): no policy has a score there
      refuse(*todo[i], error.what(), one_more);
    }
  });
  wanted_.clear();
}

const replay::TargetRecall& Laboratory::result(const TraceRequest& trace, const config::PolicyChoice& policy) const {
  const auto at = results_.find(key_of(trace, policy));
  KVCAST_CHECK(at != results_.end());
  if (!at->second.refused.empty()) throw UserError(at->second.refused);
  return at->second.recall;
}

}  // namespace kvcast::accuracy
