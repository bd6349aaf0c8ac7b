// Shape of a decoder model: what the cost of a layer and the size of its KV cache follow from.
//
// Read from configs/models/NAME.yaml. Multi-head and grouped-query attention, a gated feed-forward network (gate, up,
// down) and RMS norms: the Llama family and its relatives. Other attention is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvcast::config {

struct Rope {
  enum class Scaling { kNone, kLinear, kLlama3 };
  double theta = 10000;
  Scaling scaling = Scaling::kNone;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  std::int64_t original_context = 0;                 // tokens trained on before scaling; llama3, linear
};

struct Model {
  std::string name;                  // of its file, without .yaml
  std::string title;                 // as its makers write it
  std::vector<std::string> aliases;  // other spellings in use
  int layers = 0;
  int hidden = 0;
  int n_q_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int ffn = 0;  // width between up and down
  int vocab = 0;
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;  // an RMS norm on each head's query and key (Qwen3)
  std::int64_t max_context = 0;
  Rope rope;
  std::string source;

  static constexpr double kElementBytes = 2;  // fp16 or bf16 weights and KV
  int group() const { return n_q_heads / n_kv_heads; }
  // K and V of one token in one layer.
  double kv_bytes_per_token_layer() const { return 2.0 * n_kv_heads * head_dim * kElementBytes; }
  double kv_bytes_per_token() const { return kv_bytes_per_token_layer() * layers; }
  // Weights, norms and biases included; the embedding counts once where it is tied to the head.
  double parameters() const;
  double weight_bytes() const { return parameters() * kElementBytes; }
};

// All of the model as text: equal models give equal text whatever files they were read from. What results are keyed by.
std::string canonical(const Model& model);

// UserError for missing or unknown keys, values out of range, shapes that contradict themselves (heads that do not
// divide), and attention that kvcast does not model.
Model read_model(const std::string& path);

}  // namespace kvcast::config
