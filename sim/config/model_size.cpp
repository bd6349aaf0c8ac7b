// Sizes that follow from a model's shape. parameters() counts the tensors of the checkpoints, so that it can be
// compared with their published sizes exactly.
#include <algorithm>
#include <cmath>
#include <functional>

#include "config/model.hpp"

namespace kvcast::config {
namespace {

using Visit = std::function<void(double count, double rows, double columns, Precision precision)>;

// Matrices of the layers with a recurrence. A rank counts its own heads.
void recurrence_matrices(const Model& m, const Visit& visit) {
  const Recurrence& r = *m.recurrence;
  const double layers = m.layers_with(Mixer::kRecurrence), h = m.hidden, values = r.value_width();
  const double heads = r.heads, dim = r.key_dim;
  const auto vector = [&](double n) { visit(layers, n, 1, Precision::kBf16); };
  const auto matrix = [&](double rows, double columns) { visit(layers, rows, columns, m.weights); };
  matrix(h, values);
  if (r.taps > 0) vector(r.channels() * r.taps);
  if (r.kind == Recurrence::Kind::kKimiDelta) {
    matrix(r.channels() + heads, h);           // queries, keys, values, and how strongly to write
    matrix(dim, h), matrix(heads * dim, dim);  // decay, through rank dim
    if (r.full_gate) matrix(values, h);        // output gate
    if (!r.full_gate) matrix(dim, h), matrix(heads * dim, dim);
    return vector(heads + heads * dim + r.value_dim);  // decay of heads and channels, the norm of a head
  }
  matrix(r.projected(), h);
  if (r.kind == Recurrence::Kind::kGatedDelta) vector(2 * heads + r.value_dim);
  if (r.kind == Recurrence::Kind::kMamba2) vector(3 * heads + values + r.channels());  // and the convolution's bias
  if (r.kind == Recurrence::Kind::kLightning) vector(values);
  if (r.kind != Recurrence::Kind::kMamba1) return;
  matrix(r.from_values(), values), matrix(values, r.step_rank);
  // The state matrix, skips, biases of the step and of the convolution, norms (Jamba).
  vector(values * dim + 3 * values + r.from_values());
}

// Matrices of `layers` layers that attend with the model's heads.
void attention_matrices(const Model& m, double layers, bool own_values, const Visit& visit) {
  const double h = m.hidden, queries = static_cast<double>(m.n_q_heads) * m.head_dim;
  const double keys = static_cast<double>(m.n_kv_heads) * m.head_dim;
  const auto vector = [&](double n) { visit(layers, n, 1, Precision::kBf16); };
  const auto matrix = [&](double rows, double columns) { visit(layers, rows, columns, m.weights); };
  if (m.latent) {
    const Latent& l = *m.latent;
    const double heads = m.n_q_heads;
    if (l.query_rank > 0) matrix(l.query_rank, h), vector(l.query_rank);
    matrix(heads * (l.key_dim + l.rope_dim), l.query_rank > 0 ? l.query_rank : h);
    matrix(l.cached(), h);
    vector(l.rank);
    matrix(heads * (l.key_dim + l.value_dim), l.rank);
    matrix(h, heads * l.value_dim);
    if (m.output_gate) matrix(heads * l.value_dim, h);
    return;
  }
  matrix((m.output_gate ? 2 : 1) * queries + (own_values ? 2 : 1) * keys, h);
  matrix(h, queries);
  if (m.qkv_bias) vector(queries + 2 * keys);
  if (m.qk_norm) vector(2.0 * m.head_dim);
}

// The same of compressed attention, its compressors and its indexer, which keep 16 bits.
void compressed_matrices(const Model& m, const Visit& visit) {
  const Compressed& c = *m.compressed;
  const double h = m.hidden, d = m.head_dim, queries = m.n_q_heads * d, groups = c.output_groups;
  const double compressed = groups * c.output_rank;
  const auto matrix = [&](double rows, double columns) { visit(m.layers, rows, columns, m.weights); };
  matrix(c.query_rank + d, h), matrix(queries, c.query_rank);
  matrix(compressed, queries / groups), matrix(h, compressed);
  visit(m.layers, c.query_rank + d + m.n_q_heads, 1, Precision::kBf16);  // two norms, and a sink for each head
  for (const auto kind : {Compressed::Kind::kSelecting, Compressed::Kind::kAll}) {
    const double layers = c.count(kind, m.layers), width = c.compressor_width(kind, m.head_dim);
    const double index = kind == Compressed::Kind::kSelecting ? c.index_dim : 0;
    visit(layers, width, h, Precision::kBf16);
    visit(layers, c.tokens(kind) * width / 2 + d + index, 1, Precision::kBf16);  // the gate's positions, norms
    if (index == 0) continue;
    visit(layers, c.index_heads * index, c.query_rank, m.weights);
    visit(layers, c.index_heads, h, Precision::kBf16);
  }
}

// Calls visit for each kind of matrix of a model; vectors are matrices of one column.
void for_each_matrix(const Model& m, const Visit& visit) {
  const double h = m.hidden;
  const auto networks = [&](double count, double width, double outer, Precision precision) {
    visit(count, (m.gated_ffn ? 2 : 1) * width, outer, precision);
    visit(count, outer, width, precision);
  };
  visit(m.tie_embeddings ? 1 : 2, m.vocab, h, Precision::kBf16);
  visit(1, h, 1, Precision::kBf16);  // the final norm
  // Norms before attention and before the feed-forward network, or before the one block of a layer.
  visit(m.layers, (m.blocks.empty() ? 2 : 1) * h, 1, Precision::kBf16);
  // A norm and a vector of weights for each mixer, each network and the head.
  if (m.residuals.every > 0) visit(2.0 * m.layers + 1, 2 * h, 1, Precision::kBf16);
  if (m.recurrence) recurrence_matrices(m, visit);
  if (m.streams > 1) {
    // Coefficients before and after each of the two blocks of a layer and between streams, and those of the head.
    const double streams = m.streams, mixed = streams * (streams + 2);
    visit(2.0 * m.layers, mixed * streams * h + mixed + 3, 1, Precision::kBf16);
    visit(1, streams * streams * h + streams + 1, 1, Precision::kBf16);
  }
  if (m.compressed) {
    compressed_matrices(m, visit);
  } else {
    attention_matrices(m, m.layers_with(Mixer::kFull), !m.values_from_keys, visit);
    attention_matrices(sliding_layers(m), m.layers_with(Mixer::kSliding), true, visit);
  }
  double dense = 0, mixtures = 0;
  for (int layer = 0; layer < m.layers; ++layer) {
    if (m.has_experts(layer)) ++mixtures;
    if (m.has_network(layer)) ++dense;
  }
  networks(dense, m.ffn, h, m.weights);
  if (!m.experts) return;
  const Experts& e = *m.experts;
  visit(mixtures, e.count, h, Precision::kBf16);  // the router
  networks(mixtures * e.count, e.ffn, m.routed_width(), m.expert_weights);
  networks(mixtures * e.shared, e.ffn, h, m.shared_weights);
  if (e.hidden > 0) visit(mixtures, e.hidden, h, m.weights), visit(mixtures, h, e.hidden, m.weights);
  if (e.hidden_norm) visit(mixtures, e.hidden, 1, Precision::kBf16);
  if (e.shared_gate) visit(mixtures, h, 1, Precision::kBf16);
}

// The sum over layers of compressed attention of what a layer of a kind has.
template <class OfKind>
double over_layers(const Model& m, OfKind of_kind) {
  double sum = 0;
  for (const auto kind : {Compressed::Kind::kWindow, Compressed::Kind::kSelecting, Compressed::Kind::kAll}) {
    if (const int count = m.compressed->count(kind, m.layers); count > 0) sum += count * of_kind(kind);
  }
  return sum;
}

}  // namespace

double Experts::touched(double rows) const { return count * (1 - std::pow(1 - active / count, rows)); }

double Recurrence::channels() const {
  if (kind == Kind::kLightning) return 0;
  if (kind == Kind::kMamba1) return value_width();
  return 2.0 * key_heads * key_dim + value_width();
}

double Recurrence::state_bytes() const {
  return state_elements() * element_bytes + (taps > 0 ? (taps - 1) * channels() * Model::kElementBytes : 0);
}

double Recurrence::projected() const {
  const double values = value_width(), keys = static_cast<double>(key_heads) * key_dim;
  switch (kind) {
    case Kind::kGatedDelta:
      return 2 * keys + 2 * values + 2.0 * heads;  // and the gates of writing and decay
    case Kind::kKimiDelta:
      // And the output gate, or the first half of it, and of the decay.
      return 2 * keys + values + heads + key_dim + (full_gate ? values : key_dim);
    case Kind::kMamba2:
      return 2 * keys + 2 * values + heads;
    case Kind::kLightning:
      return 2 * keys + 2 * values;
    case Kind::kMamba1:
      return 2 * values;
  }
  return 0;
}

std::string_view recurrence_name(Recurrence::Kind kind) {
  switch (kind) {
    case Recurrence::Kind::kGatedDelta:
      return "gated_delta";
    case Recurrence::Kind::kKimiDelta:
      return "kimi_delta";
    case Recurrence::Kind::kMamba2:
      return "mamba2";
    case Recurrence::Kind::kLightning:
      return "lightning";
    case Recurrence::Kind::kMamba1:
      return "mamba1";
  }
  return "";
}

Mixer Model::mixer(int layer) const {
  if (!blocks.empty()) {
    const char block = blocks[static_cast<std::size_t>(layer)];
    return block == 'M' ? Mixer::kRecurrence : block == '*' ? Mixer::kFull : Mixer::kNone;
  }
  if (recurrence) {
    const bool attends = recurrence->attention_every > 0
                             ? (layer + 1) % recurrence->attention_every == 0
                             : std::ranges::binary_search(recurrence->attention_layers, layer);
    return attends ? Mixer::kFull : Mixer::kRecurrence;
  }
  return sliding_window > 0 && (layer + 1) % full_every != 0 ? Mixer::kSliding : Mixer::kFull;
}

int Model::layers_with(Mixer wanted) const {
  if (blocks.empty() && !recurrence) {
    const int full = sliding_window > 0 ? layers / full_every : layers;
    return wanted == Mixer::kFull ? full : wanted == Mixer::kSliding ? layers - full : 0;
  }
  int count = 0;
  for (int layer = 0; layer < layers; ++layer) count += mixer(layer) == wanted ? 1 : 0;
  return count;
}

int Model::attending_layer(int nth) const {
  if (!recurrence && blocks.empty()) return nth;
  int layer = 0;
  while (!attends(layer) || nth-- > 0) ++layer;
  return layer;
}

bool Model::has_network(int layer) const {
  return blocks.empty() ? !has_experts(layer) : blocks[static_cast<std::size_t>(layer)] == '-';
}

bool Model::has_experts(int layer) const {
  if (!blocks.empty()) return blocks[static_cast<std::size_t>(layer)] == 'E';
  return experts && layer >= experts->dense_layers && (layer + 1) % experts->every == 0;
}

bool Model::experts_on_host(int layer) const { return has_experts(layer) && layer < experts->host_layers; }

double Model::state_bytes() const {
  if (!compressed) return recurrence ? layers_with(Mixer::kRecurrence) * recurrence->state_bytes() : 0;
  return over_layers(*this, [&](Compressed::Kind kind) { return compressed->fixed_bytes(kind, head_dim, cache); });
}

std::int64_t Model::in_window(std::int64_t tokens) const {
  return chunked ? (tokens - 1) % sliding_window + 1 : std::min<std::int64_t>(tokens, sliding_window);
}

Model sliding_layers(const Model& model) {
  Model out = model;
  if (model.sliding_kv_heads > 0) out.n_kv_heads = model.sliding_kv_heads;
  if (model.sliding_head_dim > 0) out.head_dim = model.sliding_head_dim;
  return out;
}

int Model::attending_layers() const { return recurrence || !blocks.empty() ? full_layers() : layers; }

Model attending(const Model& model) {
  Model out = model;
  if (!model.recurrence && model.blocks.empty()) return out;
  out.layers = model.attending_layers();
  out.recurrence.reset(), out.blocks.clear();
  return out;
}

Model with_plain_cache(const Model& model) {
  Model out = model;
  out.cache = Precision::kBf16, out.plain_ends = 0;
  return out;
}

std::vector<Model> by_cache(const Model& model) {
  if (model.plain_ends == 0) return {model};
  std::vector<Model> parts = {model, with_plain_cache(model)};
  parts[1].layers = 2 * model.plain_ends;
  parts[0].layers -= parts[1].layers, parts[0].plain_ends = 0;
  return parts;
}

double Model::kv_bytes_per_token() const {
  const double ends = 2 * plain_ends, packed = kv_bytes_per_token_layer();
  return packed * (full_layers() - ends) + (ends > 0 ? ends * with_plain_cache(*this).kv_bytes_per_token_layer() : 0);
}

double Model::cache_bytes() const { return cache_element_bytes(cache, head_dim); }

double Model::kv_bytes_per_token_layer() const {
  if (compressed) {
    return over_layers(*this,
                       [&](Compressed::Kind kind) { return compressed->bytes_per_token(kind, head_dim, cache); }) /
           layers;
  }
  return latent ? latent->cached() * cache_element_bytes(cache, latent->cached())
                : 2.0 * n_kv_heads * head_dim * cache_bytes();
}

double Model::index_bytes_per_token() const {
  if (!compressed) return 0;
  return over_layers(*this, [&](Compressed::Kind kind) { return compressed->index_bytes_per_token(kind); });
}

double Model::parameters() const {
  double count = 0;
  for_each_matrix(*this, [&](double n, double rows, double columns, Precision) { count += n * rows * columns; });
  return count;
}

double Model::routed_bytes() const {
  if (!experts) return 0;
  const double up = (gated_ffn ? 2.0 : 1.0) * experts->ffn;
  const double width = routed_width();
  return config::weight_bytes(expert_weights, up, width) + config::weight_bytes(expert_weights, width, experts->ffn);
}

double Model::host_weight_bytes() const {
  int there = 0;
  for (int layer = 0; layer < layers; ++layer) there += experts_on_host(layer) ? 1 : 0;
  return there > 0 ? routed_bytes() * experts->count * there : 0;
}

double Model::gpu_weight_bytes() const {
  const double on_host = host_weight_bytes();
  const bool fetched = on_host > 0 && experts->fetch_rows > 0;
  return weight_bytes() - on_host + (fetched ? routed_bytes() * experts->count : 0);
}

double Model::weight_bytes() const {
  double bytes = 0;
  for_each_matrix(*this, [&](double n, double rows, double columns, Precision precision) {
    bytes += n * config::weight_bytes(precision, rows, columns);
  });
  return bytes;
}

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

}  // namespace kvcast::config
