// No machine becomes faster when a bandwidth falls: every bandwidth and width of link of every shipped machine, with
// every split of a model, alone and next to copies of the cache.
#include "property/keys/timed.hpp"

namespace kvcast::tests {
namespace {

constexpr double kSlack = 5e-3;  // copies that take longer leave kernels more of the memory they share

// A run without a machine of its own, with each of the splits.
std::vector<std::pair<std::string, Timed>> split_runs() {
  const std::string freekv = "{name: freekv, budget: 256, sink: 32, recent: 32, page: 32}";
  const std::vector<std::pair<std::string, std::string>> all = {
      {"{}", "full"},
      {"{tensor_parallel: 2}", "full"},
      {"{tensor_parallel: 4}", "full"},
      {"{pipeline_parallel: 2}", "full"},
      {"{tensor_parallel: 2, pipeline_parallel: 2}", "full"},
      {"{}", freekv},
      {"{tensor_parallel: 2}", freekv},
      {"{experts_on_host: {layers: 16}}", "full"},
      {"{experts_on_host: {layers: 16, fetch_rows: 1}}", "full"}};
  std::vector<std::pair<std::string, Timed>> runs;
  for (const auto& [split, policy] : all) {
    const bool mixture = split.find("experts") != std::string::npos;
    const std::string model =
        mixture ? "{like: llama-3.2-1b, experts: {count: 8, active: 2, ffn: 2048, dense_layers: 1}}" : "llama-3.2-1b";
    runs.emplace_back(policy.substr(0, 12) + " " + split,
                      Timed(parsed("model: " + model +
                                   "\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, "
                                   "decode_tokens: 32, batch: 4}\ntrace: {recipe: needle, layers: 2, steps: 6}\n"
                                   "framework: {warmup_steps: 2, measured_steps: 2, sampled_contexts: 1}\npolicy: " +
                                   policy + "\ndeployment: " + split + "\n")));
  }
  return runs;
}

// The machine after a setting of a run, or nothing if the setting contradicts the machine's other numbers.
std::optional<config::Hardware> machine_after(const std::string& name, const std::string& setting) {
  try {
    const auto [path, node] = config::parse_setting("hardware." + setting);
    return config::read_hardware(*parsed("hardware: " + name).with(path, node).find("hardware"));
  } catch (const UserError&) {
    return {};
  }
}

std::vector<std::string> bandwidths(const config::Hardware& machine) {
  std::vector<std::string> keys;
  for (const config::ConstKnob& knob : config::knobs(machine)) {
    const bool absent = knob.value != nullptr && knob.value->value == 0;
    if (knob.y == Dimension::kBytesPerSecond && !absent) keys.push_back(knob.key);
  }
  return keys;
}

void check_not_faster(const simulate::Experiment& before, const simulate::Experiment& after) {
  CHECK(after.ttft_s >= before.ttft_s * (1 - kSlack));
  CHECK(after.tpot_mean_s >= before.tpot_mean_s * (1 - kSlack));
}

}  // namespace

TEST_CASE("no machine becomes faster when a bandwidth falls, whatever the split") {
  const auto runs = split_runs();
  std::size_t falls = 0, narrower = 0;
  for (const std::string& name : config::names_in("hardware")) {
    const config::Hardware machine = config::read_hardware(config::find_config("hardware", name, {}));
    std::vector<std::pair<std::string, config::Hardware>> slower;
    for (const std::string& key : bandwidths(machine)) {
      if (auto fallen = machine_after(name, key + "=x0.6")) slower.emplace_back(key, *std::move(fallen));
    }
    std::vector<config::Hardware> links;
    for (const int lanes : {16, 8, 4, 2, 1}) {
      links.push_back(machine_after(name, fmt::format("link.pcie={{generation: 4, lanes: {}}}", lanes)).value());
    }
    for (const auto& [what, run] : runs) {
      const simulate::Experiment before = run.predicted_on(machine, simulate::Effects::kNone);
      for (const auto& [key, fallen] : slower) {
        INFO(name << ", " << what << ", " << key << " x0.6");
        check_not_faster(before, run.predicted_on(fallen, simulate::Effects::kNone));
        ++falls;
      }
      simulate::Experiment wider = run.predicted_on(links.front(), simulate::Effects::kNone);
      for (std::size_t i = 1; i < links.size(); ++i) {
        INFO(name << ", " << what << ", a link of PCIe 4.0 halved " << i << " times");
        simulate::Experiment now = run.predicted_on(links[i], simulate::Effects::kNone);
        check_not_faster(wider, now);
        if (now.ttft_s > 1.001 * wider.ttft_s) ++narrower;
        wider = std::move(now);
      }
    }
  }
  CHECK(falls > 1000);
  CHECK(narrower > 200);  // GPUs without a link of their own, if a layer is split over several
}

}  // namespace kvcast::tests
