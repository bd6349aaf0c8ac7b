#include "api/catalogue.hpp"

#include <variant>

#include "config/find.hpp"
#include "config/framework.hpp"
#include "config/run.hpp"
#include "plan/question.hpp"
#include "policies/all.hpp"
#include "result/json.hpp"

namespace kvcast::api {
namespace {

using config::ConstKnob;
using config::Hardware;
using config::Model;
using nlohmann::json;

template <typename Number>
json with_grounds(json entry, const Number& number) {
  entry["origin"] = origin_name(number.origin);
  entry["uncertainty"] = number.uncertainty;
  entry["source"] = number.source;
  return entry;
}

json number_json(const ConstKnob& knob) {
  json entry = {{"key", knob.key}, {"unit", dimension_name(knob.y)}, {"range", {knob.low, knob.high}}};
  if (knob.value != nullptr) {
    entry["value"] = knob.value->value;
    return with_grounds(std::move(entry), *knob.value);
  }
  entry["x_unit"] = dimension_name(knob.x);
  json& points = entry["points"] = json::array();
  for (std::size_t i = 0; i < knob.curve->x.size(); ++i) points.push_back({knob.curve->x[i], knob.curve->y[i]});
  return with_grounds(std::move(entry), *knob.curve);
}

json rope_json(const config::Rope& rope) {
  json out = {{"theta", rope.theta}};
  if (rope.scaling == config::Rope::Scaling::kNone) return out;
  const bool llama3 = rope.scaling == config::Rope::Scaling::kLlama3;
  const bool linear = rope.scaling == config::Rope::Scaling::kLinear;
  out["scaling"] = llama3 ? "llama3" : linear ? "linear" : "yarn";
  out["factor"] = rope.factor;
  out["original_context"] = rope.original_context;
  if (llama3) out["low_freq_factor"] = rope.low_freq_factor;
  if (llama3) out["high_freq_factor"] = rope.high_freq_factor;
  return out;
}

json value_json(const policy::ParameterValue& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

// The files under configs/policies, the papers' settings: {name, policy, set, description}.
json policy_settings_json(const SourceLocation& asked_at, json& left_out, const ErrorText& text) {
  json settings = json::array();
  for (const std::string& file : config::config_files("policies", asked_at)) {
    try {
      const config::Node written = config::load_yaml(file);
      const config::PolicyChoice choice =
          config::read_policy(config::Node::map({{"file", config::Node::scalar(file, {})}}, {}));
      json set = json::object();
      for (const auto& [key, value] : choice.parameters.entries()) {
        set[key] = value.kind() == config::Node::Kind::kScalar ? value.text() : value.canonical();
      }
      const config::Node* const description = written.find("description");
      settings.push_back({{"name", config::stem_of(file)},
                          {"policy", choice.name},
                          {"set", std::move(set)},
                          {"description", description == nullptr ? "" : description->text()}});
    } catch (const UserError& error) {
      left_out.push_back(text(error));
    }
  }
  return settings;
}

json frameworks_json(const SourceLocation& asked_at, json& left_out, const ErrorText& text) {
  json frameworks = json::array();
  for (const std::string& file : config::config_files("frameworks", asked_at)) {
    try {
      const config::FrameworkFile framework = config::read_framework_file(file);
      frameworks.push_back({{"name", framework.name}, {"title", framework.title}});
    } catch (const UserError& error) {
      left_out.push_back(text(error));
    }
  }
  return frameworks;
}

void add_kinds_of_layers(const Model& m, json& out) {
  if (m.sliding_window > 0) {
    out["sliding"] = {{"window", m.sliding_window}, {"full_every", m.full_every}};
    if (m.chunked) out["sliding"]["chunks"] = true;
    if (m.sliding_kv_heads > 0) out["sliding"]["n_kv_heads"] = m.sliding_kv_heads;
    if (m.sliding_head_dim > 0) out["sliding"]["head_dim"] = m.sliding_head_dim;
  }
  if (const auto& c = m.compressed) {
    out["compressed"] = {{"layers", c->layers},
                         {"window", c->window},
                         {"index_best", c->index_best},
                         {"entry_bytes", c->entry_bytes(m.head_dim, m.cache)},
                         {"index_bytes", c->index_bytes()},
                         {"index_bytes_per_token", m.index_bytes_per_token()},
                         {"state_bytes", m.state_bytes()}};
  }
}

}  // namespace

json to_json(const Model& m) {
  json out = {{"name", m.name},
              {"title", m.title},
              {"aliases", m.aliases},
              {"layers", m.layers},
              {"hidden", m.hidden},
              {"n_q_heads", m.n_q_heads},
              {"n_kv_heads", m.n_kv_heads},
              {"head_dim", m.head_dim},
              {"ffn", m.ffn},
              {"vocab", m.vocab},
              {"tie_embeddings", m.tie_embeddings},
              {"qkv_bias", m.qkv_bias},
              {"qk_norm", m.qk_norm},
              {"max_context", m.max_context},
              {"rope", rope_json(m.rope)},
              {"source", m.source},
              {"parameters", m.parameters()},
              {"weight_bytes", m.weight_bytes()},
              {"kv_bytes_per_token", m.kv_bytes_per_token()},
              {"weights", config::precision_name(m.weights)},
              {"expert_weights", config::precision_name(m.expert_weights)},
              {"shared_weights", config::precision_name(m.shared_weights)}};
  if (const auto& l = m.latent) {
    out["latent"] = {{"query_rank", l->query_rank},
                     {"rank", l->rank},
                     {"rope_dim", l->rope_dim},
                     {"key_dim", l->key_dim},
                     {"value_dim", l->value_dim}};
  }
  if (const auto& e = m.experts) {
    out["experts"] = {{"count", e->count},
                      {"active", e->active},
                      {"shared", e->shared},
                      {"ffn", e->ffn},
                      {"dense_layers", e->dense_layers}};
    if (e->every > 1) out["experts"]["every"] = e->every;
    if (e->hidden > 0) out["experts"]["hidden"] = e->hidden, out["experts"]["hidden_norm"] = e->hidden_norm;
  }
  add_kinds_of_layers(m, out);
  if (const auto& r = m.recurrence) {
    out["recurrence"] = {{"kind", config::recurrence_name(r->kind)},
                         {"layers", m.layers_with(config::Mixer::kRecurrence)},
                         {"heads", r->heads},
                         {"key_heads", r->key_heads},
                         {"key_dim", r->key_dim},
                         {"value_dim", r->value_dim},
                         {"state_bytes", m.state_bytes()}};
  }
  return out;
}

json summary_json(const Hardware& machine) {
  return {{"name", machine.name},      {"title", machine.title},           {"aliases", machine.aliases},
          {"host", machine.host.name}, {"fit", config::fit_text(machine)}, {"host_title", machine.host.title}};
}

json changes_json(const Hardware& machine) {
  json changes = json::array();
  for (const config::MachineChange& c : machine.changes) {
    changes.push_back({{"key", c.key}, {"value", c.value}, {"base", c.base}, {"follows", c.follows}, {"rule", c.rule}});
  }
  return changes;
}

json to_json(const Hardware& machine) {
  json out = summary_json(machine);
  out["changes"] = changes_json(machine);
  out["numbers"] = json::array();
  for (const ConstKnob& knob : config::knobs(machine)) out["numbers"].push_back(number_json(knob));
  return out;
}

json to_json(const policy::Descriptor& d) {
  json parameters = json::array();
  for (const policy::Parameter& p : d.parameters) {
    json entry = {{"key", p.key}, {"default", value_json(p.fallback)}, {"unit", p.unit}, {"meaning", p.meaning}};
    if (!p.names.empty()) entry["known"] = p.names;
    if (p.names.empty() && !std::holds_alternative<bool>(p.fallback)) entry["range"] = {p.low, p.high};
    parameters.push_back(entry);
  }
  const policy::ReuseClass reuse = d.reuse();
  return {{"reuse", {{"class", config::reuse_name(reuse.reuse)}, {"reason", reuse.reason}}},
          {"name", d.name},
          {"sentence", d.sentence},
          {"category", policy::name(d.category)},
          {"paper", d.paper},
          {"parameters", parameters},
          {"budget_convention", d.budget_text()},
          {"formulas", d.formulas},
          {"differences", d.differences},
          {"stages", d.stages != nullptr},
          {"prefill", config::prefill_name(d.prefill)},
          {"prefill_source", d.prefill_source}};
}

std::string whole_text(const UserError& error) { return error.what(); }

json models_json(const SourceLocation& asked_at, const ErrorText& text) {
  json all = json::array();
  for (const std::string& file : config::config_files("models", asked_at)) {
    try {
      all.push_back(to_json(config::read_model(file)));
    } catch (const UserError& error) {  // a known model that kvcast does not simulate
      all.push_back({{"name", config::stem_of(file)}, {"refused", text(error)}});
    }
  }
  return all;
}

json catalogue_json(const SourceLocation& asked_at, const ErrorText& text) {
  json machines = json::array(), policies = json::array(), metrics = json::array();
  json left_out = json::array();
  for (const std::string& file : config::config_files("hardware", asked_at)) {
    try {
      machines.push_back(to_json(config::read_hardware(file)));
    } catch (const UserError& error) {
      left_out.push_back(text(error));
    }
  }
  for (const policy::Descriptor& policy : policy::all_policies()) policies.push_back(to_json(policy));
  for (const result::Metric& metric : result::all_metrics()) metrics.push_back(result::to_json(metric));
  json settings = policy_settings_json(asked_at, left_out, text);
  json frameworks = frameworks_json(asked_at, left_out, text);
  return {{"models", models_json(asked_at, text)}, {"machines", std::move(machines)},
          {"policies", std::move(policies)},       {"policy_settings", std::move(settings)},
          {"frameworks", std::move(frameworks)},   {"metrics", std::move(metrics)},
          {"questions", plan::question_kinds()},   {"left_out", std::move(left_out)}};
}

}  // namespace kvcast::api
