#include "trace/safetensors.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "base/error.hpp"
#include "support.hpp"
#include "trace/safetensors_header.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

std::string refusal(const std::string& bytes) {
  try {
    SafetensorsFile::from_bytes(bytes, "t.safetensors");
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

std::string refusal(const std::string& header, std::size_t data_bytes) {
  return refusal(safetensors_bytes(header, std::string(data_bytes, '\0')));
}

}  // namespace

TEST_CASE("a file written by hand is read: header, metadata, tensors in any order, data at their offsets") {
  const std::string header =
      R"({"b":{"dtype":"I32","shape":[2],"data_offsets":[3,11]},"__metadata__":{"k":"v"},)"
      R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"none":{"dtype":"F16","shape":[0,5],"data_offsets":[11,11]},)"
      R"("scalar":{"data_offsets":[11,13],"shape":[],"dtype":"F16"}}   )";
  const std::string data = {1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0x3C};
  const auto file = SafetensorsFile::from_bytes(safetensors_bytes(header, data), "t");
  CHECK(file.metadata() == std::map<std::string, std::string>{{"k", "v"}});
  REQUIRE(file.tensors().size() == 4);
  const Tensor& b = *file.find("b");
  CHECK(b.dtype == Dtype::kI32);
  CHECK(b.elements() == 2);
  CHECK(b.data[0] == std::byte{4});  // at 3 bytes after the header: not aligned, as the format allows
  CHECK(b.data.size() == 8);
  CHECK(file.find("a")->dtype == Dtype::kOther);  // listed, not read
  CHECK(file.find("none")->elements() == 0);
  CHECK(file.find("scalar")->elements() == 1);
  CHECK(file.find("c") == nullptr);
}

TEST_CASE("incorrect lengths are rejected") {
  CHECK(refusal("").find("0 bytes are too few") != std::string::npos);
  CHECK(refusal(std::string(7, '\0')).find("7 bytes are too few") != std::string::npos);
  CHECK(refusal(std::string(8, '\0')).find("does not begin with '{'") != std::string::npos);
  std::string lying = safetensors_bytes("{}", "");
  lying[0] = 3;
  CHECK(refusal(lying).find("header length 3 runs beyond") != std::string::npos);
  lying[7] = '\xff';
  CHECK(refusal(lying).find("above the limit of 100000000") != std::string::npos);
  CHECK(refusal("{}", 0) == "accepted");
  CHECK(refusal("{}", 1).find("1 bytes after the last tensor's data") != std::string::npos);
}

TEST_CASE("offsets must tile the data") {
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"a":{"dtype":"I32","shape":[2],"data_offsets":)") + a +
           R"(},"b":{"dtype":"I32","shape":[1],"data_offsets":)" + b + "}}";
  };
  CHECK(refusal(two("[0,8]", "[8,12]"), 12) == "accepted");
  CHECK(refusal(two("[4,12]", "[0,4]"), 12) == "accepted");
  CHECK(refusal(two("[0,8]", "[4,8]"), 8).find("\"b\": data_offsets begin at 4, before the end") != std::string::npos);
  CHECK(refusal(two("[0,8]", "[9,13]"), 13).find("leaving a hole") != std::string::npos);
  CHECK(refusal(two("[0,8]", "[8,13]"), 13).find("span 5 bytes, dtype and shape need 4") != std::string::npos);
  CHECK(refusal(two("[0,8]", "[8,12]"), 11).find("outside of the 11 bytes") != std::string::npos);
  CHECK(refusal(two("[0,8]", "[12,8]"), 12).find("outside of") != std::string::npos);
  CHECK(refusal(two("[1,9]", "[9,13]"), 13).find("leaving a hole") != std::string::npos);
  CHECK(refusal(two("[0,8]", "[8,18446744073709551615]"), 12).find("outside of") != std::string::npos);
}

TEST_CASE("shapes whose size overflows are rejected, with or without a zero") {
  const auto shaped = [](const char* shape) {
    return std::string(R"({"a":{"dtype":"F32","shape":)") + shape + R"(,"data_offsets":[0,0]}})";
  };
  CHECK(refusal(shaped("[4294967296,4294967296]"), 0).find("overflows") != std::string::npos);  // 2^64 elements
  CHECK(refusal(shaped("[576460752303423488]"), 0).find("overflows") != std::string::npos);  // 2^59 · 32 bits = 2^64
  CHECK(refusal(shaped("[0,4294967296,4294967296]"), 0) == "accepted");
  CHECK(refusal(shaped("[1,1,1,1,1,1,1,1,1]"), 0).find("more than 8 dimensions") != std::string::npos);
}

TEST_CASE("JSON outside the format is rejected with its location") {
  const auto tensor = [](const std::string& body) { return fmt::format("{{\"a\":{{{}}}}}", body); };
  const std::string whole = R"("dtype":"F32","shape":[0],"data_offsets":[0,0])";
  CHECK(refusal(tensor(whole), 0) == "accepted");
  CHECK(refusal(tensor(whole + R"(,"dtype":"F32")"), 0).find("tensor \"a\": duplicate key \"dtype\"") !=
        std::string::npos);
  CHECK(refusal(tensor(whole + R"(,"stride":[1])"), 0).find("unknown key \"stride\" in a tensor; known: dtype") !=
        std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F32","shape":[0])"), 0).find("lacks the key \"data_offsets\"") != std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F31","shape":[0],"data_offsets":[0,0])"), 0)
            .find("unknown dtype \"F31\"; known: F16") != std::string::npos);
  CHECK(
      refusal(tensor(R"("dtype":5,"shape":[0],"data_offsets":[0,0])"), 0).find("\"dtype\" must be a string, found 5") !=
      std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,0])"), 0)
            .find("a length in \"shape\" must not be negative, found -1") != std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,0])"), 0)
            .find("must be a whole number, found 1.5") != std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F32","shape":[[0]],"data_offsets":[0,0])"), 0).find("found a list") !=
        std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F32","shape":[0],"data_offsets":[0])"), 0).find("must be two numbers") !=
        std::string::npos);
  CHECK(refusal(tensor(R"("dtype":"F32","shape":[0],"data_offsets":[0,0,0])"), 0).find("must be two") !=
        std::string::npos);
  CHECK(refusal(fmt::format("{{\"a\":{{{0}}},\"a\":{{{0}}}}}", whole), 0).find("duplicate key \"a\"") !=
        std::string::npos);
  CHECK(refusal(R"({"a":[]})", 0).find("header, byte 5: tensor \"a\": a tensor must be an object, found a list") !=
        std::string::npos);
  CHECK(refusal(R"({"__metadata__":{"k":1}})", 0)
            .find("header, byte 21: __metadata__, key \"k\": a value of \"__metadata__\" must be a string, found 1") !=
        std::string::npos);
  CHECK(refusal(R"({"__metadata__":{"k":"1","k":"1"}})", 0).find("duplicate key \"k\"") != std::string::npos);
  CHECK(
      refusal(R"({"__metadata__":"x"})", 0).find("header, byte 16: \"__metadata__\" must be an object, found \"x\"") !=
      std::string::npos);
  CHECK(refusal("{\"a\":}", 0).find("header, byte 5: tensor \"a\": syntax error") != std::string::npos);
  CHECK(refusal("{} {}", 0).find("syntax error") != std::string::npos);
  CHECK(refusal(" {}", 0).find("does not begin") != std::string::npos);
  CHECK(refusal("{\"\xff\":1}", 0).find("syntax error") != std::string::npos);  // not UTF-8
  std::string deep = "{\"a\":";
  for (int i = 0; i < 1'000'000; ++i) deep += '[';
  CHECK(refusal(deep, 0).find("found a list") != std::string::npos);
  CHECK(refusal("{\"a\n\":1}", 0).find("syntax error") != std::string::npos);
  CHECK(refusal(R"({"a\n":1})", 0).find("\"a\\x0a\"") !=
        std::string::npos);  // control characters do not reach the terminal
}

TEST_CASE("a file that cannot be opened is reported") {
  const TemporaryFolder folder;
  write_bytes(folder / "empty", "");
  const auto why = [](const std::string& path) -> std::string {
    try {
      SafetensorsFile::open(path);
    } catch (const UserError& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(why(folder / "absent") == (folder / "absent") + ": no such file");
  CHECK(why(folder / "empty") == (folder / "empty") + ": the file is empty");
  CHECK(why(folder.path().string()).find("not a regular file") != std::string::npos);
  CHECK(why("/dev/zero").find("not a regular file") != std::string::npos);
}

TEST_CASE("the writer's file is read back, however it was divided into pieces") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  {
    SafetensorsWriter writer(
        path, {{"k", "v"}},
        {{"x", Dtype::kF32, {2, 3}}, {"empty", Dtype::kF16, {0}}, {"n", Dtype::kI32, {2}}, {"m", Dtype::kI64, {1}}});
    writer.write(std::vector<float>{1, 2});
    CHECK_FALSE(std::filesystem::exists(path));
    writer.write(std::vector<float>{3, 4, 5, 6});
    writer.write(std::vector<std::int64_t>{-7, 8});
    writer.write(std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()});
    writer.finish();
  }
  const auto file = SafetensorsFile::open(path);
  CHECK(file.metadata().at("k") == "v");
  CHECK((file.find("x")->data.data() - reinterpret_cast<const std::byte*>(file.bytes().data())) % 8 == 0);
  std::vector<float> x(6);
  to_floats(Dtype::kF32, file.find("x")->data.data(), 6, x.data());
  CHECK(x == std::vector<float>{1, 2, 3, 4, 5, 6});
  std::int32_t n[2];
  std::memcpy(n, file.find("n")->data.data(), sizeof n);
  CHECK((n[0] == -7 && n[1] == 8));
}

TEST_CASE("an abandoned or failed write leaves the old file and nothing else") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  write_bytes(path, "old");
  {
    SafetensorsWriter writer(path, {}, {{"x", Dtype::kF16, {2}}});
    CHECK_THROWS_WITH(writer.write(std::vector<float>{1e6f}), Catch::Contains("\"x\": a value is not finite as F16"));
  }
  CHECK(read_bytes(path) == "old");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK_THROWS_AS(SafetensorsWriter(folder / "no/such/folder", {}, {}), UserError);
}

}  // namespace kvcast::tests
