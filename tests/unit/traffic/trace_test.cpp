// Requests of each format of trace, from samples written for this test.
#include <catch2/catch.hpp>

#include <set>

#include "base/random.hpp"
#include "support.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace traffic;
using Catch::Matchers::Contains;

namespace {

std::string trace_error(const std::string& text, const std::string& keys = "") {
  const TraceFile file(text);
  return error_of([&] { all_of(file.in(keys)); });
}

void check(const std::vector<Request>& requests, const std::vector<double>& arrivals,
           const std::vector<std::int64_t>& prompts, const std::vector<std::int64_t>& outputs) {
  REQUIRE(requests.size() == arrivals.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(requests[i].id == static_cast<std::int64_t>(i));
    CHECK(to_seconds(requests[i].arrival) == Approx(arrivals[i]).margin(1e-9));
    CHECK(requests[i].prompt_tokens == prompts[i]);
    CHECK(requests[i].output_tokens == outputs[i]);
  }
}

const std::string kAzure =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 23:59:59.9799600,4808,10\r\n"
    "2023-11-17 00:00:00.0319600,3180,0\r\n"
    "2023-11-17T00:00:01.4799600+00:00,110,27\r\n";
const std::string kBurst =
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,0,1087,Conversation log\n"
    "118,GPT-4,417,276,693,API log\n";
const std::string kMooncake =
    R"({"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 3000, "input_length": 1500, "output_length": 60, "hash_ids": [46, 47, 49]}

{"timestamp": 3000, "input_length": 10, "output_length": 1, "hash_ids": []}
)";
// Row of Bailian's traces.
std::string chat(int id, int parent, double time, int prompt, int answer, int turn, const std::string& blocks) {
  return fmt::format(
      R"({{"chat_id": {}, "parent_chat_id": {}, "timestamp": {}, "input_length": {}, "output_length": {},)"
      R"( "type": "text", "turn": {}, "hash_ids": [{}]}})"
      "\n",
      id, parent, time, prompt, answer, turn, blocks);
}
const std::string kBailian =
    chat(159, -1, 61.114, 40, 132, 1, "1089, 1090, 1091") + chat(160, -1, 61.5, 16, 3, 1, "7") +
    chat(161, 159, 62.114, 50, 4, 2, "1089, 1090, 1092, 1093") + chat(162, 161, 63, 50, 4, 3, "");
const std::string kBench =
    R"({
  "date": "20250101", "errors": ["", {"a": [1, "x"]}], "itls": [[0.1, 0.2], []],
  "input_lens": [100, 200, 300], "output_lens": [10, 0, 30],
  "ttfts": [0.5, 0.1, 0.2], "request_rate": "inf", "generated_texts": ["\"input_lens\": [", "b"]
})";
const std::string kSimulator =
    R"({"request_id": "b-0", "input_toks": 2361, "output_toks": 532, "queued_ts": 481800.500, "x": null}
{"request_id": "b-1", "input_toks": 1128, "output_toks": 772, "arrival_time": 17771.7, "queued_ts": 481800.9006}
{"request_id": "b-2", "input_toks": 5, "output_toks": 6, "arrival_time": 17771.8, "queued_ts": 481800.9}
)";
const std::string kNative =
    "arrival_s,prompt_tokens,output_tokens,session,turn,prefix_group,prefix_tokens\n"
    "1,100,10,4,0,2,30\n"
    "2,50,5,,,2,30\n"
    "3.5,150,20,4,1,2,30\n"
    "4,20,1,4,2,,\n"
    "5,9,1,-1,,,\n";

}  // namespace

TEST_CASE("Azure's traces are read") {
  const TraceFile file(kAzure);
  check(all_of(file.in()), {0, 1.5}, {4808, 110}, {10, 27});  // a row without an answer is a request that failed
  check(all_of(file.in("speedup: 3")), {0, 0.5}, {4808, 110}, {10, 27});
  check(all_of(file.in("requests: 1")), {0}, {4808}, {10});
  CHECK_THAT(trace_error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-30 00:00:00,1,2\n"),
             Contains("trace:2:1: TIMESTAMP"));
  CHECK_THAT(trace_error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-20 00:00:00,1,x\n"),
             Contains("trace:2:23: GeneratedTokens: expected a whole number"));
  CHECK_THAT(trace_error("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-02-20 00:00:00,1\n"), Contains("trace:2:1"));
}

TEST_CASE("both generations of BurstGPT are read") {
  check(all_of(TraceFile(kBurst).in()), {0, 113}, {472, 417}, {18, 276});
  const TraceFile newer(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5.5,abc,2.5,ChatGPT,472,18,490,Conversation log\n6,,1,GPT-4,7,8,15,API log\n");
  check(all_of(newer.in()), {0, 0.5}, {472, 7}, {18, 8});
}

TEST_CASE("Mooncake's prompts are blocks of 512 tokens") {
  const TraceFile file(kMooncake);
  const auto requests = all_of(file.in());
  check(requests, {0, 3, 3}, {1100, 1500, 10}, {52, 60, 1});
  CHECK(requests[0].content == std::vector<Segment>{{46, 512}, {47, 512}, {48, 76}});
  CHECK(requests[1].content == std::vector<Segment>{{46, 512}, {47, 512}, {49, 476}});
  CHECK(requests[2].content.empty());
  // Two of the six blocks were seen before.
  std::set<std::uint64_t> seen;
  int again = 0;
  for (const Request& request : requests) {
    for (const Segment& segment : request.content) again += !seen.insert(segment.key).second;
  }
  CHECK(again == 2);
  CHECK_THAT(trace_error(R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]})"),
             Contains("trace:1:59: hash_ids: 2 blocks of 512 tokens"));
}

TEST_CASE("Bailian's chats belong to the session of their first one") {
  const auto requests = all_of(TraceFile(kBailian).in());
  check(requests, {0, 0.386, 1, 1.886}, {40, 16, 50, 50}, {132, 3, 4, 4});
  CHECK(requests[0].content == std::vector<Segment>{{1089, 16}, {1090, 16}, {1091, 8}});
  const std::int64_t sessions[] = {159, 160, 159, 159};
  const std::int32_t turns[] = {0, 0, 1, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(requests[i].session == sessions[i]);
    CHECK(requests[i].turn == turns[i]);
  }
}

TEST_CASE("results of vLLM's benchmark are read") {
  const TraceFile file(kBench);
  check(all_of(file.in()), {0, 0}, {100, 300}, {10, 30});
  // Two at a time: the third is sent when one has ended.
  file.write(R"({"input_lens": [1, 2, 3], "output_lens": [4, 5, 6], "request_rate": "inf", "max_concurrency": 2})");
  check(all_of(file.in(), to_picos(1)), {0, 0, 1}, {1, 2, 3}, {4, 5, 6});
  file.write(
      R"({"start_times": [9.5, 9, 11], "input_lens": [1, 2, 3], "output_lens": [4, 5, 6], "max_concurrency": 1})");
  check(all_of(file.in()), {0, 0.5, 2}, {2, 1, 3}, {5, 4, 6});
  // The gaps are those of drawn requests with this rate and seed, from the first request on.
  file.write(R"({"request_rate": 2.0, "burstiness": 1.0, "input_lens": [1, 2, 3], "output_lens": [4, 5, 6]})");
  const auto drawn = all_of("{rate: 2, requests: 3}"), read = all_of(file.in());
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(to_seconds(read[i].arrival) == Approx(to_seconds(drawn[i].arrival - drawn[0].arrival)).margin(1e-9));
  }
  CHECK_THAT(trace_error("{\"input_lens\": [1],\n \"output_lens\": [4, 5]}"), Contains("trace:2:2: output_lens: 2"));
  CHECK_THAT(trace_error("{\"input_lens\": [1],\n \"output_lens\": [4, \"x\"]}"), Contains("trace:2:"));
  CHECK_THAT(trace_error(R"({"num_prompts": 1, "input_lens": [1]})"), Contains("\"output_lens\" is missing"));
}

TEST_CASE("LLMServingSim's requests arrive when they are queued, in that order") {
  const TraceFile file(kSimulator);
  check(all_of(file.in()), {0, 0.4, 0.4006}, {2361, 5, 1128}, {532, 6, 772});
}

TEST_CASE("kvcast's own traces share prefixes and continue sessions") {
  const TraceFile file(kNative);
  const auto requests = all_of(file.in());
  check(requests, {1, 2, 3.5, 4, 5}, {100, 50, 150, 20, 9}, {10, 5, 20, 1, 1});
  const auto &first = requests[0].content, &second = requests[2].content;
  REQUIRE(first.size() == 2);
  CHECK(first[0].tokens == 30);
  CHECK(first[1].tokens == 70);
  CHECK(requests[1].content == std::vector<Segment>{first[0]});
  REQUIRE(second.size() == 4);
  CHECK(std::vector(second.begin(), second.begin() + 2) == first);
  CHECK(second[2] == Segment{requests[0].answer_key, 10});
  CHECK(second[3].tokens == 40);
  REQUIRE(requests[3].content.size() == 1);  // shorter than the turn before
  CHECK(requests[3].content[0].tokens == 20);
  CHECK(requests[3].session == 4);
  CHECK(requests[3].turn == 2);
  CHECK(requests[4].session == -1);
  const std::string header = "arrival_s,prompt_tokens,output_tokens";
  CHECK(trace_error("id," + header + ",hit_tokens\n0,1,2,3,4\n") == "no error");
  CHECK_THAT(trace_error(header + ",sessions\n1,2,3,4\n"), Contains("trace:1:39: unknown column"));
  CHECK_THAT(trace_error(header + "\n1,0,3\n"), Contains("trace:2:3: prompt_tokens"));
  CHECK_THAT(trace_error(header + "\n-1,1,3\n"), Contains("trace:2:1: arrival_s"));
  CHECK_THAT(trace_error(header + ",turn\n1,1,3,0\n"), Contains("has no session"));
  CHECK_THAT(trace_error(header + ",session,turn\n1,1,3,1,0\n2,9,3,1,0\n"), Contains("trace:3:9: turn: 0"));
  CHECK_THAT(trace_error(header + ",prefix_group,prefix_tokens\n1,1,3,0,2\n"), Contains("trace:2:9: prefix_tokens"));
}

TEST_CASE("traces that are no traces are refused") {
  CHECK_THAT(trace_error(""), Contains("has no requests"));
  CHECK_THAT(trace_error(" \n\n"), Contains("has no requests"));
  CHECK_THAT(trace_error("TIMESTAMP,ContextTokens,GeneratedTokens\n"), Contains("has no requests"));
  CHECK_THAT(trace_error(R"({"input_lens": [], "output_lens": []})"), Contains("has no requests"));
  CHECK_THAT(trace_error("a,b\n1,2\n"), Contains("set `format`") && Contains("known: azure"));
  CHECK_THAT(trace_error("{\"a\": 1}\n"), Contains("set `format`"));
  CHECK_THAT(trace_error(kAzure, "format: burstgpt"), Contains("trace:1:1: the column \"Timestamp\" is missing"));
  CHECK_THAT(trace_error(kMooncake, "format: llmservingsim"), Contains("\"queued_ts\" is missing"));
  CHECK_THAT(trace_error("arrival_s,prompt_tokens,output_tokens\n1,2,3\n2,2,3\n1.5,2,3\n"),
             Contains("trace:4:1: the request arrives 0.5 s before"));
  CHECK_THAT(trace_error("arrival_s,prompt_tokens,output_tokens\n1,2,3\n5e6,2,3\n"),
             Contains("trace:3:1") && Contains("speedup"));
  CHECK(trace_error("arrival_s,prompt_tokens,output_tokens\n1,2,3\n5e6,2,3\n", "speedup: 10") == "no error");
  CHECK_THAT(error_of([] { make_source(traffic_of("{file: /dev/zero}")); }),
             Contains("/dev/zero: cannot read the trace: it is no regular file"));
  CHECK_THAT(error_of([] { make_source(traffic_of("{file: none.csv, format: burstgpt}")); }),
             Contains("none.csv: cannot read the trace: No such file or directory"));
  CHECK_THAT(error_of([] { make_source(traffic_of("{file: /dev/zero, format: azure}")); }), Contains("cannot read"));
}

TEST_CASE("malformed JSON is refused at its line and column") {
  const std::string good = R"({"timestamp": 0, "input_length": 1, "output_length": 1})"
                           "\n";
  CHECK_THAT(trace_error(good + R"({"timestamp": 1, "input_length": "x", "output_length": 1})"),
             Contains("trace:2:18: input_length"));
  CHECK_THAT(trace_error(good + R"({"timestamp": 1, "input_length": 1.5, "output_length": 1})"),
             Contains("trace:2:34: input_length: expected a whole number"));
  CHECK_THAT(trace_error(good + R"({"timestamp": 1, "input_length": -1, "output_length": 1})"), Contains("trace:2:34"));
  CHECK_THAT(trace_error(good + R"({"timestamp": 1, "input_length": {}, "output_length": 1})"), Contains("trace:2:34"));
  CHECK_THAT(trace_error(good + R"({"timestamp": 1, "timestamp": 1})"),
             Contains("trace:2:18") && Contains("occurs twice"));
  CHECK_THAT(trace_error(good + R"({"timestamp": 1e999, "input_length": 1, "output_length": 1})"),
             Contains("trace:2:"));
  CHECK_THAT(trace_error(good + "[1]"), Contains("trace:2:1") && Contains("expected an object"));
  CHECK_THAT(trace_error(good + "{\"timestamp\": 1"), Contains("trace:2:") && Contains("syntax error"));
  CHECK_THAT(trace_error(good + "{\"timestamp\": 1, \"input_length\": 2}"),
             Contains("trace:2:1") && Contains("output_length"));
}

TEST_CASE("mutated traces are read or refused") {
  const std::string pieces[] = {"\n",
                                ",",
                                "\"",
                                "{",
                                "}",
                                "[",
                                "]",
                                "-",
                                "1e999",
                                "99999999999999999999",
                                "null",
                                ":",
                                std::string(1, '\0'),
                                "\xff",
                                "\\",
                                "0x1",
                                "nan",
                                "\xef\xbb\xbf",
                                "  "};
  int read = 0, refused = 0;
  const std::pair<const char*, const std::string*> traces[] = {
      {"azure", &kAzure},      {"burstgpt", &kBurst},          {"mooncake", &kMooncake}, {"bailian", &kBailian},
      {"vllm-bench", &kBench}, {"llmservingsim", &kSimulator}, {"kvcast", &kNative}};
  for (const auto& [format, text] : traces) {
    const TraceFile file("");
    const config::Traffic traffic = traffic_of(file.in(std::string("format: ") + format));
    for (std::uint64_t i = 0; i < 400; ++i) {
      const Stream random = Stream(11).child({text->size(), i});
      std::string mutated = *text;
      for (std::uint64_t edit = 0; edit <= random.below(0, 3) && !mutated.empty(); ++edit) {
        const Stream own = random.child({edit});
        const std::size_t at = own.below(0, mutated.size());
        if (own.below(1, 3) == 0) mutated[at] = static_cast<char>(own.below(2, 256));
        if (own.below(1, 3) == 1) mutated.erase(at, 1 + own.below(2, 12));
        if (own.below(1, 3) == 2) mutated.insert(at, pieces[own.below(2, std::size(pieces))]);
      }
      INFO(format << " mutation " << i << ":\n" << mutated);
      file.write(mutated);
      try {
        for (const Request& request : all_of(*make_source(traffic))) {
          std::int64_t covered = 0;
          for (const Segment& segment : request.content) covered += segment.tokens;
          REQUIRE((request.prompt_tokens >= covered && request.output_tokens >= 1 && request.arrival >= 0));
        }
        ++read;
      } catch (const UserError& error) {
        REQUIRE(std::string(error.what()).size() < 2000);
        ++refused;
      }
      static_cast<void>(error_of([&] { make_source(traffic_of(file.in())); }));  // its format is not known
    }
  }
  CHECK(read > 100);
  CHECK(refused > 200);
}

}  // namespace kvcast::tests
