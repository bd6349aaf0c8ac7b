// Decode attention over keys and values packed to two bits (KIVI, arXiv 2402.02750): keys quantised by channel over 32
// tokens, values by token over 32 channels, each group with a scale and a minimum. A warp takes blocks of 32 tokens:
// for keys a lane is a token, for values four channels. The scale goes into the query, so that a key costs one shift,
// one conversion and one multiply-add for each head.
#include "cuda/all.hpp"
#include "cuda/attention.cuh"
#include "cuda/case.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;
constexpr int kBlock = 32;  // tokens of a group of keys, channels of a group of values
constexpr int kMostGroup = 8;
constexpr int kWarps = 4;

struct PackedShape {
  int batch, kv_heads, group, blocks, splits;  // blocks of 32 tokens
  float scale;
};

// Two bits of token t lie at bits 2 t of a 64-bit word; scale and minimum are the halves of a 32-bit word.
struct Packed {
  const std::uint32_t* key_codes;     // [batch][kv_heads][blocks][dim][2]
  const std::uint32_t* key_scales;    // [batch][kv_heads][blocks][dim]
  const std::uint32_t* value_codes;   // [batch][kv_heads][blocks][32 tokens][dim / 16]
  const std::uint32_t* value_scales;  // [batch][kv_heads][blocks][32 tokens][dim / 32]
};

struct WarpScratch {
  float* scaled;   // [dim][kMostGroup]: query times scale
  float* weights;  // [32][kMostGroup]
};

struct Running2 {
  float most[kMostGroup], total[kMostGroup], out[kMostGroup][4];
};

// Logits of the lane's token, in units of log2.
KVCAST_DEVICE void packed_logits(const PackedShape& s, const Packed& x, std::size_t block, const float* query,
                                 const WarpScratch& m, float* logits) {
  const unsigned lane = lane_index();
  float base[kMostGroup];
  KVCAST_UNROLL
  for (int g = 0; g < kMostGroup; ++g) base[g] = 0;
  for (int d = static_cast<int>(lane); d < kDim; d += 32) {
    const std::uint32_t both = x.key_scales[block * kDim + static_cast<std::size_t>(d)];
    KVCAST_UNROLL
    for (int g = 0; g < kMostGroup; ++g) {
      const float q = g < s.group ? query[g * kDim + d] : 0;
      m.scaled[d * kMostGroup + g] = q * low_half(both);
      base[g] += q * high_half(both);
    }
  }
  warp_sync();
  KVCAST_UNROLL
  for (int g = 0; g < kMostGroup; ++g) logits[g] = warp_sum(base[g]);
  const std::uint32_t* codes = x.key_codes + block * kDim * 2;
  for (int d = 0; d < kDim; d += 2) {
    const Vec16 words = load16(codes + d * 2);  // two channels
    KVCAST_UNROLL
    for (int j = 0; j < 2; ++j) {
      const float code =
          static_cast<float>(((lane < 16 ? words.w[2 * j] : words.w[2 * j + 1]) >> (lane % 16 * 2)) & 3u);
      KVCAST_UNROLL
      for (int g = 0; g < kMostGroup; ++g) logits[g] += code * m.scaled[(d + j) * kMostGroup + g];
    }
  }
}

KVCAST_DEVICE void add_packed_values(const Packed& x, std::size_t block, const WarpScratch& m, Running2& r) {
  const unsigned lane = lane_index();
  const std::uint32_t* codes = x.value_codes + block * kBlock * (kDim / 16);
  const std::uint32_t* scales = x.value_scales + block * kBlock * (kDim / kBlock);
  for (int t = 0; t < kBlock; ++t) {
    const std::uint32_t word = codes[t * (kDim / 16) + static_cast<int>(lane / 4)] >> (lane % 4 * 8);
    const std::uint32_t both = scales[t * (kDim / kBlock) + static_cast<int>(lane / 8)];
    float v[4];
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) v[i] = static_cast<float>((word >> (2 * i)) & 3u) * low_half(both) + high_half(both);
    KVCAST_UNROLL
    for (int g = 0; g < kMostGroup; ++g) {
      const float w = m.weights[t * kMostGroup + g];
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i) r.out[g][i] += w * v[i];
    }
  }
}

KVCAST_DEVICE void packed_block(const PackedShape& s, const Packed& x, std::size_t block, const float* query,
                                const WarpScratch& m, Running2& r) {
  float logits[kMostGroup];
  packed_logits(s, x, block, query, m, logits);
  const float to_log2 = s.scale * 1.44269504f;
  KVCAST_UNROLL
  for (int g = 0; g < kMostGroup; ++g) {
    const float logit = logits[g] * to_log2, most = fmaxf(r.most[g], warp_max(logit));
    const float shrink = exp2_fast(r.most[g] - most), weight = exp2_fast(logit - most);
    r.most[g] = most;
    r.total[g] = r.total[g] * shrink + warp_sum(weight);
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) r.out[g][i] *= shrink;
    m.weights[static_cast<int>(lane_index()) * kMostGroup + g] = weight;
  }
  warp_sync();
  add_packed_values(x, block, m, r);
  warp_sync();
}

// partial [splits][rows][dim], lse [splits][rows], as attention_kernel leaves them.
KVCAST_KERNEL KVCAST_BOUNDS(128)
    packed_attention(PackedShape s, const Half* query, Packed x, float* partial, float* lse) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  const int head = static_cast<int>(block_y()), sequence = static_cast<int>(block_z()),
            warp = static_cast<int>(warp_index());
  const int row0 = (sequence * s.kv_heads + head) * s.group;
  float* q = shared;  // [group][dim]
  float* scratch = shared + kMostGroup * kDim + warp * (kDim + kBlock) * kMostGroup;
  const WarpScratch m{scratch, scratch + kDim * kMostGroup};
  for (int i = static_cast<int>(thread_x()); i < s.group * kDim; i += 128)
    q[i] = to_float(query[static_cast<std::size_t>(row0 * kDim + i)]);
  block_sync();
  Running2 r;
  KVCAST_UNROLL
  for (int g = 0; g < kMostGroup; ++g) {
    r.most[g] = kLowest;
    r.total[g] = 0;
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) r.out[g][i] = 0;
  }
  const int begin = static_cast<int>(static_cast<long long>(s.blocks) * static_cast<int>(block_x()) / s.splits);
  const int end = static_cast<int>(static_cast<long long>(s.blocks) * (static_cast<int>(block_x()) + 1) / s.splits);
  const std::size_t first = static_cast<std::size_t>(sequence * s.kv_heads + head) * static_cast<std::size_t>(s.blocks);
  for (int b = begin + warp; b < end; b += kWarps) packed_block(s, x, first + static_cast<std::size_t>(b), q, m, r);
  block_sync();  // scratch is reused: [warps][group][dim + 2]
  float* sums = shared + kMostGroup * kDim;
  KVCAST_UNROLL
  for (int g = 0; g < kMostGroup; ++g) {
    float* to = sums + (warp * kMostGroup + g) * (kDim + 2);
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) to[static_cast<int>(lane_index()) * 4 + i] = r.out[g][i];
    if (lane_index() == 0) {
      to[kDim] = r.most[g];
      to[kDim + 1] = r.total[g];
    }
  }
  block_sync();
  const int d = static_cast<int>(thread_x());
  for (int g = 0; g < s.group; ++g) {
    float most = kLowest, total = 0, sum = 0;
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, sums[(w * kMostGroup + g) * (kDim + 2) + kDim]);
    for (int w = 0; w < kWarps; ++w) {
      const float* from = sums + (w * kMostGroup + g) * (kDim + 2);
      const float weight = exp2_fast(from[kDim] - most);
      total += weight * from[kDim + 1];
      sum += weight * from[d];
    }
    const std::size_t rows = static_cast<std::size_t>(s.batch) * static_cast<std::size_t>(s.kv_heads * s.group);
    const std::size_t row = std::size_t{block_x()} * rows + static_cast<std::size_t>(row0 + g);
    partial[row * kDim + static_cast<std::size_t>(d)] = total > 0 ? sum / total : 0;
    if (d == 0) lse[row] = total > 0 ? (most + log2_fast(total)) * 0.69314718f : kLowest;
  }
}

// Random codes are as good as quantised numbers; scales are near 0.5, minima near −0.75, so that values are near ±1.
std::vector<std::uint32_t> random_scales(std::uint64_t seed, std::size_t n) {
  std::vector<std::uint32_t> out(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Half scale = half_of(0.5f + 0.05f * random_normal(seed, 2 * i)),
               low = half_of(-0.75f + 0.05f * random_normal(seed, 2 * i + 1));
    out[i] = std::uint32_t{scale.bits} | (std::uint32_t{low.bits} << 16);
  }
  return out;
}
std::vector<std::uint32_t> random_words(std::uint64_t seed, std::size_t n) {
  std::vector<std::uint32_t> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint32_t>(random_bits(seed, i));
  return out;
}
float unpacked(std::uint32_t code, std::uint32_t scale) {
  return static_cast<float>(code & 3u) * value_of(Half{static_cast<std::uint16_t>(scale & 0xFFFFu)}) +
         value_of(Half{static_cast<std::uint16_t>(scale >> 16)});
}

struct HostPacked {
  std::vector<std::uint32_t> key_codes, key_scales, value_codes, value_scales;
};

std::vector<float> expected_rows(const PackedShape& s, const HostPacked& x, const std::vector<float>& query,
                                 std::size_t step) {
  const std::size_t tokens = as_size(s.blocks) * kBlock;
  std::vector<float> out;
  for (std::size_t row = 0; row < query.size() / kDim; row += step) {
    std::vector<float> k(tokens * kDim), v(tokens * kDim);
    for (std::size_t i = 0; i < k.size(); ++i) {
      const std::size_t t = i / kDim % kBlock, d = i % kDim,
                        block = row / as_size(s.group) * as_size(s.blocks) + i / kDim / kBlock;
      k[i] = unpacked(x.key_codes[(block * kDim + d) * 2 + t / 16] >> (t % 16 * 2), x.key_scales[block * kDim + d]);
      v[i] = unpacked(x.value_codes[(block * kBlock + t) * (kDim / 16) + d / 16] >> (d % 16 * 2),
                      x.value_scales[(block * kBlock + t) * (kDim / kBlock) + d / kBlock]);
    }
    const auto one = reference::attend(&query[row * kDim], k.data(), v.data(), tokens, kDim, double{s.scale});
    out.insert(out.end(), one.out.begin(), one.out.end());
  }
  return out;
}

void run(State& state) {
  const int tokens = as_int(state, "context");
  PackedShape s{as_int(state, "batch"),
                as_int(state, "kv_heads"),
                as_int(state, "group"),
                tokens / kBlock,
                1,
                1.0f / std::sqrt(static_cast<float>(kDim))};
  if (tokens % kBlock != 0 || tokens == 0 || s.group < 1 || s.group > kMostGroup)
    return state.skip("contexts are multiples of 32 tokens, groups 1 to 8");
  const std::size_t items = as_size(s.batch) * as_size(s.kv_heads) * as_size(s.blocks),
                    rows = as_size(s.batch) * as_size(s.kv_heads * s.group);
  if (too_large(state, 3072.0 * static_cast<double>(items))) return;
  s.splits = AttentionRun::splits_for(tokens, s.batch * s.kv_heads, state.machine().sm_count);
  const HostPacked h{random_words(121, items * kDim * 2), random_scales(122, items * kDim),
                     random_words(123, items * kBlock * kDim / 16), random_scales(124, items * kBlock * kDim / kBlock)};
  const DeviceArray<std::uint32_t> kc(h.key_codes), ks(h.key_scales), vc(h.value_codes), vs(h.value_scales);
  const DeviceArray<Half> query = half_normals(125, rows * kDim), out(rows * kDim);
  const DeviceArray<float> partial(as_size(s.splits) * rows * kDim), lse(as_size(s.splits) * rows), out_lse(rows);
  const Packed x{kc.data(), ks.data(), vc.data(), vs.data()};
  const std::size_t shared = 4 * (kMostGroup * kDim + kWarps * (kDim + kBlock) * kMostGroup);
  const auto call = [&](Queue queue) {
    launch({as_unsigned(s.splits), as_unsigned(s.kv_heads), as_unsigned(s.batch)}, 128, shared, queue, packed_attention,
           s, query.data(), x, partial.data(), lse.data());
    launch({static_cast<unsigned>(rows)}, kDim, 0, queue, merge_kernel, s.splits, static_cast<int>(rows),
           partial.data(), lse.data(), out.data(), out_lse.data());
  };
  // Codes, and four bytes for each group of 32, of keys and of values.
  state.moves(static_cast<double>(items) * 2 * (kBlock * kDim / 4 + kDim * 4) + 4.0 * static_cast<double>(rows * kDim),
              Resource::kHbm);
  state.work("flops", 4.0 * static_cast<double>(items) * kBlock * kDim * s.group);
  state.work("launches", 2);
  state.note("splits", s.splits);
  run_and_wait(call);
  const std::size_t step = state.checking() ? 1 : std::max<std::size_t>(1, rows / 2);
  const std::vector<float> all = floats_of(out);
  std::vector<float> got;
  for (std::size_t row = 0; row < rows; row += step) got.insert(got.end(), &all[row * kDim], &all[row * kDim] + kDim);
  state.compare("attention", got, expected_rows(s, h, floats_of(query), step), 1e-3);
  if (!state.checking()) measure_device(state, call, {.launches = 2});
}

}  // namespace

Bench kivi_attention(const Machine&) {
  return {
      "kivi_attention",
      "decode attention over 2-bit keys and values in groups of 32, head dimension 128; codes, scales and minima once",
      {numbers("batch", {1, 8}), numbers("context", {2048, 8192, 32768, 131072}), numbers("kv_heads", {8}),
       numbers("group", {1, 4, 8})},
      {numbers("batch", {1, 2}), numbers("context", {32, 160, 608}), numbers("kv_heads", {1, 2}),
       numbers("group", {1, 3, 8})},
      {Mode::kCold, Mode::kBatch},
      run};
}

}  // namespace kvcast::kernels
