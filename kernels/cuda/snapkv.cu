// Scores of a prompt's keys from its last queries (SnapKV, arXiv 2404.14469): softmax of each window query over the
// keys before the window, summed over queries and over the group, then pooled along the tokens. Three kernels: logits
// of all window rows with their maxima and sums by block, columns of normalised weights, pooling. Logits are written
// once as floats and read once; keys are read once for all window rows of a group.
#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;
constexpr int kTile = 64;  // tokens per block

struct WindowShape {
  int tokens, kv_heads, rows;  // rows: window queries of all heads of a group, a multiple of 16
  int pool;                    // odd width
  float scale;
  KVCAST_HD int blocks() const { return (tokens + kTile - 1) / kTile; }
};

// Tensor cores as in attention: warp w of four holds tokens 16 w .. of the tile, and all rows in turn, 16 at a time.
// query [kv_heads][rows][dim], keys [tokens][kv_heads][dim] -> logits [kv_heads][rows][tokens], in units of log2,
// and parts [kv_heads][rows][blocks][2]: maximum and sum of the block's tokens.
KVCAST_KERNEL KVCAST_BOUNDS(128)
    window_logits(WindowShape s, const Half* query, const Half* keys, float* logits, float* parts) {
  float* warp_parts = reinterpret_cast<float*>(shared_memory());  // [4 warps][16 rows][2]
  const int head = static_cast<int>(block_y()), lane = static_cast<int>(lane_index()),
            warp = static_cast<int>(warp_index());
  const int first = static_cast<int>(block_x()) * kTile + warp * 16;
  // B fragments straight from memory, for two groups of 8 tokens.
  Vec16 b[2][kDim / 32];
  KVCAST_UNROLL
  for (int nb = 0; nb < 2; ++nb) {
    const int t = first + nb * 8 + lane / 4;
    const Half* row = keys + (static_cast<std::size_t>(t < s.tokens ? t : 0) * static_cast<std::size_t>(s.kv_heads) +
                              static_cast<std::size_t>(head)) *
                                 kDim;
    KVCAST_UNROLL
    for (int k = 0; k < kDim / 32; ++k) b[nb][k] = load16(row + k * 32 + lane % 4 * 8);
  }
  const float to_log2 = s.scale * 1.44269504f;
  for (int r0 = 0; r0 < s.rows; r0 += 16) {
    float c[2][4];
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) c[i / 4][i % 4] = 0;
    const Half* q = query + static_cast<std::size_t>(head * s.rows + r0) * kDim;
    KVCAST_UNROLL
    for (int k = 0; k < kDim / 32; ++k) {
      const Half* p = q + lane / 4 * kDim + k * 32 + lane % 4 * 8;
      const Vec16 a[2] = {load16(p), load16(p + 8 * kDim)};
      multiply_add_pair(c[0], a, b[0][k]);
      multiply_add_pair(c[1], a, b[1][k]);
    }
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      float most = kLowest, total = 0;
      float* out =
          logits + static_cast<std::size_t>(head * s.rows + r0 + lane / 4 + 8 * h) * static_cast<std::size_t>(s.tokens);
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int t = first + i / 2 * 8 + lane % 4 * 2 + i % 2;
        float& x = c[i / 2][2 * h + i % 2];
        x = t < s.tokens ? x * to_log2 : kLowest;
        if (t < s.tokens) out[t] = x;
        most = fmaxf(most, x);
      }
      most = fmaxf(most, warp_xor(most, 1));
      most = fmaxf(most, warp_xor(most, 2));
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i)
        total += c[i / 2][2 * h + i % 2] > kLowest ? exp2_fast(c[i / 2][2 * h + i % 2] - most) : 0;
      total += warp_xor(total, 1);
      total += warp_xor(total, 2);
      if (lane % 4 == 0) {
        warp_parts[(warp * 16 + lane / 4 + 8 * h) * 2] = most;
        warp_parts[(warp * 16 + lane / 4 + 8 * h) * 2 + 1] = total;
      }
    }
    block_sync();
    if (thread_x() < 16) {
      float most = kLowest, total = 0;
      for (int w = 0; w < 4; ++w) most = fmaxf(most, warp_parts[(w * 16 + static_cast<int>(thread_x())) * 2]);
      for (int w = 0; w < 4; ++w) {
        const float* p = warp_parts + (w * 16 + static_cast<int>(thread_x())) * 2;
        total += p[1] * exp2_fast(p[0] - most);
      }
      float* to =
          parts +
          (static_cast<std::size_t>(head * s.rows + r0) + thread_x()) * static_cast<std::size_t>(s.blocks()) * 2 +
          std::size_t{block_x()} * 2;
      to[0] = most;
      to[1] = total;
    }
    block_sync();
  }
}

// One block per row: the parts are joined and replace the first.
KVCAST_KERNEL KVCAST_BOUNDS(32) join_parts(int blocks, float* parts, float* norms) {
  const float* row = parts + std::size_t{block_x()} * static_cast<std::size_t>(blocks) * 2;
  float most = kLowest, total = 0;
  for (int i = static_cast<int>(thread_x()); i < blocks; i += 32) most = fmaxf(most, row[2 * i]);
  most = warp_max(most);
  for (int i = static_cast<int>(thread_x()); i < blocks; i += 32)
    total += row[2 * i + 1] * exp2_fast(row[2 * i] - most);
  total = warp_sum(total);
  if (thread_x() == 0) {
    norms[block_x() * 2] = most;
    norms[block_x() * 2 + 1] = 1.0f / total;
  }
}

// Columns of weights summed over the rows, then averaged over pool neighbours; zeros count beyond the ends. A block
// computes the pool / 2 columns on either side again.
KVCAST_KERNEL KVCAST_BOUNDS(256) pool_columns(WindowShape s, const float* logits, const float* norms, float* scores) {
  float* sums = reinterpret_cast<float*>(shared_memory());  // [256]
  const int reach = s.pool / 2, inner = 256 - 2 * reach, head = static_cast<int>(block_y());
  const int t = static_cast<int>(block_x()) * inner + static_cast<int>(thread_x()) - reach;
  float sum = 0;
  if (t >= 0 && t < s.tokens) {
    for (int r = 0; r < s.rows; ++r) {
      const std::size_t row = static_cast<std::size_t>(head * s.rows + r);
      sum +=
          exp2_fast(logits[row * static_cast<std::size_t>(s.tokens) + static_cast<std::size_t>(t)] - norms[row * 2]) *
          norms[row * 2 + 1];
    }
  }
  sums[thread_x()] = sum;
  block_sync();
  const int me = static_cast<int>(thread_x());
  if (me < reach || me >= 256 - reach || t >= s.tokens) return;
  float pooled = 0;
  for (int i = -reach; i <= reach; ++i) pooled += sums[me + i];
  scores[static_cast<std::size_t>(head) * static_cast<std::size_t>(s.tokens) + static_cast<std::size_t>(t)] =
      pooled / static_cast<float>(s.pool);
}

std::vector<float> expected_scores(const WindowShape& s, const std::vector<float>& query,
                                   const std::vector<float>& keys) {
  const std::size_t tokens = as_size(s.tokens), heads = as_size(s.kv_heads), rows = as_size(s.rows);
  std::vector<float> out;
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<double> columns(tokens, 0.0);
    for (std::size_t r = 0; r < rows; ++r) {
      std::vector<double> w(tokens, 0.0);
      double total = 0;
      for (std::size_t t = 0; t < tokens; ++t) {
        for (std::size_t d = 0; d < kDim; ++d)
          w[t] += double{query[(h * rows + r) * kDim + d]} * double{keys[(t * heads + h) * kDim + d]};
        w[t] = std::exp(w[t] * double{s.scale});
        total += w[t];
      }
      for (std::size_t t = 0; t < tokens; ++t) columns[t] += w[t] / total;
    }
    const int reach = s.pool / 2;
    for (int t = 0; t < s.tokens; ++t) {
      double pooled = 0;
      for (int i = std::max(0, t - reach); i <= std::min(s.tokens - 1, t + reach); ++i) pooled += columns[as_size(i)];
      out.push_back(static_cast<float>(pooled / s.pool));
    }
  }
  return out;
}

void run(State& state) {
  const int group = as_int(state, "group"), window = as_int(state, "window");
  const WindowShape s{as_int(state, "tokens"), as_int(state, "kv_heads"), group * window, as_int(state, "pool"),
                      1.0f / std::sqrt(static_cast<float>(kDim))};
  if (s.rows % 16 != 0 || s.rows == 0 || s.tokens < 1) return state.skip("window times group is a multiple of 16");
  if (s.pool % 2 == 0 || s.pool > 127) return state.skip("pooling widths are odd, at most 127");
  const std::size_t tokens = as_size(s.tokens), heads = as_size(s.kv_heads), rows = heads * as_size(s.rows),
                    blocks = as_size(s.blocks());
  if (too_large(state, 4.0 * static_cast<double>(rows * tokens) + 2.0 * static_cast<double>(tokens * heads * kDim)))
    return;
  const DeviceArray<Half> query = half_normals(101, rows * kDim), keys = half_normals(102, tokens * heads * kDim);
  const DeviceArray<float> logits(rows * tokens), parts(rows * blocks * 2), norms(rows * 2), scores(heads * tokens);
  const auto call = [&](Queue queue) {
    launch({as_unsigned(s.blocks()), as_unsigned(s.kv_heads)}, 128, 512, queue, window_logits, s, query.data(),
           keys.data(), logits.data(), parts.data());
    launch({static_cast<unsigned>(rows)}, 32, 0, queue, join_parts, s.blocks(), parts.data(), norms.data());
    launch({blocks_for(tokens, as_size(256 - s.pool / 2 * 2)), as_unsigned(s.kv_heads)}, 256, 1024, queue, pool_columns,
           s, logits.data(), norms.data(), scores.data());
  };
  const double in_and_out =
      2.0 * static_cast<double>(tokens * heads * kDim) + 4.0 * static_cast<double>(heads * tokens);
  state.moves(in_and_out + 8.0 * static_cast<double>(rows * tokens), Resource::kHbm, in_and_out);
  state.work("flops", 2.0 * static_cast<double>(rows * tokens) * kDim);
  state.work("launches", 3);
  run_and_wait(call);
  const double between = 4.0 * static_cast<double>(rows * tokens);
  if (!state.checking())
    return measure_device(state, call, {.launches = 3, .written = between / (in_and_out + 2 * between)});
  state.compare("pooled scores", scores.host(), expected_scores(s, floats_of(query), floats_of(keys)), 1e-4);
}

}  // namespace

Bench snapkv_score(const Machine&) {
  return {"snapkv_score",
          "window queries' attention weights over the prompt, summed over window and group and pooled, head dimension "
          "128; keys once, logits written and read",
          {numbers("tokens", {4096, 16384, 65536, 131072}), numbers("kv_heads", {8}), numbers("group", {4}),
           numbers("window", {8, 32}), numbers("pool", {5, 63})},
          {numbers("tokens", {1, 63, 300}), numbers("kv_heads", {1, 2}), numbers("group", {2}),
           numbers("window", {8, 16}), numbers("pool", {1, 7})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
