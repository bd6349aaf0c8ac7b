// A code is a sum of independent parts (the kind of item, this item, this token of it), each with its share of the
// variance, scaled to a common length.
#include "synth/codes.hpp"

#include <cmath>

namespace kvcast::trace {
namespace {

enum CodeDraw : std::uint64_t {
  kType,
  kKey,
  kItem,
  kPhrase,
  kTokenKind,
  kToken,
  kTokenKindOf,
  kCommon,
  kFree,
  kSpot,
  kEvidence,
  kOdd
};

std::uint64_t name_of(int number) { return number; }

}  // namespace

double length(const std::vector<float>& x) {
  double square = 0;
  for (const float v : x) square += static_cast<double>(v) * v;
  return std::sqrt(square);
}

CodeBook::CodeBook(const Recipe& recipe, std::size_t channels, const Stream& stream)
    : model_(recipe.codes),
      evidence_share_(recipe.evidence.share),
      shared_key_(recipe.task.shared_key),
      common_share_(recipe.question.common_share),
      channels_(channels),
      stream_(stream) {}

Code CodeBook::draw(std::initializer_list<std::uint64_t> name) const {
  Code code(channels_);
  stream_.child(name).normals(0, channels_, code.data());
  const double scale = std::sqrt(static_cast<double>(channels_)) / length(code);
  for (float& v : code) v = static_cast<float>(v * scale);
  return code;
}

Code CodeBook::mix(double share, const Code& a, const Code& b) const {
  Code code(channels_);
  const auto of_a = static_cast<float>(std::sqrt(share)), of_b = static_cast<float>(std::sqrt(1 - share));
  for (std::size_t c = 0; c < channels_; ++c) code[c] = of_a * a[c] + of_b * b[c];
  const double scale = std::sqrt(static_cast<double>(channels_)) / length(code);
  for (float& v : code) v = static_cast<float>(v * scale);
  return code;
}

Code CodeBook::identity(int item, bool asked) const {
  Code own = draw({kItem, name_of(item)});
  if (asked && shared_key_ > 0) own = mix(shared_key_, draw({kKey}), own);
  return mix(model_.type, draw({kType}), own);
}

Code CodeBook::shared_key() const { return mix(model_.type, draw({kType}), draw({kKey})); }

Code CodeBook::phrase(int item, int index, bool asked) const {
  return mix(model_.phrase, identity(item, asked), draw({kPhrase, name_of(item), name_of(index)}));
}

Code CodeBook::of_kind(std::uint64_t kind, const Code& own) const {
  return mix(model_.token, draw({kTokenKind, kind}), own);
}

Code CodeBook::value(int item, int index, bool asked) const {
  const auto kinds = static_cast<std::uint64_t>(model_.token_kinds);
  const std::uint64_t kind = stream_.child({kTokenKindOf, name_of(item)}).below(name_of(index), kinds);
  const Code token = of_kind(kind, draw({kToken, name_of(item), name_of(index)}));
  return mix(model_.item * std::exp(-index / model_.item_decay), identity(item, asked), token);
}

Code CodeBook::odd(int item, int kind) const { return of_kind(name_of(kind), draw({kOdd, name_of(item)})); }

Code CodeBook::type() const { return draw({kType}); }

Code CodeBook::spot(int item) const { return mix(model_.type, draw({kType}), draw({kSpot, name_of(item)})); }

Code CodeBook::evidence(int item, int index) const {
  return mix(evidence_share_, spot(item), draw({kEvidence, name_of(item), name_of(index)}));
}

Code CodeBook::spots(int first, int count) const {
  Code sum(channels_);
  for (int item = first; item < first + count; ++item) {
    const Code one = spot(item);
    for (std::size_t c = 0; c < channels_; ++c) sum[c] += one[c];
  }
  const double scale = std::sqrt(static_cast<double>(channels_)) / length(sum);
  for (float& v : sum) v = static_cast<float>(v * scale);
  return sum;
}

Code CodeBook::with_common(const Code& own) const { return mix(common_share_, draw({kCommon}), own); }

Code CodeBook::free(int query) const { return with_common(draw({kFree, name_of(query)})); }

}  // namespace kvcast::trace
