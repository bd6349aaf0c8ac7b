// MagicPIG (Chen et al., "MagicPIG: LSH Sampling for Efficient LLM Generation", ICLR 2025, arXiv 2410.16179).
//
// Idea: top-k is a biased estimate of attention. Sample keys with a known probability that grows with their similarity
// to the query, by locality-sensitive hashing, and divide by it.
// Selection, for each query head: L tables of K random hyperplanes; a key is sampled if it is in the query's bucket in
// at least `min_collisions` = 2 tables. Keys are centred on the mean of the offloaded ones before hashing, which does
// not change the softmax. Sink, the prompt's last `recent` tokens and generated ones stay on the GPU.
// Output: sampled logits q·k/√d − log(u + 1e-4), u = 1 − (1 − p)^L − L·p·(1 − p)^(L−1), p = (1 − θ/π)^K, θ the angle
// between query and centred key; unchanged static logits; one softmax over both.
// Cost: hashing reads d·K·L·b; codes and queries to the host n_q·(4·L + d·b). A CPU thread per query head clears a mask
// of one byte per key, reads 8·L of bucket bounds and 4 per candidate, then attends to the keys found. Outputs are
// copied back and merged.
// Storage: host KV, tables n_kv·(4·L·S + 8·L·2^K), norms n_kv·4·S; GPU KV of the static part.
// Limit: sink + recent ≥ the prompt is full attention; more tables approach it for keys similar to the query.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/index.hpp"
#include "base/random.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_attention.hpp"
#include "policy_parts/policy_by.hpp"

namespace kvcast::policy::magicpig {
namespace {

struct MagicpigSetting {
  int bits = 10, tables = 150, collisions = 2;  // K, L
  bool centre = true, estimator = true;
  std::uint64_t seed = 0;
  StaticTokens fixed;
};

// Probability that a key with this cosine to the query collides in two tables or more.
double sampling_probability(double cosine, const MagicpigSetting& s) {
  const double same_side = 1 - std::acos(std::clamp(cosine, -1.0, 1.0)) / std::numbers::pi;
  const double p = std::pow(same_side, s.bits), none = std::pow(1 - p, s.tables - 1);
  const double missed = none * (1 - p) + (s.collisions > 1 ? s.tables * p * none : 0.0);
  return 1 - missed;
}

// Codes of vectors: rows × tables.
std::vector<std::uint32_t> hash(const MatrixView& rows, const std::vector<float>& planes, const MagicpigSetting& s,
                                const Cancel& cancel) {
  const std::size_t n = index(s.bits * s.tables);
  constexpr std::size_t kAtOnce = 256;
  std::vector<std::uint32_t> codes(rows.rows * index(s.tables));
  std::vector<float> signs(kAtOnce * n);
  for (std::size_t first = 0; first < rows.rows; first += kAtOnce) {
    MatrixView block = rows;
    block.data = rows.row(first), block.rows = std::min(kAtOnce, rows.rows - first);
    multiply_transposed(block, {planes.data(), n, rows.cols, rows.cols}, signs.data(), n, cancel);
    for (std::size_t i = 0; i < block.rows; ++i) {
      const float* sign = signs.data() + i * n;
      for (std::size_t table = 0; table < index(s.tables); ++table) {
        std::uint32_t code = 0;
        for (int bit = 0; bit < s.bits; ++bit) code = code << 1 | (*sign++ > 0 ? 1u : 0u);
        codes[(first + i) * index(s.tables) + table] = code;
      }
    }
  }
  return codes;
}

class LshSearch final : public HostSearch {
 public:
  LshSearch(const LayerInput& input, int kv_head, const std::vector<float>& planes, const MagicpigSetting& setting)
      : layer_(input.layer()),
        kv_head_(kv_head),
        s_(setting),
        host_(setting.fixed.host(input.info().prompt_tokens, input.info().prompt_tokens)) {
    centre_keys();
    build_tables(planes);
    for (int g = 0; g < input.info().group(); ++g) {
      MatrixView decode = layer_.queries(kv_head * input.info().group() + g);
      decode.data = decode.row(index(input.info().prompt_queries()));
      decode.rows = index(input.info().decode_steps);
      codes_.push_back(hash(decode, planes, s_, layer_.cancel()));
    }
    outputs_.resize(index(s_.estimator ? input.info().group() * input.info().head_dim : 0));
  }

  void step(int t, Range, std::span<HeadSelection> out) override {
    step_ = t;
    sampled_.resize(out.size());
    for (std::size_t g = 0; g < out.size(); ++g) {
      out[g].counts.candidates = look_up(t, g, out[g].attended);
      if (s_.estimator) sampled_[g] = out[g].attended;
    }
  }

  // Estimated on request: no selection depends on it.
  std::span<const float> output(int member) const override {
    if (!s_.estimator) return {};
    const auto d = index(layer_.info().head_dim);
    const std::span out = std::span(outputs_).subspan(index(member) * d, d);
    estimate(step_, member, sampled_[index(member)], out);
    return out;
  }

  std::span<const float> log_weights(int member) const override {
    if (!s_.estimator) return {};
    const std::int64_t tokens = layer_.info().prompt_tokens + step_ + 1;
    added_.assign(index(host_.begin), 0.0f);
    add_chances(step_, member, sampled_[index(member)]);
    added_.resize(added_.size() + index(tokens - host_.end));
    return added_;
  }

 private:
  void centre_keys() {
    const MatrixView keys = layer_.keys(kv_head_);
    mean_.assign(keys.cols, 0.0f);
    if (s_.centre && host_.size() > 0) {
      std::vector<double> sum(keys.cols);
      for (std::int64_t i = host_.begin; i < host_.end; ++i) {
        for (std::size_t j = 0; j < keys.cols; ++j) sum[j] += static_cast<double>(keys.row(index(i))[j]);
      }
      for (std::size_t j = 0; j < keys.cols; ++j)
        mean_[j] = static_cast<float>(sum[j] / static_cast<double>(host_.size()));
    }
    for (std::int64_t i = host_.begin; i < host_.end; ++i) {
      for (std::size_t j = 0; j < keys.cols; ++j) centred_.push_back(keys.row(index(i))[j] - mean_[j]);
      const float* const key = centred_.data() + centred_.size() - keys.cols;
      norms_.push_back(std::sqrt(dot(key, key, keys.cols)));
    }
  }

  // Sorts keys by bucket, table by table: a counting sort.
  void build_tables(const std::vector<float>& planes) {
    const std::size_t d = mean_.size(), n = norms_.size(), buckets = std::size_t{1} << s_.bits;
    const std::vector<std::uint32_t> codes = hash({centred_.data(), n, d, d}, planes, s_, layer_.cancel());
    centred_ = {};
    const std::size_t tables = index(s_.tables);
    starts_.assign(tables * (buckets + 1), 0);
    ids_.resize(tables * n);
    std::vector<std::int32_t> next(buckets);
    for (std::size_t table = 0; table < tables; ++table) {
      layer_.cancel().check();
      std::int32_t* const start = starts_.data() + table * (buckets + 1);
      for (std::size_t i = 0; i < n; ++i) ++start[codes[i * tables + table] + 1];
      std::partial_sum(start, start + buckets + 1, start);
      std::copy_n(start, buckets, next.begin());
      for (std::size_t i = 0; i < n; ++i) {
        ids_[table * n + index(next[codes[i * tables + table]]++)] = static_cast<std::int32_t>(i);
      }
    }
    hits_.assign(n, 0);
  }

  // Finds the keys that collide often enough, ascending. Returns the number of bucket entries that were read.
  std::int64_t look_up(int t, std::size_t member, std::vector<std::int32_t>& out) {
    const std::size_t n = hits_.size(), tables = index(s_.tables), buckets = std::size_t{1} << s_.bits;
    std::int64_t read = 0;
    for (std::size_t table = 0; table < tables; ++table) {
      const std::uint32_t code = codes_[member][index(t) * tables + table];
      const std::int32_t* const start = starts_.data() + table * (buckets + 1) + code;
      for (std::int32_t i = start[0]; i < start[1]; ++i) ++hits_[index(ids_[table * n + index(i)])];
      read += start[1] - start[0];
    }
    for (std::size_t i = 0; i < n; ++i) {
      if (hits_[i] >= s_.collisions)
        out.push_back(static_cast<std::int32_t>(i) + static_cast<std::int32_t>(host_.begin));
      hits_[i] = 0;
    }
    return read;
  }

  // Appends −log of the probability with which each key was sampled.
  void add_chances(int t, int member, const std::vector<std::int32_t>& sampled) const {
    const trace::TraceInfo& info = layer_.info();
    const int q_head = kv_head_ * info.group() + member;
    const float* const query = layer_.decode_query(q_head, t);
    const float* const scores = layer_.decode_scores(q_head).row(index(t));
    const std::size_t d = index(info.head_dim);
    const double norm = std::sqrt(static_cast<double>(dot(query, query, d)));
    const double to_mean = dot(query, mean_.data(), d);
    for (const std::int32_t i : sampled) {
      const double both = norm * static_cast<double>(norms_[index(i - host_.begin)]);
      const double cosine = both > 0 ? (static_cast<double>(scores[i]) - to_mean) / both : 0;
      added_.push_back(static_cast<float>(-std::log(sampling_probability(cosine, s_) + 1e-4)));
    }
  }

  void estimate(int t, int member, const std::vector<std::int32_t>& sampled, std::span<float> out) const {
    const trace::TraceInfo& info = layer_.info();
    const float* const scores = layer_.decode_scores(kv_head_ * info.group() + member).row(index(t));
    const double scale = 1 / std::sqrt(static_cast<double>(info.head_dim));
    const std::span<const float> added = log_weights(member);
    std::vector<std::pair<std::int32_t, double>> logits;
    const auto attend_to = [&](std::int64_t i) {
      const double logit = scale * static_cast<double>(scores[i]) + static_cast<double>(added[logits.size()]);
      logits.emplace_back(static_cast<std::int32_t>(i), logit);
    };
    for (std::int64_t i = 0; i < host_.begin; ++i) attend_to(i);
    for (const std::int32_t i : sampled) attend_to(i);
    for (std::int64_t i = host_.end; i <= info.prompt_tokens + t; ++i) attend_to(i);
    attend(logits, out);
  }

  void attend(const std::vector<std::pair<std::int32_t, double>>& logits, std::span<float> out) const {
    double top = -HUGE_VAL, sum = 0;
    for (const auto& [i, logit] : logits) top = std::max(top, logit);
    std::vector<double> total(out.size());
    const MatrixView values = layer_.values(kv_head_);
    for (const auto& [i, logit] : logits) {
      const double weight = std::exp(logit - top);
      sum += weight;
      for (std::size_t j = 0; j < out.size(); ++j) total[j] += weight * values.row(index(i))[j];
    }
    for (std::size_t j = 0; j < out.size(); ++j) out[j] = static_cast<float>(total[j] / sum);
  }

  const trace::Layer& layer_;
  int kv_head_;
  const MagicpigSetting& s_;
  Range host_;
  std::vector<float> mean_, centred_, norms_;
  std::vector<std::int32_t> starts_, ids_;
  int step_ = 0;  // the last step; sampled_: its samples by query head
  std::vector<std::vector<std::int32_t>> sampled_;
  mutable std::vector<float> outputs_, added_;
  std::vector<std::vector<std::uint32_t>> codes_;  // of decode queries, by query head
  std::vector<std::uint16_t> hits_;
};

class MagicPig final : public PolicyBy<MagicpigSetting> {
 public:
  using PolicyBy::PolicyBy;

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    const std::size_t n = index(s_.bits * s_.tables * layer.info().head_dim);
    std::vector<float> planes(n);
    for (std::size_t i = 0; i < n; ++i) planes[i] = static_cast<float>(Stream(s_.seed).normal(i));
    return search_host(layer, s_.fixed, true, [&](const LayerInput& input, int kv_head) {
      return std::make_unique<LshSearch>(input, kv_head, planes, s_);
    });
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    offload_prompt(shape, s_.fixed, ops);
    const double keys = shape.batch * m.kv_heads * host_tokens(shape.prompt_tokens);
    const OpId hashed = ops.compute(Kind::kIndex, "hash keys", Gemm{keys, planes(), m.d, m.element}, {ops.ready()});
    const double bytes = keys * s_.tables * (4 + 2);  // position and code
    const OpId sorted =
        ops.compute(Kind::kIndex, "sort codes", Kernel{KernelClass::kReduce, 2 * bytes, 2 * bytes}, {hashed});
    send_to_host("hash tables", bytes, ops, sorted);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double queries = shape.batch * m.q_heads;
    // Products on tensor cores, whose signs become codes in the same kernel: a block has 64 vectors and 8 tables, and
    // reads the directions of these again.
    constexpr double kVectors = 64, kTables = 8;
    const double blocks = std::ceil(queries / kVectors) * std::ceil(s_.tables / kTables);
    const double rows_read = std::min(queries, kVectors) + std::min<double>(s_.tables, kTables) * s_.bits;
    Kernel project{KernelClass::kReduce, blocks * rows_read * m.row(), queries * s_.tables * 4};
    project.blocks = blocks, project.threads = 128, project.per_sm = 7;
    const OpId hashed = ops.compute(Kind::kScore, "hash queries", project, {ops.ready()});
    const OpId sent = send_to_host("codes and queries", queries * (s_.tables * 4 + m.row()), ops, hashed);
    const double rows = shape.heads.size();
    const double looked = shape.sum(&HeadCounts::candidates) / rows;
    const double mask = shape.mean_over([this](const Sequence& s) { return host_tokens(s.tokens); });
    // Clears one byte per token, contiguously.
    const double tables = s_.tables;
    const CpuWork look_up{.items = rows,
                          .bytes_per_item = mask,
                          .unit_bytes = mask,
                          .looked_up_per_item = looked,
                          .buckets_per_item = tables,
                          .places_per_item = tables,
                          // A KV head's tables serve all its query heads.
                          .region_bytes = tables * kIndexBytes * mask / m.group};
    const OpId found = ops.cpu("look up", look_up, {sent});
    CpuWork attend = cpu_attention(shape);
    attend.bytes_per_item += 4 * shape.sum(&HeadCounts::cpu_attended) / rows;  // norms of the keys found
    attend_and_merge(shape, ops, hashed, ops.cpu("CPU attention", attend, {found}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    const double heads = shape.batch * shape.model->layers * m.kv_heads, keys = host_tokens(prompt);
    std::vector<MemoryItem> items = split_cache(shape, s_.fixed.on_gpu(prompt, shape.tokens));
    items.push_back(
        in_dram(Owner::kHashTables, heads * s_.tables * (4 * keys + 8 * std::exp2(static_cast<double>(s_.bits)))));
    items.push_back(in_dram(Owner::kKeyNorms, heads * 4 * keys));
    items.push_back(in_hbm(Owner::kHashPlanes, planes() * m.row(), true));
    return items;
  }

  Growth growth(const Lengths&) const override { return {.attended = 1}; }  // generated tokens stay on the GPU

 private:
  double planes() const { return static_cast<double>(s_.bits) * s_.tables; }
  double host_tokens(std::int64_t prompt) const { return s_.fixed.host(prompt, prompt).size(); }
};

Fields<MagicpigSetting> magicpig_fields() {
  using S = MagicpigSetting;
  return Fields<S>()
      .add(whole("hash_bits", 10, "", "random hyperplanes per table (K)", 1, 16), &S::bits)
      .add(whole("hash_tables", 150, "", "tables (L)", 2, 1000), &S::tables)
      .add(whole("min_collisions", 2, "", "number of tables in which a sampled key is in the query's bucket", 1, 2),
           &S::collisions)
      .add(flag("centre", true, "centre keys before hashing"), &S::centre)
      .add(flag("estimator", true, "divide weights by the sampling probability"), &S::estimator)
      .add(whole("seed", 1, "", "seed of the random hyperplanes", 0, 1e15), &S::seed)
      .add(static_fields(4, 64), &S::fixed);
}

std::unique_ptr<Policy> make_magicpig(const ParameterValues& values) {
  MagicpigSetting s = magicpig_fields().read(values);
  s.fixed.generated_stay = true;
  return std::make_unique<MagicPig>(s);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "magicpig";
  d.sentence = "Samples keys by hashing, attends to the sample on the CPU and corrects for the sampling probabilities.";
  d.category = Category::kCpuRetrieval;
  d.paper = "Chen et al., MagicPIG, ICLR 2025 (arXiv 2410.16179)";
  d.parameters = magicpig_fields().parameters();
  d.formulas = {
      "traffic: GPU d·K·L·b + 2·n_kv·(sink + recent + generated)·d·b; CPU n_q·(S + 8·L + 4·looked up + sampled·(2·d·b "
      "+ 4)); to the host n_q·(4·L + d·b), back n_q·(d·b + 4) per step",
      "storage: GPU static KV; host KV + n_kv·(4·L·S + 8·L·2^K + 4·S)"};
  d.differences = {"there is no budget, because samples have no fixed size",
                   "one set of hyperplanes for all layers and heads, as in the released server; its accuracy reference "
                   "has one per KV head and 16 layers",
                   "the released code leaves layers 0, 16, 32, … dense; here only first layers can be"};
  d.make = make_magicpig;
  return d;
}

}  // namespace kvcast::policy::magicpig
