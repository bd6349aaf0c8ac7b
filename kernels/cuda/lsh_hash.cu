// Hash codes by random projections (MagicPIG, arXiv 2410.16179): bit b of table t is the sign of a vector's product
// with direction t · bits + b. Tensor cores give 16 vectors by 8 directions at once; signs gather into codes by ballot.
#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;

struct HashShape {
  int vectors, tables, bits;
};

// One warp for 16 vectors and 8 tables. vectors [vectors][dim], directions [tables · bits][dim] -> codes
// [vectors][tables] words. In step b the eight directions are bit b of the eight tables.
KVCAST_KERNEL KVCAST_BOUNDS(128)
    hash_vectors(HashShape s, const Half* vectors, const Half* directions, std::uint32_t* codes) {
  const int lane = static_cast<int>(lane_index());
  const int v0 = static_cast<int>(block_x() * 4 + warp_index()) * 16, t0 = static_cast<int>(block_y()) * 8;
  if (v0 >= s.vectors) return;
  // Each lane reads eight adjacent dimensions of 32 at a time, 16 bytes, and uses them in two products. Both sides of a
  // product have their dimensions in the same order (multiply_add_pair), so that the sums are right.
  Vec16 a[kDim / 32][2];
  KVCAST_UNROLL
  for (int k = 0; k < kDim / 32; ++k) {
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int v = v0 + lane / 4 + 8 * h;
      a[k][h] = load16(vectors + static_cast<std::size_t>(v < s.vectors ? v : 0) * kDim + k * 32 + lane % 4 * 8);
    }
  }
  // Lane l ends with the codes of vectors l / 4 and l / 4 + 8 in tables 2 (l % 4) and that + 1.
  std::uint32_t code[4] = {0, 0, 0, 0};
  const int table = t0 + lane / 4 < s.tables ? t0 + lane / 4 : 0;
  for (int bit = 0; bit < s.bits; ++bit) {
    const Half* row = directions + static_cast<std::size_t>(table * s.bits + bit) * kDim + lane % 4 * 8;
    float c[4] = {0, 0, 0, 0};
    KVCAST_UNROLL
    for (int k = 0; k < kDim / 32; ++k) multiply_add_pair(c, a[k], load16(row + k * 32));
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) code[i] |= c[i] > 0 ? 1u << bit : 0u;
  }
  KVCAST_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int v = v0 + lane / 4 + 8 * (i / 2), t = t0 + lane % 4 * 2 + i % 2;
    if (v < s.vectors && t < s.tables)
      codes[static_cast<std::size_t>(v) * static_cast<std::size_t>(s.tables) + static_cast<std::size_t>(t)] = code[i];
  }
}

void run(State& state) {
  const HashShape s{as_int(state, "vectors"), as_int(state, "tables"), as_int(state, "bits")};
  if (s.bits < 1 || s.bits > 32 || s.vectors < 1 || s.tables < 1) return state.skip("codes have 1 to 32 bits");
  const std::size_t n = as_size(s.vectors), directions_n = as_size(s.tables * s.bits);
  const DeviceArray<Half> vectors = half_normals(103, n * kDim), directions = half_normals(104, directions_n * kDim);
  const DeviceArray<std::uint32_t> codes(n * as_size(s.tables));
  const auto call = [&](Queue queue) {
    launch({blocks_for(n, 64), blocks_for(as_size(s.tables), 8)}, 128, 0, queue, hash_vectors, s, vectors.data(),
           directions.data(), codes.data());
  };
  const double written = 4.0 * static_cast<double>(codes.size()),
               bytes = 2.0 * static_cast<double>((n + directions_n) * kDim) + written;
  state.moves(bytes, Resource::kHbm);
  state.work("flops", 2.0 * static_cast<double>(n * directions_n) * kDim);
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call, {.written = written / bytes});
  const std::vector<float> v = floats_of(vectors), w = floats_of(directions);
  const std::vector<std::uint32_t> got = codes.host();
  int wrong = 0, beyond = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t vector = i / as_size(s.tables), table = i % as_size(s.tables);
    for (std::size_t b = 0; b < as_size(s.bits); ++b) {
      double dot = 0;
      for (std::size_t d = 0; d < kDim; ++d)
        dot += double{v[vector * kDim + d]} * double{w[(table * as_size(s.bits) + b) * kDim + d]};
      // Products this near to zero may take either sign: tensor cores truncate bits when they align their sums.
      if (std::abs(dot) > 1e-3) wrong += ((got[i] >> b) & 1u) != (dot > 0 ? 1u : 0u);
    }
    beyond += s.bits < 32 && (got[i] >> s.bits) != 0;
  }
  state.require(wrong == 0 && beyond == 0,
                std::to_string(wrong) + " bits wrong, " + std::to_string(beyond) + " codes too long");
}

}  // namespace

Bench lsh_hash(const Machine&) {
  return {"lsh_hash",
          "hash codes of vectors of 128 halves in tables of random directions; vectors and directions read, a word for "
          "each code written",
          {numbers("vectors", {32, 256, 8192, 131072}), numbers("tables", {75, 150}), numbers("bits", {8, 10})},
          {numbers("vectors", {1, 17, 70}), numbers("tables", {1, 13}), numbers("bits", {1, 9})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
