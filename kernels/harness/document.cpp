#include "harness/document.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "harness/axis.hpp"

namespace kvcast::kernels {

namespace {

// Fields that must agree for two runs to share a file.
constexpr const char* kIdentity[] = {"program", "host_cpu", "cores", "device", "device_uuid", "driver", "runtime"};

std::string plain(const Json* value) {
  if (!value || value->is_null()) return "";
  return value->is_string() ? value->text() : value->dump();
}

// RFC 4180: a field with a separator or a quote is quoted.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string axes_text(const Json& row) {
  std::string out;
  if (const Json* axes = row.find("axes")) {
    for (const auto& [name, value] : axes->members()) out += (out.empty() ? "" : ";") + name + "=" + plain(&value);
  }
  return out;
}

}  // namespace

Document::Document(const std::string& path, Json environment) : path_(path), json_(Json::object()) {
  json_["schema"] = kSchema;
  json_["environment"] = std::move(environment);
  json_["rows"] = Json::array();
  if (path.empty() || !std::filesystem::exists(path)) return;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  Json old;
  try {
    old = Json::parse(text.str(), path);
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
  if (plain(old.find("schema")) != kSchema) throw UsageError(path + ": not a document of schema " + kSchema);
  const Json* environment_of_old = old.find("environment");
  for (const char* name : kIdentity) {
    const std::string before = plain(environment_of_old ? environment_of_old->find(name) : nullptr);
    const std::string now = plain(json_["environment"].find(name));
    if (before != now) {
      throw UsageError(path + ": measured with " + name + " '" + before + "', this is '" + now +
                       "'; give another --json file");
    }
  }
  if (const Json* rows = old.find("rows")) json_["rows"] = *rows;
  for (const Json& row : json_["rows"].elements()) keys_.insert(key_of(row));
}

std::string Document::key_of(const Json& row) {
  const std::string pass = plain(row.find("pass"));
  return plain(row.find("bench")) + " " + plain(row.find("mode")) + " " + axes_text(row) +
         (pass.empty() || pass == "1" ? "" : " pass " + pass);
}

bool Document::has(const std::string& key) const { return keys_.contains(key); }

void Document::add(Json row) {
  keys_.insert(key_of(row));
  json_["rows"].push(std::move(row));
}

void Document::save() const {
  if (path_.empty()) return;
  const std::string beside = path_ + ".part";
  std::ofstream out(beside);
  // One line for each row, so that files can be compared and joined by line tools.
  out << "{\"schema\": " << json_.find("schema")->dump() << ",\n\"environment\": " << json_.find("environment")->dump(1)
      << ",\n\"rows\": [";
  const char* separator = "\n";
  for (const Json& row : json_.find("rows")->elements()) {
    out << separator << row.dump();
    separator = ",\n";
  }
  out << "\n]}\n";
  out.close();
  if (!out) throw UsageError(beside + ": cannot be written");
  std::filesystem::rename(beside, path_);
}

std::string to_csv(const Json& document) {
  std::set<std::string> works;
  for (const Json& row : document.find("rows")->elements()) {
    if (const Json* work = row.find("work")) {
      for (const auto& [name, amount] : work->members()) works.insert(name);
    }
  }
  static constexpr const char* kTimes[] = {"min", "q1", "median", "q3", "max", "mean"};
  static constexpr const char* kRest[] = {"n",      "noise",       "stop_reason", "gbps",
                                          "gflops", "skip_reason", "pass",        "repro"};
  std::string out = "bench,mode,axes,resource";
  for (const std::string& name : works) out += ",work_" + name;
  for (const char* name : kTimes) out += std::string(",") + name + "_s";
  for (const char* name : kRest) out += std::string(",") + name;
  out += "\n";
  for (const Json& row : document.find("rows")->elements()) {
    out += csv_field(plain(row.find("bench"))) + "," + plain(row.find("mode")) + "," + csv_field(axes_text(row)) + "," +
           plain(row.find("resource"));
    const Json* work = row.find("work");
    for (const std::string& name : works) out += "," + plain(work ? work->find(name) : nullptr);
    const Json* time = row.find("time_s");
    for (const char* name : kTimes) out += "," + plain(time ? time->find(name) : nullptr);
    for (const char* name : kRest) out += "," + csv_field(plain(row.find(name)));
    out += "\n";
  }
  return out;
}

}  // namespace kvcast::kernels
