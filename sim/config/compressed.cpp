#include "config/compressed.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/keys.hpp"

namespace kvcast::config {

int Compressed::count(Kind wanted, int of_layers) const {
  return static_cast<int>(
      std::ranges::count(layers.substr(0, static_cast<std::size_t>(of_layers)), static_cast<char>(wanted)));
}

double Compressed::compressor_width(Kind kind, int head_dim) const {
  return 2.0 * halves(kind) * (head_dim + (kind == Kind::kSelecting ? index_dim : 0));
}

double Compressed::entry_bytes(int head_dim, CacheFormat cache) const {
  constexpr double kHalf = 2, kScaled = 64, kPadding = 8;
  const double plain = head_dim - rope_dim;
  double bytes = plain * cache_element_bytes(cache, plain) + kHalf * rope_dim;
  if (cache == Precision::kFp8) bytes += std::ceil(plain / kScaled / kPadding) * kPadding;
  return bytes;
}

double Compressed::index_bytes() const {
  constexpr double kScale = 4;
  return index_dim * (index_fp4 ? 0.5 : 1.0) + kScale;
}

double Compressed::index_bytes_per_token(Kind kind) const {
  return kind == Kind::kSelecting ? index_bytes() / csa_tokens : 0;
}

double Compressed::bytes_per_token(Kind kind, int head_dim, CacheFormat cache) const {
  if (kind == Kind::kWindow) return 0;
  return entry_bytes(head_dim, cache) / tokens(kind) + index_bytes_per_token(kind);
}

double Compressed::fixed_bytes(Kind kind, int head_dim, CacheFormat cache) const {
  constexpr double kSingle = 4;
  const double open = static_cast<double>(halves(kind)) * tokens(kind) * compressor_width(kind, head_dim) * kSingle;
  return window * entry_bytes(head_dim, cache) + open;
}

namespace {

constexpr const char* kIndexFormats[] = {"fp8", "fp4"};
constexpr Limits kSize{1, 1'000'000};

constexpr Key<Compressed> kCompressedKeys[] = {
    {"layers", need<&Compressed::layers>,
     "one character a layer: C attends to selected entries (CSA), H to all (HCA), W to the window alone"},
    {"window", within(kSize, need<&Compressed::window>), "last tokens that every layer attends to as they are"},
    {"csa_tokens", within(1, 65536, into<&Compressed::csa_tokens>), "tokens from one entry of CSA to the next"},
    {"hca_tokens", within(1, 65536, into<&Compressed::hca_tokens>), "tokens from one entry of HCA to the next"},
    {"index_heads", within(kSize, need<&Compressed::index_heads>), "query heads of the indexer"},
    {"index_dim", within(kSize, need<&Compressed::index_dim>), "width of an index key"},
    {"index_best", within(kSize, need<&Compressed::index_best>), "entries that a query of CSA attends to"},
    {"index_format", among<kIndexFormats>(into<&Compressed::index_fp4>), "format of index keys"},
    {"query_rank", within(kSize, need<&Compressed::query_rank>), "width that queries are compressed to"},
    {"rope_dim", within(0, 1'000'000, need<&Compressed::rope_dim>), "dimensions of a key with positions"},
    {"output_groups", within(kSize, need<&Compressed::output_groups>),
     "groups of query heads whose outputs are compressed together"},
    {"output_rank", within(kSize, need<&Compressed::output_rank>), "width of a group's compressed output"}};

}  // namespace

Compressed read_compressed(Section section, int layers) {
  Compressed out;
  read_keys(section, kCompressedKeys, out);
  section.finish();
  if (const auto bad = out.layers.find_first_not_of("WCH"); bad != std::string::npos) {
    throw UserError(section.where("layers"),
                    fmt::format("layers: '{}' at {} is none of C, H and W", out.layers[bad], bad));
  }
  if (std::cmp_not_equal(out.layers.size(), layers)) {
    throw UserError(section.where("layers"),
                    fmt::format("layers: {} characters for {} layers", out.layers.size(), layers));
  }
  return out;
}

Shapes compressed_shapes() { return {{"compressed", shapes_in(kCompressedKeys)}}; }

}  // namespace kvcast::config
