// Files under configs/ by name, alias and path.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/find.hpp"
#include "config/hardware.hpp"
#include "config/model.hpp"
#include "config/steady.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;
namespace fs = std::filesystem;

namespace {

// A working directory with a configs/ of its own, until the end of the test.
class OwnConfigs {
 public:
  OwnConfigs() : before_(fs::current_path()) { fs::current_path(directory_.path()); }
  ~OwnConfigs() { fs::current_path(before_); }

  void write(const std::string& path, const std::string& text) const {
    const fs::path folder = fs::path(path).parent_path();
    if (!folder.empty()) fs::create_directories(folder);
    std::ofstream(path) << text;
  }

 private:
  TemporaryDirectory directory_;
  fs::path before_;
};

}  // namespace

TEST_CASE("names are looked up in the source tree from anywhere", "[find]") {
  const OwnConfigs elsewhere;
  const std::string expected = std::string(KVCAST_SOURCE_DIR) + "/configs/models/llama-3.1-8b.yaml";
  CHECK(find_config("models", "llama-3.1-8b", {}) == expected);
  CHECK(find_config("models", "Llama-3.1-8B-Instruct", {}) == expected);
  CHECK(find_config("models", "configs/models/llama-3.1-8b.yaml", {}) == expected);
}

TEST_CASE("the working directory has precedence over the source tree", "[find]") {
  const OwnConfigs own;
  own.write("configs/models/llama-3.1-8b.yaml", "title: mine\n");
  own.write("configs/models/other.yaml", "title: Other\naliases: [My-Alias]\n");
  CHECK(find_config("models", "llama-3.1-8b", {}) == "configs/models/llama-3.1-8b.yaml");
  CHECK(find_config("models", "My-Alias", {}) == "configs/models/other.yaml");
  CHECK(find_config("models", "Other", {}) == "configs/models/other.yaml");
  CHECK(find_config("models", "configs/models/other.yaml", {}) == "configs/models/other.yaml");
  own.write("here.yaml", "a: 1\n");
  CHECK(find_config("models", "here.yaml", {}) == "here.yaml");
}

TEST_CASE("while files are taken to be unchanged, each name is looked up once", "[find]") {
  const OwnConfigs own;
  const std::string of_tree = std::string(KVCAST_SOURCE_DIR) + "/configs/models/llama-3.1-8b.yaml";
  const SourceLocation requested = parse_request("a: 1\n").where();
  {
    const SteadyFiles steady;
    CHECK(find_config("models", "llama-3.1-8b", {}) == of_tree);
    own.write("configs/models/llama-3.1-8b.yaml", "title: mine\n");
    CHECK(find_config("models", "llama-3.1-8b", {}) == of_tree);
    // Another way of searching is another lookup: a file of the tree searches there first, the working directory later.
    CHECK(find_config("models", "llama-3.1-8b", {of_tree, 1, 1}) == of_tree);
    CHECK(find_config("models", "llama-3.1-8b", requested) == "configs/models/llama-3.1-8b.yaml");
  }
  CHECK(find_config("models", "llama-3.1-8b", {}) == "configs/models/llama-3.1-8b.yaml");
}

TEST_CASE("an alias with a slash is found, although it looks like a path", "[find]") {
  const OwnConfigs own;
  own.write("configs/hardware/box.yaml", "aliases: [box/pytorch]\n");
  CHECK(find_config("hardware", "box/pytorch", {}) == "configs/hardware/box.yaml");
}

TEST_CASE("an alias used by two files is rejected", "[find]") {
  const OwnConfigs own;
  own.write("configs/models/a.yaml", "aliases: [Both]\n");
  own.write("configs/models/b.yaml", "title: Both\n");
  CHECK(error_of([] {
          find_config("models", "Both", {"run.yaml", 1, 8});
        }) == "run.yaml:1:8: \"Both\" is ambiguous: both configs/models/a.yaml and configs/models/b.yaml match it");
}

TEST_CASE("aliases ignore case, hyphens, underscores and spaces; exact matches have precedence", "[find]") {
  const OwnConfigs own;
  own.write("configs/models/a.yaml", "title: My-Model-7B\naliases: [Mine]\n");
  own.write("configs/models/b.yaml", "aliases: [MINE]\n");
  CHECK(find_config("models", "my model_7b", {}) == "configs/models/a.yaml");
  CHECK(find_config("models", "MINE", {}) == "configs/models/b.yaml");
  CHECK_THAT(error_of([] { find_config("models", "mine", {}); }), Catch::Contains("is ambiguous"));
  CHECK_THAT(error_of([] { find_config("models", "My-Model-7.B", {}); }), Catch::Contains("nothing named"));
}

TEST_CASE("an unknown name is rejected with the list of known ones", "[find]") {
  const OwnConfigs own;
  own.write("configs/toys/apple.yaml", "title: Apple\n");
  own.write("configs/toys/pear.yaml", "title: Pear\n");
  CHECK(error_of([] {
          find_config("toys", "aple", {"run.yaml", 1, 8});
        }) == "run.yaml:1:8: nothing named \"aple\" under configs/toys (did you mean \"apple\"?); known: apple, pear");
  CHECK(error_of([] {
          find_config("toys", "gone/aple.yaml", {"run.yaml", 1, 8});
        }) == "run.yaml:1:8: no such file: gone/aple.yaml");
  CHECK(error_of([] {
          find_config("nowhere", "x", {"run.yaml", 1, 8});
        }) == "run.yaml:1:8: nothing named \"x\" under configs/nowhere, neither in the working directory nor in " +
                  std::string(KVCAST_SOURCE_DIR));
  CHECK_FALSE(find_config_if_any("toys", "quest", {}).has_value());
  CHECK(find_config_if_any("toys", "pear", {}) == "configs/toys/pear.yaml");
  CHECK(error_of([] {
          find_config_if_any("toys", "x/pear", {"run.yaml", 1, 8});
        }) == "run.yaml:1:8: no such file: x/pear");
}

TEST_CASE("a folder is not a configuration", "[find]") {
  const OwnConfigs own;
  own.write("configs/toys/box.yaml/inner.txt", "x");  // a directory named like a file
  CHECK_THAT(error_of([] { find_config("toys", "box", {}); }), Catch::StartsWith("nothing named \"box\""));
  CHECK(config_files("toys").size() == 0);
}

TEST_CASE("an unreadable file hides no other file, and a search that skips it reports it", "[find]") {
  const OwnConfigs own;
  own.write("configs/toys/apple.yaml", "aliases: [fruit]\n");
  own.write("configs/toys/empty.yaml", "");
  CHECK(find_config("toys", "fruit", {}) == "configs/toys/apple.yaml");
  CHECK(error_of([] { find_config("toys", "pear", {}); }) ==
        "nothing named \"pear\" under configs/toys (not read: configs/toys/empty.yaml:1:1: the document is empty); "
        "known: "
        "apple, empty");
}

TEST_CASE("a file's own name ignores case, hyphens, underscores and spaces", "[find]") {
  const OwnConfigs elsewhere;
  CHECK(fs::path(find_config("hardware", "H200", {})).stem() == "h200");
  CHECK(fs::path(find_config("hardware", "RTX 4090", {})).stem() == "rtx-4090");
  CHECK_THAT(error_of([] { find_config("hardware", "RTX-409O", {}); }), Catch::Contains("did you mean \"rtx-4090\""));
}

TEST_CASE("names in a shipped file refer to shipped files", "[find]") {
  const OwnConfigs own;
  own.write("configs/hardware/h200.yaml", "title: mine\n");
  const std::string data = std::string(KVCAST_SOURCE_DIR) + "/configs/hardware/";
  CHECK(find_config("hardware", "h200", {data + "h20.yaml", 6, 14}) == data + "h200.yaml");
  CHECK(find_config("hardware", "h200", {"configs/hardware/other.yaml", 6, 14}) == "configs/hardware/h200.yaml");
  CHECK(read_hardware(find_config("hardware", "h20", {})).derived_from == "h200");
  fs::current_path(KVCAST_SOURCE_DIR);  // if both folders are the same, paths stay relative
  CHECK(find_config("hardware", "h200", {data + "h20.yaml", 6, 14}) == "configs/hardware/h200.yaml");
}

TEST_CASE("an alias that is the name of another file is rejected", "[find]") {
  const OwnConfigs own;
  own.write("configs/models/a.yaml", "title: A\n");
  own.write("configs/models/b.yaml", "title: B\naliases: [B, a]\n");
  const auto error = [](const std::string& file, const std::vector<std::string>& aliases) {
    return error_of([&] { refuse_hidden_aliases("models", file, aliases, {file, 2, 10}); });
  };
  CHECK(error("configs/models/b.yaml", {"B", "a"}) ==
        "configs/models/b.yaml:2:10: aliases: \"a\" is the name of another file, configs/models/a.yaml, and selects "
        "that one");
  CHECK_THAT(error_of([] { read_model("configs/models/b.yaml"); }), Catch::Contains("b.yaml:2:10: aliases: \"a\""));
  own.write("configs/hardware/mine.yaml",
            "title: Mine\naliases: [h200]\nlike: {name: h100-sxm, uncertainty: 20 %}\nhost: xeon-8480c\n");
  CHECK_THAT(error_of([] { read_hardware("configs/hardware/mine.yaml"); }),
             Catch::Contains("mine.yaml:2:10: aliases: \"h200\"") && Catch::Contains("/configs/hardware/h200.yaml"));
  CHECK(error("configs/models/b.yaml", {"b", "B", "c"}) == "no error");
  // A user's file may have an alias of a shipped one as its name.
  const std::string shipped = std::string(KVCAST_SOURCE_DIR) + "/configs/models/llama-3.1-8b.yaml";
  CHECK(error(shipped, {"a"}) == "no error");
  CHECK_THAT(error(shipped, {"qwen2.5-7b"}), Catch::Contains("qwen2.5-7b.yaml"));
}

namespace {

SourceLocation requested() {
  SourceLocation where{"request", 1, 1};
  where.from_request = true;
  return where;
}

}  // namespace

TEST_CASE("a request names listed files only: no path, no link, no folder above", "[find]") {
  const OwnConfigs own;
  own.write("secret.yaml", "password: hunter2\n");
  own.write("configs/models/mine.yaml", "title: Mine\naliases: [Org/Mine]\n");
  own.write("configs/models/sub/deep.yaml", "title: Deep\n");
  fs::create_symlink("../../secret.yaml", "configs/models/linked.yaml");
  fs::create_symlink("/dev/zero", "configs/models/endless.yaml");
  fs::create_directory_symlink(".", "configs/models/loop");
  const SourceLocation request = requested();
  CHECK(find_config("models", "mine", request) == "configs/models/mine.yaml");
  CHECK(find_config("models", "Org/Mine", request) == "configs/models/mine.yaml");  // a listed name, although with '/'
  CHECK(find_config("models", "llama-3.1-8b", request) ==
        std::string(KVCAST_SOURCE_DIR) + "/configs/models/llama-3.1-8b.yaml");
  for (const char* name :
       {"configs/models/mine.yaml", "configs/models/../../secret", "./secret.yaml", "secret.yaml", "../../secret",
        "/etc/passwd", "sub/deep", "loop/mine", "/dev/zero", "..", "mine.yaml", "~/x.yaml"}) {
    INFO(name);
    const std::string error = error_of([&] { find_config("models", name, request); });
    CHECK(error.starts_with("request:1:1: "));
    CHECK(error.find("hunter2") == std::string::npos);
    CHECK_THAT(error, Catch::Contains("requests cannot name files") || Catch::Contains("nothing named"));
  }
  for (const char* name : {"linked", "endless"}) {
    INFO(name);
    CHECK_THAT(error_of([&] { find_config("models", name, request); }), Catch::Contains("nothing named"));
  }
  CHECK_THAT(error_of([&] { find_config_if_any("policies", "a/b", request); }),
             Catch::Contains("requests cannot name files"));
  const std::vector<std::string> listed = names_in("models", request), all = names_in("models");
  CHECK(std::ranges::count(listed, "linked") == 0);
  CHECK(std::ranges::count(listed, "mine") == 1);
  CHECK(std::ranges::count(all, "linked") == 1);
  // A command of the user's own may still name any of them.
  CHECK(find_config("models", "configs/models/../../secret.yaml", {}) == "secret.yaml");
  CHECK(find_config("models", "linked", {}) == "configs/models/linked.yaml");
}

TEST_CASE("what is wrong with other files is for the user, not for requests", "[find]") {
  const OwnConfigs own;
  own.write("configs/models/broken.yaml", "hunter2: [\n");
  CHECK_THAT(error_of([] { find_config("models", "no such model", {}); }), Catch::Contains("not read"));
  const std::string error = error_of([] { find_config("models", "no such model", requested()); });
  CHECK_THAT(error, Catch::Contains("nothing named") && !Catch::Contains("not read") && !Catch::Contains("hunter2"));
}

TEST_CASE("a request's text is marked as such, whatever is made of it", "[find]") {
  const Node root = parse_request("policy: {name: quest}\nhardware: h100-sxm\n");
  CHECK(root.where().from_request);
  CHECK(root.find("policy")->find("name")->where().from_request);
  CHECK(root.key_where("hardware").from_request);
  CHECK(root.with("hardware.gpu.clock", *root.find("hardware")).find("hardware")->find("like")->where().from_request);
  CHECK_FALSE(parse_yaml("a: 1\n", "request").where().from_request);
  CHECK(error_of([] { parse_request("a: ["); }).starts_with("request:1:"));
  CHECK(error_of([] { parse_request(""); }) == "request:1:1: the document is empty");
  CHECK(error_of([] { parse_yaml("# nothing\n", "f.yaml"); }).starts_with("f.yaml:1:1: the document is empty"));
}

}  // namespace kvcast::tests
