#include "trace/document.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "base/error.hpp"

using namespace kvcast;
using namespace kvcast::trace;

TEST_CASE("a document's tokens lie in order, apart, between the sink and the question") {
  Recipe recipe;
  recipe.task.needles = 3;
  recipe.task.distractors = 4;
  recipe.task.distractor_density = 1;  // 4000 tokens: 4 more
  recipe.task.value_tokens = 6;
  recipe.question.key_queries = 3;
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  const Document d = make_document(recipe, 4000, 20, 64, Stream(seed));
  std::set<std::int64_t> positions;
  int values = 0, phrases = 0, decoys = 0;
  for (const SpecialToken& t : d.tokens) {
    CHECK(t.position >= 4);
    CHECK(t.position < 4000 - recipe.question.tokens);
    CHECK((positions.empty() || t.position > *positions.rbegin()));
    positions.insert(t.position);
    values += t.kind == SpecialToken::Kind::kValue;
    phrases += t.kind == SpecialToken::Kind::kPhrase;
    decoys += t.kind == SpecialToken::Kind::kDecoy;
  }
  CHECK(values == 11 * 6);
  CHECK(phrases == 11 * 4);
  // 100 · (4000 / 16384)^0.25 = 70.3: 70, less those that fell on a token already taken (180 of 3964 are, at most).
  CHECK(decoys > 55);
  CHECK(decoys <= 70);
}

TEST_CASE("targets are the value tokens in order, then the model is free") {
  Recipe recipe;
  recipe.task.needles = 2;
  recipe.task.value_tokens = 3;
  recipe.task.pause_steps = 1;
  recipe.question.key_queries = 2;
  const Document d = make_document(recipe, 2000, 10, 32, Stream(5));
  REQUIRE(d.targets.size() == 10);
  for (int t = 0; t < 10; ++t) {
    const std::size_t step = static_cast<std::size_t>(t);
    const bool seeks = t < 8 && t % 4 != 3;  // 3 tokens, a pause, 3 tokens, a pause, then nothing
    CHECK(d.targets[step].size() == (seeks ? 1u : 0u));
    if (!seeks) continue;
    bool found = false;
    for (const SpecialToken& token : d.tokens) {
      if (token.position != d.targets[step][0]) continue;
      found = token.kind == SpecialToken::Kind::kValue && token.item == t / 4 && token.index == t % 4 && token.asked;
    }
    CHECK(found);
  }
}

TEST_CASE("the question asks as the recipe says, in its last tokens only") {
  Recipe recipe;
  recipe.task.needles = 2;
  recipe.question.key_queries = 5;
  recipe.question.value_queries = 3;
  const Document d = make_document(recipe, 2000, 4, 100, Stream(5));
  REQUIRE(d.window.size() == 100);
  int keys[2] = {}, values[2] = {};
  std::set<int> free;
  for (std::size_t i = 0; i < 100; ++i) {
    const Sought& s = d.window[i];
    if (i < 68) CHECK(s.kind == Sought::Kind::kFree);
    if (s.kind == Sought::Kind::kPhrase) ++keys[s.item];
    if (s.kind == Sought::Kind::kValue) ++values[s.item];
    if (s.kind == Sought::Kind::kFree) free.insert(s.index);
  }
  CHECK((keys[0] == 5 && keys[1] == 5));
  CHECK((values[0] == 2 && values[1] == 1));
  CHECK(free.size() == 100 - 13);  // each has a content of its own
  for (const SpecialToken& t : d.tokens) {
    if (t.kind == SpecialToken::Kind::kDecoy)
      CHECK(free.count(t.index) == 1);  // decoys match a question query that is there
  }
}

TEST_CASE("decoys are few on short prompts and grow slowly on long ones") {
  Recipe recipe;
  recipe.task.needles = 0;
  const auto count = [&](std::int64_t tokens) { return make_document(recipe, tokens, 1, 32, Stream(1)).tokens.size(); };
  CHECK(count(100) == 2);          // (100 − 32 − 4) / 32
  CHECK(count(16384) > 95);        // 100, less collisions (100² / 2 / 16348 = 0.3 expected)
  CHECK(count(16 * 16384) > 190);  // 100 · 16^0.25 = 200
  CHECK(count(16 * 16384) <= 200);
  CHECK(count(20) == 0);
}

TEST_CASE("a prompt too short for its task is refused with what it needs") {
  Recipe recipe;
  recipe.task.needles = 2;
  recipe.question.key_queries = 2;
  // 4 + 2 · (4 + 1 + 22) + 32 = 90: of 89 tokens 53 are left for 54.
  CHECK_THROWS_WITH(make_document(recipe, 89, 4, 32, Stream(1)),
                    Catch::Contains("too short for the task: 2 needles of 27 tokens each, 53 tokens of haystack"));
  CHECK_NOTHROW(make_document(recipe, 90, 4, 32, Stream(1)));
}

TEST_CASE("needles stay in the part of the haystack that the recipe gives them") {
  Recipe recipe;
  recipe.task.earliest = 0.25;
  recipe.task.latest = 0.5;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Document d = make_document(recipe, 4036, 1, 32, Stream(seed));  // haystack 4 .. 4003
    for (const SpecialToken& t : d.tokens) {
      if (t.kind == SpecialToken::Kind::kDecoy) continue;
      CHECK(t.position >= 1004);
      CHECK(t.position < 2004);
    }
  }
}
