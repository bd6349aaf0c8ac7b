// Keys of a run and of a model: each changes some prediction of some experiment.
#include "property/keys/timed.hpp"

namespace kvcast::tests {

TEST_CASE("every key of a run changes a prediction") {
  const std::string base =
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: quest, budget: 256}\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 32, batch: 3}\n"
      "trace: {recipe: needle, seed: 1, layers: 2, steps: 6}\n"
      "framework: {warmup_steps: 2, measured_steps: 3, sampled_contexts: 2}\n";
  const std::string before = Timed(parsed(base)).here();
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"model", "llama-3.2-3b"},
      {"hardware", "h100-sxm"},
      {"policy.budget", "128"},
      {"workload.prompt_tokens", "1536"},
      {"workload.decode_tokens", "96"},
      {"workload.batch", "4"},
      {"workload.prefill_chunk", "256"},
      {"workload.prefill_batch", "1"},
      {"trace.recipe", "local"},
      {"trace.seed", "2"},
      {"trace.layers", "3"},
      {"trace.steps", "9"},
      {"framework.launch", "compiled"},
      {"framework.expand_kv_heads", "true"},
      {"framework.reread_kv_heads", "true"},
      {"framework.separate_query_heads", "true"},
      {"framework.unfused", "true"},
      {"framework.torch_topk", "true"},
      {"framework.eager_attention", "true"},
      {"framework.concatenate_cache", "true"},
      {"framework.layer_sync", "true"},
      {"framework.prompt_logits", "true"},
      {"framework.quadratic_mask", "true"},
      {"framework.mlp_slice", "256"},
      {"framework.page", "500"},
      {"framework.engine_step", "1 ms"},
      {"framework.policy_step", "1 ms"},
      {"framework.engine_sequence", "1 ms"},
      {"framework.selection_operators", "3"},
      {"trace.depth", "0.9"},
      {"framework.warmup_steps", "0"},
      {"framework.measured_steps", "7"},
      {"framework.sampled_contexts", "4"},
      {"deployment.weights", "int4"},
      {"deployment.kv_cache", "fp8"},
      {"deployment.tensor_parallel", "2"},
      {"deployment.pipeline_parallel", "2"},
  };
  for (const auto& [key, value] : changes) {
    INFO(key << " = " << value);
    CHECK(Timed(parsed(base).with(key, Node::scalar(value, {}))).here() != before);
  }
  // Keys that have an effect only together with another one.
  const std::vector<std::array<std::string, 4>> together = {
      {"framework.launch", "eager", "framework.engine_layer", "1 ms"},
      {"framework.launch", "eager", "framework.attention_plan", "1 ms"},
      {"framework.concatenate_cache", "true", "framework.concatenate_bytes", "0.1 B"},
      {"framework.expand_kv_heads", "true", "framework.repeat_bytes", "0.1 B"},
      {"framework.prefill_chunk", "256", "framework.chunks_beyond", "8192"},
      {"framework.prefill_chunk", "256", "workload.prefill", "whole"},
      {"deployment.kv_cache", "int8", "framework.unpack_operators", "4"},
      {"deployment.kv_cache", "int8", "framework.flatten_prompt", "true"},
  };
  for (const auto& [with, as, key, value] : together) {
    INFO(key << " = " << value << " with " << with);
    const Node of_full = parsed(base).with("policy", parsed("full")).with(with, Node::scalar(as, {}));
    CHECK(Timed(of_full.with(key, Node::scalar(value, {}))).here() != Timed(of_full).here());
  }
  // Keys that have tests elsewhere: below, in timed.hpp, and in those of batches that an engine rejects and of
  // services.
  const std::set<std::string> elsewhere = {"deployment.expert_parallel",
                                           "deployment.data_parallel_attention",
                                           "deployment.experts_on_host",
                                           "deployment.replicas",
                                           "deployment.routing",
                                           "deployment.prefill_replicas",
                                           "deployment.transfer",
                                           "framework.reserve_full_cache",
                                           "framework.max_batch",
                                           "framework.prefill_chunk",
                                           "framework.chunks_beyond",
                                           "framework.engine_layer",
                                           "framework.attention_plan",
                                           "framework.attention_kernels",
                                           "framework.unpack_operators",
                                           "framework.flatten_prompt",
                                           "framework.concatenate_bytes",
                                           "framework.repeat_bytes",
                                           "framework.expert_sort",
                                           "framework.scan_chunk",
                                           "framework.scan_channels",
                                           "framework.scan_share",
                                           "framework.left_out",
                                           "framework.scheduler",
                                           "framework.front_end_request",
                                           "framework.client_time",
                                           "framework.sampler_bytes",
                                           "framework.graph_pool",
                                           "workload.prefill",
                                           "trace.file",
                                           "trace.window"};
  const config::Shapes shapes = config::run_shapes();
  for (const char* map : {"workload", "trace", "deployment", "framework"}) {
    for (const config::KeyShape& shape : shapes.at(map)) {
      const std::string name = std::string(map) + "." + shape.key;
      INFO(name);
      const bool here = std::any_of(changes.begin(), changes.end(), [&](const auto& c) { return c.first == name; });
      CHECK(here != elsewhere.contains(name));
    }
  }
  const Node drafted = parsed(base).with("speculation", parsed("{kind: ngram, tokens: 2, acceptance: 0.5}"));
  for (const auto& [key, value] :
       {std::pair{"kind", "mtp"}, {"tokens", "3"}, {"acceptance", "0.6"}, {"kv_reads", "each"}}) {
    INFO("speculation." << key);
    CHECK(Timed(drafted.with(std::string("speculation.") + key, Node::scalar(value, {}))).here() !=
          Timed(drafted).here());
  }
  const Node eagle = drafted.with("speculation.kind", Node::scalar("eagle", {}));
  CHECK(Timed(eagle.with("speculation.vocab", Node::scalar("32000", {}))).here() != Timed(eagle).here());
  const auto by_model = [&](const std::string& model) {
    return Timed(parsed(base).with("speculation", parsed("{kind: draft, tokens: 2, length: 2, model: " + model + "}")))
        .here();
  };
  CHECK(by_model("llama-3.2-1b") != by_model("llama-3.2-3b"));
  const Node recurrent = parsed(base)
                             .with("model", parsed("{like: llama-3.2-1b, recurrence: {kind: kimi_delta, heads: 16, "
                                                   "key_dim: 64, value_dim: 64, taps: 4, attention_every: 4}}"))
                             .with("framework.scan_chunk", Node::scalar("1 ms", {}));
  for (const auto& [key, value] : {std::pair{"framework.scan_chunk", "2 ms"},
                                   {"framework.scan_channels", "2"},
                                   {"framework.scan_share", "0.01 %"}}) {
    INFO(key);
    CHECK(Timed(recurrent.with(key, Node::scalar(value, {}))).here() != Timed(recurrent).here());
  }
  // Only a policy that evicts leaves memory that can be reserved.
  const Node evicting = parsed(base).with("policy", parsed("{name: snapkv, budget: 256, window: 16}"));
  CHECK(Timed(evicting.with("framework.reserve_full_cache", Node::scalar("true", {}))).here() !=
        Timed(evicting).here());
}

TEST_CASE("experts in host memory change a prediction, as do the link and the memory that they pass through") {
  const auto timed = [](const std::string& there, const std::string& setting) {
    Node run = parsed(
        "model: qwen3-30b-a3b\nhardware: h100-sxm\npolicy: full\nworkload: {prompt_tokens: 256, "
        "decode_tokens: 16, batch: 3}\ntrace: {recipe: needle, layers: 1, steps: 2}\n" +
        there);
    if (!setting.empty()) {
      const auto [path, node] = config::parse_setting(setting);
      run = run.with(path, node);
    }
    return Timed(run).here();
  };
  const std::string cpu = "deployment: {experts_on_host: {layers: 24}}\n";
  const std::string link = "deployment: {experts_on_host: {layers: 24, fetch_rows: 1}}\n";
  const auto on_cpu = timed(cpu, ""), over_link = timed(link, "");
  CHECK(timed("", "") != on_cpu);
  CHECK(on_cpu != over_link);
  CHECK(timed(cpu, "deployment.experts_on_host.layers=48") != on_cpu);
  CHECK(timed(cpu, "hardware.host.dram_bandwidth=x0.1") != on_cpu);
  CHECK(timed(link, "hardware.link.pcie={generation: 4, lanes: 4}") != over_link);
}

TEST_CASE("expert parallelism, the sorting time of experts and a price change a prediction") {
  const std::string base =
      "hardware: h100-sxm\npolicy: full\nworkload: {prompt_tokens: 256, decode_tokens: 16, batch: 3}\n"
      "trace: {recipe: needle, layers: 1, steps: 2}\n";
  const Node experts = parsed("model: qwen3-30b-a3b\ndeployment: {tensor_parallel: 2}\n" + base);
  CHECK(Timed(experts.with("deployment.expert_parallel", Node::scalar("true", {}))).here() != Timed(experts).here());
  const Node parallel = experts.with("deployment.expert_parallel", Node::scalar("true", {}));
  CHECK(Timed(parallel.with("deployment.data_parallel_attention", Node::scalar("true", {}))).here() !=
        Timed(parallel).here());
  CHECK(Timed(experts.with("framework.expert_sort", Node::scalar("50 us", {}))).here() != Timed(experts).here());
  const auto cost = [&](const std::string& price) {
    const Node run = parsed("model: llama-3.2-1b\nprice_per_hour: " + price + "\n" + base);
    const result::Result r = study::run_all({{run, {}, {}}}, {}).front();
    // Dollars an hour over tokens an hour.
    CHECK(*result::value(r, *result::find_metric("decode_cost")) ==
          Approx(std::stod(price) / (3600 * r.experiment.tokens_per_s) * 1e6));
    return *result::value(r, *result::find_metric("decode_cost"));
  };
  CHECK(cost("4") == Approx(2 * cost("2")));
}

TEST_CASE("every quantity of a match changes a prediction") {
  const Node base = parsed(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: snapkv, window: 16}\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 16}\ntrace: {recipe: needle, layers: 1, steps: 2}\n");
  const auto predicted = [&](const std::string& key, const std::string& value) {
    const study::Point point{base.with("match." + key, Node::scalar(value, {})), {}, {}};
    const result::Result r = study::run_all({point}, {}).front();
    return r.experiment.tpot_mean_s;
  };
  CHECK(predicted("tokens_attended", "128") != predicted("tokens_attended", "256"));
  CHECK(predicted("bytes_read", "0.4 MB") != predicted("bytes_read", "0.8 MB"));
  CHECK(predicted("bytes_resident", "8 MB") != predicted("bytes_resident", "16 MB"));
}

TEST_CASE("trace.window captures the prompt queries that a policy needs") {
  const Node base = parsed(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: ctkvr, budget: 64, centroids: 200}\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 16}\ntrace: {recipe: needle, layers: 1, steps: 2}\n");
  CHECK_THROWS_AS(Timed(base.with("trace.window", Node::scalar("128", {}))), UserError);
  CHECK_NOTHROW(Timed(base.with("trace.window", Node::scalar("200", {}))));
  CHECK_NOTHROW(Timed(base));  // as many as it needs
}

TEST_CASE("the content of a file that a policy names is part of an experiment's key") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/inner.yaml";
  const auto key = [&](const std::string& inner) {
    std::ofstream(path, std::ios::trunc) << inner;
    return study::prepare(
               parsed("model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: minference, then: {file: " +
                      path + "}}\nworkload: {prompt_tokens: 1024, decode_tokens: 16}\n"))
        .replays;
  };
  const std::string small = key("name: quest\nbudget: 64\n");
  CHECK(key("name: quest\nbudget: 64\n") == small);
  CHECK(key("name: quest\nbudget: 128\n") != small);
}

TEST_CASE("every key of a model changes a prediction") {
  const TemporaryDirectory directory;
  const std::string model =
      "title: Test\naliases: [tested]\nlayers: 4\nhidden: 512\nn_q_heads: 8\nn_kv_heads: 4\nhead_dim: 64\nffn: 1024\n"
      "vocab: 32000\ntie_embeddings: false\nqkv_bias: false\nqk_norm: false\nmax_context: 8192\n"
      "rope: {theta: 500000, scaling: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_context: "
      "512}\nsource: \"made up\"\n";
  int written = 0;
  const auto predicted = [&](const Node& shape, const std::string& policy = "{name: quest, budget: 256}") {
    const std::string path = directory.path() + "/model-" + std::to_string(written++) + ".yaml";
    std::ofstream(path) << shape.canonical();
    const std::string run = "model: " + path + "\nhardware: a100-40gb-pcie4\npolicy: " + policy +
                            "\nworkload: {prompt_tokens: 1024, decode_tokens: 16, batch: 2}\n"
                            "trace: {recipe: needle, layers: 2, steps: 6}\n"
                            "framework: {warmup_steps: 2, measured_steps: 3, sampled_contexts: 2, scan_chunk: 1 us}\n";
    return Timed(parsed(run)).here();
  };
  const Node base = parsed(model);
  const std::string before = predicted(base);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"layers", "6"},
      {"hidden", "768"},
      {"n_q_heads", "16"},
      {"n_kv_heads", "2"},
      {"head_dim", "128"},
      {"ffn", "2048"},
      {"vocab", "64000"},
      {"tie_embeddings", "true"},
      {"qkv_bias", "true"},
      {"qk_norm", "true"},
      {"streams", "4"},
      {"residual_block", "2"},
      {"values_from_keys", "true"},
      {"rope.theta", "10000"},
      {"rope", "{theta: 500000}"},
      {"rope.factor", "4"},
      {"rope.low_freq_factor", "2"},
      {"rope.high_freq_factor", "6"},
      {"rope.original_context", "256"},
  };
  for (const auto& [key, value] : changes) {
    INFO(key << " = " << value);
    CHECK(predicted(base.with(key, parsed(value))) != before);
  }
  const auto all_change = [&](const std::string& map, const std::string& of_map,
                              const std::vector<std::pair<std::string, std::string>>& keys) {
    const Node with = base.with("n_kv_heads", parsed(map == "compressed" ? "1" : "4")).with(map, parsed(of_map));
    const std::string unchanged = predicted(with, "full");
    for (const auto& [key, value] : keys) {
      INFO(map << "." << key << " = " << value);
      CHECK(predicted(with.with(map + "." + key, parsed(value)), "full") != unchanged);
    }
  };
  all_change("sliding", "{window: 300, full_every: 2}", {{"chunks", "true"}, {"n_kv_heads", "8"}, {"head_dim", "32"}});
  all_change("experts", "{count: 4, active: 1, ffn: 256, every: 2}", {{"every", "4"}, {"hidden", "128"}});
  all_change("experts", "{count: 4, active: 1, ffn: 256, every: 2, hidden: 128}", {{"hidden_norm", "true"}});
  const Node shared = base.with("experts", parsed("{count: 4, active: 1, shared: 1, ffn: 256, every: 2}"));
  CHECK(predicted(shared.with("shared_weights", parsed("fp8"))) != predicted(shared));
  const Node latent = base.with("attention", parsed("mla"))
                          .with("latent", parsed("{rank: 64, rope_dim: 16, key_dim: 32, value_dim: 32}"))
                          .without({"n_kv_heads", "head_dim"});
  CHECK(predicted(latent.with("output_gate", parsed("true")), "full") != predicted(latent, "full"));
  all_change("recurrence", "{kind: kimi_delta, heads: 8, key_dim: 64, value_dim: 64, taps: 4, attention_every: 2}",
             {{"full_gate", "true"}});
  all_change("recurrence",
             "{kind: mamba1, heads: 1024, key_heads: 1, key_dim: 16, value_dim: 1, step_rank: 32, attention_every: 2}",
             {{"step_rank", "64"}});
  all_change(
      "compressed",
      "{layers: WCHC, window: 128, index_heads: 8, index_dim: 64, index_best: 64, query_rank: 256, rope_dim: 16, "
      "output_groups: 2, output_rank: 128}",
      {{"layers", "CCHH"},
       {"window", "256"},
       {"csa_tokens", "8"},
       {"hca_tokens", "64"},
       {"index_heads", "16"},
       {"index_dim", "128"},
       {"index_best", "128"},
       {"index_format", "fp4"},
       {"query_rank", "128"},
       {"output_groups", "4"},
       {"output_rank", "64"}});
  const Node cached =
      base.with("n_kv_heads", parsed("1"))
          .with("compressed", parsed("{layers: CCHH, window: 128, index_heads: 8, index_dim: 64, index_best: 64, "
                                     "query_rank: 256, rope_dim: 16, output_groups: 2, output_rank: 128}"));
  config::Model in_fp8 = config::read_model(cached, "test"),
                further = config::read_model(cached.with("compressed.rope_dim", parsed("32")), "test");
  in_fp8.cache = further.cache = config::Precision::kFp8;
  CHECK(in_fp8.kv_bytes_per_token() != further.kv_bytes_per_token());
}

}  // namespace kvcast::tests
