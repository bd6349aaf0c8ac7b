// Kernels: bytedance/ShadowKV, class ShadowKVCache_CPU, released for chunks of 8 tokens. Missing values are copied over
// the link while the keys are reconstructed, and chunks of the last step move within the GPU.
//
// Operators: class ShadowKVCache of the same file, which uses PyTorch only and chunks of any length, with its values in
// host memory. Nothing is kept from step to step. Token positions are copied to the host, which gathers the values and
// copies the result, in pageable memory, to the GPU; only then are the keys' rows gathered, multiplied, rotated and
// copied into their buffer.
//
// Library: both classes call torch.svd on the keys in single precision, one sequence after the other (cuSOLVER), and
// wait for its error code. A thin SVD by QR takes 6·m·n² + 20·n³ flops (Golub and Van Loan, Matrix Computations,
// section 8.6): the first term in products, the second in steps that wait for each other.
#include "policies/shadowkv.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_attention.hpp"

namespace kvcast::policy {

namespace {

constexpr double kPositionBytes = 8;  // PyTorch's indices

// Adds operators that read and write `bytes` each.
OpId passes(LayerOps& ops, std::initializer_list<const char*> labels, double bytes, OpId after) {
  for (const char* label : labels) {
    after = ops.compute(Kind::kIndex, label, Kernel{KernelClass::kElementwise, bytes, bytes}, {after});
  }
  return after;
}

// Second moments of the keys in single precision, their eigenvectors (about 10·n³), and the factor U.
void by_second_moments(const ShadowSetting& s, const Dims& m, double batch, double rows, double share, LayerOps& ops,
                       OpId after) {
  const double width = m.kv_heads * m.d, rank = s.rank_of(m);
  OpId op = ops.compute(Kind::kIndex, "second moments of keys", Gemm{width, width, rows * share, kScoreBytes}, {after});
  const Kernel eigen{KernelClass::kReduce, share * batch * width * width * kScoreBytes,
                     share * batch * width * rank * kScoreBytes, 10 * share * batch * width * width * width};
  op = ops.compute(Kind::kIndex, "eigenvectors", eigen, {op});
  ops.compute(Kind::kIndex, "low-rank factor", Gemm{rows * share, rank, width}, {op});
}

void by_library(const Dims& m, double batch, double rows, double share, LayerOps& ops, OpId after) {
  const double width = m.kv_heads * m.d, matrix = share * rows * width * kScoreBytes;
  const Kernel triangle{KernelClass::kReduce, 2 * matrix, matrix, 6 * share * rows * width * width};
  OpId op = ops.compute(Kind::kIndex, "QR of keys", triangle, {after});
  const double square = share * batch * width * width * kScoreBytes;
  const Kernel decomposed{.cls = KernelClass::kFactorise,
                          .read_bytes = square,
                          .write_bytes = 2 * square,
                          .flops = 20 * share * batch * width * width * width,
                          .unit_bytes = width * kScoreBytes};
  op = ops.compute(Kind::kIndex, "SVD of the triangle", decomposed, {op});
  ops.host(Lane::kHost, Kind::kSync, "error codes of the SVD", HostCall::kItemSync, share * batch, {op});
}

OpId rebuild_keys(const ShadowSetting& s, const Dims& m, double tokens, LayerOps& ops, OpId after) {
  const double rank = s.rank_of(m), rows = tokens * rank * m.element, keys = tokens * m.row();
  OpId op = ops.compute(Kind::kIndex, "gather low-rank rows",
                        Kernel{.cls = KernelClass::kGather,
                               .read_bytes = rows,
                               .write_bytes = rows,
                               .unit_bytes = s.page * rank * m.element},
                        {after});
  op = ops.compute(Kind::kIndex, "rebuild keys", Gemm{tokens, m.d, rank}, {op});
  if (s.operators) {
    return passes(ops, {"keys cos", "negate half", "join halves", "rotated keys sin", "sum of both", "keys to buffer"},
                  keys, op);
  }
  return ops.compute(Kind::kIndex, "RoPE of reconstructed keys",
                     Kernel{KernelClass::kElementwise, keys, keys, 3 * tokens * m.d}, {op});
}

OpId bring_by_operators(const ShadowSetting& s, const DecodeLayer& shape, LayerOps& ops, OpId after) {
  const Dims m(*shape.model);
  const double tokens = shape.sum(&HeadCounts::fetched), bytes = tokens * m.row();
  const double heads = shape.heads.size();
  const OpId op =
      passes(ops, {"chunk numbers", "times chunk length", "token positions"}, tokens * kPositionBytes, after);
  const OpId sent = send_to_host("token positions", tokens * kPositionBytes, ops, op);
  // Gathered data are read and written.
  CpuWork gather;
  gather.items = heads;
  gather.bytes_per_item = 2 * bytes / heads;
  gather.unit_bytes = s.page * m.row();
  gather.places_per_item = bytes / heads / gather.unit_bytes;
  gather.region_bytes = shape.mean_tokens() * m.row();
  const OpId gathered = ops.cpu("gather values", gather, {sent});
  const Copy values{.kind = CopyKind::kPageable, .runs = 1, .run_bytes = bytes, .issuer = Lane::kHost};
  const OpId copied = ops.copy(Lane::kCopyA, "values", values, {gathered});
  const OpId there = ops.host(Lane::kHost, Kind::kSync, "wait for the values", HostCall::kStreamSync, 1, {copied});
  return rebuild_keys(s, m, tokens, ops, passes(ops, {"values to buffer"}, bytes, there));
}

OpId bring_by_kernels(const ShadowSetting& s, const DecodeLayer& shape, LayerOps& ops, OpId after) {
  const Dims m(*shape.model);
  const double missing = shape.sum(&HeadCounts::fetched);
  const double hits = shape.sum(&HeadCounts::candidates) - missing;
  Kernel analyse{KernelClass::kElementwise, 2 * (hits + missing) / s.page * kIndexBytes,
                 (hits + missing) / s.page * kIndexBytes};
  OpId op = ops.compute(Kind::kIndex, "hits and misses", analyse, {after});
  OpId fetched = op;
  if (missing > 0) {
    Copy values;
    values.kind = CopyKind::kZeroCopy;
    values.runs = shape.sum(&HeadCounts::fetched_runs);
    values.run_bytes = s.page * m.row();
    fetched = ops.copy(Lane::kCopyA, "fetch values", values, {op});
  }
  if (hits > 0) {
    const Kernel move{.cls = KernelClass::kGather,
                      .read_bytes = hits * 2 * m.row(),
                      .write_bytes = hits * 2 * m.row(),
                      .unit_bytes = s.page * m.row()};
    op = ops.compute(Kind::kIndex, "move hits", move, {op});
  }
  if (missing > 0) op = rebuild_keys(s, m, missing, ops, op);
  return ops.join(Lane::kCompute, {op, fetched});
}

}  // namespace

void factorise_keys(const ShadowSetting& setting, const Dims& m, double batch, double tokens, double share,
                    LayerOps& ops, OpId after) {
  if (setting.library) {
    by_library(m, batch, batch * tokens, share, ops, after);
  } else {
    by_second_moments(setting, m, batch, batch * tokens, share, ops, after);
  }
}

OpId bring_chosen(const ShadowSetting& setting, const DecodeLayer& shape, LayerOps& ops, OpId after) {
  return setting.operators ? bring_by_operators(setting, shape, ops, after)
                           : bring_by_kernels(setting, shape, ops, after);
}

void prompt_to_host(const ShadowSetting& setting, const PrefillLayer& shape, LayerOps& ops) {
  const Dims m(*shape.model);
  Copy values;
  values.direction = Direction::kDeviceToHost;
  values.kind = setting.operators ? CopyKind::kPageable : CopyKind::kMemcpyAsync;
  values.runs = shape.batch;
  values.run_bytes = m.kv_heads * shape.prompt_tokens * m.row();
  values.issuer = Lane::kBackupThread;
  const OpId there = ops.copy(Lane::kBackup, "values to host", values, {ops.ready()});
  if (!setting.staged) return;
  Copy index = values;
  index.kind = CopyKind::kPageable;
  const double rank = setting.rank_of(m), prompt = shape.prompt_tokens;
  const double landmarks = setting.landmarks(shape.prompt_tokens);
  index.run_bytes = prompt * rank * m.element + m.kv_heads * (rank * m.row() + landmarks * (m.row() + kIndexBytes));
  ops.copy(Lane::kBackup, "factors and landmarks to host", index, {there});
}

OpId choose_chunks(const ShadowSetting& setting, const DecodeLayer& shape, LayerOps& ops) {
  const Dims m(*shape.model);
  const double scored = shape.sum(&HeadCounts::scored);
  const double wanted = shape.sum(&HeadCounts::candidates) / setting.page / shape.heads.size();
  OpId op = ops.ready();
  if (setting.operators) {
    // These precede the maximum over the group; in sequence they cost the same here.
    const double scores = scored * m.group * kScoreBytes;
    op = passes(ops, {"scale scores", "softmax of scores", "convert scores"}, scores, op);
  }
  return score_and_rank(shape, scored * m.row(), 2 * scored * m.group * m.d, wanted, ops, op, Lane::kCompute,
                        setting.operators ? Reduction::kPlain : Reduction::kSoftmax);
}

}  // namespace kvcast::policy
