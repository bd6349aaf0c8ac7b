// Full attention: the uncompressed cache with which every policy is compared.
//
// Selection: all tokens.
// Cost: reads 2·n_kv·L·d·b per layer and step.
// Storage: 2·n_kv·L·d·b per layer.
//
// On the CPU (He and Zhai, "FastDecode", arXiv 2403.11421; NEO, arXiv 2411.01142): the cache is in host memory. Each
// layer sends queries and the new pair to it, (n_q + 2·n_kv)·d·b per sequence; cores attend to parts of 512 tokens of a
// KV head, as vLLM's CPU kernel splits rows (csrc/cpu/attention.cpp, PARTITION_SIZE); outputs n_q·d·b return. Layers
// run in sequence: batches that alternate between GPU and CPU, as in those systems, are not modelled.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy_parts/host_attention.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy::full {
namespace {

constexpr double kPart = 512;  // tokens

class AllOnHost final : public Selector {
 public:
  explicit AllOnHost(const trace::TraceInfo& info) : info_(info) {}
  void prefill(LayerSelection& resident) override { resident.reset(index(info_.n_kv_heads), false); }
  void step(int t, LayerSelection& out) override {
    out.reset(index(info_.n_kv_heads), false);
    for (HeadSelection& head : out.heads) {
      append_range(0, info_.prompt_tokens + t + 1, head.attended);
      head.counts.cpu_attended = head.attended.size();
      head.evicted = {head.attended.back()};  // the new pair moves to the host
    }
  }

 private:
  const trace::TraceInfo& info_;
};

class FullOnCpu final : public Policy {
 public:
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return std::make_unique<AllOnHost>(layer.info());
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const double bytes = shape.batch * shape.model->kv_bytes_per_token_layer() * shape.prompt_tokens;
    copy(ops, Direction::kDeviceToHost, Lane::kBackup, "offload to host", 2.0 * shape.batch, bytes, ops.ready());
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const config::Model& model = *shape.model;
    const Dims m(model);
    const DecodeAttention on_gpu = attention_over(shape, 0);  // for its widths
    const double pair = 2 * on_gpu.head_dim * on_gpu.element_bytes;
    const double products = on_gpu.product_dims > 0 ? on_gpu.product_dims : 2 * on_gpu.head_dim;
    const double query = model.latent ? model.latent->cached() : m.d, output = model.latent ? model.latent->rank : m.d;
    const double rows = shape.batch * m.q_heads * config::Model::kElementBytes;
    const double tokens = shape.mean_tokens();
    const double parts = shape.mean_over([](const Sequence& s) { return std::ceil(s.tokens / kPart); });
    const double each = tokens / parts;
    const OpId there =
        send_to_host("queries and new pairs", rows * query + shape.batch * m.kv_heads * pair, ops, ops.ready());
    const CpuWork work{.items = shape.batch * m.kv_heads * parts,
                       .bytes_per_item = each * pair,
                       .flops_per_item = 2 * m.group * each * products,
                       .unit_bytes = each * pair / 2,
                       .places_per_item = 2,
                       .region_bytes = tokens * pair};
    const OpId attended = ops.cpu("attention on the CPU", work, {there});
    const OpId back =
        copy(ops, Direction::kHostToDevice, Lane::kCopyB, "outputs of the CPU", 1, rows * output, attended);
    ops.done(ops.join(Lane::kCompute, {back}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override { return split_cache(shape, 0); }

 private:
  static OpId copy(LayerOps& ops, Direction direction, Lane lane, const char* label, double runs, double bytes,
                   OpId after) {
    Copy work;
    work.direction = direction;
    work.runs = runs;
    work.run_bytes = bytes / runs;
    work.issuer = lane == Lane::kBackup ? Lane::kBackupThread : Lane::kHost;
    return ops.copy(lane, label, work, {after});
  }
};

bool on_cpu(const ParameterValues& values) { return values.text("attention") == "cpu"; }

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "full";
  d.sentence = "Keeps all tokens and attends to all of them: the reference for accuracy, memory and time.";
  d.for_latent = true;
  d.category = Category::kNone;
  d.no_ends = "all tokens are kept";
  d.paper = "Vaswani et al., Attention Is All You Need, 2017 (arXiv 1706.03762)";
  d.parameters = {choice("attention", {"gpu", "cpu"}, "location of the cache and of attention")};
  d.formulas = {"traffic: 2·n_kv·L·d·b per step", "storage: 2·n_kv·L·d·b"};
  d.stages = [](const ParameterValues& values) {
    if (on_cpu(values))
      throw UserError(values.where("attention"), "attention: cpu cannot be a stage of another policy");
    return Stages{keep_all(), read_all()};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    if (on_cpu(values)) return std::make_unique<FullOnCpu>();
    return two_stages(keep_all(), read_all());
  };
  return d;
}

}  // namespace kvcast::policy::full
