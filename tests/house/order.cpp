// Is the house in order? Layering as sim/ROOMS says, and no file that hides two ideas.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace fs = std::filesystem;

namespace {

const fs::path kRoot = KVCAST_SOURCE_DIR;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The table as written: the rooms in order, and what each may include.
std::vector<std::pair<std::string, std::set<std::string>>> read_rooms(const std::vector<std::string>& lines) {
  std::vector<std::pair<std::string, std::set<std::string>>> rooms;
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t colon = line.find(':');
    REQUIRE(colon != std::string::npos);
    std::istringstream rest(line.substr(colon + 1));
    std::set<std::string> allowed;
    for (std::string word; rest >> word;) allowed.insert(word);
    rooms.emplace_back(line.substr(0, colon), allowed);
  }
  return rooms;
}

// An include of another room's header.
struct Include {
  std::string where, room;  // "file:line"
};

std::vector<Include> includes_of(const fs::path& room_folder, const std::string& room) {
  static const std::regex include(R"(^\s*#\s*include\s*"([a-z_]+)/[^"]*")");
  std::vector<Include> found;
  for (const auto& entry : fs::directory_iterator(room_folder)) {
    int number = 0;
    for (const std::string& line : lines_of(entry.path())) {
      ++number;
      std::smatch match;
      if (!std::regex_search(line, match, include) || match[1] == room) continue;
      found.push_back({entry.path().string() + ":" + std::to_string(number), match[1]});
    }
  }
  return found;
}

// Where the table and what a room includes disagree: what it forbids, and what it allows for nothing.
std::vector<std::string> violations(const std::vector<Include>& includes, const std::set<std::string>& allowed) {
  std::vector<std::string> found;
  std::set<std::string> unused = allowed;
  for (const Include& one : includes) {
    if (allowed.count(one.room) == 0) found.push_back(one.where + " includes " + one.room);
    unused.erase(one.room);
  }
  for (const std::string& room : unused) found.push_back("nothing includes " + room);
  return found;
}

}  // namespace

TEST_CASE("a room lists only rooms above it") {
  std::set<std::string> above;
  for (const auto& [room, allowed] : read_rooms(lines_of(kRoot / "sim" / "ROOMS"))) {
    for (const std::string& other : allowed) {
      INFO(room << " lists " << other);
      CHECK(above.count(other) == 1);
    }
    above.insert(room);
  }
  CHECK(above.size() > 10);
}

TEST_CASE("every folder under sim/ is a room, and includes what its room lists and nothing else") {
  const auto rooms = read_rooms(lines_of(kRoot / "sim" / "ROOMS"));
  std::set<std::string> known;
  for (const auto& [room, allowed] : rooms) known.insert(room);
  for (const auto& entry : fs::directory_iterator(kRoot / "sim")) {
    if (entry.is_directory()) CHECK(known.count(entry.path().filename().string()) == 1);
  }
  for (const auto& [room, allowed] : rooms) {
    if (!fs::exists(kRoot / "sim" / room)) continue;
    for (const std::string& v : violations(includes_of(kRoot / "sim" / room, room), allowed)) {
      // app puts all rooms together, named by its own headers or not.
      if (room == "app" && v.starts_with("nothing")) continue;
      INFO(room);
      FAIL_CHECK(v);
    }
  }
}

TEST_CASE("the layering check sees a forbidden include, and a room that is allowed for nothing") {
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
  for (const char* top : {"sim", "kernels", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / top)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".hpp" && extension != ".cu" && extension != ".cuh") continue;
      INFO(entry.path());
      CHECK(lines_of(entry.path()).size() <= 400);
    }
  }
}
