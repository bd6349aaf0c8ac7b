// Decode attention over keys and values packed to two bits (KIVI, arXiv 2402.02750): keys quantised by channel over 32
// tokens, values by token over 32 channels, each group with a scale and a minimum. A warp takes blocks of 32 tokens,
// the next ones' copies in flight while one is used, and multiplies on tensor cores: on the other units the arithmetic
// of a code takes longer than reading its quarter of a byte. Scales go into the queries and the weights; a code is a
// valid half, a multiple of the smallest one (2^-24), which is exact and needs no conversion.
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

// Two bits of token t are bits 2 t and 2 t + 1 of a 64-bit word; scale and minimum are the halves of a 32-bit word.
struct Packed {
  const std::uint32_t* key_codes;     // [batch][kv_heads][blocks][dim][2]
  const std::uint32_t* key_scales;    // [batch][kv_heads][blocks][dim]
  const std::uint32_t* value_codes;   // [batch][kv_heads][blocks][32 tokens][dim / 16]
  const std::uint32_t* value_scales;  // [batch][kv_heads][blocks][32 tokens][dim / 32]
};

constexpr int kStages = 3;
constexpr int kResident = 4;       // blocks on a multiprocessor
constexpr int kBlockBytes = 3072;  // codes and scales of a block of keys, then those of the values
constexpr float kCodeUnits = 0x1.0p24f;

// Sums of a warp. Heads of the group are the lanes' rows, lane / 4, in q, most and total, and columns 2 (lane % 4) and
// that + 1 in out and low.
struct PackedSums {
  std::uint32_t q[kDim / 16][2];  // dimensions 16 i + 2 (lane % 4) and the next, and those 8 further
  float out[kDim / 16][4];        // sums of codes alone: rows are dimensions 16 j + lane / 4, and that + 8
  float low[4];                   // sums of the minima: rows 0 to 3 are groups of 32 dimensions
  float most, total;
};

KVCAST_DEVICE void start_sums(PackedSums& r, const PackedShape& s, const Half* query) {
  const int head = static_cast<int>(lane_index()) / 4, pair = static_cast<int>(lane_index()) % 4;
  KVCAST_UNROLL
  for (int i = 0; i < kDim / 8; ++i) {
    r.q[i / 2][i % 2] = 0;  // no such head
    if (head < s.group) r.q[i / 2][i % 2] = load4(query + head * kDim + i * 8 + pair * 2);
  }
  KVCAST_UNROLL
  for (int i = 0; i < kDim / 4; ++i) r.out[i / 4][i % 4] = 0;
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) r.low[i] = 0;
  r.most = kLowest, r.total = 0;
}

// A number of 32 bits, which memory can never exceed: a wider one takes registers that the loop lacks.
KVCAST_DEVICE void fetch_block(const Packed& x, std::uint32_t number, unsigned char* to) {
  const std::size_t block = number;
  const std::uint32_t* from[6] = {x.key_codes + block * 256,         x.key_codes + block * 256 + 128,
                                  x.key_scales + block * 128,        x.value_codes + block * 256,
                                  x.value_codes + block * 256 + 128, x.value_scales + block * 128};
  KVCAST_UNROLL
  for (int i = 0; i < 6; ++i) copy_async(to + i * 512 + lane_index() * 16, from[i] + lane_index() * 4, true);
}

// Weights of the block's tokens 8 nb + 2 (lane % 4) and the next, as halves. Earlier sums of the heads that are the
// lane's columns are to be scaled by `shrinks` before the block's own are added.
KVCAST_DEVICE void weigh_keys(const std::uint32_t* codes, const std::uint32_t* scales, float to_log2, PackedSums& r,
                              std::uint32_t (&weights)[4], float (&shrinks)[2]) {
  const int pair = static_cast<int>(lane_index()) % 4;
  const unsigned shift = lane_index() / 4 * 2;  // position of the lane's token among eight
  float c[4][4], base[4] = {0, 0, 0, 0};
  KVCAST_UNROLL
  for (int i = 0; i < 16; ++i) c[i / 4][i % 4] = 0;
  KVCAST_UNROLL
  for (int k = 0; k < kDim / 16; ++k) {
    const int d = 16 * k + 2 * pair;
    const Vec16 near = load16(codes + d * 2), far = load16(codes + (d + 8) * 2);  // two channels each
    const std::uint32_t plain[4] = {r.q[k][0], 0, r.q[k][1], 0};
    multiply_add(base, plain, high_halves(scales[d], scales[d + 1]), high_halves(scales[d + 8], scales[d + 9]));
    const std::uint32_t scaled[4] = {multiply_halves(r.q[k][0], low_halves(scales[d], scales[d + 1])), 0,
                                     multiply_halves(r.q[k][1], low_halves(scales[d + 8], scales[d + 9])), 0};
    KVCAST_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t a = near.w[half] >> shift, b = near.w[2 + half] >> shift, e = far.w[half] >> shift,
                          f = far.w[2 + half] >> shift;
      multiply_add(c[2 * half], scaled, low_halves(a, b) & 0x00030003u, low_halves(e, f) & 0x00030003u);
      multiply_add(c[2 * half + 1], scaled, high_halves(a, b) & 0x00030003u, high_halves(e, f) & 0x00030003u);
    }
  }
  float top = r.most, sum = 0;
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) {
    float& x = c[i / 2][i % 2];
    x = (x * kCodeUnits + base[0]) * to_log2;
    top = fmaxf(top, x);
  }
  top = fmaxf(top, warp_xor(top, 1));
  top = fmaxf(top, warp_xor(top, 2));
  const float shrink = exp2_fast(r.most - top);
  r.most = top;
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float x = exp2_fast(c[i][0] - top), y = exp2_fast(c[i][1] - top);
    sum += x + y;
    weights[i] = pack2(x, y);
  }
  r.total = r.total * shrink + sum;
  const unsigned of_column = lane_index() % 4 * 8;
  shrinks[0] = warp_from(shrink, of_column), shrinks[1] = warp_from(shrink, of_column + 4);
}

// c += the product; if first, c = shrinks · c + it instead, with a factor for each of the lane's two columns. A tensor
// core aligns its addends to the largest one and cuts off what lies below its last bits, always towards zero. Kept
// there over thousands of tokens, the sums of codes and of minima lose different amounts, and what is wanted is their
// small difference. So each product starts from zero, and an addition that rounds joins it to earlier ones.
KVCAST_DEVICE void join_product(float (&c)[4], const float (&shrinks)[2], bool first, const std::uint32_t (&a)[4],
                                std::uint32_t b0, std::uint32_t b1) {
  float product[4] = {0, 0, 0, 0};
  multiply_add(product, a, b0, b1);
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) c[i] = first ? c[i] * shrinks[i % 2] + product[i] : c[i] + product[i];
}

// Sums of the minima, for all groups of channels. A block's 32 tokens lose too little to need two additions.
KVCAST_DEVICE void add_minima(const std::uint32_t* scales, const std::uint32_t (&weights)[4], const float (&shrinks)[2],
                              PackedSums& r) {
  const int quad = static_cast<int>(lane_index()) / 4, pair = static_cast<int>(lane_index()) % 4;
  float low[4] = {0, 0, 0, 0};
  KVCAST_UNROLL
  for (int step = 0; step < 2; ++step) {
    const std::uint32_t* at = scales + (16 * step + 2 * pair) * (kDim / kBlock) + quad % 4;
    const std::uint32_t minima[4] = {high_halves(at[0], at[4]), 0, high_halves(at[32], at[36]), 0};
    multiply_add(low, minima, weights[2 * step], weights[2 * step + 1]);
  }
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) r.low[i] = r.low[i] * shrinks[i % 2] + low[i];
}

KVCAST_DEVICE void add_packed_values(const std::uint32_t* codes, const std::uint32_t* scales,
                                     const std::uint32_t (&weights)[4], const float (&shrinks)[2], PackedSums& r) {
  const int quad = static_cast<int>(lane_index()) / 4, pair = static_cast<int>(lane_index()) % 4;
  KVCAST_UNROLL
  for (int step = 0; step < 2; ++step) {
    const std::uint32_t w[2] = {weights[2 * step], weights[2 * step + 1]};
    // Tokens 0, 1, 8 and 9 of the lane's.
    const std::uint32_t* code[4];
    const std::uint32_t* scale[4];
    Vec16 groups[4];
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int t = 16 * step + 2 * pair + i % 2 + i / 2 * 8;
      code[i] = codes + t * (kDim / 16);
      scale[i] = scales + t * (kDim / kBlock);
      groups[i] = load16(scale[i]);
    }
    KVCAST_UNROLL
    for (int half = 0; half < 2; ++half) {
      Vec16 words[4];
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i) words[i] = load16(code[i] + half * 4);
      KVCAST_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int g = half * 2 + j / 2;
        const std::uint32_t b0 = multiply_halves(w[0], low_halves(groups[0].w[g], groups[1].w[g])),
                            b1 = multiply_halves(w[1], low_halves(groups[2].w[g], groups[3].w[g]));
        std::uint32_t x[4];
        KVCAST_UNROLL
        for (int i = 0; i < 4; ++i) x[i] = words[i].w[j] >> (quad * 2);
        const std::uint32_t a[4] = {low_halves(x[0], x[1]) & 0x00030003u, high_halves(x[0], x[1]) & 0x00030003u,
                                    low_halves(x[2], x[3]) & 0x00030003u, high_halves(x[2], x[3]) & 0x00030003u};
        join_product(r.out[half * 4 + j], shrinks, step == 0, a, b0, b1);
      }
    }
  }
}

// Writes a warp's sums to shared memory: [group][dim], and after each row its maximum and its total.
KVCAST_DEVICE void leave_packed(PackedSums& r, float* to) {
  const int quad = static_cast<int>(lane_index()) / 4, pair = static_cast<int>(lane_index()) % 4;
  KVCAST_UNROLL
  for (int j = 0; j < kDim / 16; ++j) {
    const unsigned from = static_cast<unsigned>(j / 2 * 4 + pair);
    const float low[2] = {warp_from(r.low[0], from), warp_from(r.low[1], from)};
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i)
      to[(2 * pair + i % 2) * (kDim + 2) + j * 16 + quad + i / 2 * 8] = r.out[j][i] * kCodeUnits + low[i % 2];
  }
  r.total += warp_xor(r.total, 1);
  r.total += warp_xor(r.total, 2);
  if (pair == 0) {
    to[quad * (kDim + 2) + kDim] = r.most;
    to[quad * (kDim + 2) + kDim + 1] = r.total;
  }
}

// partial [splits][rows][dim], lse [splits][rows] and out_rows [rows][dim], as attention_kernel leaves them.
KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(128, kResident)
    packed_attention(PackedShape s, const Half* query, Packed x, float* partial, float* lse, Half* out_rows) {
  const int head = static_cast<int>(block_y()), sequence = static_cast<int>(block_z()),
            warp = static_cast<int>(warp_index());
  const int row0 = (sequence * s.kv_heads + head) * s.group;
  unsigned char* buffer = shared_memory() + warp * kStages * kBlockBytes;
  PackedSums r;
  start_sums(r, s, query + static_cast<std::size_t>(row0) * kDim);
  const int begin = static_cast<int>(static_cast<long long>(s.blocks) * static_cast<int>(block_x()) / s.splits) + warp;
  const int end = static_cast<int>(static_cast<long long>(s.blocks) * (static_cast<int>(block_x()) + 1) / s.splits);
  const int first = (sequence * s.kv_heads + head) * s.blocks + begin;
  const int count = (end - begin + kWarps - 1) / kWarps;  // blocks of this warp; none if negative
  const auto fetch = [&](int i) {
    if (i < count) fetch_block(x, static_cast<std::uint32_t>(first + i * kWarps), buffer + i % kStages * kBlockBytes);
    copy_commit();  // an empty group if there is no block
  };
  KVCAST_UNROLL
  for (int i = 0; i < kStages - 1; ++i) fetch(i);
  for (int i = 0; i < count; ++i) {
    fetch(i + kStages - 1);
    copy_wait<kStages - 1>();
    warp_sync();
    const std::uint32_t* at = reinterpret_cast<const std::uint32_t*>(buffer + i % kStages * kBlockBytes);
    std::uint32_t weights[4];
    float shrinks[2];
    weigh_keys(at, at + 256, s.scale * 1.44269504f, r, weights, shrinks);
    add_minima(at + 640, weights, shrinks, r);
    add_packed_values(at + 384, at + 640, weights, shrinks, r);
    warp_sync();  // the next fetch overwrites data that others may still read
  }
  copy_wait<0>();
  block_sync();  // the blocks' memory is reused: [warps][group][dim + 2]
  float* sums = reinterpret_cast<float*>(shared_memory());
  leave_packed(r, sums + warp * kMostGroup * (kDim + 2));
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
    const float mean = total > 0 ? sum / total : 0;
    if (s.splits == 1) {
      out_rows[row * kDim + static_cast<std::size_t>(d)] = to_half(mean);
    } else {
      partial[row * kDim + static_cast<std::size_t>(d)] = mean;
    }
    if (d == 0) lse[row] = total > 0 ? (most + log2_fast(total)) * 0.69314718f : kLowest;
  }
}

// Random codes serve as well as quantised numbers; scales are near 0.5, minima near −0.75, so that values are near ±1.
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
  s.splits = AttentionRun::splits_for(tokens, s.batch * s.kv_heads, state.machine().sm_count, kResident);
  const HostPacked h{random_words(121, items * kDim * 2), random_scales(122, items * kDim),
                     random_words(123, items * kBlock * kDim / 16), random_scales(124, items * kBlock * kDim / kBlock)};
  const DeviceArray<std::uint32_t> kc(h.key_codes), ks(h.key_scales), vc(h.value_codes), vs(h.value_scales);
  const DeviceArray<Half> query = half_normals(125, rows * kDim), out(rows * kDim);
  const DeviceArray<float> partial(as_size(s.splits) * rows * kDim), lse(as_size(s.splits) * rows), out_lse(rows);
  const Packed x{kc.data(), ks.data(), vc.data(), vs.data()};
  constexpr std::size_t shared = kWarps * kStages * kBlockBytes;
  const auto call = [&](Queue queue) {
    launch({as_unsigned(s.splits), as_unsigned(s.kv_heads), as_unsigned(s.batch)}, 128, shared, queue, packed_attention,
           s, query.data(), x, partial.data(), lse.data(), out.data());
    if (s.splits == 1) return;
    launch({static_cast<unsigned>(rows)}, kDim, 0, queue, merge_kernel, s.splits, static_cast<int>(rows),
           partial.data(), lse.data(), out.data(), out_lse.data());
  };
  // Codes, and four bytes for each group of 32, of keys and of values.
  state.moves(static_cast<double>(items) * 2 * (kBlock * kDim / 4 + kDim * 4) + 4.0 * static_cast<double>(rows * kDim),
              Resource::kHbm);
  state.work("flops", 4.0 * static_cast<double>(items) * kBlock * kDim * s.group);
  const int launches = s.splits == 1 ? 1 : 2;
  state.work("launches", launches);
  state.note("splits", s.splits);
  run_and_wait(call);
  const std::size_t step = state.checking() ? 1 : std::max<std::size_t>(1, rows / 2);
  const std::vector<float> all = floats_of(out);
  std::vector<float> got;
  for (std::size_t row = 0; row < rows; row += step) got.insert(got.end(), &all[row * kDim], &all[row * kDim] + kDim);
  // Products of weights and scales are rounded to halves. Their ties, which are not rare, do not cancel: an error of
  // 2e-6 of the sum of codes remains. At 131072 random tokens that sum is 400 times the output.
  state.compare("attention", got, expected_rows(s, h, floats_of(query), step), state.checking() ? 1e-3 : 2e-3);
  if (!state.checking()) measure_device(state, call, {.launches = launches});
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
      {Mode::kCold},
      run};
}

}  // namespace kvcast::kernels
