#include "trace/inspect.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "support.hpp"
#include "synth/synthetic.hpp"
#include "trace/rope.hpp"
#include "trace/trace_file.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

std::unique_ptr<Trace> some_trace(const char* recipe) {
  SynthShape shape;
  shape.model = "some";
  shape.n_layers = 3;
  shape.captured_layers = 1;
  shape.n_q_heads = 8;
  shape.n_kv_heads = 4;
  shape.head_dim = 64;
  shape.rope.theta = 500000;
  shape.prompt_tokens = 700;
  shape.decode_steps = 4;
  return synthesize(read_recipe(find_recipe(recipe)), shape);
}

std::unique_ptr<Trace> needle_trace() { return some_trace("needle"); }

// A trace whose layers are corrupted after loading.
class Spoilt final : public Trace {
 public:
  using Spoil = void (*)(Layer&);
  Spoilt(std::unique_ptr<Trace> whole, Spoil spoil) : whole_(std::move(whole)), spoil_(spoil) {
    info_ = whole_->info();
  }
  std::string identity() const override { return "spoilt"; }

 private:
  std::unique_ptr<Layer> make_layer(std::size_t index, int threads, const kvcast::Cancel& cancel,
                                    LayerStorage) const override {
    auto layer = whole_->load(index, threads, cancel);
    spoil_(*layer);
    return layer;
  }

  std::unique_ptr<Trace> whole_;
  Spoil spoil_;
};

std::string found(const std::vector<TraceFault>& findings) { return findings_text(findings); }

std::string found_when(Spoilt::Spoil spoil) { return found(check_trace(Spoilt(needle_trace(), spoil), 1)); }

std::size_t key_floats(const Layer& layer) {
  return static_cast<std::size_t>(layer.info().positions() * layer.info().head_dim);
}

}  // namespace

TEST_CASE("a valid trace has no findings, in memory and as a file") {
  const auto trace = needle_trace();
  CHECK(found(check_trace(*trace, 2)) == "nothing found\n");
  const TemporaryFolder folder;
  write_trace(folder / "t", *trace, Dtype::kBF16, 1);
  const auto findings = check_trace_file(folder / "t", 2);
  CHECK(found(findings) == "nothing found\n");
  CHECK(findings_json(findings) == nlohmann::json::parse(R"({"ok":true,"findings":[]})"));
}

TEST_CASE("problems in the data are found") {
  CHECK(found_when([](Layer& l) {
          std::fill_n(l.mutable_keys(2), key_floats(l), 0.0f);
        }).find("warning: layers.1.keys: KV head 2 is all zero") != std::string::npos);
  CHECK(found_when([](Layer& l) {
          std::fill_n(l.mutable_keys(1), key_floats(l), 0.5f);
        }).find("warning: layers.1.keys: KV head 1: all keys have one direction") != std::string::npos);
  CHECK(found_when([](Layer& l) {
          std::fill_n(l.mutable_values(1), key_floats(l), 0.0f);
        }).find("warning: layers.1.values: KV head 1 is all zero") != std::string::npos);
  CHECK(found_when([](Layer& l) {
          const std::size_t d = 64;
          const std::size_t first = static_cast<std::size_t>(l.info().prompt_queries());
          for (std::size_t t = 1; t < 4; ++t)
            std::copy_n(l.mutable_queries(3) + first * d, d, l.mutable_queries(3) + (first + t) * d);
        }).find("query head 3: all decode steps have one direction") != std::string::npos);
  // Products of 1e30 with 1e30 are above the largest float: a replay could not determine which tokens attention reads.
  CHECK(found_when([](Layer& l) {
          for (std::size_t i = 0; i < l.queries(3).rows * 64; ++i) l.mutable_queries(3)[i] *= 1e30f;
          for (std::size_t i = 0; i < key_floats(l); ++i) l.mutable_keys(1)[i] *= 1e30f;
        }).find("error: layers.1.queries: query head 3: its attention is not a number") != std::string::npos);
  // Queries rotated by half a turn in every pair give nearby keys a low score.
  const auto look_away = [](Layer& l) {
    for (int q = 0; q < 8; ++q) {
      float* const x = l.mutable_queries(q);
      for (std::size_t i = 0; i < l.queries(q).rows * 64; ++i) x[i] = -x[i];
    }
  };
  CHECK(found(check_trace(Spoilt(some_trace("local"), look_away), 1)).find("no head gives the last 64 tokens") !=
        std::string::npos);
}

TEST_CASE("keys from before RoPE are detected") {
  // Undo the rotation: turn each key back by its position.
  const std::string text = found_when([](Layer& l) {
    config::Rope rope;
    rope.theta = 500000;
    std::vector<double> back = rope_frequencies(rope, 64);
    for (double& f : back) f = -f;
    RotationTable table(back);
    table.fill(0, static_cast<int>(l.info().positions()));
    for (int h = 0; h < 4; ++h) {
      for (int i = 0; i < static_cast<int>(l.info().positions()); ++i) {
        float* const key = l.mutable_keys(h) + static_cast<std::size_t>(i) * 64;
        table.rotate(i, key);
        key[0] += 2;  // this head's mean on the fastest pair; a trained head has one
      }
    }
  });
  CHECK(text.find("warning: layers.1.keys: KV heads 0, 1, 2, 3 (") != std::string::npos);
  CHECK(text.find("keys must be stored after RoPE") != std::string::npos);
}

TEST_CASE("problems in the metadata are found") {
  const auto findings = [](auto change) {
    TraceInfo info = small_info();
    change(info);
    return found(check_trace(RandomTrace(info), 1));
  };
  CHECK(findings([](TraceInfo& i) {
          i.optional["targets"] = "[[0],[],[99]]";
        }).find("error: targets: decode step 2 names 99") != std::string::npos);
  CHECK(findings([](TraceInfo& i) {
          i.optional["turns"] = "[0,5,5]";
        }).find("error: turns: expected ascending positions in 0 .. ") != std::string::npos);
  CHECK(findings([](TraceInfo& i) { i.optional["turns"] = "[0,22]"; }).find("error: turns") != std::string::npos);
  CHECK(findings([](TraceInfo& i) { i.optional["turns"] = "[0,5]"; }).find("turns") == std::string::npos);
  CHECK(findings([](TraceInfo&) {}).find("warning: query_positions: the last 4 prompt queries are captured") !=
        std::string::npos);
  CHECK(findings([](TraceInfo& i) {
          i.query_positions.erase(i.query_positions.begin(), i.query_positions.begin() + i.prompt_queries());
        }).find("warning: query_positions: no prompt query is captured") != std::string::npos);
}

TEST_CASE("targets to which no head attends are found") {
  CHECK(found(check_trace(*needle_trace(), 1)).find("targets") == std::string::npos);
  class OtherTargets final : public Trace {
   public:
    OtherTargets() : whole_(needle_trace()) {
      info_ = whole_->info();
      info_.optional["targets"] = "[[1],[1],[1],[1]]";
    }
    std::string identity() const override { return "other targets"; }

   private:
    std::unique_ptr<Layer> make_layer(std::size_t index, int threads, const kvcast::Cancel& cancel,
                                      LayerStorage) const override {
      return whole_->load(index, threads, cancel);
    }
    std::unique_ptr<Trace> whole_;
  };
  CHECK(found(check_trace(OtherTargets(), 1)).find("warning: targets: no captured query head attends to them") !=
        std::string::npos);
}

TEST_CASE("text in a trace cannot send control codes to the terminal, and unknown attention is not shown as numbers") {
  Spoilt trace(needle_trace(), [](Layer& l) {
    for (std::size_t i = 0; i < l.queries(3).rows * 64; ++i) l.mutable_queries(3)[i] *= 1e30f;
    for (std::size_t i = 0; i < key_floats(l); ++i) l.mutable_keys(1)[i] *= 1e30f;
  });
  nlohmann::json info = trace_info(trace, 1);
  CHECK(info.at("attention").at(0).at("target_mass").is_null());
  info["model"] = "a\x1b]0;b\n";
  info["metadata"]["task"] = "\x1b[31m";
  const std::string text = trace_info_text(info);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("trace of a\\x1b]0;b\\x0a\n") != std::string::npos);
  CHECK(text.find("not a number") != std::string::npos);
  CHECK(text.find("nan (") == std::string::npos);
  CHECK(findings_text({{TraceFault::Severity::kWarning, "a\x1b", "b\x07"}}) == "warning: a\\x1b: b\\x07\n");
}

TEST_CASE("an unreadable file and unused tensors are reported") {
  const TemporaryFolder folder;
  write_trace(folder / "t", *needle_trace(), Dtype::kF16, 1);
  std::string bytes = read_bytes(folder / "t");
  bytes.resize(bytes.size() - 1);
  write_bytes(folder / "short", bytes);
  CHECK(has_errors(check_trace_file(folder / "short", 1)));
  CHECK(findings_json(check_trace_file(folder / "short", 1)).at("ok") == false);
  CHECK(has_errors(check_trace_file(folder / "absent", 1)));

  CHECK_NOTHROW(findings_json(check_trace_file(folder / "no\xffutf8", 1)).dump());

  SafetensorsWriter more(folder / "more", SafetensorsFile::open(folder / "t").metadata(),
                         {{"attention_mask", Dtype::kF32, {1}}});
  more.write(std::vector<float>{1});
  more.finish();
  CHECK(found(check_trace_file(folder / "more", 1)).find("query_positions\": is missing") != std::string::npos);
}

TEST_CASE("trace info shows the contents of a trace, as JSON and as text") {
  const auto trace = needle_trace();
  const nlohmann::json info = trace_info(*trace, 2);
  CHECK(info.at("prompt_tokens") == 700);
  CHECK(info.at("longest_window") == 128);
  CHECK(info.at("steps_with_targets") == 4);
  CHECK(info.at("layers") == std::vector<int>{1});
  // 4 bytes · 64 channels · (2 · 4 heads · 704 positions + 8 heads · 132 queries).
  CHECK(info.at("layer_bytes_in_memory") == 4.0 * 64 * (8 * 704 + 8 * 132));
  REQUIRE(info.at("attention").size() == 1);
  const auto& sink = info.at("attention")[0].at("sink_mass");
  CHECK(sink.at("p10").get<double>() <= sink.at("p90").get<double>());
  CHECK(sink.at("mean").get<double>() > 0);
  const std::string text = trace_info_text(info);
  for (const char* part :
       {"synthetic trace of some", "1 of 3", "700 prompt + 4 decode steps, 4 with targets", "niah_uuid"}) {
    CHECK(text.find(part) != std::string::npos);
  }
}

}  // namespace kvcast::tests
