#include "score/recall_replays.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/whole_file.hpp"
#include "config/model.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"
#include "policy/profile.hpp"
#include "replay/rounded_cache.hpp"
#include "replay/schedule.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::score {
namespace {

using nlohmann::json;

std::string policy_key(const config::PolicyChoice& policy) { return policy.name + " " + policy.parameters.canonical(); }

// Head scores for policies that select heads beforehand: the share of each head's attention on targets.
std::shared_ptr<const policy::Profile> profile_of(const std::vector<std::unique_ptr<replay::FullMass>>& masses) {
  const trace::TraceInfo& info = masses[0]->layer().info();
  auto made = std::make_shared<policy::Profile>();
  policy::Profile& profile = *made;
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
  return made;
}

// Policies nested in this one may also need a profile.
bool wants_profile(const policy::Descriptor& descriptor) {
  return std::ranges::any_of(descriptor.parameters,
                             [](const policy::Parameter& p) { return p.key == "profile" || p.accepts("<policy>"); });
}

}  // namespace

// The replays over one sample trace, run one after the other.
class SampleWork final : public replay::TraceWork {
 public:
  SampleWork(RecallReplays& owner, const RecallReplays::Requested& requested, Cancel cancel,
             std::function<void()> advance)
      : owner_(owner), trace_(requested.trace), cancel_(std::move(cancel)), advance_(std::move(advance)) {
    for (const auto& [key, choice] : requested.policies) policies_.emplace_back(key, &choice);
  }

  std::size_t replays() const override { return policies_.size(); }

  bool open(int) override {
    if (made_) return false;
    made_ = make_sample(trace_, owner_.change_);
    const trace::Targets targets = trace::read_targets(made_->info());
    one_at_a_time_ = scores_fill_memory(trace_, owner_.change_, *made_);
    for (std::size_t i = 0; i < made_->info().layers.size(); ++i) {
      layers_.push_back(made_->load(i, 1, cancel_));
      masses_.push_back(std::make_unique<replay::FullMass>(*layers_.back(), targets, 1));
      if (one_at_a_time_) layers_.back()->drop_scores();
      // Policies see a rounded cache; the mass of the targets that they keep is that of the unrounded layer.
      const bool rounds = trace_.cache != config::Precision::kBf16;
      if (rounds) rounded_.push_back(replay::with_rounded_cache(*layers_.back(), trace_.cache, 1));
      inputs_.push_back(std::make_unique<policy::LayerInput>(rounds ? *rounded_.back() : *layers_.back()));
      views_.push_back(inputs_.back().get());
    }
    return true;
  }

  void replay(std::size_t i, int) override {
    const auto& [key, choice] = policies_[i];
    const policy::Descriptor& descriptor = policy::find_policy(*choice);
    if (wants_profile(descriptor) && !profile_) profile_ = profile_of(masses_);
    const policy::Lengths lengths{trace_.prompt_tokens, trace_.steps};
    const auto policy = policy::make_policy(descriptor, choice->parameters, profile_);
    policy->check(lengths);
    policy->survey(views_, lengths);
    replay::TargetRecall recall = layer_recall(0, *policy);
    for (std::size_t layer = 1; layer < layers_.size(); ++layer) recall += layer_recall(layer, *policy);
    owner_.keep(key, {std::move(recall), ""});
    advance_();
  }

  void refuse(std::size_t i, const UserError& why) override {
    owner_.keep(policies_[i].first, {{}, why.what()});
    advance_();
  }

  void close() override {
    profile_.reset(), views_.clear(), inputs_.clear(), masses_.clear(), rounded_.clear(), layers_.clear(),
        made_.reset();
  }

  // Larger samples run first, so that the last one to end is short. The cost counts the tokens of their heads, which
  // are made once and read once by each policy.
  double cost() const {
    const double tokens = static_cast<double>(trace_.prompt_tokens) * (trace_.coupled ? 3 : 1);
    return tokens * (trace_.whole_prompt ? static_cast<double>(trace_.prompt_tokens) / 100 : 1) *
           static_cast<double>(5 + policies_.size());
  }

 private:
  replay::TargetRecall layer_recall(std::size_t layer, const policy::Policy& policy) {
    const auto selector = policy.selector(*inputs_[layer]);
    replay::TargetMeter meter(*masses_[layer]);
    policy::LayerSelection selection;
    selector->prefill(selection);
    for (int t = 0; t < trace_.steps; ++t) {
      cancel_.check();
      selector->step(t, selection);
      meter.measure(t, selection, *selector);
    }
    if (one_at_a_time_) inputs_[layer]->layer().drop_scores(), layers_[layer]->drop_scores();
    return meter.result();
  }

  RecallReplays& owner_;
  TraceRequest trace_;
  Cancel cancel_;
  std::function<void()> advance_;
  std::vector<std::pair<std::string, const config::PolicyChoice*>> policies_;
  std::unique_ptr<trace::Trace> made_;
  std::vector<std::unique_ptr<trace::Layer>> layers_, rounded_;
  std::vector<std::unique_ptr<replay::FullMass>> masses_;
  std::vector<std::unique_ptr<policy::LayerInput>> inputs_;
  std::vector<const policy::LayerInput*> views_;
  std::shared_ptr<const policy::Profile> profile_;
  bool one_at_a_time_ = false;
};

RecallReplays::RecallReplays(std::string cache, int threads, RecipeChange change)
    : cache_(std::move(cache)), threads_(threads), change_(std::move(change)) {
  load_cache();
}

const std::string& RecallReplays::recipe_hash(const std::string& recipe) const {
  const auto [at, fresh] = hashes_.try_emplace(recipe);
  if (fresh) at->second = content_hash(trace::canonical(sample_recipe(recipe, change_)));
  return at->second;
}

// The model's name and a hash of its shape: a user's file may have the name of another model.
const std::string& RecallReplays::model_key(const std::string& model) const {
  const auto [at, fresh] = models_.try_emplace(model);
  if (fresh) {
    const config::Model shape = config::model_named(model);
    at->second = shape.name + " " + content_hash(config::canonical(shape)).substr(0, 16);
  }
  return at->second;
}

namespace {

std::string cache_key(config::CacheFormat cache) {
  if (cache == config::Precision::kBf16) return "";
  return fmt::format("cache {} | ", config::cache_name(cache));
}

}  // namespace

std::string RecallReplays::key_of(const TraceRequest& t, const config::PolicyChoice& policy) const {
  return fmt::format("v{} {} {} {} {}+{} seed {} coupled {} whole {} window {} | {}", trace::kGeneratorVersion,
                     t.recipe, recipe_hash(t.recipe), model_key(t.model), t.prompt_tokens, t.steps, t.seed, t.coupled,
                     t.whole_prompt, t.window,
                     std::string(change_.scales_rope ? "" : "rope unscaled | ") +
                         (t.later_turn ? "later turn | " : "") + cache_key(t.cache) + policy_key(policy));
}

void RecallReplays::load_cache() {
  if (!is_regular(cache_)) return;
  std::ifstream in(cache_);
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line, nullptr, false);
    // Lines cut short by an interruption or written by an earlier version are replayed again.
    if (!j.is_object() || !j.contains("key") || !j.contains("retrieving")) continue;
    results_[j["key"].get<std::string>()] = {replay::target_recall_from(j), ""};
  }
}

void RecallReplays::request(const TraceRequest& trace, const config::PolicyChoice& policy) {
  const std::string key = key_of(trace, policy);
  if (results_.count(key) > 0) return;
  Requested& requested = requested_[trace];
  requested.trace = trace;
  requested.policies.emplace(key, policy);
}

void RecallReplays::keep(const std::string& key, Outcome outcome) {
  const std::lock_guard lock(results_mutex_);
  if (!cache_.empty() && outcome.refused.empty()) {
    json line = replay::to_json(outcome.recall);
    line["key"] = key;
    // Written in one piece, because other processes may also write to the file.
    const std::string text = line.dump() + '\n';
    std::ofstream out(cache_, std::ios::app);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
  results_[key] = std::move(outcome);
}

void RecallReplays::run(const std::function<void(std::int64_t done, std::int64_t total)>& advance,
                        const Cancel& cancel) {
  std::atomic<std::int64_t> done{0};
  std::int64_t total = 0;
  for (const auto& [trace, requested] : requested_) total += static_cast<std::int64_t>(requested.policies.size());
  std::vector<std::unique_ptr<SampleWork>> samples;
  for (const auto& [trace, requested] : requested_) {
    samples.push_back(std::make_unique<SampleWork>(*this, requested, cancel, [&] { advance(++done, total); }));
  }
  std::stable_sort(samples.begin(), samples.end(), [](const auto& a, const auto& b) { return a->cost() > b->cost(); });
  std::vector<std::unique_ptr<replay::TraceWork>> work(std::make_move_iterator(samples.begin()),
                                                       std::make_move_iterator(samples.end()));
  replay::run_replays(work, replay::ThreadUse::kTraces, threads_, cancel);
  requested_.clear();
}

bool RecallReplays::has(const TraceRequest& trace, const config::PolicyChoice& policy) const {
  return results_.contains(key_of(trace, policy));
}

const replay::TargetRecall& RecallReplays::recall(const TraceRequest& trace, const config::PolicyChoice& policy) const {
  const auto at = results_.find(key_of(trace, policy));
  KVCAST_CHECK(at != results_.end());
  if (!at->second.refused.empty()) throw UserError(at->second.refused);
  return at->second.recall;
}

}  // namespace kvcast::score
