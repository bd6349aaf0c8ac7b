// Opens, validates and writes trace files. Shapes and positions are checked at opening; numbers when a layer is loaded.
#include "trace/trace_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/parallel.hpp"
#include "base/quote.hpp"
#include "trace/metadata.hpp"

namespace kvcast::trace {
namespace {

constexpr const char* kPositions = "query_positions";

std::string tensor_name(int layer, const char* what) { return fmt::format("layers.{}.{}", layer, what); }

std::string shape_text(const std::vector<std::uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

class FileTrace final : public Trace {
 public:
  explicit FileTrace(SafetensorsFile file) : file_(std::move(file)) {
    info_ = read_metadata(file_.metadata(), file_.name());
    // Computed on first use, once for the trace and all of its layers, which may outlive it.
    const auto hash =
        std::async(std::launch::deferred, [file = file_] { return "file " + content_hash(file.bytes()); }).share();
    info_.identity = [hash] { return hash.get(); };
    read_positions();
    for (const int layer : info_.layers) check_layer(layer);
  }

  std::string identity() const override { return info_.identity(); }

 private:
  std::unique_ptr<Layer> make_layer(std::size_t layer_index, int threads, const Cancel& cancel,
                                    LayerStorage storage) const override {
    KVCAST_CHECK(layer_index < info_.layers.size());
    const int id = info_.layers[layer_index];
    auto layer = std::make_unique<Layer>(info_, id, cancel, std::move(storage));
    const auto kv_rows = static_cast<std::size_t>(info_.positions());
    const auto query_rows = static_cast<std::size_t>(info_.n_queries());
    const auto kv_heads = static_cast<std::size_t>(info_.n_kv_heads);
    parallel_for(2 * kv_heads + static_cast<std::size_t>(info_.n_q_heads), threads, [&](std::size_t i) {
      cancel.check();
      if (i < kv_heads) {
        load_head(tensor_name(id, "keys"), i, kv_rows, layer->mutable_keys(static_cast<int>(i)));
      } else if (i < 2 * kv_heads) {
        const std::size_t head = i - kv_heads;
        load_head(tensor_name(id, "values"), head, kv_rows, layer->mutable_values(static_cast<int>(head)));
      } else {
        const std::size_t head = i - 2 * kv_heads;
        load_head(tensor_name(id, "queries"), head, query_rows, layer->mutable_queries(static_cast<int>(head)));
      }
    });
    if (info_.hidden > 0) {
      load_block(tensor_name(id, "hidden"), 0, query_rows * static_cast<std::size_t>(info_.hidden),
                 layer->mutable_hidden());
    }
    return layer;
  }

  [[noreturn]] void refuse(const std::string& tensor, const std::string& what) const {
    throw UserError({file_.name()}, fmt::format("tensor {}: {}", quote(tensor), what));
  }

  const Tensor& needed(const std::string& name) const {
    const Tensor* const tensor = file_.find(name);
    if (tensor == nullptr) refuse(name, "is missing");
    return *tensor;
  }

  void check_floats(const std::string& name, const std::vector<std::uint64_t>& shape) const {
    const Tensor& tensor = needed(name);
    if (!is_floating(tensor.dtype))
      refuse(name, fmt::format("dtype {} cannot be used; known: F16, BF16, F32", tensor.dtype_name));
    if (tensor.shape != shape) {
      refuse(name, fmt::format("shape {}, the metadata say {}", shape_text(tensor.shape), shape_text(shape)));
    }
  }

  void check_layer(int layer) {
    const auto d = static_cast<std::uint64_t>(info_.head_dim);
    const auto n_queries = static_cast<std::uint64_t>(info_.n_queries());
    const auto kv = static_cast<std::uint64_t>(info_.n_kv_heads);
    const auto positions = static_cast<std::uint64_t>(info_.positions());
    check_floats(tensor_name(layer, "keys"), {kv, positions, d});
    check_floats(tensor_name(layer, "values"), {kv, positions, d});
    check_floats(tensor_name(layer, "queries"), {static_cast<std::uint64_t>(info_.n_q_heads), n_queries, d});
    check_hidden(layer, n_queries);
  }

  // Checks that all captured layers have hidden states of one width, or none has.
  void check_hidden(int layer, std::uint64_t n_queries) {
    const std::string name = tensor_name(layer, "hidden");
    const bool first = layer == info_.layers.front();
    const Tensor* const tensor = file_.find(name);
    if (tensor == nullptr) {
      if (info_.hidden > 0) refuse(name, "is missing, other layers have it");
      return;
    }
    if (!first && info_.hidden == 0) refuse(name, "stands in this layer, but not in those before");
    if (tensor->shape.size() != 2 || tensor->shape[1] == 0) {
      refuse(name, fmt::format("shape {}, expected [{}, hidden]", shape_text(tensor->shape), n_queries));
    }
    const std::uint64_t width = first ? tensor->shape[1] : static_cast<std::uint64_t>(info_.hidden);
    check_floats(name, {n_queries, width});
    info_.hidden = width;
  }

  void read_positions() {
    const Tensor& tensor = needed(kPositions);
    if (tensor.dtype != Dtype::kI32 && tensor.dtype != Dtype::kI64) {
      refuse(kPositions, fmt::format("dtype {} cannot be used; known: I32, I64", tensor.dtype_name));
    }
    if (tensor.shape.size() != 1)
      refuse(kPositions, fmt::format("shape {}, expected one dimension", shape_text(tensor.shape)));
    const std::size_t width = dtype_bytes(tensor.dtype);
    for (std::size_t i = 0; i < tensor.data.size() / width; ++i) {
      std::int64_t wide = 0;
      std::int32_t narrow = 0;
      std::memcpy(width == 4 ? static_cast<void*>(&narrow) : &wide, tensor.data.data() + i * width, width);
      append_position(width == 4 ? narrow : wide);
    }
    // Ascending and below the end: all decode positions are there if and only if they are the last ones.
    const std::int64_t steps = info_.decode_steps;
    if (info_.n_queries() < steps || info_.query_positions[info_.n_queries() - steps] != info_.prompt_tokens) {
      refuse(kPositions,
             fmt::format("must contain every decode position, {} .. {}", info_.prompt_tokens, info_.positions() - 1));
    }
  }

  void append_position(std::int64_t position) {
    auto& all = info_.query_positions;
    if (position < 0 || position >= info_.positions()) {
      refuse(kPositions,
             fmt::format("entry {} is {}, outside of 0 .. {}", all.size(), position, info_.positions() - 1));
    }
    if (!all.empty() && position <= all.back()) {
      refuse(kPositions, fmt::format("not ascending: {} after {}", position, all.back()));
    }
    all.push_back(position);
  }

  void load_head(const std::string& name, std::size_t head, std::size_t rows, float* out) const {
    const std::size_t n = rows * info_.head_dim;
    load_block(name, head * n, n, out);
  }

  void load_block(const std::string& name, std::size_t first, std::size_t n, float* out) const {
    const Tensor& tensor = needed(name);
    if (to_floats(tensor.dtype, tensor.data.data() + first * dtype_bytes(tensor.dtype), n, out)) return;
    std::size_t at = 0;
    while (std::isfinite(out[at])) ++at;
    refuse(name, fmt::format("element {} is {}", index_text(tensor.shape, first + at), out[at]));
  }

  static std::string index_text(const std::vector<std::uint64_t>& shape, std::uint64_t flat) {
    std::vector<std::uint64_t> index(shape.size());
    for (std::size_t i = shape.size(); i-- > 0;) {
      index[i] = flat % shape[i];
      flat /= shape[i];
    }
    return shape_text(index);
  }

  SafetensorsFile file_;
};

std::vector<TensorShape> tensor_shapes(const TraceInfo& info, Dtype dtype) {
  const auto d = static_cast<std::uint64_t>(info.head_dim);
  const auto n_queries = static_cast<std::uint64_t>(info.n_queries());
  const auto kv = static_cast<std::uint64_t>(info.n_kv_heads);
  const auto positions = static_cast<std::uint64_t>(info.positions());
  std::vector<TensorShape> shapes = {{kPositions, Dtype::kI64, {n_queries}}};
  for (const int layer : info.layers) {
    shapes.push_back({tensor_name(layer, "keys"), dtype, {kv, positions, d}});
    shapes.push_back({tensor_name(layer, "values"), dtype, {kv, positions, d}});
    shapes.push_back(
        {tensor_name(layer, "queries"), dtype, {static_cast<std::uint64_t>(info.n_q_heads), n_queries, d}});
    if (info.hidden > 0) {
      shapes.push_back({tensor_name(layer, "hidden"), dtype, {n_queries, static_cast<std::uint64_t>(info.hidden)}});
    }
  }
  return shapes;
}

std::span<const float> flat(const MatrixView& m) { return {m.data, m.rows * m.cols}; }

}  // namespace

std::unique_ptr<Trace> open_trace(SafetensorsFile file) { return std::make_unique<FileTrace>(std::move(file)); }

std::unique_ptr<Trace> open_trace(const std::string& path) { return open_trace(SafetensorsFile::open(path)); }

void write_trace(const std::string& path, const Trace& trace, Dtype dtype, int threads) {
  KVCAST_CHECK(is_floating(dtype));
  const TraceInfo& info = trace.info();
  SafetensorsWriter writer(path, write_metadata(info), tensor_shapes(info, dtype));
  writer.write(info.query_positions);
  for (std::size_t i = 0; i < info.layers.size(); ++i) {
    const auto layer = trace.load(i, threads);
    layer->make_values(threads);
    for (int h = 0; h < info.n_kv_heads; ++h) writer.write(flat(layer->keys(h)));
    for (int h = 0; h < info.n_kv_heads; ++h) writer.write(flat(layer->values(h)));
    for (int h = 0; h < info.n_q_heads; ++h) writer.write(flat(layer->queries(h)));
    if (info.hidden > 0) writer.write(flat(layer->hidden()));
  }
  writer.finish();
}

}  // namespace kvcast::trace
