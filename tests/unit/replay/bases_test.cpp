// Bases computed from traces, stored in a file and read by policies.
#include <catch2/catch.hpp>
#include <fstream>

#include "policy_parts/bases.hpp"
#include "replay/profile.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

const TraceShape kShape{
    .kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 80, .steps = 6, .window = 40, .layers = {1}};

std::vector<std::vector<std::int32_t>> attended(const std::string& name, const std::string& setting,
                                                const trace::Layer& layer) {
  std::vector<std::vector<std::int32_t>> out;
  for (const auto& step : select(name, setting, layer).steps) {
    for (const auto& head : step.heads) out.push_back(head.attended);
  }
  return out;
}

TEST_CASE("a basis computed from the prompt itself equals the one that policies compute") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/bases.safetensors";
  const MemoryTrace trace = random_trace(kShape, 3), other = random_trace(kShape, 4);
  const trace::Trace* const one[] = {&trace};
  CHECK(replay::write_bases(one, path, 2) == policy::basis_kinds());
  const auto layer = trace.load(0, 1), foreign = other.load(0, 1);
  const std::string basis = ", basis: " + path;
  for (const std::string setting : {"budget: 12, dims: 2", "budget: 12, dims: 2, calibrate_on: keys_before_rope"}) {
    CHECK(attended("loki", setting, *layer) == attended("loki", setting + basis, *layer));
    CHECK(attended("loki", setting, *foreign) != attended("loki", setting + basis, *foreign));
  }
  const std::string setting = "partial_ratio: 0.3, max_share: 0.3, alpha: 1";
  CHECK(attended("infinigen", setting, *layer) == attended("infinigen", setting + basis, *layer));
  CHECK(attended("infinigen", setting, *foreign) != attended("infinigen", setting + basis, *foreign));
  // Every layer of the model uses the basis of the nearest measured layer.
  const auto bases = policy::Bases::read(path);
  CHECK(bases->of("keys", 3, 1).data == bases->of("keys", 1, 1).data);
}

TEST_CASE("the bases of several traces are computed over all their tokens") {
  // The keys of each of the two traces vary along one axis. The second trace has the larger spread, so its axis comes
  // first.
  const auto along = [](std::size_t axis, float size) {
    return MemoryTrace({.kv_heads = 1, .head_dim = 2, .prompt = 4, .steps = 1, .window = 0}, [=](trace::Layer& layer) {
      std::fill_n(layer.mutable_keys(0), 10, 0.0f);
      for (std::size_t i = 0; i < 4; ++i) layer.mutable_keys(0)[2 * i + axis] = i % 2 == 0 ? size : -size;
      std::fill_n(layer.mutable_values(0), 10, 0.0f);
      std::fill_n(layer.mutable_queries(0), 2, 0.0f);
    });
  };
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/bases.safetensors";
  const MemoryTrace first = along(0, 1), second = along(1, 2);
  const trace::Trace* const both[] = {&first, &second};
  // Without prompt queries there are no query directions.
  CHECK(replay::write_bases(both, path, 1) == std::vector<std::string>{"keys", "keys_before_rope"});
  const auto bases = policy::Bases::read(path);
  const MatrixView rows = bases->of("keys", 0, 0);
  CHECK(std::abs(rows.row(0)[1]) == Approx(1));
  CHECK(std::abs(rows.row(1)[0]) == Approx(1));
}

TEST_CASE("a file that is not a basis, or belongs to another model, is rejected") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/bases.safetensors";
  const MemoryTrace trace = random_trace(kShape, 3);
  const trace::Trace* const one[] = {&trace};
  replay::write_bases(one, path, 1);
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const auto error = [&](std::string changed) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << changed;
    return error_of([&] { policy::Bases::read(path); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = bytes;
    return changed.replace(changed.find(from), from.size(), to);
  };
  CHECK(error(bytes) == "no error");
  CHECK(error(with("kvcast-bases/1", "kvcast-bases/2")).find("not a file of bases") != std::string::npos);
  CHECK(error(with("layers.1.queries", "layers.9.queries")).find("layers.L.KIND") != std::string::npos);
  CHECK(error(with("layers.1.queries", "layers.1.quaries")).find("layers.L.KIND") != std::string::npos);
  std::string numbers = bytes;
  numbers[numbers.size() - 2] = '\x40';
  CHECK(error(numbers).find("orthonormal") != std::string::npos);
  numbers[numbers.size() - 1] = '\x7f', numbers[numbers.size() - 2] = '\xc0';
  CHECK(error(numbers).find("not finite") != std::string::npos);
  // A file truncated or changed anywhere in the header is rejected, never misread.
  for (std::size_t i = 0; i < bytes.size(); i += 41) CHECK(error(bytes.substr(0, i)) != "no error");
  CHECK(error(bytes) == "no error");
  const MemoryTrace wider = random_trace({.kv_heads = 4, .head_dim = 8, .prompt = 40}, 1);
  CHECK(error_of([&] { select("loki", "budget: 8, basis: " + path, *wider.load(0, 1)); }).find("KV heads") !=
        std::string::npos);
  CHECK(error_of([&] { select("loki", "budget: 8, basis: nowhere.safetensors", *trace.load(0, 1)); }) != "no error");
}

}  // namespace
}  // namespace kvcast::tests
