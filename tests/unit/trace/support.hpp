// Helpers of the trace tests: a small trace of random numbers, temporary files, raw safetensors bytes.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/random.hpp"
#include "trace/trace.hpp"

namespace kvcast::tests {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kvcast-trace-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A whole file from its header text and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

// Random normal numbers without structure, for tests that do not depend on content.
class RandomTrace final : public kvcast::trace::Trace {
 public:
  explicit RandomTrace(const kvcast::trace::TraceInfo& info) { info_ = info; }

  std::string identity() const override { return "random"; }

 private:
  std::unique_ptr<kvcast::trace::Layer> make_layer(std::size_t index, int, const kvcast::Cancel& cancel,
                                                   kvcast::trace::LayerStorage) const override {
    auto layer = std::make_unique<kvcast::trace::Layer>(info_, info_.layers[index], cancel);
    const kvcast::Stream root = kvcast::Stream(7).child({index});
    const auto kv = static_cast<std::uint64_t>(info_.positions() * info_.head_dim);
    const auto q = static_cast<std::uint64_t>(info_.n_queries() * info_.head_dim);
    for (int h = 0; h < info_.n_kv_heads; ++h) {
      root.child({0, static_cast<std::uint64_t>(h)}).normals(0, kv, layer->mutable_keys(h));
      root.child({1, static_cast<std::uint64_t>(h)}).normals(0, kv, layer->mutable_values(h));
    }
    for (int h = 0; h < info_.n_q_heads; ++h) {
      root.child({2, static_cast<std::uint64_t>(h)}).normals(0, q, layer->mutable_queries(h));
    }
    root.child({3}).normals(0, static_cast<std::uint64_t>(info_.n_queries() * info_.hidden), layer->mutable_hidden());
    return layer;
  }
};

// Two layers of 4, 4 query heads on 2 KV heads of 8 channels, 19 prompt tokens, 3 decode steps, the last 4 prompt
// queries.
inline kvcast::trace::TraceInfo small_info() {
  kvcast::trace::TraceInfo info;
  info.model = "tiny";
  info.source = "synthetic";
  info.layers = {0, 2};
  info.n_layers = 4;
  info.n_q_heads = 4;
  info.n_kv_heads = 2;
  info.head_dim = 8;
  info.rope_theta = 500000;
  info.prompt_tokens = 19;
  info.decode_steps = 3;
  info.query_positions = {15, 16, 17, 18, 19, 20, 21};
  info.optional = {{"task", "none"}, {"targets", "[[0],[],[3]]"}};
  return info;
}

}  // namespace kvcast::tests
