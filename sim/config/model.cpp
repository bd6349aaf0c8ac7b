// Shapes follow the published config.json files.
#include "config/model.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "config/find.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

// Returns whether keys that depend on others are recorded.
bool has_every_key() { return shape::is_recording() && shape::has_all(); }

Rope read_rope(Section section) {
  Rope rope;
  rope.theta = section.number({"theta", "base of the frequencies by which positions turn keys"}, 1, 1e12);
  const std::string scaling = section.choice({"scaling", "how positions beyond `original_context` are scaled"},
                                             {"none", "linear", "llama3", "yarn"}, "none");
  if (scaling != "none" || has_every_key()) {
    rope.scaling = scaling == "linear" ? Rope::Scaling::kLinear
                   : scaling == "yarn" ? Rope::Scaling::kYarn
                                       : Rope::Scaling::kLlama3;
    rope.factor = section.number({"factor", "by which contexts grow"}, 1, 1e6);
    rope.original_context = section.integer({"original_context", "tokens trained on before scaling"}, 1, 1'000'000'000);
  }
  if (rope.scaling == Rope::Scaling::kLlama3 || has_every_key()) {
    rope.low_freq_factor =
        section.number({"low_freq_factor", "of `llama3`: fewer turns over `original_context` are scaled"}, 1e-3, 1e3);
    rope.high_freq_factor = section.number({"high_freq_factor", "of `llama3`: more turns are not scaled"}, 1e-3, 1e3);
    if (rope.high_freq_factor < rope.low_freq_factor && !shape::is_recording()) {
      throw UserError(section.where("high_freq_factor"), "high_freq_factor: must not be below low_freq_factor");
    }
  }
  section.finish();
  return rope;
}

Precision read_precision(Section& section, const KeyName& key, Precision fallback = Precision::kBf16) {
  return *precision_from_name(section.choice(key, weight_precisions(), std::string(precision_name(fallback))));
}

Latent read_latent(Section section) {
  const auto width = [&](const KeyName& key) { return section.count(key, 1, 1'000'000); };
  Latent latent;
  latent.query_rank =
      section.count({"query_rank", "width that queries are compressed to; 0: not compressed"}, 0, 1'000'000, 0);
  latent.rank = width({"rank", "width of the latent vector"});
  latent.rope_dim = width({"rope_dim", "width of the shared key with positions"});
  latent.key_dim = width({"key_dim", "width of a head's key without positions"});
  latent.value_dim = width({"value_dim", "width of a head's value"});
  section.finish();
  return latent;
}

Experts read_experts(Section section, int layers) {
  Experts experts;
  experts.count = section.count({"count", "routed experts of a layer"}, 2, 100'000);
  if (shape::is_recording()) experts.count = 100'000;
  experts.active = static_cast<double>(section.integer({"active", "experts that a token passes"}, 1, experts.count));
  experts.shared = section.count({"shared", "experts that every token passes"}, 0, 1000, 0);
  experts.ffn = section.count({"ffn", "width of an expert"}, 1, 10'000'000);
  experts.hidden = section.count(
      {"hidden", "width to which rows are projected for routed experts; 0: they have the model's"}, 0, 1'000'000, 0);
  if (experts.hidden > 0 || has_every_key())
    experts.hidden_norm = section.flag({"hidden_norm", "an RMS norm on the sum of their outputs at `hidden`"}, false);
  experts.shared_gate = section.flag({"shared_gate", "a gate on the shared experts' output"}, false);
  experts.dense_layers = section.count(
      {"dense_layers", "first layers, which have a network of the model's `ffn` instead"}, 0, layers - 1, 0);
  experts.every = section.count(
      {"every", "the last of each group of this many layers has experts, the others such a network"}, 1, layers, 1);
  section.finish();
  return experts;
}

void read_sliding(Section section, Model& model) {
  model.sliding_window = section.count({"window", "tokens that a sliding layer attends to"}, 1, 1'000'000'000);
  model.full_every = section.count({"full_every", "the last of each group of this many layers attends to everything"},
                                   2, model.layers);
  model.chunked =
      section.flag({"chunks", "it attends to its own chunk of so many tokens, not to the last ones"}, false);
  const auto own = [&](const KeyName& key, int high) { return section.count(key, 0, high, 0); };
  model.sliding_kv_heads = own({"n_kv_heads", "KV heads of sliding layers; 0: as many as others have"}, 10'000);
  model.sliding_head_dim = own({"head_dim", "width of their heads; 0: that of the others"}, 4096);
  const int heads = model.sliding_kv_heads;
  if (heads > 0 && model.n_q_heads % heads != 0 && !shape::is_recording()) {
    throw UserError(section.where("n_kv_heads"),
                    fmt::format("n_kv_heads: {} KV heads do not divide {} query heads", heads, model.n_q_heads));
  }
  section.finish();
}

std::vector<int> read_layers(Section& section, const KeyName& key, int layers) {
  std::vector<int> out;
  for (const double layer : section.numbers(key, 0, layers - 1)) {
    if (layer != std::floor(layer) || (!out.empty() && layer <= out.back())) {
      throw UserError(section.where(key.name), fmt::format("{}: needs numbers of layers, ascending", key.name));
    }
    out.push_back(static_cast<int>(layer));
  }
  return out;
}

Recurrence read_recurrence(Section section, const Model& model) {
  const auto size = [&](const KeyName& key, int low) { return section.count(key, low, 1'000'000); };
  std::vector<std::string> names;
  for (const Recurrence::Kind known : Recurrence::kKinds) names.emplace_back(recurrence_name(known));
  Recurrence out;
  const std::string kind = section.choice({"kind", "the recurrence"}, names);
  out.kind = *std::ranges::find(Recurrence::kKinds, kind, recurrence_name);
  out.heads = size({"heads", "heads, each with a state"}, 1);
  out.key_heads =
      section.count({"key_heads", "heads of keys that they share; default: as many"}, 1, 1'000'000, out.heads);
  out.key_dim = size({"key_dim", "width of a head's key, a side of its state"}, 1);
  out.value_dim = size({"value_dim", "width of a head's value, the other side"}, 1);
  if (out.kind == Recurrence::Kind::kMamba1 || has_every_key()) {
    out.step_rank = size({"step_rank", "of `mamba1`: width from which the step of each channel is projected"}, 1);
  }
  if (out.kind == Recurrence::Kind::kKimiDelta || has_every_key()) {
    out.full_gate =
        section.flag({"full_gate", "of `kimi_delta`: the output gate is projected from the model's width"}, false);
  }
  out.taps = section.count({"taps", "tokens that the convolution sees; 0: none"}, 0, 64, 0);
  out.element_bytes = section.choice({"state", "precision of the state"}, {"fp32", "bf16"}, "fp32") == "fp32" ? 4 : 2;
  if (out.heads % out.key_heads != 0 && !shape::is_recording()) {
    throw UserError(section.where("key_heads"),
                    fmt::format("key_heads: {} does not divide {} heads", out.key_heads, out.heads));
  }
  if (model.blocks.empty()) {
    out.attention_every =
        section.count({"attention_every", "the last of each group of this many layers attends"}, 2, model.layers, 0);
    if (section.has("attention_layers") || has_every_key()) {
      out.attention_layers = read_layers(
          section, {"attention_layers", "layers that attend, from 0, in place of `attention_every`"}, model.layers);
    }
    if ((out.attention_every > 0) == !out.attention_layers.empty() && !shape::is_recording()) {
      throw UserError(section.where("kind"), "recurrence: needs either attention_every or attention_layers");
    }
  }
  section.finish();
  return out;
}

// One character a layer; its length is the number of layers.
std::string read_blocks(Section& section, int layers) {
  const std::string blocks = section.text(
      {"blocks", "one block a layer: M recurrence, * attention, E experts, - network; default: a mixer and a network"},
      "");
  if (blocks.empty() || shape::is_recording()) return "";
  if (const auto bad = blocks.find_first_not_of("M*E-"); bad != std::string::npos) {
    throw UserError(section.where("blocks"),
                    fmt::format("blocks: '{}' at {} is none of M, *, E and -", blocks[bad], bad));
  }
  if (std::cmp_not_equal(blocks.size(), layers)) {
    throw UserError(section.where("blocks"), fmt::format("blocks: {} characters for {} layers", blocks.size(), layers));
  }
  return blocks;
}

// Layer i has the inputs of the blocks before its own and of its own so far: the embedding is a block of its own, and
// the first layer of a block begins it after its mixer.
WeighedResiduals read_residuals(Section& section, int layers) {
  WeighedResiduals out;
  out.every =
      section.count({"residual_block",
                     "layers of a block, over whose outputs attention weighs the inputs of mixers and networks; "
                     "0: plain residuals"},
                    0, layers, 0);
  if (out.every == 0) return out;
  out.blocks = (layers + out.every - 1) / out.every;
  double inputs = 0;
  for (int layer = 0; layer < layers; ++layer) {
    inputs += layer == 0 ? 0 : (layer + out.every - 1) / out.every + 1;
    inputs += layer / out.every + 2;
  }
  out.inputs = inputs / (2.0 * layers);
  return out;
}

// Reads the keys that make layers differ, apart from windows and recurrences.
void read_layer_kinds(Section& section, Model& model) {
  if (section.has("compressed")) {
    model.compressed = read_compressed(
        section.section({"compressed", "attention to entries that represent several tokens"}, "compressed"),
        model.layers);
  }
  model.streams = section.count({"streams", "residual streams, mixed before and after each block"}, 1, 64, 1);
  model.residuals = read_residuals(section, model.layers);
  model.blocks = read_blocks(section, model.layers);
  if (section.has("experts"))
    model.experts =
        read_experts(section.section({"experts", "a mixture of experts in place of feed-forward networks"}, "experts"),
                     model.layers);
}

void read_flags(Section& section, Model& model) {
  model.tie_embeddings = section.flag({"tie_embeddings", "the head is the embedding"}, false);
  model.qkv_bias = section.flag({"qkv_bias", "biases of the projections to queries, keys and values"}, false);
  model.qk_norm = section.flag({"qk_norm", "an RMS norm on each head's query and key"}, false);
  model.output_gate = section.flag(
      {"output_gate", "a gate on the attention output, projected from the same rows as the queries"}, false);
  model.values_from_keys = section.flag(
      {"values_from_keys", "layers that attend to everything project keys alone, which are values too"}, false);
  model.gated_ffn = section.flag({"gated_ffn", "networks and experts have a gate beside up and down"}, true);
}

void check_shape(const Model& model, const Section& section) {
  if (model.n_q_heads % model.n_kv_heads != 0) {
    throw UserError(section.where("n_kv_heads"), fmt::format("n_kv_heads: {} KV heads do not divide {} query heads",
                                                             model.n_kv_heads, model.n_q_heads));
  }
  if (model.head_dim % 2 != 0) {
    throw UserError(section.where("head_dim"),
                    fmt::format("head_dim: {} is odd, and RoPE turns pairs of dimensions", model.head_dim));
  }
  if (model.full_layers() == 0) throw UserError(section.where("layers"), "layers: none of them attends to all tokens");
  const auto has = [&](char block) { return model.blocks.find(block) != std::string::npos; };
  if (!model.blocks.empty() && (has('M') != model.recurrence.has_value() || has('E') != model.experts.has_value())) {
    throw UserError(section.where("blocks"),
                    "blocks: M needs `recurrence` and E `experts`, and either is needed for them");
  }
  if (model.recurrence && model.sliding_window > 0) {
    throw UserError(section.where("sliding"), "sliding: not modelled together with a recurrence");
  }
  const auto& c = model.compressed;
  if (c && (model.latent || model.recurrence || model.sliding_window > 0 || !model.blocks.empty())) {
    throw UserError(section.where("compressed"),
                    "compressed: not modelled together with latent attention, recurrences, sliding windows or blocks");
  }
  if (c && (model.n_kv_heads != 1 || c->rope_dim > model.head_dim || model.n_q_heads % c->output_groups != 0)) {
    throw UserError(section.where("compressed"),
                    "compressed: needs n_kv_heads: 1, a head_dim of at least rope_dim, and output_groups that divide "
                    "n_q_heads");
  }
  if (model.rope.original_context > model.max_context) {
    throw UserError(section.where("rope"), fmt::format("rope: original_context {} is above max_context {}",
                                                       model.rope.original_context, model.max_context));
  }
}

}  // namespace

std::string canonical(const Model& m) {
  const Rope& r = m.rope;
  std::string text =
      fmt::format("{}\n{}\n{} {} {} {} {} {} {} {} {} {} {}\n{} {} {} {} {} {}\n{}\n", m.name, m.title, m.layers,
                  m.hidden, m.n_q_heads, m.n_kv_heads, m.head_dim, m.ffn, m.vocab, m.tie_embeddings, m.qkv_bias,
                  m.qk_norm, m.max_context, r.theta, static_cast<int>(r.scaling), r.factor, r.low_freq_factor,
                  r.high_freq_factor, r.original_context, m.source);
  // Plain models keep the text that is the key of score tables; only what goes beyond them is appended.
  if (const auto& l = m.latent) {
    text += fmt::format("latent {} {} {} {} {}\n", l->query_rank, l->rank, l->rope_dim, l->key_dim, l->value_dim);
  }
  if (const auto& e = m.experts) {
    text += fmt::format("experts {} {} {} {} {}\n", e->count, e->active, e->shared, e->ffn, e->dense_layers);
  }
  if (m.sliding_window > 0) text += fmt::format("sliding {} {}\n", m.sliding_window, m.full_every);
  if (m.chunked || m.sliding_kv_heads > 0 || m.sliding_head_dim > 0 || m.values_from_keys) {
    text += fmt::format("windows {} {} {} {}\n", m.chunked, m.sliding_kv_heads, m.sliding_head_dim, m.values_from_keys);
  }
  if (const auto& e = m.experts; e && e->hidden > 0)
    text += fmt::format("experts' width {} {}\n", e->hidden, e->hidden_norm);
  if (m.residuals.every > 0) text += fmt::format("residuals {}\n", m.residuals.every);
  if (const auto& e = m.experts; e && e->every > 1) text += fmt::format("experts every {}\n", e->every);
  if (const auto& c = m.compressed) {
    text += fmt::format("compressed {} {} {} {} {} {} {} {} {} {} {} {}\n", c->layers, c->window, c->csa_tokens,
                        c->hca_tokens, c->index_heads, c->index_dim, c->index_best, c->index_fp4, c->query_rank,
                        c->rope_dim, c->output_groups, c->output_rank);
  }
  if (m.streams > 1) text += fmt::format("streams {}\n", m.streams);
  if (const auto& e = m.experts; e && e->shared_gate) {
    text += "shared gate\n";
  }
  if (const auto& e = m.experts; e && e->host_layers > 0)
    text += fmt::format("experts on host {} {}\n", e->host_layers, e->fetch_rows);
  if (m.output_gate || !m.gated_ffn) text += fmt::format("gates {} {}\n", m.output_gate, m.gated_ffn);
  if (const auto& mixer = m.recurrence) {
    text += fmt::format("recurrence {} {} {} {} {} {} {} {} {}\n", recurrence_name(mixer->kind), mixer->heads,
                        mixer->key_heads, mixer->key_dim, mixer->value_dim, mixer->taps, mixer->element_bytes,
                        mixer->attention_every, fmt::join(mixer->attention_layers, " "));
    if (mixer->full_gate) text += "full gate\n";
    if (mixer->step_rank > 0) text += fmt::format("step {}\n", mixer->step_rank);
  }
  if (!m.blocks.empty()) text += fmt::format("blocks {}\n", m.blocks);
  if (m.weights != Precision::kBf16 || m.expert_weights != Precision::kBf16 || m.cache != Precision::kBf16) {
    text += fmt::format("{} {} {}\n", precision_name(m.weights), precision_name(m.expert_weights), cache_name(m.cache));
  }
  if (m.shared_weights != m.expert_weights) text += fmt::format("shared {}\n", precision_name(m.shared_weights));
  return text;
}

Model read_model(const Node& map, const std::string& name) {
  Section section(map, "model");
  Model model;
  model.name = name;
  model.title = section.text({"title", "the model as its developers write it"});
  const bool latent =
      section.choice({"attention", "`mla`: multi-head latent attention"}, {"gqa", "mla"}, "gqa") == "mla" ||
      has_every_key();
  model.aliases = section.texts({"aliases", "other names of a file"}, {});
  const auto dimension = [&](const KeyName& key, int high) { return section.count(key, 1, high); };
  section.require({"layers", "hidden", "n_q_heads", "vocab", "max_context", "rope", "source"});
  if (!latent && section.has("latent")) {
    throw UserError(section.where("latent"), "latent: belongs to a model with `attention: mla`");
  }
  section.require(latent ? std::vector<std::string_view>{"latent"}
                         : std::vector<std::string_view>{"n_kv_heads", "head_dim"});
  if (!section.has("experts")) section.require({"ffn"});
  model.layers = dimension({"layers", "decoder layers"}, 10'000);
  if (shape::is_recording()) model.layers = 10'000;
  model.hidden = dimension({"hidden", "width between layers"}, 1'000'000);
  model.n_q_heads = dimension({"n_q_heads", "query heads"}, 10'000);
  if (latent) {
    model.latent = read_latent(
        section.section({"latent", "widths of latent attention, in place of `n_kv_heads` and `head_dim`"}, "latent"));
    model.n_kv_heads = 1, model.head_dim = model.latent->key_dim;
  } else {
    model.n_kv_heads = dimension({"n_kv_heads", "KV heads"}, 10'000);
    model.head_dim = dimension({"head_dim", "width of a head"}, 4096);
  }
  read_layer_kinds(section, model);
  if (!model.experts || model.experts->dense_layers > 0 || model.experts->every > 1 ||
      model.blocks.find('-') != std::string::npos)
    model.ffn = dimension({"ffn", "width of the feed-forward network between up and down"}, 10'000'000);
  if (section.has("sliding")) read_sliding(section.section({"sliding", "layers with a window"}, "sliding"), model);
  if (section.has("recurrence")) {
    model.recurrence = read_recurrence(
        section.section({"recurrence", "layers with a recurrence in place of attention"}, "recurrence"), model);
  }
  model.weights = read_precision(section, {"weights", "released precision of projections and networks"});
  if (section.has("expert_weights") && !model.experts) {
    throw UserError(section.where("expert_weights"),
                    "expert_weights: the model has no experts; `weights` is the precision of its networks");
  }
  model.expert_weights =
      read_precision(section, {"expert_weights", "released precision of routed experts"}, model.weights);
  model.shared_weights =
      read_precision(section, {"shared_weights", "released precision of shared experts"}, model.expert_weights);
  model.vocab = dimension({"vocab", "rows of the embedding and of the head"}, 100'000'000);
  read_flags(section, model);
  model.max_context = section.integer({"max_context", "tokens that the model can attend to"}, 1, 1'000'000'000);
  model.rope = read_rope(section.section({"rope", "rotary positions"}, "rope"));
  model.source = section.text({"source", "where the shape is published"});
  section.finish();
  if (!shape::is_recording()) check_shape(model, section);
  return model;
}

Model read_model(const std::string& path) {
  const Node map = load_yaml(path);
  Section section(map, "model");
  refuse_hidden_aliases("models", path, section.texts("aliases", {}), section.where("aliases"));
  return read_model(map, stem_of(path));
}

}  // namespace kvcast::config
