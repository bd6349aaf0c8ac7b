#include "synth/recipe.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "unit/trace/support.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

Recipe read(const std::string& text) {
  const TemporaryFolder folder;
  write_bytes(folder / "r.yaml", text);
  return read_recipe(folder / "r.yaml");
}

std::string refusal(const std::string& text) {
  try {
    read(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a recipe takes the given values and keeps the others") {
  const Recipe r = read(
      "description: d\nwindow: 40\nheads: {retrieval: 0.5, local: 0.5, streaming: 0}\ntask: {name: t, haystack: "
      "repeated, needles: 3}\nquestion: {key_queries: 4}\n");
  CHECK(r.name == "r");
  CHECK(r.description == "d");
  CHECK(r.window == 40);
  CHECK(r.heads.retrieval == 0.5);
  CHECK(r.task.name == "t");
  CHECK(r.task.haystack == "repeated");
  CHECK(r.task.needles == 3);
  CHECK(r.question.key_queries == 4);
  CHECK(r.queries.strength == Recipe().queries.strength);
  CHECK(read("description: d\n").task.name == "r");
}

TEST_CASE("invalid content of a recipe is rejected with its location") {
  CHECK(refusal("description: d\nneedels: {amplitude: 1}\n").find("r.yaml:2:") != std::string::npos);
  CHECK(refusal("description: d\nneedles:\n  amplitud: 1\n").find("r.yaml:3:") != std::string::npos);
  CHECK(refusal("description: d\nneedles: {amplitude: -1}\n").find("amplitude") != std::string::npos);
  CHECK(refusal("description: d\nneedles: {amplitude: many}\n").find("r.yaml:2:") != std::string::npos);
  CHECK(refusal("description: d\ntask: {haystack: hay}\n").find("text, repeated") != std::string::npos);
  CHECK(refusal("description: d\nheads: {retrieval: 0.5}\n").find("r.yaml:2:8: heads: ") != std::string::npos);
  CHECK(refusal("description: d\nquestion: {tokens: 32}\ntask: {needles: 12}\n")
            .find("r.yaml:2:11: question: the needles need 37 queries, but the question has 32 tokens") !=
        std::string::npos);
  CHECK(refusal("description: d\nchannels: {recency_shortest: 100, recency_longest: 50}\n").find("recency_longest") !=
        std::string::npos);
  CHECK(refusal("description: d\ntask: {earliest: 0.5, latest: 0.5}\n").find("latest must be above earliest") !=
        std::string::npos);
  CHECK(refusal("description: d\ntask: {back_steps: 1}\n").find("back_steps need sections") != std::string::npos);
  CHECK(refusal("description: d\ntask: {section_steps: 9}\n").find("rest on spots of evidence") != std::string::npos);
  // Three steps on evidence, four on written text, and then one without targets.
  const std::string sections =
      "description: d\nquestion: {key_queries: 1}\ntask: {needles: 0, spots: 2, spot_radius: 2, ";
  CHECK(refusal(sections + "back_steps: 4, section_steps: 7}\n").find("need 8 at least") != std::string::npos);
  CHECK(refusal(sections + "back_steps: 4, section_steps: 8}\n") == "accepted");
  CHECK(refusal("description: d\nquestion: {earlier: 1}\ntask: {needles: 0}\n").find("earlier needs needles") !=
        std::string::npos);
  CHECK(refusal("description: d\nquestion: {turns: 2}\ntask: {needles: 0}\n").find("turns need needles") !=
        std::string::npos);
  CHECK(refusal("description: d\nquestion: {turns: 2, earlier: 1}\n").find("earlier is for a prompt of one turn") !=
        std::string::npos);
  CHECK(refusal("description: d\nwindow: 63\nquestion: {turns: 2}\n").find("need a window of 64") != std::string::npos);
  CHECK(refusal("description: d\nwindow: 64\nquestion: {turns: 2}\n") == "accepted");
  CHECK(refusal("window: 5\n").find("description") != std::string::npos);
}

TEST_CASE("recipes are found by name, and unknown names are rejected with the known ones") {
  for (const char* name : {"needle", "mixed", "local"}) CHECK(read_recipe(find_recipe(name)).name == name);
  CHECK_THROWS_WITH(find_recipe("nedle"),
                    Catch::Contains("there is no recipe \"nedle\"") && Catch::Contains("needle, niah"));
  CHECK_THROWS_WITH(find_recipe("r/nope.yaml"), "no such file: r/nope.yaml");
  const TemporaryFolder folder;
  write_bytes(folder / "own.yaml", "description: d\n");
  CHECK(read_recipe(find_recipe(folder / "own.yaml")).name == "own");
}

}  // namespace kvcast::tests
