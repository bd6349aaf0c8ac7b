#include "policy_parts/bases.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "policy_parts/spectrum.hpp"
#include "replay/profile.hpp"
#include "trace/safetensors.hpp"

namespace kvcast::replay {
namespace {

std::vector<trace::TensorShape> shapes_of(const trace::TraceInfo& info, const std::vector<std::string>& kinds) {
  const auto heads = static_cast<std::uint64_t>(info.n_kv_heads), d = static_cast<std::uint64_t>(info.head_dim);
  std::vector<trace::TensorShape> shapes;
  for (const int layer : info.layers) {
    for (const std::string& kind : kinds) {
      shapes.push_back({fmt::format("layers.{}.{}", layer, kind), trace::Dtype::kF32, {heads, d, d}});
    }
  }
  return shapes;
}

}  // namespace

std::vector<std::string> write_bases(std::span<const trace::Trace* const> traces, const std::string& path,
                                     int threads) {
  KVCAST_CHECK(!traces.empty());
  const trace::TraceInfo& info = traces[0]->info();
  std::vector<std::string> kinds = policy::basis_kinds();
  std::string source;
  for (const trace::Trace* trace : traces) {
    const trace::TraceInfo& other = trace->info();
    if (other.n_layers != info.n_layers || other.n_kv_heads != info.n_kv_heads || other.head_dim != info.head_dim ||
        other.layers != info.layers) {
      refuse_unlike(info, other);
    }
    if (other.prompt_queries() == 0) std::erase(kinds, "queries");
    source += (source.empty() ? "" : ", ") + source_text(*trace);
  }
  trace::SafetensorsWriter out(path,
                               {{"format", "kvcast-bases/1"},
                                {"model", info.model},
                                {"source", source},
                                {"n_layers", std::to_string(info.n_layers)},
                                {"n_kv_heads", std::to_string(info.n_kv_heads)},
                                {"head_dim", std::to_string(info.head_dim)}},
                               shapes_of(info, kinds));
  const auto heads = static_cast<std::size_t>(info.n_kv_heads), d = static_cast<std::size_t>(info.head_dim);
  for (std::size_t i = 0; i < info.layers.size(); ++i) {
    // [kind][head]
    std::vector<std::vector<std::vector<float>>> sums(kinds.size(), std::vector<std::vector<float>>(heads));
    for (const trace::Trace* trace : traces) {
      const auto layer = trace->load(i, threads);
      parallel_for(kinds.size() * heads, threads, [&](std::size_t k) {
        std::vector<float>& sum = sums[k / heads][k % heads];
        const std::vector<float> one = policy::basis_moments(kinds[k / heads], *layer, static_cast<int>(k % heads));
        sum.resize(one.size());
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += one[j];
      });
    }
    for (std::vector<std::vector<float>>& kind : sums) {
      parallel_for(heads, threads, [&](std::size_t h) { kind[h] = policy::leading_directions(kind[h], d, d); });
      for (const std::vector<float>& rows : kind) out.write(rows);
    }
  }
  out.finish();
  return kinds;
}

}  // namespace kvcast::replay
