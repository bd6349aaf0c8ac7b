// Checks that functions fit on a screen, and that headers do not include each other in a cycle.
#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "lines.hpp"

namespace kvcast::tests {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostLines = 60;  // between the braces

struct Function {
  std::size_t line = 0, lines = 0;  // the line of its opening brace, counted from 1; lines of its body
};

// Functions and member functions as clang-format lays them out: the opening brace ends a line, and the closing brace
// has the indentation of the line where the declaration starts, which is zero or two spaces.
std::vector<Function> functions_of(const Lines& lines) {
  static const std::regex opens(R"(^( {0,2})(\S.*)\{$)"), closes(R"(^( {0,2})\}$)");
  static const std::regex scope(
      R"(^(inline )?(namespace|class|struct|enum|union|extern|template|if|for|while|do)\b.*)");
  std::map<std::size_t, std::size_t> open;  // by indentation
  std::vector<Function> found;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (std::regex_match(lines[i], match, opens)) {
      open.erase(static_cast<std::size_t>(match.length(1)));
      const std::string text = match[2];
      if (!std::regex_match(text, scope) && text.find(" = ") == std::string::npos)
        open[static_cast<std::size_t>(match.length(1))] = i;
    } else if (std::regex_match(lines[i], match, closes)) {
      const auto at = open.find(static_cast<std::size_t>(match.length(1)));
      if (at == open.end()) continue;
      found.push_back({at->second + 1, i - at->second - 1});
      open.erase(at);
    }
  }
  return found;
}

// The first include cycle that is found among the files; empty if there is none.
Lines circle_in(const std::map<std::string, std::set<std::string>>& includes) {
  std::set<std::string> done;
  Lines path;
  const std::function<bool(const std::string&)> visit = [&](const std::string& file) {
    if (done.contains(file)) return false;
    const bool again = std::find(path.begin(), path.end(), file) != path.end();
    path.push_back(file);
    if (again) return true;
    if (const auto at = includes.find(file); at != includes.end()) {
      for (const std::string& other : at->second) {
        if (visit(other)) return true;
      }
    }
    path.pop_back();
    done.insert(file);
    return false;
  };
  for (const auto& [file, others] : includes) {
    if (visit(file)) return path;
  }
  return {};
}

}  // namespace

TEST_CASE("no function is longer than a screenful") {
  std::size_t functions = 0;
  for (const char* top : {"sim", "kernels", "python"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp") continue;
      for (const Function& f : functions_of(lines_of(entry.path()))) {
        ++functions;
        INFO(entry.path().string() << ":" << f.line);
        CHECK(f.lines <= kMostLines);
      }
    }
  }
  CHECK(functions > 2000);
}

TEST_CASE("functions are found from beginning to end, and other scopes are ignored") {
  const auto found = functions_of({"namespace a {", "int one() {", "  if (true) {", "  }", "}", "class B {",
                                   "  int two() const {", "    return 2;", "  }", "};", "}  // namespace a"});
  REQUIRE(found.size() == 2);
  CHECK(found[0].line == 2);
  CHECK(found[0].lines == 2);
  CHECK(found[1].line == 7);
  CHECK(found[1].lines == 1);
}

TEST_CASE("headers do not include each other in a cycle") {
  static const std::regex include(R"(^#include \"([a-z_]+/[^\"]*)\")");
  std::map<std::string, std::set<std::string>> includes;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "sim")) {
    if (entry.path().extension() != ".hpp") continue;
    std::set<std::string>& of_file = includes[fs::relative(entry.path(), kRoot / "sim").string()];
    for (const std::string& line : lines_of(entry.path())) {
      std::smatch match;
      if (std::regex_search(line, match, include)) of_file.insert(match[1]);
    }
  }
  CHECK(includes.size() > 100);
  CHECK(circle_in(includes).empty());
  CHECK(circle_in({{"a", {"b"}}, {"b", {"c", "d"}}, {"d", {"a"}}}) == Lines{"a", "b", "d", "a"});
}

TEST_CASE("tests are named x_test.cpp and share a namespace") {
  std::size_t tests = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "tests")) {
    if (entry.path().extension() != ".cpp") continue;
    const Lines lines = lines_of(entry.path());
    const auto has = [&lines](const char* start) {
      return std::ranges::any_of(lines, [start](const std::string& line) { return line.starts_with(start); });
    };
    if (!has("TEST_CASE(")) continue;
    INFO(entry.path());
    CHECK(entry.path().stem().string().ends_with("_test"));
    CHECK(has("namespace kvcast::tests {"));
    ++tests;
  }
  CHECK(tests > 200);
}

TEST_CASE("every policy's file has its line in the registry") {
  static const std::regex line(R"(^  X\(([a-z0-9_]+)\))"), opens(R"(^namespace (?:kvcast::policy::)?([a-z0-9_]+) \{)");
  std::set<std::string> registered, described;
  std::smatch match;
  for (const std::string& text : lines_of(kRoot / "sim/policies/all.cpp")) {
    if (std::regex_search(text, match, line)) registered.insert(match[1]);
  }
  for (const auto& file : fs::directory_iterator(kRoot / "sim/policies")) {
    std::string policy;
    for (const std::string& text : lines_of(file.path())) {
      if (std::regex_search(text, match, opens)) policy = match[1];
      if (text.starts_with("Descriptor describe() {")) described.insert(policy);
    }
  }
  described.erase("replayed");  // has no settings of its own, and is registered by itself
  for (const std::string& name : described) {
    INFO("sim/policies/all.cpp lacks X(" << name << ")");
    CHECK(registered.contains(name));
  }
}

}  // namespace kvcast::tests
