#include "synth/document.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "base/error.hpp"

namespace kvcast::tests {

using namespace trace;

TEST_CASE("a document's tokens are ordered and separate, between the sink and the question") {
  Recipe recipe;
  recipe.task.needles = 3;
  recipe.task.distractors = 4;
  recipe.task.distractor_density = 1;  // 4000 tokens: 4 more
  recipe.task.value_tokens = 6;
  recipe.question.key_queries = 3;
  recipe.decoys.count = 100;
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
  // 100 · (4000 / 16384)^0.25 = 70.3: 70, minus those that fall on a token already taken (at most 180 of 3964 are).
  CHECK(decoys > 55);
  CHECK(decoys <= 70);
}

TEST_CASE("targets are the value tokens in order, followed by free steps") {
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

TEST_CASE("the question's queries follow the recipe, in its last tokens only") {
  Recipe recipe;
  recipe.task.needles = 2;
  recipe.question.key_queries = 5;
  recipe.question.value_queries = 3;
  const Document d = make_document(recipe, 2000, 4, 100, Stream(5));
  REQUIRE(d.window.size() == 100);
  int keys[2] = {}, values[2] = {};
  std::size_t next = 0;
  std::set<int> free;
  for (std::size_t i = 0; i < 100; ++i) {
    const Sought& s = d.window[i];
    if (i < 68) CHECK((s.kind == Sought::Kind::kFree || s.kind == Sought::Kind::kNext));
    if (i >= 68) CHECK(s.kind != Sought::Kind::kNext);
    next += s.kind == Sought::Kind::kNext;
    if (s.kind == Sought::Kind::kPhrase) ++keys[s.item];
    if (s.kind == Sought::Kind::kValue) ++values[s.item];
    if (s.kind == Sought::Kind::kFree) free.insert(s.index);
  }
  CHECK((keys[0] == 5 && keys[1] == 5));
  CHECK((values[0] == 2 && values[1] == 1));
  CHECK(free.size() + next == 100 - 13);  // each has its own content
  for (const SpecialToken& t : d.tokens) {
    if (t.kind == SpecialToken::Kind::kDecoy)
      CHECK(free.count(t.index) == 1);  // decoys match an existing question query
  }
}

TEST_CASE("a question about several values of one key names the key and none of the values") {
  Recipe recipe;
  recipe.task.needles = 4;
  recipe.task.value_tokens = 3;
  recipe.task.shared_key = 0.75;
  recipe.question.key_queries = 3;
  int of_key = 0;
  for (const Sought& s : make_document(recipe, 2000, 4, 64, Stream(7)).window) {
    if (s.kind != Sought::Kind::kPhrase) continue;
    CHECK(s.item == Sought::kSharedKey);
    ++of_key;
  }
  CHECK(of_key == 3);  // not three for each of the four values
}

TEST_CASE("the number of decoys is small for short prompts and grows slowly with their length") {
  Recipe recipe;
  recipe.task.needles = 0;
  recipe.codes.odd = 0;
  recipe.decoys.count = 100;
  const auto count = [&](std::int64_t tokens) { return make_document(recipe, tokens, 1, 32, Stream(1)).tokens.size(); };
  CHECK(count(100) == 2);          // (100 − 32 − 4) / 32
  CHECK(count(16384) > 95);        // 100 minus collisions (100² / 2 / 16348 = 0.3 expected)
  CHECK(count(16 * 16384) > 190);  // 100 · 16^0.25 = 200
  CHECK(count(16 * 16384) <= 200);
  CHECK(count(20) == 0);
}

TEST_CASE("running text has odd tokens of all kinds, a repeated sentence has none") {
  Recipe recipe;
  recipe.codes.odd = 0.05;
  recipe.codes.token_kinds = 4;
  recipe.task.needles = 0;
  recipe.decoys.count = 0;
  const Document d = make_document(recipe, 20036, 1, 32, Stream(2));
  // The expected number is 0.05 of 20000; the standard deviation is √950 = 31, and √(1000 · 3 / 16) = 14 for a kind's
  // quarter.
  int kinds[4] = {};
  for (std::size_t i = 0; i < d.tokens.size(); ++i) {
    REQUIRE(d.tokens[i].kind == SpecialToken::Kind::kOdd);
    CHECK(d.tokens[i].item == static_cast<int>(i));
    ++kinds[d.tokens[i].index];
  }
  CHECK(d.tokens.size() == Approx(1000).margin(120));
  for (const int n : kinds) CHECK(n == Approx(250).margin(60));
  recipe.task.haystack = "repeated";
  CHECK(make_document(recipe, 20036, 1, 32, Stream(2)).tokens.empty());
}

TEST_CASE("before the question, a query seeks the next token unless that is plain text") {
  Recipe recipe;
  recipe.task.needles = 1;
  recipe.task.distractor_density = 20;  // 2000 tokens: 40 more
  recipe.task.value_tokens = 5;
  const Document d = make_document(recipe, 2000, 5, 300, Stream(5));
  int followed = 0;
  for (int i = 0; i < 300 - recipe.question.tokens; ++i) {
    const Sought& s = d.window[static_cast<std::size_t>(i)];
    const auto at = std::find_if(d.tokens.begin(), d.tokens.end(),
                                 [&](const SpecialToken& t) { return t.position == 1700 + i + 1; });
    CHECK((s.kind == Sought::Kind::kNext) == (at != d.tokens.end()));
    if (at == d.tokens.end()) continue;
    CHECK(s.item == at - d.tokens.begin());
    ++followed;
  }
  CHECK(followed > 268 / 10);  // 41 needles of 9 tokens are a fifth of the text
}

TEST_CASE("a prompt too short for its task is rejected with the task's requirements") {
  Recipe recipe;
  recipe.task.needles = 2;
  recipe.question.key_queries = 2;
  // The task needs 4 + 2 · (4 + 1 + 22) + 32 = 90 tokens: 89 leave 53 for the needles' 54.
  CHECK_THROWS_WITH(make_document(recipe, 89, 4, 32, Stream(1)),
                    Catch::Contains("too short for the task: 2 needles of 27 tokens each, and 53 tokens of haystack"));
  CHECK_NOTHROW(make_document(recipe, 90, 4, 32, Stream(1)));
}

TEST_CASE("needles stay in the part of the haystack that the recipe assigns to them") {
  Recipe recipe;
  recipe.task.earliest = 0.25;
  recipe.task.latest = 0.5;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Document d = make_document(recipe, 4036, 1, 32, Stream(seed));  // haystack 4 .. 4003
    for (const SpecialToken& t : d.tokens) {
      if (t.kind == SpecialToken::Kind::kDecoy || t.kind == SpecialToken::Kind::kOdd) continue;
      CHECK(t.position >= 1004);
      CHECK(t.position < 2004);
    }
  }
}

TEST_CASE("a needle lies at the depth that is asked for, and others elsewhere") {
  Recipe recipe;
  recipe.task.earliest = 0.25;  // for needles without a depth
  const auto first_of = [&](double depth) {
    const Document d = make_document(recipe, 4036, 1, 32, Stream(7), depth);
    std::int64_t first = 4036;
    for (const SpecialToken& t : d.tokens) {
      const bool needle = t.kind == SpecialToken::Kind::kPhrase || t.kind == SpecialToken::Kind::kValue;
      if (needle && t.asked) first = std::min(first, t.position);
    }
    return first;
  };
  // The haystack is 4 .. 4003. A needle of 4 + 1 + 22 tokens begins at 4 + depth · (4000 − 27).
  CHECK(first_of(0) == 4);
  CHECK(first_of(0.2) == 799);  // 4 + 794.6
  CHECK(first_of(1) == 3977);
  // Four needles have 1000 tokens each: 0.6 lies at 0.4 of the third, 2004 + 0.4 · (1000 − 27).
  recipe.task.distractors = 3;
  CHECK(first_of(0.6) == 2393);
  CHECK(first_of(1) == 3977);
  recipe.task.needles = 2;
  CHECK_THROWS_WITH(first_of(0.5), Catch::Contains("only one needle in one place"));
}

TEST_CASE("words occur in many positions, frequent ones in more, and a step needs all of them") {
  Recipe recipe;
  recipe.task.needles = 3;
  recipe.task.key_tokens = 0;
  recipe.task.gap_tokens = 0;
  recipe.task.value_tokens = 1;
  recipe.task.pause_steps = 1;
  recipe.task.copy_density = 40;  // for 1000 tokens of 10000: 400, 400 / 2 = 200, 400 / 3 = 133
  recipe.task.copy_decay = 1;
  recipe.question.key_queries = 0;
  recipe.question.value_queries = 0;
  recipe.question.type_queries = 5;
  const Document d = make_document(recipe, 10000, 6, 32, Stream(3));
  // Coinciding positions are lost: less than 733 / 9964 of them.
  const std::size_t expected[] = {400, 200, 133};
  for (std::size_t word = 0; word < 3; ++word) {
    const std::vector<std::int64_t>& places = d.targets[2 * word];
    CHECK(places.size() <= expected[word]);
    CHECK(places.size() > expected[word] * 9 / 10);
    CHECK(std::is_sorted(places.begin(), places.end()));
    CHECK(d.targets[2 * word + 1].empty());  // the pause
  }
  int types = 0;
  for (const Sought& s : d.window) types += s.kind == Sought::Kind::kType;
  CHECK(types == 5);
}

TEST_CASE("an answer from evidence needs its spots, a few at a time or all at once") {
  Recipe recipe;
  recipe.task.needles = 0;
  recipe.task.spots = 4;
  recipe.task.spot_radius = 2;
  recipe.task.spot_steps = 3;
  recipe.question.key_queries = 1;
  const Document all = make_document(recipe, 2000, 4, 32, Stream(1));
  for (int t = 0; t < 3; ++t) CHECK(all.targets[static_cast<std::size_t>(t)].size() == 4 * 5);
  CHECK(all.targets[3].empty());  // the answer is over
  recipe.task.spots_a_step = 2;
  const Document two = make_document(recipe, 2000, 4, 32, Stream(1));
  for (int t = 0; t < 3; ++t) CHECK(two.targets[static_cast<std::size_t>(t)].size() == 2 * 5);
  CHECK(two.targets[0] != two.targets[1]);
  CHECK(two.targets[0] == two.targets[2]);  // two pairs, in turn
  for (const SpecialToken& token : two.tokens) {
    if (token.kind == SpecialToken::Kind::kEvidence) CHECK(std::abs(token.index) <= 2);
  }
}

TEST_CASE("each fact of several documents has a passage of its own, among passages that are not asked about") {
  Recipe recipe = read_recipe(find_recipe("longbench-multi-doc"));
  CHECK(recipe.task.spots == 4);
  CHECK(recipe.task.distractors == 6);
  // The prompt is 4 + 10 · 400 tokens, the haystack after the first four, and then the question.
  const std::int64_t prompt = 4 + 4000 + recipe.question.tokens;
  const Document d = make_document(recipe, prompt, 4, 32, Stream(1));
  std::map<std::int64_t, std::set<int>> passages;  // items in each
  std::size_t asked = 0, others = 0;
  for (const SpecialToken& token : d.tokens) {
    if (token.kind != SpecialToken::Kind::kEvidence) continue;
    (token.asked ? asked : others) += 1;
    passages[(token.position - 4) / 400].insert(token.item);
  }
  CHECK(asked == 4 * 25);
  CHECK(others == 6 * 25);
  CHECK(passages.size() == 10);
  std::set<int> items;
  for (const auto& [passage, in_it] : passages) {
    CHECK(in_it.size() == 1);
    items.insert(in_it.begin(), in_it.end());
  }
  CHECK(items.size() == 10);
  // A step needs the facts of two passages and no distractors.
  for (int t = 0; t < 3; ++t) {
    std::set<std::int64_t> needed;
    for (const std::int64_t position : d.targets[static_cast<std::size_t>(t)]) needed.insert((position - 4) / 400);
    CHECK(d.targets[static_cast<std::size_t>(t)].size() == 2 * 25);
    CHECK(needed.size() == 2);
    for (const std::int64_t passage : needed) CHECK(*passages[passage].begin() >= 0);
  }
  Recipe single = read_recipe(find_recipe("longbench-single-doc"));
  CHECK(make_document(single, prompt, 4, 32, Stream(1)).targets != d.targets);
}

TEST_CASE("sections of a long generation need the prompt's spots in turn and the beginnings of earlier sections") {
  Recipe recipe;
  recipe.task.needles = 0;
  recipe.task.spots = 3;
  recipe.task.spots_a_step = 1;
  recipe.task.spot_radius = 2;
  recipe.task.spot_steps = 2;
  recipe.task.section_steps = 10;
  recipe.task.back_steps = 1;
  recipe.question.key_queries = 1;
  const Document d = make_document(recipe, 1000, 45, 32, Stream(4));
  // Steps 10 s and 10 s + 1 need spots 2 s and 2 s + 1, modulo 3. Step 10 s + 2 needs the first five tokens that
  // section s − 1 generated; the first section has none before it.
  CHECK(d.targets[0] == d.targets[11]);   // spots 0 and 3 mod 3
  CHECK(d.targets[1] == d.targets[20]);   // 1 and 4 mod 3
  CHECK(d.targets[10] == d.targets[21]);  // 2 and 5 mod 3
  CHECK(d.targets[0] != d.targets[1]);
  CHECK(d.targets[2].empty());
  for (int section = 1; section < 4; ++section) {
    const std::int64_t before = 1000 + 10 * (section - 1);
    CHECK(d.targets[static_cast<std::size_t>(10 * section + 2)] ==
          std::vector<std::int64_t>{before, before + 1, before + 2, before + 3, before + 4});
    for (int step = 3; step < 10; ++step) CHECK(d.targets[static_cast<std::size_t>(10 * section + step)].empty());
  }
}

TEST_CASE("sections look back with a probability inversely proportional to the distance") {
  Recipe recipe;
  recipe.task.needles = 0;
  recipe.task.spots = 1;
  recipe.task.spot_radius = 0;
  recipe.task.spot_steps = 1;
  recipe.task.section_steps = 3;
  recipe.task.back_steps = 1;
  recipe.task.back_reach = 4;
  recipe.question.key_queries = 1;
  const int sections = 3000;
  const Document d = make_document(recipe, 1000, 3 * sections, 32, Stream(6));
  double seen[5] = {};
  for (int s = 4; s < sections; ++s) {
    const std::int64_t target = d.targets[static_cast<std::size_t>(3 * s + 1)].at(0);
    seen[s - (target - 1000) / 3] += 1.0 / (sections - 4);
  }
  // 1 + 1/2 + 1/3 + 1/4 = 25/12; the error of a share p of 2996 draws is less than 4 · √(p / 2996) < 0.06.
  for (int k = 1; k <= 4; ++k) CHECK(seen[k] == Approx(12.0 / 25 / k).margin(0.04));
}

TEST_CASE("a later turn's prompt ends with the question of an earlier one, whose needles it also contains") {
  Recipe recipe;
  recipe.task.needles = 2;
  recipe.task.value_tokens = 3;
  recipe.question.key_queries = 5;
  recipe.question.value_queries = 3;
  recipe.question.earlier = 2;
  const Document d = make_document(recipe, 2000, 6, 32, Stream(5));
  int phrases[4] = {}, values[4] = {}, placed[4] = {};
  for (const Sought& s : d.window) {
    if (s.kind == Sought::Kind::kPhrase) ++phrases[s.item];
    if (s.kind == Sought::Kind::kValue) ++values[s.item];
  }
  for (const SpecialToken& t : d.tokens) {
    if (t.kind != SpecialToken::Kind::kValue) continue;
    ++placed[t.item];
    CHECK(t.asked == (t.item < 2));  // decode steps need the tokens of the current question
  }
  for (const int item : {0, 1}) CHECK((phrases[item] == 0 && values[item] == 0 && placed[item] == 3));
  CHECK((phrases[2] == 5 && values[2] == 2 && placed[2] == 3));
  CHECK((phrases[3] == 5 && values[3] == 1 && placed[3] == 3));
}

TEST_CASE("questions of earlier turns come before the last, each for a needle of its own") {
  Recipe recipe;
  recipe.window = 96;
  recipe.question.turns = 3;
  recipe.question.value_queries = 0;
  const Document d = make_document(recipe, 2000, 4, 96, Stream(7));
  // Three questions of 32 tokens end the prompt; a turn begins after each of the first two.
  CHECK(d.turns == std::vector<std::int64_t>{0, 2000 - 64, 2000 - 32});
  // The last question seeks needle 0, which is answered; the one before it needle 1, the first needle 2.
  std::map<int, std::set<int>> sought;  // needles by question
  std::map<int, int> queries;
  for (std::size_t i = 0; i < d.window.size(); ++i) {
    if (d.window[i].kind != Sought::Kind::kPhrase) continue;
    sought[static_cast<int>(i) / 32].insert(d.window[i].item);
    ++queries[static_cast<int>(i) / 32];
  }
  CHECK(sought == std::map<int, std::set<int>>{{0, {2}}, {1, {1}}, {2, {0}}});
  CHECK(queries == std::map<int, int>{{0, 3}, {1, 3}, {2, 3}});
  std::set<int> items;
  for (const SpecialToken& t : d.tokens) {
    CHECK(t.position < 2000 - 3 * 32);
    if (t.kind == SpecialToken::Kind::kValue) items.insert(t.item);
  }
  CHECK(items == std::set<int>{0, 1, 2});
  CHECK(make_document(Recipe(), 2000, 4, 96, Stream(7)).turns.empty());
}

}  // namespace kvcast::tests
