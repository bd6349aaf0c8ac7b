#include "pipeline/dense.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDistinctSteps = 64;  // inputs of this many steps before they repeat

std::vector<float> angles(const PipelineShape& s, double (*of)(double)) {
  std::vector<float> out;
  for (int i = 0; i < s.dim / 2; ++i) {
    out.push_back(static_cast<float>(of((s.context - 1) * std::pow(500000.0, -2.0 * i / s.dim))));
  }
  return out;
}

double products(const PipelineShape& s) {  // elements of a layer's weights
  const double q = double{1} * s.q_heads * s.dim, kv = 2.0 * s.kv_heads * s.dim;
  return s.hidden * (q + kv) + q * s.hidden + 3.0 * s.hidden * s.ffn;
}

}  // namespace

double PipelineShape::weight_bytes() const { return 2 * (layers * products(*this) + double{1} * vocab * hidden); }

bool read_shape(State& state, PipelineShape& s) {
  s = {as_int(state, "layers"),   as_int(state, "steps"), as_int(state, "hidden"), as_int(state, "q_heads"),
       as_int(state, "kv_heads"), as_int(state, "dim"),   as_int(state, "ffn"),    as_int(state, "vocab"),
       as_int(state, "context"),  as_int(state, "batch")};
  const auto refuse = [&](const char* why) { return state.skip(why), false; };
  if (!Blas::kPresent) return refuse("built without cuBLAS");
  if (s.layers < 1 || s.steps < 1 || s.batch < 1) return refuse("layers, steps and sequences are 1 or more");
  if (s.dim != 64 && s.dim != 128) return refuse("the kernels support head dimensions 64 and 128");
  if (s.kv_heads < 1 || s.q_heads % s.kv_heads != 0 || s.group() > 8) return refuse("groups have 1 to 8 query heads");
  if (s.hidden % 8 != 0 || s.ffn % 8 != 0 || s.vocab % 8 != 0 || s.hidden < 8 || s.ffn < 8 || s.vocab < 8)
    return refuse("rows are whole 16-byte pieces");
  return true;
}

Dense::Dense(const PipelineShape& s)
    : s_(s),
      embedding_(half_normals(201, as_size(kDistinctSteps * s.batch) * as_size(s.hidden))),
      zeros_(std::vector<Half>(as_size(s.batch) * as_size(s.hidden), Half{0})),
      qkv_weights_(
          half_normals(202, as_size(s.layers) * as_size(s.hidden) * as_size((s.q_heads + 2 * s.kv_heads) * s.dim))),
      out_weights_(half_normals(203, as_size(s.layers) * as_size(s.hidden) * as_size(s.q_heads * s.dim))),
      up_weights_(half_normals(204, as_size(s.layers) * as_size(s.hidden) * as_size(2 * s.ffn))),
      down_weights_(half_normals(205, as_size(s.layers) * as_size(s.hidden) * as_size(s.ffn))),
      head_weights_(half_normals(206, as_size(s.hidden) * as_size(s.vocab))),
      residual_(as_size(s.batch) * as_size(s.hidden)),
      normed_(as_size(s.batch) * as_size(s.hidden)),
      qkv_(as_size(s.batch) * as_size((s.q_heads + 2 * s.kv_heads) * s.dim)),
      branch_(as_size(s.batch) * as_size(s.hidden)),
      gate_up_(as_size(s.batch) * as_size(2 * s.ffn)),
      active_(as_size(s.batch) * as_size(s.ffn)),
      logits_(as_size(s.batch) * as_size(s.vocab)),
      cosines_(angles(s, [](double x) { return std::cos(x); })),
      sines_(angles(s, [](double x) { return std::sin(x); })),
      tokens_(as_size(s.batch)),
      tokens_host_(as_size(s.batch) * 4) {}

void Dense::begin_step(int step) {
  add_a_ = embedding_.data() + as_size(step % kDistinctSteps) * as_size(s_.batch) * as_size(s_.hidden);
  add_b_ = zeros_.data();
}

void Dense::norm(Queue queue) {
  launch({as_unsigned(s_.batch)}, 256, 64, queue, add_norm, add_a_, add_b_, residual_.data(), normed_.data(),
         s_.hidden);
  add_a_ = branch_.data(), add_b_ = residual_.data();
}

// Weights are standard normal: products are scaled so that their results are, too.
void Dense::before(Queue queue, int layer, Half* query, const AppendTo& append) {
  const int width = (s_.q_heads + 2 * s_.kv_heads) * s_.dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s_.hidden));
  norm(queue);
  blas_.multiply(queue, normed_.data(), weights(qkv_weights_, layer), qkv_.data(), {s_.batch, width, s_.hidden}, scale);
  launch({as_unsigned(s_.q_heads + 2 * s_.kv_heads), as_unsigned(s_.batch)}, as_unsigned(s_.dim / 2), 0, queue,
         rope_append, HeadShape{s_.q_heads, s_.kv_heads, s_.dim}, append.place, qkv_.data(), cosines_.data(),
         sines_.data(), query, append.keys, append.values);
}

void Dense::after(Queue queue, int layer, const Half* attended) {
  const int q = s_.q_heads * s_.dim;
  const auto scale = [](int k) { return 1.0f / std::sqrt(static_cast<float>(k)); };
  blas_.multiply(queue, attended, weights(out_weights_, layer), branch_.data(), {s_.batch, s_.hidden, q}, scale(q));
  norm(queue);
  blas_.multiply(queue, normed_.data(), weights(up_weights_, layer), gate_up_.data(), {s_.batch, 2 * s_.ffn, s_.hidden},
                 scale(s_.hidden));
  launch({blocks_for(as_size(s_.ffn / 8), 256), as_unsigned(s_.batch)}, 256, 0, queue, silu_multiply, gate_up_.data(),
         active_.data(), s_.ffn);
  blas_.multiply(queue, active_.data(), weights(down_weights_, layer), branch_.data(), {s_.batch, s_.hidden, s_.ffn},
                 scale(s_.ffn));
}

void Dense::head(Stream& stream) {
  norm(stream.queue());
  blas_.multiply(stream.queue(), normed_.data(), head_weights_.data(), logits_.data(), {s_.batch, s_.vocab, s_.hidden},
                 1.0f / std::sqrt(static_cast<float>(s_.hidden)));
  launch({as_unsigned(s_.batch)}, 256, 64, stream.queue(), pick_token, logits_.data(), tokens_.data(), s_.vocab);
  stream.copy(tokens_host_.host<void>(), tokens_.data(), as_size(s_.batch) * 4);
}

}  // namespace kvcast::kernels
