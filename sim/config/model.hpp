// Shape of a decoder model, from which the cost of a layer and the size of its KV cache follow.
//
// Read from configs/models/NAME.yaml. It covers multi-head, grouped-query and multi-head latent attention, attention to
// compressed entries, layers with a sliding window or chunks, layers with a recurrence in place of attention,
// feed-forward networks with or without a gate, mixtures of such experts, and RMS norms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/compressed.hpp"
#include "config/precision.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

struct Rope {
  enum class Scaling { kNone, kLinear, kLlama3, kYarn };
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3 only
  std::int64_t original_context = 0;                 // tokens trained on before scaling; for every kind except none
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a token caches one latent vector and one key with RoPE,
// both shared by all heads.
struct Latent {
  int query_rank = 0;                             // width that queries are compressed to; 0: not compressed
  int rank = 0;                                   // width of the latent vector
  int rope_dim = 0;                               // width of the shared key, and of each query's part with RoPE
  int key_dim = 0;                                // width of a head's key without RoPE, computed from the latent vector
  int value_dim = 0;                              // width of a head's value, computed from the latent vector
  int cached() const { return rank + rope_dim; }  // elements per token and layer
};

// A recurrence in place of attention: a layer keeps a state of constant size for each sequence, and no KV cache.
struct Recurrence {
  // Gated delta net (arXiv 2412.06464), Kimi delta attention (arXiv 2510.26692), Mamba-2 (arXiv 2405.21060), lightning
  // attention (arXiv 2501.08313), Mamba (arXiv 2312.00752), whose heads are its channels, of one value each.
  enum class Kind { kGatedDelta, kKimiDelta, kMamba2, kLightning, kMamba1 };
  static constexpr Kind kKinds[] = {Kind::kGatedDelta, Kind::kKimiDelta, Kind::kMamba2, Kind::kLightning,
                                    Kind::kMamba1};
  Kind kind = Kind::kGatedDelta;
  int heads = 0;             // with a state of their own each
  int key_heads = 0;         // whose keys and queries these share (Mamba-2: groups)
  int key_dim = 0;           // width of a head's key (Mamba-2: d_state)
  int value_dim = 0;         // width of a head's value
  int taps = 0;              // of the convolution over tokens before the recurrence; 0: none
  int step_rank = 0;         // width from which Mamba projects the step of each channel
  double element_bytes = 4;  // of the state
  bool full_gate = false;    // the output gate of Kimi delta attention is projected from the model's width
  int attention_every = 0;   // the last of each group of this many layers attends instead; 0: `attention_layers` do
  std::vector<int> attention_layers;  // from 0, ascending

  double state_elements() const { return static_cast<double>(heads) * key_dim * value_dim; }
  double channels() const;  // numbers of a token that pass the convolution
  // Bytes that a layer keeps for a sequence: the state, and the last inputs of the convolution in 16 bits.
  double state_bytes() const;
  // Width of the input projection: queries, keys, values, output gate, and the gates of heads; of Mamba values and
  // gate.
  double projected() const;
  // Width of what Mamba projects its values to: keys, queries and the step before its expansion.
  double from_values() const { return step_rank + 2.0 * key_dim; }
  double value_width() const { return static_cast<double>(heads) * value_dim; }
};
std::string_view recurrence_name(Recurrence::Kind kind);

// The part of a layer that mixes tokens.
enum class Mixer { kFull, kSliding, kRecurrence, kNone };

// Residuals weighed by attention (arXiv 2607.24653, section 2.2): the inputs of mixers and networks are sums over the
// outputs of all blocks of layers before and of the block at hand.
struct WeighedResiduals {
  int every = 0;      // layers of a block; 0: plain residuals
  int blocks = 0;     // of the model
  double inputs = 0;  // that a mixer or network sums, in the mean over the model
};

// A mixture of experts instead of a feed-forward network.
struct Experts {
  int count = 0;             // routed experts per layer
  double active = 0;         // experts chosen by a token; an average for the experts of a rank
  int shared = 0;            // experts of the same width that every token passes through
  int ffn = 0;               // width of an expert between up and down
  int dense_layers = 0;      // first layers, with a network of width Model::ffn
  int every = 1;             // the last of each group of this many layers has experts, the others have such a network
  bool shared_gate = false;  // a product with one column decides how much of the shared experts counts
  int hidden = 0;            // width that routed experts work at, between two projections; 0: the model's
  bool hidden_norm = false;  // an RMS norm of this width on the sum of their outputs
  int host_layers = 0;       // first layers of the model whose routed experts lie in host memory
  int fetch_rows = 0;        // ... from which passes of so many tokens or more fetch them; 0: the CPU computes them
  double shared_width() const { return static_cast<double>(shared) * ffn; }
  // Average number of experts that `rows` tokens activate if each token chooses uniformly: count · (1 − (1 − active /
  // count)^rows).
  double touched(double rows) const;
};

struct Model {
  std::string name;                  // name of its file, without .yaml
  std::string title;                 // as its developers write it
  std::vector<std::string> aliases;  // other common spellings
  int layers = 0;
  int hidden = 0;
  int n_q_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;  // width between up and down, outside of experts
  int vocab = 0;
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;                  // an RMS norm on each head's query and key (Qwen3)
  bool output_gate = false;              // a gate, projected with the queries, on the attention output
  bool gated_ffn = true;                 // networks and experts have gate, up and down; otherwise up and down
  std::optional<Latent> latent;          // if set, n_kv_heads is 1 and head_dim is the key_dim
  std::optional<Experts> experts;        // if empty, every layer has a network of width `ffn`
  std::optional<Compressed> compressed;  // if set, n_kv_heads is 1 and head_dim the width of the shared key
  WeighedResiduals residuals;
  int streams = 1;                // residual streams that hyper-connections mix (arXiv 2409.19606)
  bool values_from_keys = false;  // full layers project no values: these are the keys before norm and positions
  int sliding_window = 0;         // tokens that sliding layers attend to; 0: no such layers
  bool chunked = false;           // ... of their own chunk of so many, rather than the last ones
  int sliding_kv_heads = 0, sliding_head_dim = 0;  // of sliding layers; 0: those of the others
  int full_every = 1;                              // the last of each group of this many layers attends to everything
  std::optional<Recurrence> recurrence;            // if set, layers without attention have it
  // One character a layer if each is one block: M recurrence, * attention, E experts, - network. Empty: every layer has
  // a mixer and a network.
  std::string blocks;
  Precision weights = Precision::kBf16;         // of projections and networks; embedding, head and norms are bf16
  Precision expert_weights = Precision::kBf16;  // of routed experts
  Precision shared_weights = Precision::kBf16;  // of shared experts
  CacheFormat cache;                            // of keys and values ...
  int plain_ends = 0;                           // ... but in so many first and last layers, which keep 16 bits
  int ranks = 1;         // GPUs that share each layer; if above 1, sizes are those of one GPU (rank_of)
  int expert_ranks = 1;  // GPUs that share experts alone, each with sequences of its own
  std::int64_t max_context = 0;
  Rope rope;
  std::string source;

  static constexpr double kElementBytes = 2;  // activations: fp16 or bf16
  int group() const { return n_q_heads / n_kv_heads; }
  Mixer mixer(int layer) const;
  bool slides(int layer) const { return mixer(layer) == Mixer::kSliding; }
  bool attends(int layer) const { return mixer(layer) == Mixer::kFull || slides(layer); }
  // Tokens that a sliding layer attends to at a context of `tokens`, the new one included.
  std::int64_t in_window(std::int64_t tokens) const;
  int layers_with(Mixer mixer) const;
  int attending_layers() const;        // of attending()
  int attending_layer(int nth) const;  // number of a layer of attending(), from 0, in this model
  int full_layers() const { return layers_with(Mixer::kFull); }  // layers that attend to all tokens
  bool has_network(int layer) const;                             // a feed-forward network of width `ffn`
  bool has_experts(int layer) const;
  int routed_width() const { return experts && experts->hidden > 0 ? experts->hidden : hidden; }
  bool experts_on_host(int layer) const;
  // Bytes of a sequence whatever its length: recurrent states, or what compressed attention keeps; 0 if there is
  // neither.
  double state_bytes() const;
  double cache_bytes() const;  // per element of a key or value, its share of the scales included
  // Bytes that one token takes in the cache of one layer that keeps all tokens: K and V, or the latent vector; under
  // compressed attention the mean over layers, entries and their index.
  double kv_bytes_per_token_layer() const;
  // Bytes per token in the layers that keep all tokens.
  double kv_bytes_per_token() const;
  bool plain(int layer) const { return layer < plain_ends || layer >= layers - plain_ends; }
  double index_bytes_per_token() const;  // those of the index of compressed attention; 0: there is none
  // Counts weights, norms and biases; the embedding counts once if it is tied to the head.
  double parameters() const;
  double weight_bytes() const;
  double routed_bytes() const;       // of one routed expert of one layer; 0 without experts
  double host_weight_bytes() const;  // part of weight_bytes() that lies in host memory
  // The part that does not, with room for the experts of a layer if passes fetch them.
  double gpu_weight_bytes() const;
};

// The model as its sliding layers see it: with the heads that these have.
Model sliding_layers(const Model& model);
// The model with a cache of 16 bits.
Model with_plain_cache(const Model& model);
// The model's layers by the format of their cache, as models of as many layers: one, or the packed ones and the others.
std::vector<Model> by_cache(const Model& model);

// The layers that attend, as a model of their own: what policies and traces see of a model with recurrences. Other
// models are returned as they are.
Model attending(const Model& model);

// The share of the model that one of `ranks` GPUs holds under tensor parallelism: heads, networks and vocabulary are
// split, KV heads are copied if there are fewer than ranks. expert_parallel: experts are distributed whole. Throws
// std::invalid_argument with the reason if the shape does not divide.
Model rank_of(const Model& model, int ranks, bool expert_parallel);
// The same of GPUs that share the experts alone: everything else is whole on each of them. The model has experts.
Model rank_of_experts(const Model& model, int ranks);

// The whole model as text: equal models give equal text whatever files they were read from. The key of results.
std::string canonical(const Model& model);

// Throws UserError for missing or unknown keys, values out of range, inconsistent shapes (heads that do not divide),
// and attention that kvcast does not model.
Model read_model(const std::string& path);
Model read_model(const Node& map, const std::string& name);

// Reads `model:` of a run: a name of configs/models, a path of such a file, a published config.json (config/card.hpp)
// or its folder; or a map {like: NAME, KEY: ...} or {config: FILE, KEY: ...} of one of them and the keys that differ,
// which the name of the model then states.
Model read_model(const Node& choice);
// The same for the text of a choice: a name, a path, or a map in YAML.
Model model_named(const std::string& choice);
// Returns a choice as the text that model_named() reads.
std::string choice_text(const Node& choice);

}  // namespace kvcast::config
