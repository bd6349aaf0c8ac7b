#include "policy_parts/bases.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "policy_parts/pre_rope.hpp"
#include "policy_parts/spectrum.hpp"
#include "trace/safetensors.hpp"

namespace kvcast::policy {
namespace {

constexpr double kOrthonormal = 1e-3;  // tolerance for rows in single precision

UserError wrong(const std::string& path, const std::string& what) { return UserError({path, 0, 0}, what); }

int whole(const trace::SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  const std::string text = found == file.metadata().end() ? "" : found->second;
  const bool digits = !text.empty() && text.size() < 7 && text.find_first_not_of("0123456789") == std::string::npos;
  const int n = digits ? std::atoi(text.c_str()) : 0;
  if (n < 1) throw wrong(file.name(), fmt::format("metadata: {} must be a positive whole number", key));
  return n;
}

// Parses "layers.L.KIND".
std::pair<int, std::string> name_parts(const std::string& name, const std::string& path, int layers) {
  const std::size_t dot = name.find('.', 7);
  if (name.starts_with("layers.") && dot != std::string::npos && dot > 7 && dot < 14) {
    const std::string number = name.substr(7, dot - 7), kind = name.substr(dot + 1);
    const auto& kinds = basis_kinds();
    const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
    if (digits && std::find(kinds.begin(), kinds.end(), kind) != kinds.end() && std::atoi(number.c_str()) < layers) {
      return {std::atoi(number.c_str()), kind};
    }
  }
  throw wrong(path, fmt::format("tensor \"{}\": expected layers.L.KIND with L below {} and one of {}", name, layers,
                                fmt::join(basis_kinds(), ", ")));
}

void check_orthonormal(const std::vector<float>& rows, int heads, int d, const std::string& path,
                       const std::string& name) {
  const auto n = static_cast<std::size_t>(d);
  std::vector<float> products(n * n);
  for (int h = 0; h < heads; ++h) {
    const MatrixView one{rows.data() + static_cast<std::size_t>(h) * n * n, n, n, n};
    multiply_transposed(one, one, products.data(), n);
    for (std::size_t i = 0; i < n * n; ++i) {
      const double wanted = i % (n + 1) == 0 ? 1 : 0;
      if (std::abs(static_cast<double>(products[i]) - wanted) <= kOrthonormal) continue;
      throw wrong(path, fmt::format("tensor \"{}\": the rows of head {} are not orthonormal", name, h));
    }
  }
}

}  // namespace

const std::vector<std::string>& basis_kinds() {
  static const std::vector<std::string> kinds = {"keys", "keys_before_rope", "queries"};
  return kinds;
}

std::shared_ptr<const Bases> Bases::read(const std::string& path) {
  const trace::SafetensorsFile file = trace::SafetensorsFile::open(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != "kvcast-bases/1") {
    throw wrong(path, "not a file of bases (metadata: format must be kvcast-bases/1)");
  }
  auto bases = std::make_shared<Bases>();
  bases->path_ = path;
  bases->n_layers_ = whole(file, "n_layers");
  bases->n_kv_heads_ = whole(file, "n_kv_heads");
  bases->head_dim_ = whole(file, "head_dim");
  const auto heads = static_cast<std::uint64_t>(bases->n_kv_heads_), d = static_cast<std::uint64_t>(bases->head_dim_);
  for (const auto& [name, tensor] : file.tensors()) {
    const auto [layer, kind] = name_parts(name, path, bases->n_layers_);
    if (tensor.dtype != trace::Dtype::kF32 || tensor.shape != std::vector<std::uint64_t>{heads, d, d}) {
      throw wrong(path, fmt::format("tensor \"{}\": expected F32 [{}, {}, {}]", name, heads, d, d));
    }
    std::vector<float>& rows = bases->kinds_[kind][layer];
    rows.resize(tensor.elements());
    if (!trace::to_floats(tensor.dtype, tensor.data.data(), rows.size(), rows.data())) {
      throw wrong(path, fmt::format("tensor \"{}\": contains numbers that are not finite", name));
    }
    check_orthonormal(rows, bases->n_kv_heads_, bases->head_dim_, path, name);
  }
  if (bases->kinds_.empty()) throw wrong(path, "holds no tensors");
  return bases;
}

void Bases::check_shape(const trace::TraceInfo& info) const {
  if (info.n_layers == n_layers_ && info.n_kv_heads == n_kv_heads_ && info.head_dim == head_dim_) return;
  throw wrong(path_,
              fmt::format("the file is of a model with {} layers and {} KV heads of {}; the trace has {}, {}, {}",
                          n_layers_, n_kv_heads_, head_dim_, info.n_layers, info.n_kv_heads, info.head_dim));
}

MatrixView Bases::of(const std::string& kind, int layer, int kv_head) const {
  const std::map<int, std::vector<float>>& layers = kinds_.at(kind);
  const auto nearest = std::min_element(layers.begin(), layers.end(), [&](const auto& a, const auto& b) {
    return std::abs(a.first - layer) < std::abs(b.first - layer);
  });
  const auto d = static_cast<std::size_t>(head_dim_);
  return {nearest->second.data() + static_cast<std::size_t>(kv_head) * d * d, d, d, d};
}

Parameter basis_parameter(std::string meaning) {
  return {.key = "basis",
          .fallback = std::string("prompt"),
          .unit = "",
          .meaning = std::move(meaning) + ": the prompt's own, or a file that `kvcast profile --bases` made",
          .names = {"prompt", "<path>"}};
}

std::shared_ptr<const Bases> load_basis(const ParameterValues& values, const std::string& kind) {
  const std::string& name = values.text("basis");
  if (name == "prompt") return nullptr;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(name, failure)) {
    throw UserError(values.where("basis"), fmt::format("no such file: {}", name));
  }
  auto bases = Bases::read(name);
  if (!bases->holds(kind)) throw UserError(values.where("basis"), fmt::format("{} has no {}", name, kind));
  return bases;
}

std::vector<float> basis_moments(const std::string& kind, const trace::Layer& layer, int kv_head) {
  const trace::TraceInfo& info = layer.info();
  const auto d = static_cast<std::size_t>(info.head_dim), prompt = static_cast<std::size_t>(info.prompt_tokens);
  if (kind == "keys") {
    MatrixView keys = layer.keys(kv_head);
    keys.rows = prompt;
    return second_moments(keys, true);
  }
  if (kind == "keys_before_rope") {
    const std::vector<float> keys = keys_before_rope(layer, kv_head, info.prompt_tokens);
    return second_moments({keys.data(), prompt, d, d}, true);
  }
  if (info.prompt_queries() == 0) {
    throw UserError("directions of queries are computed from the prompt's queries, but the trace has none");
  }
  std::vector<float> sum(d * d);
  for (int g = 0; g < info.group(); ++g) {
    MatrixView queries = layer.queries(kv_head * info.group() + g);
    queries.rows = info.prompt_queries();
    const std::vector<float> one = second_moments(queries, false);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  return sum;
}

}  // namespace kvcast::policy
