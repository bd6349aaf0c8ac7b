// The small kernels of a decoder layer. Widths are multiples of 8 halves.
#pragma once

#include "cuda/page_score.cuh"

namespace kvcast::kernels {

// sum = a + b, normed = sum / root mean square of its row; one block for a row.
KVCAST_KERNEL KVCAST_BOUNDS(256) add_norm(const Half* a, const Half* b, Half* sum, Half* normed, int width) {
  float* red = reinterpret_cast<float*>(shared_memory());
  const std::size_t row = std::size_t{block_x()} * static_cast<std::size_t>(width);
  float squares = 0;
  for (int c = static_cast<int>(thread_x()) * 8; c < width; c += static_cast<int>(block_threads()) * 8) {
    const std::size_t at = row + static_cast<std::size_t>(c);
    float x[8], y[8];
    unpack8(load16(a + at), x);
    unpack8(load16(b + at), y);
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) {
      x[i] += y[i];
      squares += x[i] * x[i];
    }
    store16(sum + at, {{pack2(x[0], x[1]), pack2(x[2], x[3]), pack2(x[4], x[5]), pack2(x[6], x[7])}});
  }
  const float total = block_join(squares, red, [](float p, float q) { return p + q; });
  const float scale = 1.0f / sqrtf(total / static_cast<float>(width) + 1e-5f);
  for (int c = static_cast<int>(thread_x()) * 8; c < width; c += static_cast<int>(block_threads()) * 8) {
    const std::size_t at = row + static_cast<std::size_t>(c);
    float x[8];
    unpack8(load16(sum + at), x);
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) x[i] *= scale;
    store16(normed + at, {{pack2(x[0], x[1]), pack2(x[2], x[3]), pack2(x[4], x[5]), pack2(x[6], x[7])}});
  }
}

// Destination of a step's keys and values: element offsets between sequences and between KV heads.
struct AppendPlace {
  std::size_t sequence_stride, head_stride;
};
struct HeadShape {
  int q_heads, kv_heads, dim;
};

// qkv [batch][q heads + 2 KV heads][dim] -> query [batch][q heads][dim], and rows of keys and values. Rotation pairs
// the halves of the head dimension. One block of dim / 2 threads for a (head, sequence).
KVCAST_KERNEL KVCAST_BOUNDS(64) rope_append(HeadShape s, AppendPlace place, const Half* qkv, const float* cosines,
                                            const float* sines, Half* query, Half* keys, Half* values) {
  const int head = static_cast<int>(block_x()), i = static_cast<int>(thread_x()), half = s.dim / 2;
  const std::size_t sequence = block_y(), dim = static_cast<std::size_t>(s.dim);
  const Half* in =
      qkv + (sequence * static_cast<std::size_t>(s.q_heads + 2 * s.kv_heads) + static_cast<std::size_t>(head)) * dim;
  const float x = to_float(in[i]), y = to_float(in[i + half]);
  const bool is_query = head < s.q_heads, is_key = !is_query && head < s.q_heads + s.kv_heads;
  Half* out = query + (sequence * static_cast<std::size_t>(s.q_heads) + static_cast<std::size_t>(head)) * dim;
  if (!is_query) {
    const int kv = (head - s.q_heads) % s.kv_heads;
    out =
        (is_key ? keys : values) + sequence * place.sequence_stride + static_cast<std::size_t>(kv) * place.head_stride;
  }
  const bool turned = is_query || is_key;
  out[i] = turned ? to_half(x * cosines[i] - y * sines[i]) : in[i];
  out[i + half] = turned ? to_half(y * cosines[i] + x * sines[i]) : in[i + half];
}

// gate_up [rows][2][width] -> out [rows][width]: gate · sigmoid(gate) · up.
KVCAST_KERNEL KVCAST_BOUNDS(256) silu_multiply(const Half* gate_up, Half* out, int width) {
  const std::size_t row = block_y(), n = static_cast<std::size_t>(width);
  for (std::size_t c = (std::size_t{block_x()} * block_threads() + thread_x()) * 8; c < n;
       c += std::size_t{grid_x()} * block_threads() * 8) {
    const Half* from = gate_up + row * 2 * n + c;
    float g[8], u[8];
    unpack8(load16(from), g);
    unpack8(load16(from + n), u);
    KVCAST_UNROLL
    for (int j = 0; j < 8; ++j) g[j] = g[j] / (1.0f + exp2_fast(g[j] * -1.44269504f)) * u[j];
    store16(out + row * n + c, {{pack2(g[0], g[1]), pack2(g[2], g[3]), pack2(g[4], g[5]), pack2(g[6], g[7])}});
  }
}

// The first largest of each row; one block for a row.
KVCAST_KERNEL KVCAST_BOUNDS(256) pick_token(const Half* logits, std::uint32_t* tokens, int width) {
  float* best = reinterpret_cast<float*>(shared_memory());
  std::uint32_t* at = reinterpret_cast<std::uint32_t*>(best + 8);
  const Half* row = logits + std::size_t{block_x()} * static_cast<std::size_t>(width);
  float most = kLowest;
  std::uint32_t where = 0;
  for (int c = static_cast<int>(thread_x()) * 8; c < width; c += static_cast<int>(block_threads()) * 8) {
    float x[8];
    unpack8(load16(row + c), x);
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (x[i] > most) most = x[i], where = static_cast<std::uint32_t>(c + i);
    }
  }
  for (unsigned step = 16; step > 0; step >>= 1) {
    const float other = warp_xor(most, step);
    const std::uint32_t other_at = warp_from(where, lane_index() ^ step);
    if (other > most || (other == most && other_at < where)) most = other, where = other_at;
  }
  if (lane_index() == 0) best[warp_index()] = most, at[warp_index()] = where;
  block_sync();
  if (thread_x() != 0) return;
  for (unsigned w = 1; w < block_threads() / 32; ++w) {
    if (best[w] > most || (best[w] == most && at[w] < where)) most = best[w], where = at[w];
  }
  tokens[block_x()] = where;
}

}  // namespace kvcast::kernels
