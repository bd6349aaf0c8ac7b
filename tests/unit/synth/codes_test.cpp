#include "synth/codes.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "base/matrix.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

// Independent codes of n channels have a cosine of 0 ± 1/√n: ± 0.011 here.
constexpr std::size_t kChannels = 8192;

double cosine(const Code& a, const Code& b) {
  return static_cast<double>(dot(a.data(), b.data(), a.size())) / (length(a) * length(b));
}

}  // namespace

TEST_CASE("codes share as much as the recipe states") {
  Recipe recipe;
  recipe.codes.item = 0.36;
  const CodeBook book(recipe, kChannels, Stream(3));
  const double margin = 0.04;
  for (const Code& code : {book.identity(0, true), book.phrase(2, 1, false), book.value(0, 3, true), book.free(-5)}) {
    CHECK(length(code) == Approx(std::sqrt(double(kChannels))).epsilon(1e-5));
  }
  // Needles have their type in common: 0.15 of the variance.
  CHECK(cosine(book.identity(0, true), book.identity(1, false)) == Approx(0.15).margin(margin));
  // A phrase token is √0.68 identity, two of one phrase share 0.68.
  CHECK(cosine(book.phrase(0, 0, true), book.identity(0, true)) == Approx(std::sqrt(0.68)).margin(margin));
  CHECK(cosine(book.phrase(0, 0, true), book.phrase(0, 1, true)) == Approx(0.68).margin(margin));
  // Value token j is √(0.36 exp(−j / 2.5)) identity: 0.6 for j = 0, 0.6 · exp(−1) = 0.221 for j = 5.
  CHECK(cosine(book.value(0, 0, true), book.identity(0, true)) == Approx(0.6).margin(margin));
  CHECK(cosine(book.value(0, 5, true), book.identity(0, true)) == Approx(0.221).margin(margin));
  // A spot's tokens are √0.8 of its subject; two spots share their type, 0.15; three spots together are (1 + 2·0.15) /
  // √(3 + 6·0.15) = 0.658 of each.
  CHECK(cosine(book.evidence(1, -2), book.spot(1)) == Approx(std::sqrt(0.8)).margin(margin));
  CHECK(cosine(book.spot(0), book.spot(1)) == Approx(0.15).margin(margin));
  CHECK(cosine(book.spots(0, 3), book.spot(1)) == Approx(0.658).margin(margin));
  CHECK(cosine(book.type(), book.identity(3, true)) == Approx(std::sqrt(0.15)).margin(margin));
  // A value token and a token of running text share 0.5 of what is not the value's identity (0.36 · exp(−10 / 2.5) =
  // 0.007 of the variance at its eleventh token) if they are of the same kind, and otherwise none of it.
  int alike = 0;
  for (int kind = 0; kind < recipe.codes.token_kinds; ++kind) {
    const double shared = cosine(book.value(0, 10, true), book.odd(7, kind));
    if (std::fabs(shared) < margin) continue;
    CHECK(shared == Approx(0.5).margin(margin));
    CHECK(cosine(book.odd(7, kind), book.odd(8, kind)) == Approx(0.5).margin(margin));
    ++alike;
  }
  CHECK(alike == 1);
  // Free queries have 0.5 in common and are otherwise independent; other queries of a decode step contain the common
  // part, too.
  CHECK(cosine(book.free(0), book.free(1)) == Approx(0.5).margin(margin));
  CHECK(cosine(book.free(0), book.with_common(book.type())) == Approx(0.5).margin(margin));
  CHECK(book.free(4) == book.decoy(4));
  CHECK(std::fabs(cosine(book.free(0), book.identity(0, true))) < margin);
}

TEST_CASE("several values of one key share its identity, distractors do not") {
  Recipe recipe;
  recipe.task.shared_key = 0.75;
  const CodeBook book(recipe, kChannels, Stream(3));
  // 0.15 type + 0.85 · 0.75 key = 0.7875.
  CHECK(cosine(book.identity(0, true), book.identity(1, true)) == Approx(0.7875).margin(0.04));
  CHECK(cosine(book.identity(0, true), book.identity(1, false)) == Approx(0.15).margin(0.04));
  // A head that knows only the key searches for √0.15 type + √0.85 key: 0.15 + 0.85 · √0.75 = 0.886 of each value's
  // identity.
  CHECK(cosine(book.shared_key(), book.identity(0, true)) == Approx(0.886).margin(0.04));
  CHECK(cosine(book.shared_key(), book.identity(1, true)) == Approx(0.886).margin(0.04));
}

TEST_CASE("tokens of one kind share the token's code") {
  Recipe recipe;
  recipe.codes.item = 0;
  recipe.codes.token_kinds = 1;
  const CodeBook one(recipe, kChannels, Stream(3));
  CHECK(cosine(one.value(0, 0, true), one.value(1, 4, true)) == Approx(0.5).margin(0.04));
  recipe.codes.token_kinds = 1'000'000;
  const CodeBook many(recipe, kChannels, Stream(3));
  CHECK(std::fabs(cosine(many.value(0, 0, true), many.value(1, 4, true))) < 0.04);
}

}  // namespace kvcast::tests
