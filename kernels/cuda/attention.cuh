// Split-KV decode attention over paged keys and values, for one new token of each sequence.
//
// Method: FlashDecoding (Dao et al. 2023) on tensor cores. A block takes a share of the tokens of one (sequence, head
// group); each of its four warps takes every fourth tile of 16 tokens, with a pipeline of asynchronous copies of its
// own, so that nothing in the loop waits for another warp. The query heads that share a KV head are the 16 rows of
// mma.m16n8k16: keys and values are read once for the whole group. Warps, and then blocks, join by log-sum-exp.
#pragma once

#include <algorithm>

#include "device/device.hpp"
#include "device/divisor.hpp"
#include "device/runtime.hpp"

namespace kvcast::kernels {

struct AttentionShape {
  int sequences;
  int groups;           // (virtual) KV heads: each has a list of pages and a set of query heads of its own
  int heads_per_group;  // query heads of a group, 1 to 16
  int groups_per_kv;    // groups that read the same KV head: 1, or all its query heads if each selects for itself
  int tokens;           // tokens that each group attends to
  int page;             // tokens per page
  int pages_per_list;
  int lists;  // 1: the groups of a sequence share one list; groups: each has its own
  int splits;
  float scale;             // factor on the logits
  int sequence_pages = 0;  // offset between the page numbers of consecutive sequences
};

// Tokens per warp step, and per step of a block of four warps.
inline constexpr int kAttentionTile = 16;
inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionStages = 3;
inline constexpr int kAttentionResident = 2;  // blocks that fit on a multiprocessor

// First token of a split; splits are whole block steps, and splits + 1 is the end.
KVCAST_HD inline int split_begin(int tokens, int splits, int split) {
  constexpr int kStep = kAttentionTile * kAttentionWarps;
  const int steps = (tokens + kStep - 1) / kStep;
  const long long begin = static_cast<long long>(steps) * split / splits * kStep;
  return begin < tokens ? static_cast<int>(begin) : tokens;
}

// Position of token i of a group: row (page · page size + slot) of the pool. Pages are listed in any order.
KVCAST_HD inline std::size_t list_at(const AttentionShape& s, int sequence, int group) {
  return (static_cast<std::size_t>(sequence) * static_cast<std::size_t>(s.lists) +
          static_cast<std::size_t>(s.lists == 1 ? 0 : group)) *
         static_cast<std::size_t>(s.pages_per_list);
}

// 16-byte chunk c of row r of a tile in shared memory: rotated so that eight rows' equal chunks use all 32 banks.
KVCAST_HD inline int swizzled(int r, int c) { return c ^ (r & 7); }

template <int kDim>
struct AttentionWarp {
  static constexpr int kChunks = kDim / 8;
  static constexpr int kTileBytes = kAttentionTile * kDim * 2;
  static constexpr int kKSteps = kDim / 16;
  static constexpr int kNBlocks = kDim / 8;

  const AttentionShape& s;
  Divisor page;  // s.page
  const Half* keys;
  const Half* values;
  const std::uint32_t* list;
  std::uint32_t first_page;
  int kv_head, kv_heads, first, last;
  unsigned char* buffer;  // [stages][2][tile]
  std::uint32_t q[kKSteps][4];
  float out[kNBlocks][4];
  float most[2], total[2];  // of rows lane / 4 and lane / 4 + 8, in units of log2

  // Query heads beyond the group are rows of zeros.
  KVCAST_DEVICE void load_query(const Half* query) {
    const int lane = static_cast<int>(lane_index()), row = lane / 4;
    KVCAST_UNROLL
    for (int k = 0; k < kKSteps; ++k) {
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r = row + 8 * (i % 2), c = k * 16 + lane % 4 * 2 + 8 * (i / 2);
        q[k][i] = 0;
        if (r < s.heads_per_group) q[k][i] = load4(query + r * kDim + c);
      }
    }
  }

  // Copies of one tile: keys, then values. Lanes 0 to 15 look up a row each; two rows move with each instruction.
  KVCAST_DEVICE void fetch(int tile, int stage) {
    const int lane = static_cast<int>(lane_index());
    const int token = first + (tile * kAttentionWarps + static_cast<int>(warp_index())) * kAttentionTile + lane % 16;
    const bool inside = token < last;
    const std::uint32_t listed = page.quotient(static_cast<std::uint32_t>(token));
    const std::uint32_t number = inside ? first_page + list[listed] : 0;
    const std::uint32_t row = number * page.by + (static_cast<std::uint32_t>(token) - listed * page.by);
    unsigned char* to = buffer + stage * 2 * kTileBytes;
    KVCAST_UNROLL
    for (int i = 0; i < kAttentionTile * kChunks / 32; ++i) {
      const int r = (i * 32 + lane) / kChunks, c = (i * 32 + lane) % kChunks;
      const std::uint32_t source = warp_from(row, static_cast<unsigned>(r));
      const bool valid = warp_from(static_cast<std::uint32_t>(inside), static_cast<unsigned>(r)) != 0;
      const std::size_t at =
          (std::size_t{source} * static_cast<std::size_t>(kv_heads) + static_cast<std::size_t>(kv_head)) * kDim +
          static_cast<std::size_t>(c) * 8;
      const int place = (r * kChunks + swizzled(r, c)) * 16;
      copy_async(to + place, keys + at, valid);
      copy_async(to + kTileBytes + place, values + at, valid);
    }
  }

  // Logits of 16 rows by 16 tokens in two blocks of eight tokens, as log2 of weights; masked beyond the end.
  KVCAST_DEVICE void score(const unsigned char* tile, int token, float (&logits)[2][4]) {
    const int lane = static_cast<int>(lane_index());
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) logits[i / 4][i % 4] = 0;
    const int r = lane % 8 + (lane / 16) * 8;
    KVCAST_UNROLL
    for (int k = 0; k < kKSteps; ++k) {
      const int c = k * 2 + lane / 8 % 2;
      std::uint32_t b[4];
      load_matrices(b, tile + (r * kChunks + swizzled(r, c)) * 16);
      multiply_add(logits[0], q[k], b[0], b[1]);
      multiply_add(logits[1], q[k], b[2], b[3]);
    }
    const float to_log2 = s.scale * 1.44269504f;
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) {
      const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      logits[i / 4][i % 4] = token + column < last ? logits[i / 4][i % 4] * to_log2 : kLowest;
    }
  }

  // Online softmax: rows' new maxima, weights instead of logits, earlier sums scaled down.
  KVCAST_DEVICE void weigh(float (&logits)[2][4]) {
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      float top = fmaxf(fmaxf(logits[0][2 * h], logits[0][2 * h + 1]), fmaxf(logits[1][2 * h], logits[1][2 * h + 1]));
      top = fmaxf(top, warp_xor(top, 1));
      top = fmaxf(top, warp_xor(top, 2));
      top = fmaxf(top, most[h]);
      const float shrink = exp2_fast(most[h] - top);
      most[h] = top;
      float sum = 0;
      KVCAST_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& x = logits[i / 2][2 * h + i % 2];
        x = exp2_fast(x - top);
        sum += x;
      }
      total[h] = total[h] * shrink + sum;
      KVCAST_UNROLL
      for (int n = 0; n < kNBlocks; ++n) {
        out[n][2 * h] *= shrink;
        out[n][2 * h + 1] *= shrink;
      }
    }
  }

  KVCAST_DEVICE void add_values(const unsigned char* tile, const float (&w)[2][4]) {
    const int lane = static_cast<int>(lane_index());
    const std::uint32_t a[4] = {pack2(w[0][0], w[0][1]), pack2(w[0][2], w[0][3]), pack2(w[1][0], w[1][1]),
                                pack2(w[1][2], w[1][3])};
    const int r = lane % 16;
    KVCAST_UNROLL
    for (int n = 0; n < kNBlocks; n += 2) {
      const int c = n + lane / 16;
      std::uint32_t b[4];
      load_matrices_transposed(b, tile + (r * kChunks + swizzled(r, c)) * 16);
      multiply_add(out[n], a, b[0], b[1]);
      multiply_add(out[n + 1], a, b[2], b[3]);
    }
  }

  KVCAST_DEVICE void attend() {
    constexpr int kStep = kAttentionTile * kAttentionWarps;
    const int tiles = (last - first + kStep - 1) / kStep;
    KVCAST_UNROLL
    for (int n = 0; n < kNBlocks * 4; ++n) out[n / 4][n % 4] = 0;
    most[0] = most[1] = kLowest;
    total[0] = total[1] = 0;
    KVCAST_UNROLL
    for (int t = 0; t < kAttentionStages - 1; ++t) {
      if (t < tiles) fetch(t, t);
      copy_commit();
    }
    for (int t = 0; t < tiles; ++t) {
      const int ahead = t + kAttentionStages - 1;
      if (ahead < tiles) fetch(ahead, ahead % kAttentionStages);
      copy_commit();  // an empty group if there is no tile: the count of groups stays that of the steps
      copy_wait<kAttentionStages - 1>();
      warp_sync();
      const int token = first + (t * kAttentionWarps + static_cast<int>(warp_index())) * kAttentionTile;
      const unsigned char* tile = buffer + t % kAttentionStages * 2 * kTileBytes;
      if (token < last) {  // the same for all lanes
        float logits[2][4];
        score(tile, token, logits);
        weigh(logits);
        add_values(tile + kTileBytes, logits);
      }
      warp_sync();  // the next fetch overwrites data that others may still read
    }
    copy_wait<0>();
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      total[h] += warp_xor(total[h], 1);
      total[h] += warp_xor(total[h], 2);
    }
  }
};

// Warps leave their sums in shared memory; then thread d joins column d of every head of the group.
struct WarpSums {
  float* out;    // [warps][16][dim]
  float* most;   // [warps][16]
  float* total;  // [warps][16]
};

template <int kDim>
KVCAST_DEVICE void leave_sums(const AttentionWarp<kDim>& w, const WarpSums& sums) {
  const int lane = static_cast<int>(lane_index()), warp = static_cast<int>(warp_index());
  KVCAST_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + lane / 4 + 8 * h;
    KVCAST_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      sums.out[row * kDim + n * 8 + lane % 4 * 2] = w.out[n][2 * h];
      sums.out[row * kDim + n * 8 + lane % 4 * 2 + 1] = w.out[n][2 * h + 1];
    }
    if (lane % 4 == 0) {
      sums.most[row] = w.most[h];
      sums.total[row] = w.total[h];
    }
  }
}

struct AttentionOut {
  float* partial;  // [parts][dim], if another kernel joins them; otherwise `rows`, [rows][dim]
  float* lse;      // [parts], natural logarithm
  Half* rows;
  bool joined;
};

// Tokens first to last of one row (sequence, group), by one block, whose place among the parts is `part`.
template <int kDim>
KVCAST_DEVICE void attend_part(const AttentionShape& s, Divisor page, const Half* query, const Half* keys,
                               const Half* values, const std::uint32_t* lists, int sequence, int group, int first,
                               int last, std::size_t part, const AttentionOut& to) {
  const int row0 = (sequence * s.groups + group) * s.heads_per_group;
  unsigned char* shared = shared_memory();
  using Warp = AttentionWarp<kDim>;
  Warp w{s,
         page,
         keys,
         values,
         lists + list_at(s, sequence, group),
         static_cast<std::uint32_t>(sequence * s.sequence_pages),
         group / s.groups_per_kv,
         s.groups / s.groups_per_kv,
         first,
         last,
         shared + warp_index() * (kAttentionStages * 2 * Warp::kTileBytes),
         {},
         {},
         {},
         {}};
  w.load_query(query + static_cast<std::size_t>(row0) * kDim);
  w.attend();
  block_sync();  // the tiles' memory is reused
  float* out = reinterpret_cast<float*>(shared);
  const WarpSums sums{out, out + kAttentionWarps * 16 * kDim, out + kAttentionWarps * 16 * (kDim + 1)};
  leave_sums(w, sums);
  block_sync();
  for (int i = static_cast<int>(thread_x()); i < s.heads_per_group * kDim; i += static_cast<int>(block_threads())) {
    const int head = i / kDim, d = i % kDim;
    float most = kLowest, total = 0, sum = 0;
    for (int v = 0; v < kAttentionWarps; ++v) most = fmaxf(most, sums.most[v * 16 + head]);
    for (int v = 0; v < kAttentionWarps; ++v) {
      const float weight = exp2_fast(sums.most[v * 16 + head] - most);
      total += weight * sums.total[v * 16 + head];
      sum += weight * sums.out[(v * 16 + head) * kDim + d];
    }
    const std::size_t row = part + static_cast<std::size_t>(head);
    const float mean = total > 0 ? sum / total : 0;
    if (to.joined) {
      to.partial[row * kDim + static_cast<std::size_t>(d)] = mean;
    } else {
      to.rows[row * kDim + static_cast<std::size_t>(d)] = to_half(mean);
    }
    if (d == 0) to.lse[row] = total > 0 ? (most + log2_fast(total)) * 0.69314718f : kLowest;
  }
}

// partial [splits][rows][dim] and lse [splits][rows], rows = sequences · groups · heads.
template <int kDim>
KVCAST_KERNEL KVCAST_BOUNDS(128)
    attention_kernel(AttentionShape s, Divisor page, const Half* query, const Half* keys, const Half* values,
                     const std::uint32_t* lists, float* partial, float* lse, Half* out_rows) {
  const int split = static_cast<int>(block_x()), group = static_cast<int>(block_y()),
            sequence = static_cast<int>(block_z());
  const std::size_t rows =
      static_cast<std::size_t>(s.sequences) * static_cast<std::size_t>(s.groups * s.heads_per_group);
  const std::size_t part = static_cast<std::size_t>(split) * rows +
                           static_cast<std::size_t>((sequence * s.groups + group) * s.heads_per_group);
  attend_part<kDim>(s, page, query, keys, values, lists, sequence, group, split_begin(s.tokens, s.splits, split),
                    split_begin(s.tokens, s.splits, split + 1), part, {partial, lse, out_rows, s.splits > 1});
}

// Joins the parts of one row by their lse, from place `base` on, `stride` apart; a block of dim threads for each row.
// Eight parts are in flight: one after another, each would wait for the L2.
KVCAST_DEVICE void merge_parts(int parts, std::size_t base, std::size_t stride, const float* partial, const float* lse,
                               Half* out, float* out_lse) {
  constexpr int kInFlight = 8;
  const std::size_t row = block_x(), dim = block_threads(), d = thread_x();
  float most = kLowest, total = 0, sum = 0;
  for (int first = 0; first < parts; first += kInFlight) {
    float weight[kInFlight], part[kInFlight], top = most;
    KVCAST_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const std::size_t at = base + static_cast<std::size_t>(first + i) * stride;
      weight[i] = first + i < parts ? lse[at] * 1.44269504f : kLowest;
      part[i] = first + i < parts ? partial[at * dim + d] : 0;
    }
    KVCAST_UNROLL
    for (int i = 0; i < kInFlight; ++i) top = fmaxf(top, weight[i]);
    const float shrink = exp2_fast(most - top);
    most = top, total *= shrink, sum *= shrink;
    KVCAST_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      weight[i] = exp2_fast(weight[i] - top);
      total += weight[i];
      sum += weight[i] * part[i];
    }
  }
  out[row * dim + d] = to_half(sum / total);
  if (d == 0) out_lse[row] = (most + log2_fast(total)) * 0.69314718f;
}

// Parts [parts][rows][dim] with lse [parts][rows].
KVCAST_KERNEL KVCAST_BOUNDS(128)
    merge_kernel(int parts, int rows, const float* partial, const float* lse, Half* out, float* out_lse) {
  merge_parts(parts, block_x(), static_cast<std::size_t>(rows), partial, lse, out, out_lse);
}

// Both kernels, with memory for the parts; one where there is one part.
class AttentionRun {
 public:
  AttentionRun(const AttentionShape& shape, int dim)
      : s_(shape),
        dim_(dim),
        rows_(shape.sequences * shape.groups * shape.heads_per_group),
        partial_(shape.splits == 1 ? 1 : size() * static_cast<std::size_t>(shape.splits * dim)),
        lse_(shape.splits == 1 ? 1 : size() * static_cast<std::size_t>(shape.splits)),
        out_(size() * static_cast<std::size_t>(dim)),
        out_lse_(size()) {}

  int launches() const { return s_.splits == 1 ? 1 : 2; }

  void operator()(Queue queue, const Half* query, const Half* keys, const Half* values,
                  const std::uint32_t* lists) const {
    const Grid grid{static_cast<unsigned>(s_.splits), static_cast<unsigned>(s_.groups),
                    static_cast<unsigned>(s_.sequences)};
    const auto kernel = dim_ == 128 ? attention_kernel<128> : attention_kernel<64>;
    launch(grid, kAttentionWarps * 32, shared_bytes(dim_), queue, kernel, s_, Divisor(s_.page), query, keys, values,
           lists, partial_.data(), s_.splits == 1 ? out_lse_.data() : lse_.data(), out_.data());
    if (s_.splits == 1) return;
    launch({static_cast<unsigned>(rows_)}, static_cast<unsigned>(dim_), 0, queue, merge_kernel, s_.splits, rows_,
           partial_.data(), lse_.data(), out_.data(), out_lse_.data());
  }
  const DeviceArray<Half>& out() const { return out_; }
  const DeviceArray<float>& lse() const { return out_lse_; }

  static std::size_t shared_bytes(int dim) {
    const std::size_t tiles =
        std::size_t{kAttentionWarps} * kAttentionStages * 2 * kAttentionTile * static_cast<std::size_t>(dim) * 2;
    const std::size_t sums = std::size_t{kAttentionWarps} * 16 * static_cast<std::size_t>(dim + 2) * 4;
    return tiles > sums ? tiles : sums;
  }
  // Returns the number of parts into which each row is split: the fewest parts with the shortest total time within
  // three rounds. Blocks run in rounds of `resident` to a multiprocessor, and a round takes as long whether it is full
  // or not. Each block keeps four steps.
  static int splits_for(int tokens, int blocks_without, int sm_count, int resident = kAttentionResident) {
    const int slots = resident * (sm_count > 0 ? sm_count : 4), most = std::min(128, (tokens + 4 * 64 - 1) / (4 * 64));
    const auto rounds = [&](int splits) { return (blocks_without * splits + slots - 1) / slots; };
    int best = 1;
    for (int splits = 2; splits <= most && rounds(splits) <= 3; ++splits) {
      if (rounds(splits) * best < rounds(best) * splits) best = splits;
    }
    return best;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>(rows_); }
  AttentionShape s_;
  int dim_, rows_;
  DeviceArray<float> partial_, lse_;
  DeviceArray<Half> out_;
  DeviceArray<float> out_lse_;
};

}  // namespace kvcast::kernels
