#include "lower/dense.hpp"

#include <algorithm>
#include <cmath>

#include "lower/compressed.hpp"
#include "lower/operators.hpp"
#include "lower/ops.hpp"

namespace kvcast::lower {
namespace {

using graph::Kind;
using graph::Lane;
using graph::OpId;

// Projections of latent attention: compressed and expanded queries, the latent vector and the shared key, and the keys'
// part of the expansion. It is applied to the queries if they go into the latent space, and to the keys and values of
// `expanded` tokens if a prompt is read.
OpId latent_projections(LoweredBlock& block, const config::Model& model, double rows, double expanded, OpId op) {
  const config::Latent& l = *model.latent;
  const double heads = model.n_q_heads, width = heads * (l.key_dim + l.rope_dim);
  const auto project = [&](const char* label, double count, double n, double k) {
    op = gemm(block, label, product(model.weights, count, n, k), op);
  };
  // One kernel computes the compressed queries and the latent vector from the same rows.
  project("compress queries and pairs", rows, l.query_rank + l.cached(), model.hidden);
  if (model.output_gate) project("output gate projection", rows, heads * l.value_dim, model.hidden);
  project("expand queries", rows, width, l.query_rank > 0 ? l.query_rank : model.hidden);
  op = small(block, "rope and append", rows * (width + l.cached()), rows * (width + l.cached()), op);
  if (expanded > 0) {
    project("expand keys and values", expanded, heads * (l.key_dim + l.value_dim), l.rank);
    return op;
  }
  graph::Gemm absorbed = product(model.weights, rows, l.rank, l.key_dim);
  absorbed.groups = heads;
  return gemm(block, "queries into latent space", absorbed, op);
}

// The experts that tokens are routed to, and the sum of their outputs.
OpId routed_experts(LoweredBlock& block, const config::Model& model, double rows, OpId op) {
  const config::Experts& e = *model.experts;
  const double touched = e.touched(rows), each = rows * e.active / touched;
  const auto experts = [&](const char* label, double n, double k) {
    graph::Gemm work = product(model.expert_weights, each, n, k);
    work.groups = touched;
    op = gemm(block, label, work, op);
  };
  const double halves = model.gated_ffn ? 2 : 1, width = model.routed_width();
  experts("experts' gate and up", halves * e.ffn, width);
  const double values = rows * e.active * e.ffn;
  op = small(block, "activation", halves * values, values, op);
  experts("experts' down", width, e.ffn);
  return small(block, "sum of experts", rows * e.active * width, rows * width, op);
}

graph::Copy one_copy(graph::Direction direction, double runs, double run_bytes) {
  graph::Copy copy;
  copy.direction = direction, copy.runs = runs, copy.run_bytes = run_bytes;
  return copy;
}

constexpr double kIndexBytes = 4;  // of the number of an expert

// The host learns which experts a pass activates, and copies each of them to the GPU before it computes them: the
// products of a layer wait for all of its copies.
OpId fetch_experts(LoweredBlock& block, const config::Model& model, double rows, OpId op) {
  const config::Experts& e = *model.experts;
  const auto chosen = one_copy(graph::Direction::kDeviceToHost, 1, rows * e.active * kIndexBytes);
  op = block.copy(Lane::kCopyA, "experts chosen", chosen, {op});
  op = block.host(Lane::kHost, Kind::kSync, "wait for the copy", graph::HostCall::kStreamSync, 1, {op});
  const auto fetched = one_copy(graph::Direction::kHostToDevice, e.touched(rows), model.routed_bytes());
  return block.join(Lane::kCompute, {block.copy(Lane::kCopyB, "fetch experts", fetched, {op})});
}

// The CPU computes the experts where they lie, as llama.cpp and KTransformers do: rows and choices go to the host, sums
// come back. Cores take blocks of rows of the activated experts' matrices, and read each weight once.
OpId experts_on_cpu(LoweredBlock& block, const config::Model& model, double rows, OpId op) {
  constexpr double kBlock = 64;  // rows of a matrix that a core takes at a time; assumed
  const config::Experts& e = *model.experts;
  const double width = model.routed_width();
  const double inputs = rows * (width * kBytes + e.active * (kIndexBytes + kSingleBytes));
  op = block.copy(Lane::kCopyA, "rows to the CPU", one_copy(graph::Direction::kDeviceToHost, 1, inputs), {op});
  op = block.host(Lane::kHost, Kind::kSync, "wait for the copy", graph::HostCall::kStreamSync, 1, {op});
  const double touched = e.touched(rows), each = rows * e.active / touched;
  const auto experts = [&](const char* label, double n, double k) {
    graph::CpuWork work;
    work.items = touched * n / kBlock;
    work.bytes_per_item = kBlock / n * config::weight_bytes(model.expert_weights, n, k);
    work.product_flops_per_item = 2 * each * kBlock * k;
    work.unit_bytes = work.bytes_per_item;
    op = block.cpu(label, work, {op});
  };
  experts("experts' gate and up on the CPU", (model.gated_ffn ? 2.0 : 1.0) * e.ffn, width);
  experts("experts' down on the CPU", width, e.ffn);
  const auto sums = one_copy(graph::Direction::kHostToDevice, 1, rows * width * kBytes);
  return block.join(Lane::kCompute, {block.copy(Lane::kCopyB, "sums of experts from the CPU", sums, {op})});
}

// Every GPU projects all rows to the width of the experts and their sums back. A norm in between needs the sums of all
// GPUs that share experts' columns, without one they are added with the shared experts' (vLLM).
OpId from_expert_width(LoweredBlock& block, const config::Model& model, double rows, OpId op) {
  const config::Experts& e = *model.experts;
  if (e.hidden_norm) {
    const double ranks = model.ranks, values = rows * e.hidden;
    op = exchange(block, "all-reduce of experts' sums", {graph::Exchange::kAllReduce, values * kBytes, ranks}, op);
    op = small(block, "norm of experts' sums", values, values, op);
  }
  return gemm(block, "experts' sums to the model's width", product(model.weights, rows, model.hidden, e.hidden), op);
}

// Routing, the experts that tokens are routed to, and the sum of their outputs. GPUs that share experts alone have the
// rows of all of them there: as an all-gather before and the exchange of as many bytes after.
OpId mixture(LoweredBlock& block, const config::Model& model, double own_rows, bool on_host, OpId op) {
  const config::Experts& e = *model.experts;
  const double gpus = model.expert_ranks, count = e.count * gpus, rows = own_rows * gpus;
  op = gemm(block, "router", {own_rows, count, static_cast<double>(model.hidden), kBytes}, op);
  op = small(block, "choose experts", own_rows * count, 2 * own_rows * e.active * gpus, op);
  if (e.hidden > 0)
    op = gemm(block, "rows to experts' width", product(model.weights, own_rows, e.hidden, model.hidden), op);
  const graph::Collective swapped{graph::Exchange::kAllGather, own_rows * model.routed_width() * kBytes, gpus};
  op = exchange(block, "rows to experts", swapped, op);
  if (block.framework().expert_sort > 0) {
    const graph::Kernel sorted{graph::KernelClass::kSort, 4 * rows * e.active, 4 * rows * e.active};
    op = block.compute(Kind::kSmall, "sort tokens by experts", sorted, {op});
  }
  const bool on_cpu = on_host && (e.fetch_rows == 0 || rows < e.fetch_rows);
  if (on_host && !on_cpu) op = fetch_experts(block, model, rows, op);
  op = on_cpu ? experts_on_cpu(block, model, rows, op) : routed_experts(block, model, rows, op);
  op = exchange(block, "sums of experts", swapped, op);
  if (e.hidden > 0) op = from_expert_width(block, model, own_rows, op);
  if (e.shared == 0) return op;
  const double halves = model.gated_ffn ? 2 : 1, width = e.shared_width();
  op = gemm(block, "shared gate and up", product(model.shared_weights, own_rows, halves * width, model.hidden), op);
  op = small(block, "activation", halves * own_rows * width, own_rows * width, op);
  return gemm(block, "shared down", product(model.shared_weights, own_rows, model.hidden, width), op);
}

OpId network(LoweredBlock& block, const config::Model& model, double rows, OpId op) {
  const auto project = [&](const char* label, double n, double k) {
    op = gemm(block, label, product(model.weights, rows, n, k), op);
  };
  const double values = rows * model.ffn;
  if (!model.gated_ffn) {
    project("up projection", model.ffn, model.hidden);
    op = small(block, "activation", values, values, op);
  } else if (block.unfused()) {
    project("gate projection", model.ffn, model.hidden);
    project("up projection", model.ffn, model.hidden);
    op = unfused_activation(block, values, op);
  } else {
    project("gate and up", 2.0 * model.ffn, model.hidden);
    op = small(block, "activation", 2 * values, values, op);
  }
  project("down projection", model.hidden, model.ffn);
  return op;
}

}  // namespace

OpId enter_layers(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  if (!block.unfused() && model.ranks <= 1) return after;
  block.enter_layer(-1);
  if (block.unfused()) after = unfused_inputs(block, rows, model.hidden, after);
  return all_reduce(block, model, rows, after);  // for the embedding, which is split over the vocabulary
}

OpId rotate(LoweredBlock& block, const char* label, const config::Model& model, double vectors, OpId after) {
  constexpr double kSingle = 4;  // bytes
  const double d = model.head_dim;
  return block.compute(Kind::kSmall, label, graph::Gemm{vectors, d, d, kSingle}, {after});
}

namespace {

// One kernel packs new keys and values.
OpId pack(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  if (model.cache.rotated()) after = rotate(block, "rotate keys", model, rows * model.n_kv_heads, after);
  const graph::Kernel work{graph::KernelClass::kElementwise,
                           rows * config::with_plain_cache(model).kv_bytes_per_token_layer(),
                           rows * model.kv_bytes_per_token_layer()};
  return block.compute(Kind::kSmall, "pack keys and values", work, {after});
}

}  // namespace

OpId before_attention(LoweredBlock& block, const config::Model& model, int layer, double rows, OpId after,
                      double expanded) {
  OpId op = norm(block, model, rows, after);
  if (model.compressed) return compressed_projections(block, model, layer, rows, op);
  if (model.latent) return latent_projections(block, model, rows, expanded, op);
  const double q = static_cast<double>(model.n_q_heads) * model.head_dim;
  const double kv = 2.0 * model.n_kv_heads * model.head_dim;
  const auto project = [&](const char* label, double n) {
    op = gemm(block, label, product(model.weights, rows, n, model.hidden), op);
  };
  // The gate of the output is projected with the queries.
  const double gate = model.output_gate ? q : 0;
  const bool one = model.values_from_keys && !model.slides(layer);  // projection of keys and values
  if (block.unfused()) {
    project("q projection", q + gate);
    project("k projection", kv / 2);
    if (!one) project("v projection", kv / 2);
    if (model.qk_norm) op = unfused_norm(block, rows * kv / 2, unfused_norm(block, rows * q, op, false), false);
    return unfused_rope(block, rows * q, rows * kv / 2, op);
  }
  project("qkv projection", q + gate + (one ? kv / 2 : kv));
  // RoPE on queries and keys, QK norm if the model has one, and the append of keys and values: one kernel where a
  // compiler fuses them. Engines without a compiler launch separate norms for queries and keys.
  if (model.qk_norm && block.eager()) {
    for (const double values : {q, kv / 2}) {
      op = small(block, "norm of heads", rows * values, rows * values, op);
    }
  }
  op = small(block, "rope and append", rows * (q + kv), rows * (q + kv), op);
  if (model.cache.turboquant) return pack(block, model, rows, op);
  if (model.cache.keys != config::Precision::kFp8 || !block.multiplies_fp8()) return op;
  // A separate kernel makes FP8 queries (vLLM); at short contexts it costs more than the FP8 cache saves.
  const graph::Kernel rounding{graph::KernelClass::kElementwise, rows * q * kBytes, rows * q};
  return block.compute(Kind::kSmall, "quantise queries", rounding, {op});
}

OpId after_attention(LoweredBlock& block, const config::Model& model, int layer, double rows, OpId after,
                     bool latent_output) {
  const double dim = model.latent ? model.latent->value_dim : model.head_dim, q = model.n_q_heads * dim;
  OpId op = after;
  if (model.latent && latent_output) {
    graph::Gemm values = product(model.weights, rows, dim, model.latent->rank);
    values.groups = model.n_q_heads;
    op = gemm(block, "values out of latent space", values, op);
  }
  if (model.output_gate) {
    op = small(block, "output gate", 2 * rows * q, rows * q, op);
  }
  if (products_of(model.weights) != graph::Products::kHalf) {
    // Norms and activations write the input of the next product in its own format; attention does not.
    const graph::Kernel rounding{graph::KernelClass::kElementwise, rows * q * kBytes, rows * q};
    op = block.compute(Kind::kSmall, "quantise attention output", rounding, {op});
  }
  const double width = model.compressed ? compressed_output(block, model, rows, op) : q;
  op = gemm(block, "output projection", product(model.weights, rows, model.hidden, width), op);
  return after_mixer(block, model, layer, rows, op);
}

OpId after_mixer(LoweredBlock& block, const config::Model& model, int layer, double rows, OpId after) {
  OpId op = model.mixer(layer) == config::Mixer::kNone ? after : all_reduce(block, model, rows, after);
  if (!model.has_experts(layer) && !model.has_network(layer)) return op;
  op = norm(block, model, rows, op);
  op = model.has_experts(layer) ? mixture(block, model, rows, model.experts_on_host(layer), op)
                                : network(block, model, rows, op);
  return all_reduce(block, model, rows, op);
}

namespace {

using config::Recurrence;
constexpr double kChunk = 64;  // tokens of a chunk: flash-linear-attention's default

// Mamba's scan over prompts: one kernel, which passes over each channel's tokens with the state in registers. Steps,
// values and gates are read and outputs written; keys and queries of a token come from the cache after the first
// channel.
OpId scan_channels(LoweredBlock& block, const Recurrence& r, std::span<const std::int64_t> prompts, OpId op) {
  // An exponential, the decayed state, the new value and the output, of which a scan over a block does the first half
  // twice.
  constexpr double kFlops = 10;
  double tokens = 0;
  for (const std::int64_t n : prompts) tokens += static_cast<double>(n);
  const double values = tokens * r.value_width();
  graph::Kernel work = streaming(3 * values + 2 * tokens * r.key_dim, values);
  work.flops = kFlops * tokens * r.state_elements();
  return block.compute(Kind::kAttention, "recurrence over prompt", work, {op});
}

// Tokens of prompts, a chunk at a time. In separate kernels the transformed keys and values of a chunk and the state
// before it pass through memory; one kernel reads and writes inputs and outputs alone.
OpId scan(LoweredBlock& block, const Recurrence& r, std::span<const std::int64_t> prompts, OpId op) {
  double tokens = 0, longest = 0;
  for (const std::int64_t n : prompts) {
    tokens += static_cast<double>(n);
    longest = std::max(longest, std::ceil(static_cast<double>(n) / kChunk));
  }
  const bool separate = block.framework().scan_share > 0;
  const double values = r.value_width();
  const double inputs = (2.0 * r.key_heads * r.key_dim + values) * kBytes, outputs = values * kBytes;
  // Decay by channel: its sums in single precision, and queries and keys scaled by them.
  const bool by_channel = r.kind == Recurrence::Kind::kKimiDelta;
  const double scaled = by_channel ? r.key_dim * (kSingleBytes + 3 * kBytes) : 0;
  const double transformed = separate ? r.heads * ((2.0 * r.key_dim + r.value_dim) * kBytes + scaled) : 0;
  const double states = separate ? r.state_elements() * kBytes / kChunk : 0;
  graph::Kernel work{graph::KernelClass::kScan, tokens * (inputs + transformed + states),
                     tokens * (outputs + transformed + states)};
  work.blocks = static_cast<double>(prompts.size()) * r.heads, work.passes = longest;
  if (const double factor = block.framework().scan_channels; by_channel && factor > 0) work.passes *= factor;
  if (separate) {
    for (const char* label : {"gates of chunks", "keys of chunks", "transforms of chunks", "outputs of chunks"}) {
      op = block.compute(Kind::kAttention, label, streaming(0, 0), {op});
    }
  }
  return block.compute(Kind::kAttention, "recurrence over prompt", work, {op});
}

}  // namespace

OpId recurrence(LoweredBlock& block, const config::Model& model, double steps, std::span<const std::int64_t> prompts,
                OpId after, int queries) {
  const Recurrence& r = *model.recurrence;
  const double rows_of_steps = steps * queries;
  double rows = rows_of_steps;
  for (const std::int64_t tokens : prompts) rows += static_cast<double>(tokens);
  OpId op = gemm(block, "input projection", product(model.weights, rows, r.projected(), model.hidden),
                 norm(block, model, rows, after));
  if (r.kind == Recurrence::Kind::kKimiDelta) {
    // Decay and output gate, from `key_dim` numbers each; a gate of full rank comes with the input projection.
    const double gates = static_cast<double>(r.heads) * r.key_dim;
    graph::Gemm both = product(model.weights, rows, gates, r.key_dim);
    both.groups = r.full_gate ? 1 : 2;
    op = gemm(block, "gates", both, op);
  }
  const double states = steps * r.state_elements() * r.element_bytes;
  if (r.taps > 0) {
    const double kept = steps * (r.taps - 1) * r.channels(), values = rows * r.channels();
    op = small(block, "convolution", values + kept, values + kept, op);
  }
  if (r.kind == Recurrence::Kind::kMamba1) {
    op = gemm(block, "keys, queries and steps", product(model.weights, rows, r.from_values(), r.value_width()), op);
    op = exchange(block, "all-reduce",
                  {graph::Exchange::kAllReduce, rows * r.from_values() * kBytes, static_cast<double>(model.ranks)}, op);
    op = small(block, "norms of keys, queries and steps", rows * r.from_values(), rows * r.from_values(), op);
    op = gemm(block, "expand steps", product(model.weights, rows, r.value_width(), r.step_rank), op);
  }
  if (steps > 0) {
    // A state is written after each token, because the next pass goes on from the last accepted one.
    const double values = rows_of_steps * r.value_width();
    const graph::Kernel work{graph::KernelClass::kReduce,
                             states + (2.0 * rows_of_steps * r.key_heads * r.key_dim + values) * kBytes,
                             states * queries + values * kBytes};
    op = block.compute(Kind::kAttention, "recurrence", work, {op});
  }
  if (!prompts.empty())
    op = r.kind == Recurrence::Kind::kMamba1 ? scan_channels(block, r, prompts, op) : scan(block, r, prompts, op);
  const double out = r.value_width();
  op = small(block, "gated norm", 2 * rows * out, rows * out, op);
  return gemm(block, "output projection", product(model.weights, rows, model.hidden, out), op);
}

OpId hand_over(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  const double inputs = std::max(1.0, model.residuals.inputs);  // with the outputs of blocks before
  return exchange(block, "to the next stage", {graph::Exchange::kNext, rows * inputs * model.hidden * kBytes, 2},
                  after);
}

OpId choose_tokens(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  block.enter_layer(-1);
  OpId op = norm(block, model, rows, after);
  op = gemm(block, "head", {rows, static_cast<double>(model.vocab), static_cast<double>(model.hidden), kBytes}, op);
  const double logits = rows * model.vocab, ranks = model.ranks;
  op = exchange(block, "gather logits", {graph::Exchange::kAllGather, logits * kBytes, ranks}, op);
  op = small(block, "sample", ranks * logits, rows, op);
  return block.unfused() ? unfused_choice(block, rows, ranks * logits, op) : op;
}

OpId head_and_sample(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  const OpId op = choose_tokens(block, model, rows, after);
  return block.host(Lane::kHost, Kind::kSync, "token to host", graph::HostCall::kItemSync, 1, {op});
}

double activation_bytes(const config::Model& model, double rows, double sampled, double in_network) {
  const double wide = in_network > 0 ? std::min(in_network, rows) : rows;
  double width = model.ffn;
  // Each token has rows in `active` experts and in the shared ones.
  if (const auto& e = model.experts)
    width = std::max(width, e->active * model.expert_ranks * e->ffn + e->shared_width());
  return (wide * (model.gated_ffn ? 3.0 : 2.0) * width + rows * (4.0 + model.residuals.blocks) * model.hidden) *
             kBytes +
         sampled * model.vocab * model.ranks * 4.0;
}

}  // namespace kvcast::lower
