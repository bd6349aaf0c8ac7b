// No setting is without effect: every declared parameter of every policy changes the selections, the costs or the
// storage.
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/all.hpp"
#include "policy/recorder.hpp"
#include "settings.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

std::string text_of(const graph::Work& work) {
  const auto visit = [](const auto& w) -> std::string {
    using T = std::decay_t<decltype(w)>;
    if constexpr (std::is_same_v<T, graph::Kernel>) {
      return fmt::format("kernel {} {} {} {} {}", w.read_bytes, w.write_bytes, w.flops, w.unit_bytes, w.blocks);
    } else if constexpr (std::is_same_v<T, graph::Gemm>) {
      return fmt::format("gemm {} {} {}", w.m, w.n, w.k);
    } else if constexpr (std::is_same_v<T, graph::TopK>) {
      return fmt::format("top-k {} {} {}", w.rows, w.columns, w.k);
    } else if constexpr (std::is_same_v<T, graph::Copy>) {
      return fmt::format("copy {} {} {}", static_cast<int>(w.kind), w.runs, w.run_bytes);
    } else if constexpr (std::is_same_v<T, graph::DecodeAttention>) {
      return fmt::format("attention {} {} {} {}", w.rows, w.tokens, w.unit_bytes, w.element_bytes);
    } else if constexpr (std::is_same_v<T, graph::PrefillAttention>) {
      return fmt::format("prefill {} {} {}", w.flops, w.read_bytes, w.write_bytes);
    } else if constexpr (std::is_same_v<T, graph::HostWork>) {
      return fmt::format("host {} {}", static_cast<int>(w.call), w.count);
    } else if constexpr (std::is_same_v<T, graph::CpuWork>) {
      return fmt::format("cpu {} {} {} {} {} {}", w.items, w.bytes_per_item, w.flops_per_item, w.product_flops_per_item,
                         w.places_per_item, w.region_bytes);
    } else {
      return "other";
    }
  };
  return std::visit(visit, work);
}

std::string text_of(const policy::Recorder& ops) {
  std::string text;
  for (const graph::Op& op : ops.ops()) {
    text += fmt::format("{} {} {} after {}\n", graph::lane_name(op.lane), op.label, text_of(op.work),
                        fmt::join(op.after, " "));
  }
  return text;
}

using Layers = std::vector<std::unique_ptr<trace::Layer>>;

std::string seen_at_step(const policy::Policy& policy, const policy::LayerSelection& step, const config::Model& model,
                         const trace::Layer& layer) {
  std::string text;
  std::vector<policy::HeadCounts> counts;
  for (policy::HeadSelection head : step.heads) {
    policy::count_lists(head);
    counts.push_back(head.counts);
    text += fmt::format("{} | {} | {}\n", fmt::join(head.attended, " "), fmt::join(head.fetched, " "),
                        fmt::join(head.evicted, " "));
  }
  policy::Recorder ops;
  const policy::Sequence sequence{layer.info().prompt_tokens + 1,
                                  {layer.info().prompt_tokens, layer.info().decode_steps}};
  policy.decode_layer({model, layer.id(), {&sequence, 1}, counts, step.per_query_head}, ops);
  return text + text_of(ops);
}

// All observable outputs of a policy on the layers of a trace: work of prefill, selections, work of every step,
// storage.
std::string seen(const policy::Descriptor& d, const std::string& setting, const Layers& layers) {
  const trace::TraceInfo& info = layers[0]->info();
  const policy::Lengths lengths{info.prompt_tokens, info.decode_steps};
  const auto policy = make(d.name, setting, lengths);
  std::vector<std::unique_ptr<policy::LayerInput>> inputs;
  std::vector<const policy::LayerInput*> all;
  for (const auto& layer : layers)
    all.push_back(inputs.emplace_back(std::make_unique<policy::LayerInput>(*layer)).get());
  if (policy->surveys(lengths)) policy->survey(all, lengths);  // its setting of layers would have no effect otherwise
  config::Model model;
  model.layers = info.n_layers, model.n_q_heads = info.n_q_heads, model.n_kv_heads = info.n_kv_heads;
  model.head_dim = info.head_dim;
  std::string text;
  for (const policy::LayerInput* input : all) {
    policy::Recorder prefill;
    const int id = input->layer().id();
    const policy::PromptBlocks blocks = policy->prompt_blocks(model, id, lengths);
    text += fmt::format("blocks {} {}\n", blocks.tokens, blocks.held_at(info.prompt_tokens));
    const policy::PromptAttention sparse = policy->prompt_attention(*input);
    text += fmt::format("prompt {} {}\n", sparse.density, sparse.recall_mass);
    policy->prefill_attention({&model, id, 1, 0, info.prompt_tokens, 0, sparse.density}, prefill);
    policy->prefill_layer(
        {.model = &model, .layer = id, .prompt_tokens = info.prompt_tokens, .decode_steps = info.decode_steps},
        prefill);
    text += text_of(prefill);
    const auto selector = policy->selector(*input);
    policy::LayerSelection step;
    selector->prefill(step);
    for (int t = 0; t < info.decode_steps; ++t) {
      selector->step(t, step);
      text += seen_at_step(*policy, step, model, input->layer());
      for (int h = 0; h < info.n_q_heads; ++h) text += fmt::format("{} ", fmt::join(selector->output(h), " "));
    }
  }
  for (const std::int64_t tokens : {info.prompt_tokens + 1, info.positions()}) {
    for (const policy::MemoryItem& item : policy->memory({&model, 1, tokens, lengths, 0})) {
      text += fmt::format("{} {}\n", graph::owner_name(item.owner), item.bytes);
    }
  }
  return text;
}

// Values other than the default, as text.
std::vector<std::string> variants(const policy::Parameter& p) {
  if (const auto* n = std::get_if<std::int64_t>(&p.fallback)) {
    std::vector<std::string> out;
    for (const std::int64_t v :
         {*n * 2, *n / 2, *n + 1, *n + 2, *n + 8, *n + 12, std::int64_t{6}, std::int64_t{1}, *n + 1000}) {
      if (v != *n) out.push_back(std::to_string(v));
    }
    return out;
  }
  if (std::holds_alternative<double>(p.fallback)) return {fmt::format("{}", p.low), fmt::format("{}", p.high), "0.95"};
  if (const auto* b = std::get_if<bool>(&p.fallback)) return {*b ? "false" : "true"};
  std::vector<std::string> out;
  for (const std::string& name : p.names) {
    if (name == "<number>") {
      for (const double share : {0.0, 0.03, 0.1, 0.3, 1.0}) {
        if (share >= p.low && share <= p.high) out.push_back(fmt::format("{}", share));
      }
    } else if (name == "<integer>") {
      out.push_back("5"), out.push_back("0");
    } else if (name == "<policy>") {
      out.insert(out.end(), {"{name: streaming_llm, budget: 8}", "{name: exact_topk, budget: 8}", "{name: keyl2norm}",
                             "{name: exact_topk}"});
    } else if (name != std::get<std::string>(p.fallback)) {
      out.push_back(name);
    }
  }
  return out;
}

// Returns whether another value of the parameter changes an output. A rejected value is not a change.
bool moves(const policy::Descriptor& d, const policy::Parameter& p, const std::string& base, const Layers& layers) {
  std::string before;
  error_of([&] { before = seen(d, base, layers); });
  if (before.empty()) return false;
  for (const std::string& value : variants(p)) {
    std::string after = before;
    error_of([&] { after = seen(d, with(base, p.key, value), layers); });
    if (after != before) return true;
  }
  return false;
}

// The same if other parameters must be set first: with each named value, then with each pair of them.
bool moves_somewhere(const policy::Descriptor& d, const policy::Parameter& p, const std::vector<std::string>& settings,
                     const Layers& layers) {
  for (const std::string& one : settings) {
    if (moves(d, p, one, layers)) return true;
  }
  for (const std::string& one : settings) {
    for (const policy::Parameter& other : d.parameters) {
      for (const std::string& name : other.names) {
        if (name.front() != '<' && other.key != p.key && moves(d, p, with(one, other.key, name), layers)) return true;
      }
    }
  }
  return false;
}

TEST_CASE("every parameter changes something", "[minutes]") {
  // Random numbers and multiples of a quarter: the latter let queries of a group cancel exactly, which zero_sign
  // requires.
  const TraceShape shape{
      .kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 120, .steps = 12, .window = 120, .layers = {0, 2}};
  const MemoryTrace random = random_trace(shape, 21), quarters = random_trace(shape, 22, Grain::kQuarters);
  const Profiles profiles;
  const std::string profile = profiles.of(shape);
  for (const policy::Descriptor& d : policy::all_policies()) {
    for (const policy::Parameter& p : d.parameters) {
      if (p.key == "profile" || p.key == "basis")
        continue;  // names a file; the policies that read it are tested with it
      CAPTURE(d.name, p.key);
      bool moved = false;
      for (const MemoryTrace* trace : {&random, &quarters}) {
        Layers layers;
        for (std::size_t i = 0; i < 2; ++i) layers.push_back(trace->load(i, 1));
        for (const std::int64_t budget : {20, 24, 40, 22}) {
          moved = moved || moves_somewhere(d, p, settings_of(d, budget, profile), layers);
        }
        // The small settings determine some parameters through others; with the budget alone these are free.
        moved = moved || moves(d, p, "budget: 24", layers);
      }
      CHECK(moved);
    }
  }
}

}  // namespace
}  // namespace kvcast::tests
