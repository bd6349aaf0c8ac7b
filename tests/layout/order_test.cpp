// Checks of the source layout: layering as listed in sim/MODULES, files of limited length, comments in whole sentences.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "lines.hpp"

namespace kvcast::tests {

namespace fs = std::filesystem;

namespace {

// The table as written: the modules in order, and the modules that each may include.
std::vector<std::pair<std::string, std::set<std::string>>> read_modules(const std::vector<std::string>& lines) {
  std::vector<std::pair<std::string, std::set<std::string>>> modules;
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(':');
    REQUIRE(colon != std::string::npos);
    std::istringstream rest(line.substr(colon + 1));
    std::set<std::string> allowed;
    for (std::string word; rest >> word;) allowed.insert(word);
    modules.emplace_back(line.substr(0, colon), allowed);
  }
  return modules;
}

// An include of another module's header.
struct Include {
  std::string where, module;  // "file:line"
};

std::vector<Include> includes_of(const fs::path& module_folder, const std::string& module) {
  static const std::regex include(R"(^\s*#\s*include\s*"([a-z_]+)/[^"]*")");
  std::vector<Include> found;
  for (const auto& entry : fs::directory_iterator(module_folder)) {
    int number = 0;
    for (const std::string& line : lines_of(entry.path())) {
      ++number;
      std::smatch match;
      if (!std::regex_search(line, match, include) || match[1] == module) continue;
      found.push_back({entry.path().string() + ":" + std::to_string(number), match[1]});
    }
  }
  return found;
}

// Disagreements between the table and a module's includes: forbidden includes, and allowed modules that are not
// included.
std::vector<std::string> violations(const std::vector<Include>& includes, const std::set<std::string>& allowed) {
  std::vector<std::string> found;
  std::set<std::string> unused = allowed;
  for (const Include& one : includes) {
    if (allowed.count(one.module) == 0) found.push_back(one.where + " includes " + one.module);
    unused.erase(one.module);
  }
  for (const std::string& module : unused) found.push_back("nothing includes " + module);
  return found;
}

// Folders whose comments are in whole sentences and in the terms of the field.
constexpr const char* kEdited[] = {"kernels", "python", "reports/js", "reports/print", "sim", "tests", "traces"};

// Comments that a reader has to decode: blocks that open without a main clause, and idioms in place of terms.
std::vector<std::string> riddles(const std::vector<std::string>& lines) {
  static const std::regex headless(
      R"(^\s*// ((What|Of|Whether|How|Which|Whose?|Where|Than)\b|(With|By|That|From|As) [a-z]))");
  static const std::regex idiom(R"(//.*\b(told apart|tells? apart|hangs? on|foret[eo]ll?\w*|rests? on|sets? the pace)"
                                R"(|likeness|beside|is told|asks? for|stands? for|alike|nevertheless|at the least)\b)");
  static const std::regex comment(R"(^\s*//)");
  std::vector<std::string> found;
  bool in_block = false;
  for (const std::string& line : lines) {
    if ((!in_block && std::regex_search(line, headless)) || std::regex_search(line, idiom)) found.push_back(line);
    in_block = std::regex_search(line, comment);
  }
  return found;
}

// Python lines with their comments and docstrings as C++ comments; each docstring is a block of its own.
std::vector<std::string> from_python(const std::vector<std::string>& lines) {
  static const std::regex quotes("\"\"\""), opens(R"(^\s*r?""")"), comment("# ");
  static const auto first = std::regex_constants::format_first_only;
  std::vector<std::string> found;
  bool in_text = false;
  for (const std::string& line : lines) {
    const bool text = in_text || std::regex_search(line, opens);
    found.push_back(in_text ? "// " + line : std::regex_replace(line, text ? opens : comment, "// ", first));
    const auto ends = std::distance(std::sregex_iterator(line.begin(), line.end(), quotes), std::sregex_iterator());
    if (ends % 2 == 1) in_text = !in_text;
    if (text && !in_text) found.emplace_back();
  }
  return found;
}

// Returns the riddles in a source file; none if it is in another language.
std::vector<std::string> riddles_in(const fs::path& file) {
  static const std::set<std::string> with_slashes = {".cpp", ".hpp", ".cu", ".cuh", ".js", ".mjs"};
  if (with_slashes.contains(file.extension())) return riddles(lines_of(file));
  return file.extension() == ".py" ? riddles(from_python(lines_of(file))) : std::vector<std::string>{};
}

}  // namespace

// Style is a reviewer's to judge: the build warns of a riddle and goes on.
TEST_CASE("comments that open without a main clause or use idioms are listed") {
  for (const char* folder : kEdited) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path() == kRoot / "tests" / "layout" / "order_test.cpp") continue;  // the examples of this check
      for (const std::string& line : riddles_in(entry.path())) {
        WARN(entry.path().string() << ": " << line);
      }
    }
  }
}

TEST_CASE("the comment check reports headless openings and idioms, and ignores code") {
  CHECK(riddles({"// What a policy keeps.", "int kept;"}).size() == 1);
  CHECK(riddles({"// The tokens that it keeps, on", "// which the time hangs on.", "int kept;"}).size() == 1);
  CHECK(riddles({"int kept;  // told apart by name"}).size() == 1);
  CHECK(riddles({"// From scores to ranks."}).size() == 1);
  CHECK(riddles({"// As PyTorch, by one kernel."}).empty());
  CHECK(riddles({"// A share", "// Of the layers: a continued line.", "text = \"told apart\";"}).empty());
}

TEST_CASE("the comment check reads Python's comments and docstrings") {
  const std::string text = "\"\"\"";
  const auto found = [](const std::vector<std::string>& lines) { return riddles(from_python(lines)).size(); };
  CHECK(found({"# What a policy keeps.", "kept = 1"}) == 1);
  CHECK(found({"kept = 1  # told apart by name"}) == 1);
  CHECK(found({"    " + text + "Of a CSV file." + text, "    # What a policy keeps."}) == 2);
  CHECK(found({text + "Returns the tokens,", "which the time hangs on." + text, "told = 'told apart'"}) == 1);
  CHECK(found({text + "Returns the share", "Of the layers: a continued line.", text, "# As PyTorch does."}) == 0);
}

TEST_CASE("a module lists only modules above it") {
  std::set<std::string> above;
  for (const auto& [module, allowed] : read_modules(lines_of(kRoot / "sim" / "MODULES"))) {
    for (const std::string& other : allowed) {
      INFO(module << " lists " << other);
      CHECK(above.count(other) == 1);
    }
    above.insert(module);
  }
  CHECK(above.size() > 10);
}

TEST_CASE("every folder under sim/ is a module and includes exactly the modules that it lists") {
  const auto modules = read_modules(lines_of(kRoot / "sim" / "MODULES"));
  std::set<std::string> known;
  for (const auto& [module, allowed] : modules) known.insert(module);
  for (const auto& entry : fs::directory_iterator(kRoot / "sim")) {
    if (entry.is_directory()) CHECK(known.count(entry.path().filename().string()) == 1);
  }
  for (const auto& [module, allowed] : modules) {
    if (!fs::exists(kRoot / "sim" / module)) continue;
    for (const std::string& v : violations(includes_of(kRoot / "sim" / module, module), allowed)) {
      // app links all modules, whether it includes them or not.
      if (module == "app" && v.starts_with("nothing")) continue;
      INFO(module);
      FAIL_CHECK(v);
    }
  }
}

TEST_CASE("the layering check reports a forbidden include and an allowed module that is not included") {
  const fs::path folder = fs::temp_directory_path() / "kvcast-layering" / "policy";
  fs::create_directories(folder);
  std::ofstream(folder / "bad.cpp") << "#include \"base/error.hpp\"\n#include \"engine/engine.hpp\"\n";
  const auto found = violations(includes_of(folder, "policy"), {"base", "graph"});
  fs::remove_all(folder.parent_path());
  REQUIRE(found.size() == 2);
  CHECK(found[0].find("bad.cpp:2 includes engine") != std::string::npos);
  CHECK(found[1] == "nothing includes graph");
}

TEST_CASE("no source file is longer than 400 lines") {
  for (const char* top : {"sim", "kernels", "python", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".cu" && extension != ".cuh") continue;
      INFO(entry.path());
      CHECK(lines_of(entry.path()).size() <= 400);
    }
  }
}

}  // namespace kvcast::tests
