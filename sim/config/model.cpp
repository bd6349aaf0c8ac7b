// Shapes follow the published config.json files.
#include "config/model.hpp"

#include <cmath>
#include <stdexcept>

#include "config/find.hpp"
#include "config/keys.hpp"

namespace kvcast::config {
namespace {

constexpr Limits kWidth{1, 1'000'000}, kHeads{1, 10'000}, kFactor{1e-3, 1e3};
constexpr int kMostLayers = 10'000;
using Type = KeyShape::Type;
constexpr double kLongest = 1e9;

constexpr const char* kScalings[] = {"none", "linear", "llama3", "yarn"};
bool is_scaled(const Rope& rope) { return rope.scaling != Rope::Scaling::kNone; }
bool is_llama3(const Rope& rope) { return rope.scaling == Rope::Scaling::kLlama3; }

constexpr Key<Rope> kRopeKeys[] = {
    {"theta", within(1, 1e12, need<&Rope::theta>), "base of the frequencies by which positions turn keys"},
    {"scaling", among<kScalings>(into<&Rope::scaling>), "how positions beyond `original_context` are scaled"},
    {"factor", when(is_scaled, within(1, 1e6, need<&Rope::factor>)), "by which contexts grow"},
    {"original_context", when(is_scaled, within(1, kLongest, need<&Rope::original_context>)),
     "tokens trained on before scaling"},
    {"low_freq_factor", when(is_llama3, within(kFactor, need<&Rope::low_freq_factor>)),
     "of `llama3`: fewer turns over `original_context` are scaled"},
    {"high_freq_factor", when(is_llama3, within(kFactor, need<&Rope::high_freq_factor>)),
     "of `llama3`: more turns are not scaled"}};

void read_rope(Section& section, Rope& rope) {
  const Section map = read_map(section, "rope", kRopeKeys, rope);
  if (is_llama3(rope) && rope.high_freq_factor < rope.low_freq_factor)
    throw UserError(map.where("high_freq_factor"), "high_freq_factor: must not be below low_freq_factor");
}

constexpr Key<Latent> kLatentKeys[] = {
    {"query_rank", within(0, 1'000'000, into<&Latent::query_rank>),
     "width that queries are compressed to; 0: not compressed"},
    {"rank", within(kWidth, need<&Latent::rank>), "width of the latent vector"},
    {"rope_dim", within(kWidth, need<&Latent::rope_dim>), "width of the shared key with positions"},
    {"key_dim", within(kWidth, need<&Latent::key_dim>), "width of a head's key without positions"},
    {"value_dim", within(kWidth, need<&Latent::value_dim>), "width of a head's value"}};

void read_active(Section& section, const Key<Experts>& key, Experts& experts) {
  experts.active = static_cast<double>(section.integer(key.name, 1, experts.count));
}

// Keys that are apart have the number of the model's layers as a limit.
constexpr Key<Experts> kExpertKeys[] = {
    {"count", within(2, 100'000, need<&Experts::count>), "routed experts of a layer"},
    {"active", within(1, 100'000, by(read_active, own<Experts>(Type::kInteger))), "experts that a token passes"},
    {"shared", within(0, 1000, into<&Experts::shared>), "experts that every token passes"},
    {"ffn", within(1, 10'000'000, need<&Experts::ffn>), "width of an expert"},
    {"hidden", within(0, 1'000'000, into<&Experts::hidden>),
     "width to which rows are projected for routed experts; 0: they have the model's"},
    {"hidden_norm", when([](const Experts& experts) { return experts.hidden > 0; }, into<&Experts::hidden_norm>),
     "an RMS norm on the sum of their outputs at `hidden`"},
    {"shared_gate", into<&Experts::shared_gate>, "a gate on the shared experts' output"},
    {"dense_layers", within(0, kMostLayers - 1, apart(into<&Experts::dense_layers>)),
     "first layers, which have a network of the model's `ffn` instead"},
    {"every", within(1, kMostLayers, apart(into<&Experts::every>)),
     "the last of each group of this many layers has experts, the others such a network"}};

Experts read_experts(Section section, int layers) {
  Experts experts;
  read_keys(section, kExpertKeys, experts);
  read_apart(section, kExpertKeys, "dense_layers", experts, layers - 1);
  read_apart(section, kExpertKeys, "every", experts, layers);
  section.finish();
  return experts;
}

constexpr Key<Model> kSlidingKeys[] = {
    {"window", within(1, kLongest, need<&Model::sliding_window>), "tokens that a sliding layer attends to"},
    {"full_every", within(2, kMostLayers, apart(need<&Model::full_every>)),
     "the last of each group of this many layers attends to everything"},
    {"chunks", into<&Model::chunked>, "it attends to its own chunk of so many tokens, not to the last ones"},
    {"n_kv_heads", within(0, 10'000, into<&Model::sliding_kv_heads>),
     "KV heads of sliding layers; 0: as many as others have"},
    {"head_dim", within(0, 4096, into<&Model::sliding_head_dim>), "width of their heads; 0: that of the others"}};

void read_sliding(Section section, Model& model) {
  read_keys(section, kSlidingKeys, model);
  read_apart(section, kSlidingKeys, "full_every", model, model.layers);
  const int heads = model.sliding_kv_heads;
  if (heads > 0 && model.n_q_heads % heads != 0) {
    throw UserError(section.where("n_kv_heads"),
                    fmt::format("n_kv_heads: {} KV heads do not divide {} query heads", heads, model.n_q_heads));
  }
  section.finish();
}

std::vector<int> read_layers(Section& section, const char* key, int layers) {
  std::vector<int> out;
  for (const double layer : section.numbers(key, 0, layers - 1)) {
    if (layer != std::floor(layer) || (!out.empty() && layer <= out.back())) {
      throw UserError(section.where(key), fmt::format("{}: needs numbers of layers, ascending", key));
    }
    out.push_back(static_cast<int>(layer));
  }
  return out;
}

std::vector<std::string> recurrence_names() {
  std::vector<std::string> names;
  for (const Recurrence::Kind known : Recurrence::kKinds) names.emplace_back(recurrence_name(known));
  return names;
}

constexpr const char* kStates[] = {"fp32", "bf16"};
void read_state(Section& section, const Key<Recurrence>& key, Recurrence& out) {
  out.element_bytes = section.choice(key.name, key.slot.names(), kStates[0]) == kStates[0] ? 4 : 2;
}

void read_key_heads(Section& section, const Key<Recurrence>& key, Recurrence& out) {
  out.key_heads = out.heads;
  read_key(section, key, out.key_heads);
}

constexpr Key<Recurrence> kRecurrenceKeys[] = {
    {"kind", among<recurrence_names>(need<&Recurrence::kind>), "the recurrence"},
    {"heads", within(kWidth, need<&Recurrence::heads>), "heads, each with a state"},
    {"key_heads", within(kWidth, by(read_key_heads, own<Recurrence>(Type::kInteger))),
     "heads of keys that they share; default: as many"},
    {"key_dim", within(kWidth, need<&Recurrence::key_dim>), "width of a head's key, a side of its state"},
    {"value_dim", within(kWidth, need<&Recurrence::value_dim>), "width of a head's value, the other side"},
    {"step_rank",
     when([](const Recurrence& r) { return r.kind == Recurrence::Kind::kMamba1; },
          within(kWidth, need<&Recurrence::step_rank>)),
     "of `mamba1`: width from which the step of each channel is projected"},
    {"full_gate",
     when([](const Recurrence& r) { return r.kind == Recurrence::Kind::kKimiDelta; }, into<&Recurrence::full_gate>),
     "of `kimi_delta`: the output gate is projected from the model's width"},
    {"taps", within(0, 64, into<&Recurrence::taps>), "tokens that the convolution sees; 0: none"},
    {"state", among<kStates>(by(read_state, own<Recurrence>(Type::kText, kStates[0]))), "precision of the state"},
    {"attention_every", within(2, kMostLayers, apart(into<&Recurrence::attention_every>)),
     "the last of each group of this many layers attends"},
    {"attention_layers", {.type = Type::kList}, "layers that attend, from 0, in place of `attention_every`"}};

Recurrence read_recurrence(Section section, const Model& model) {
  Recurrence out;
  read_keys(section, kRecurrenceKeys, out);
  if (out.heads % out.key_heads != 0) {
    throw UserError(section.where("key_heads"),
                    fmt::format("key_heads: {} does not divide {} heads", out.key_heads, out.heads));
  }
  if (model.blocks.empty()) {
    read_apart(section, kRecurrenceKeys, "attention_every", out, model.layers);
    if (section.has("attention_layers")) out.attention_layers = read_layers(section, "attention_layers", model.layers);
    if ((out.attention_every > 0) == !out.attention_layers.empty())
      throw UserError(section.where("kind"), "recurrence: needs either attention_every or attention_layers");
  }
  section.finish();
  return out;
}

// One character a layer; its length is the number of layers.
void read_blocks(Section& section, const Key<Model>& key, Model& model) {
  read_key(section, key, model.blocks);
  const std::string& blocks = model.blocks;
  if (blocks.empty()) return;
  if (const auto bad = blocks.find_first_not_of("M*E-"); bad != std::string::npos) {
    throw UserError(section.where("blocks"),
                    fmt::format("blocks: '{}' at {} is none of M, *, E and -", blocks[bad], bad));
  }
  if (std::cmp_not_equal(blocks.size(), model.layers)) {
    throw UserError(section.where("blocks"),
                    fmt::format("blocks: {} characters for {} layers", blocks.size(), model.layers));
  }
}

// Layer i has the inputs of the blocks before its own and of its own so far: the embedding is a block of its own, and
// the first layer of a block begins it after its mixer.
void read_residuals(Section& section, const Key<Model>& key, Model& model) {
  WeighedResiduals& out = model.residuals;
  const int layers = model.layers;
  out.every = section.count(key.name, 0, layers, 0);
  if (out.every == 0) return;
  out.blocks = (layers + out.every - 1) / out.every;
  double inputs = 0;
  for (int layer = 0; layer < layers; ++layer) {
    inputs += layer == 0 ? 0 : (layer + out.every - 1) / out.every + 1;
    inputs += layer / out.every + 2;
  }
  out.inputs = inputs / (2.0 * layers);
}

constexpr const char* kAttentions[] = {"gqa", "mla"};

// Keys that depend on others are apart.
constexpr Key<Model> kModelKeys[] = {
    {"title", need<&Model::title>, "the model as its developers write it"},
    {"attention", among<kAttentions>(own<Model>(KeyShape::Type::kText, kAttentions[0])),
     "`mla`: multi-head latent attention"},
    {"aliases", into<&Model::aliases>, "other names of a file"},
    {"layers", within(1, kMostLayers, need<&Model::layers>), "decoder layers"},
    {"hidden", within(kWidth, need<&Model::hidden>), "width between layers"},
    {"n_q_heads", within(kHeads, need<&Model::n_q_heads>), "query heads"},
    {"vocab", within(1, 100'000'000, need<&Model::vocab>), "rows of the embedding and of the head"},
    {"max_context", within(1, kLongest, need<&Model::max_context>), "tokens that the model can attend to"},
    {"rope", {Type::kMap}, "rotary positions"},
    {"source", need<&Model::source>, "where the shape is published"},
    {"latent", {Type::kMap}, "widths of latent attention, in place of `n_kv_heads` and `head_dim`"},
    {"n_kv_heads", within(kHeads, apart(need<&Model::n_kv_heads>)), "KV heads"},
    {"head_dim", within(1, 4096, apart(need<&Model::head_dim>)), "width of a head"},
    {"experts", {Type::kMap}, "a mixture of experts in place of feed-forward networks"},
    {"ffn", within(1, 10'000'000, apart(need<&Model::ffn>)), "width of the feed-forward network between up and down"},
    {"compressed", {Type::kMap}, "attention to entries that represent several tokens"},
    {"streams", within(1, 64, into<&Model::streams>), "residual streams, mixed before and after each block"},
    {"residual_block", within(0, kMostLayers, by(read_residuals, own<Model>(Type::kInteger, "0"))),
     "layers of a block, over whose outputs attention weighs the inputs of mixers and networks; 0: plain residuals"},
    {"blocks", by(read_blocks, into<&Model::blocks>),
     "one block a layer: M recurrence, * attention, E experts, - network; default: a mixer and a network"},
    {"sliding", {Type::kMap}, "layers with a window"},
    {"recurrence", {Type::kMap}, "layers with a recurrence in place of attention"},
    {"weights", among<weight_precisions>(into<&Model::weights>), "released precision of projections and networks"},
    {"expert_weights", apart(among<weight_precisions>(into<&Model::expert_weights>)),
     "released precision of routed experts"},
    {"shared_weights", apart(among<weight_precisions>(into<&Model::shared_weights>)),
     "released precision of shared experts"},
    {"tie_embeddings", into<&Model::tie_embeddings>, "the head is the embedding"},
    {"qkv_bias", into<&Model::qkv_bias>, "biases of the projections to queries, keys and values"},
    {"qk_norm", into<&Model::qk_norm>, "an RMS norm on each head's query and key"},
    {"output_gate", into<&Model::output_gate>,
     "a gate on the attention output, projected from the same rows as the queries"},
    {"values_from_keys", into<&Model::values_from_keys>,
     "layers that attend to everything project keys alone, which are values too"},
    {"gated_ffn", into<&Model::gated_ffn>, "networks and experts have a gate beside up and down"},
    {"like", {}, "a model, of which the keys beside this one differ"},
    {"config", {}, "a published config.json or the folder that has it, of which the keys beside this one differ"}};

// Reads what makes layers differ, and the precisions of their parts.
void read_parts(Section& section, Model& model) {
  read_rope(section, model.rope);
  if (section.has("compressed"))
    model.compressed = read_compressed(section.section("compressed", "compressed"), model.layers);
  if (section.has("experts")) model.experts = read_experts(section.section("experts", "experts"), model.layers);
  if (section.has("sliding")) read_sliding(section.section("sliding", "sliding"), model);
  if (section.has("recurrence")) model.recurrence = read_recurrence(section.section("recurrence", "recurrence"), model);
  if (section.has("expert_weights") && !model.experts) {
    throw UserError(section.where("expert_weights"),
                    "expert_weights: the model has no experts; `weights` is the precision of its networks");
  }
  model.expert_weights = model.weights;
  read_apart(section, kModelKeys, "expert_weights", model);
  model.shared_weights = model.expert_weights;
  read_apart(section, kModelKeys, "shared_weights", model);
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
    throw UserError(
        section.where("compressed"),
        "compressed: needs n_kv_heads: 1, a head_dim of at least rope_dim, and output_groups that divide n_q_heads");
  }
  if (model.rope.original_context > model.max_context) {
    throw UserError(section.where("rope"), fmt::format("rope: original_context {} is above max_context {}",
                                                       model.rope.original_context, model.max_context));
  }
}

}  // namespace

Model read_model(const Node& map, const std::string& name) {
  Section section(map, "model");
  Model model;
  model.name = name;
  section.require({"title"});
  const bool latent =
      section.choice("attention", {std::begin(kAttentions), std::end(kAttentions)}, kAttentions[0]) == kAttentions[1];
  section.require({"layers", "hidden", "n_q_heads", "vocab", "max_context", "rope", "source"});
  if (!latent && section.has("latent")) {
    throw UserError(section.where("latent"), "latent: belongs to a model with `attention: mla`");
  }
  section.require(latent ? std::vector<std::string_view>{"latent"}
                         : std::vector<std::string_view>{"n_kv_heads", "head_dim"});
  if (!section.has("experts")) section.require({"ffn"});
  read_keys(section, kModelKeys, model);
  if (latent) {
    read_map(section, "latent", kLatentKeys, model.latent.emplace());
    model.n_kv_heads = 1, model.head_dim = model.latent->key_dim;
  } else {
    read_apart(section, kModelKeys, "n_kv_heads", model);
    read_apart(section, kModelKeys, "head_dim", model);
  }
  read_parts(section, model);
  if (!model.experts || model.experts->dense_layers > 0 || model.experts->every > 1 ||
      model.blocks.find('-') != std::string::npos)
    read_apart(section, kModelKeys, "ffn", model);
  section.finish();
  check_shape(model, section);
  return model;
}

Model read_model(const std::string& path) {
  const Node map = load_yaml(path);
  Section section(map, "model");
  refuse_hidden_aliases("models", path, section.texts("aliases", {}), section.where("aliases"));
  return read_model(map, stem_of(path));
}

Shapes model_shapes() {
  Shapes shapes = compressed_shapes();
  shapes["model"] = shapes_in(kModelKeys), shapes["rope"] = shapes_in(kRopeKeys);
  shapes["latent"] = shapes_in(kLatentKeys), shapes["experts"] = shapes_in(kExpertKeys);
  shapes["sliding"] = shapes_in(kSlidingKeys), shapes["recurrence"] = shapes_in(kRecurrenceKeys);
  for (auto& [title, keys] : shapes) {  // `like` has them all
    for (KeyShape& key : keys) key.required = false;
  }
  return shapes;
}

}  // namespace kvcast::config
