#include "report/stores.hpp"

#include <filesystem>
#include <set>

#include "base/error.hpp"

namespace kvcast::report {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_of(const std::vector<std::string>& dirs) {
  if (dirs.size() == 1) return {""};
  std::vector<std::string> names;
  std::set<std::string> folders, different;
  for (const std::string& dir : dirs) {
    const fs::path folder = fs::weakly_canonical(dir);
    if (!folders.insert(folder.string()).second) throw UserError(fmt::format("{} is given twice", dir));
    names.push_back(folder.filename().string());
    different.insert(names.back());
  }
  return different.size() == dirs.size() ? names : dirs;
}

}  // namespace

Stores::Stores(const std::vector<std::string>& dirs, const std::vector<std::string>& where) : names_(names_of(dirs)) {
  for (const std::string& dir : dirs) stores_.push_back(store::Store::open(dir, store::Store::Open::kExisting));
  for (const store::Store& store : stores_)
    parts_.push_back(part_of(store, parts_.empty() ? parse_where(where) : parts_.front().where));
}

std::vector<ReportSource> Stores::sources() const {
  std::vector<ReportSource> list;
  for (std::size_t i = 0; i < stores_.size(); ++i) list.push_back({names_[i], &stores_[i], parts_[i]});
  return list;
}

}  // namespace kvcast::report
