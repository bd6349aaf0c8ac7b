// Methods of tables whose papers are unknown, and names as other papers spell them.
#include <catch2/catch.hpp>
#include <fstream>

#include "accuracy/score.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace accuracy;

namespace {

// A cell of RULER in a table that also contains its full score; `budget` includes its unit.
Cell method_cell(const std::string& paper, const std::string& method, const std::string& budget,
                 const std::string& full = "Full Attention", const std::string& context = "16K") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/t.csv";
  const std::string start = paper + ",T,llama-3.1-8b,RULER," + context + ",single2,";
  std::ofstream(path) << "paper,table,model,benchmark,context,task,method,budget,budget_unit,value\n"
                      << start << full << ",full,tokens,90\n"
                      << start << method << "," << budget << ",50\n";
  return make_comparison(score::read_table(path), Catalogue()).cells.at(0);
}

TEST_CASE("methods in a table of an unknown paper are configured as in their own papers") {
  const Cell snapkv = method_cell("Somebody 2031", "SnapKV", "512,tokens");
  CHECK(snapkv.refused.empty());
  CHECK(snapkv.policy.name == "snapkv");
  CHECK(snapkv.policy.parameters.find("budget")->text() == "512");
  CHECK(method_cell("Somebody 2031", "Quest", "512,tokens").policy.parameters.find("group")->text() == "per_head");
  // The papers that are known keep their own: RocketKV's budget of a group is split over four query heads.
  CHECK(method_cell("RocketKV", "SnapKV", "512,tokens").policy.parameters.find("budget")->text() == "128");
  CHECK_THAT(method_cell("Somebody 2031", "KIVI", "512,tokens").refused, Catch::Contains("rounds"));
  // No budget determines how much InfiniGen reads: it runs with its threshold, whatever budget the table states.
  CHECK(method_cell("Somebody 2031", "InfiniGen", "512,tokens").policy.parameters.find("budget") == nullptr);
  CHECK_THAT(method_cell("Somebody 2031", "Nobody's", "512,tokens").refused,
             Catch::Contains("no policy for the method"));
}

TEST_CASE("KeyDiff's comparison evicts while answering, whether or not the prompt comes in blocks") {
  const Catalogue catalogue;
  for (const char* context : {"block=inf", "block=128"}) {
    for (const char* method : {"SnapKV", "KeyL2Norm"}) {
      CAPTURE(context, method);
      PublishedRow row;
      row.paper = "KeyDiff", row.benchmark = "LongBench", row.context = context, row.method = method;
      const auto* const known = catalogue.method(row);
      REQUIRE(known != nullptr);
      REQUIRE(known->policy.find("decode_eviction") != nullptr);
      CHECK(known->policy.find("decode_eviction")->text() == "true");
    }
  }
}

TEST_CASE("names of methods and full scores are recognized in any case and without punctuation") {
  for (const char* name : {"Ada-KV", "adakv", "ADA KV"}) {
    CAPTURE(name);
    CHECK(method_cell("Somebody 2031", name, "512,tokens").policy.name == "adakv");
  }
  CHECK(method_cell("rocket-kv", "SNAPKV", "512,tokens").policy.parameters.find("budget")->text() == "128");
  for (const char* full : {"Full", "Full-KV", "FullKV", "full KV", "Full Attention", "Full Cache"}) {
    CAPTURE(full);
    CHECK(method_cell("Somebody 2031", "SnapKV", "512,tokens", full).full == 90);
  }
  CHECK_THAT(method_cell("Somebody 2031", "SnapKV", "512,tokens", "Fuller").refused,
             Catch::Contains("no policy for the method Fuller"));
}

TEST_CASE("the budget of a policy with a threshold is converted to the share that it leaves out") {
  const auto sparsity = [](const std::string& budget) {
    return method_cell("CTkvr", "SqueezedAttention", budget).policy.parameters.find("sparsity")->text();
  };
  // 16384 tokens minus the answer's 128: 1 − 512 / 16256 = 0.96850.
  CHECK(sparsity("512,tokens") == "0.9685");
  CHECK(sparsity("0.25,fraction_of_context") == "0.7500");
  CHECK(sparsity("99999,tokens") == "0.0000");
}

TEST_CASE("policies that need all prompt queries are rejected if there are too many to replay") {
  CHECK(method_cell("Somebody 2031", "H2O", "512,tokens", "Full", "64K").refused.empty());
  CHECK_THAT(method_cell("Somebody 2031", "H2O", "512,tokens", "Full", "128K").refused,
             Catch::Contains("all queries") && Catch::Contains("not 130944"));  // 131072 minus the answer's 128
  CHECK(method_cell("Somebody 2031", "SnapKV", "512,tokens", "Full", "128K").refused.empty());
}

}  // namespace
}  // namespace kvcast::tests
