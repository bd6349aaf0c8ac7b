// Shapes follow the published config.json files; parameters() counts the tensors of the checkpoints, so that it can be
// compared with their published sizes to the last weight.

#include "config/model.hpp"

#include <filesystem>

#include "config/section.hpp"

namespace kvcast::config {
namespace {

Rope read_rope(Section section) {
  Rope rope;
  rope.theta = section.number("theta", 1, 1e12);
  const std::string scaling = section.choice("scaling", {"none", "linear", "llama3"}, "none");
  if (scaling != "none") {
    rope.scaling = scaling == "linear" ? Rope::Scaling::kLinear : Rope::Scaling::kLlama3;
    rope.factor = section.number("factor", 1, 1e6);
    rope.original_context = section.integer("original_context", 1, 1'000'000'000);
  }
  if (rope.scaling == Rope::Scaling::kLlama3) {
    rope.low_freq_factor = section.number("low_freq_factor", 1e-3, 1e3);
    rope.high_freq_factor = section.number("high_freq_factor", 1e-3, 1e3);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      throw UserError(section.where("high_freq_factor"), "high_freq_factor: must be above low_freq_factor");
    }
  }
  section.finish();
  return rope;
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
  if (model.rope.original_context > model.max_context) {
    throw UserError(section.where("rope"), fmt::format("rope: original_context {} is above max_context {}",
                                                       model.rope.original_context, model.max_context));
  }
}

}  // namespace

double Model::parameters() const {
  const double embedding = static_cast<double>(vocab) * hidden;
  const double query_width = static_cast<double>(n_q_heads) * head_dim;
  const double kv_width = static_cast<double>(n_kv_heads) * head_dim;
  const double attention = hidden * (query_width + 2 * kv_width) + query_width * hidden;
  const double biases = qkv_bias ? query_width + 2 * kv_width : 0;
  const double head_norms = qk_norm ? 2.0 * head_dim : 0;
  const double feed_forward = 3.0 * hidden * ffn;
  const double norms = 2.0 * hidden;
  const double final_norm = hidden;
  return embedding * (tie_embeddings ? 1 : 2) + layers * (attention + biases + head_norms + feed_forward + norms) +
         final_norm;
}

std::string canonical(const Model& m) {
  const Rope& r = m.rope;
  return fmt::format("{}\n{}\n{} {} {} {} {} {} {} {} {} {} {}\n{} {} {} {} {} {}\n{}\n", m.name, m.title, m.layers,
                     m.hidden, m.n_q_heads, m.n_kv_heads, m.head_dim, m.ffn, m.vocab, m.tie_embeddings, m.qkv_bias,
                     m.qk_norm, m.max_context, r.theta, static_cast<int>(r.scaling), r.factor, r.low_freq_factor,
                     r.high_freq_factor, r.original_context, m.source);
}

Model read_model(const std::string& path) {
  Section section(load_yaml(path), "model");
  Model model;
  model.name = std::filesystem::path(path).stem().string();
  model.title = section.text("title");
  if (section.choice("attention", {"gqa", "mla"}, "gqa") == "mla") {
    throw UserError(section.where("attention"),
                    model.title + " uses multi-head latent attention, which kvcast does not model yet");
  }
  model.aliases = section.texts("aliases", {});
  const auto dimension = [&](std::string_view key, int high) {
    return static_cast<int>(section.integer(key, 1, high));
  };
  section.require(
      {"layers", "hidden", "n_q_heads", "n_kv_heads", "head_dim", "ffn", "vocab", "max_context", "rope", "source"});
  model.layers = dimension("layers", 10'000);
  model.hidden = dimension("hidden", 1'000'000);
  model.n_q_heads = dimension("n_q_heads", 10'000);
  model.n_kv_heads = dimension("n_kv_heads", 10'000);
  model.head_dim = dimension("head_dim", 4096);
  model.ffn = dimension("ffn", 10'000'000);
  model.vocab = dimension("vocab", 100'000'000);
  model.tie_embeddings = section.flag("tie_embeddings", false);
  model.qkv_bias = section.flag("qkv_bias", false);
  model.qk_norm = section.flag("qk_norm", false);
  model.max_context = section.integer("max_context", 1, 1'000'000'000);
  model.rope = read_rope(section.section("rope", "rope"));
  model.source = section.text("source");
  section.finish();
  check_shape(model, section);
  return model;
}

}  // namespace kvcast::config
