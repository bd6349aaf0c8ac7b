// Writes and reads what a store has besides results: replays, metadata, machine numbers, findings and answers.
#include <fmt/ranges.h>

#include <sstream>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "store/seal.hpp"
#include "store/store.hpp"

namespace kvcast::store {

bool Store::put_replay(const std::string& key, std::string_view bytes) {
  KVCAST_CHECK(!key.empty());
  const std::lock_guard lock(*mutex_);
  Statement insert(*database_, "INSERT INTO replays VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING");
  insert.bind(1, key).bind(2, content_hash(bytes)).bind_blob(3, bytes);
  insert.step();
  database_->check_place();
  return database_->changes() > 0;
}

std::vector<std::string> Store::replay_keys() const { return texts("SELECT key FROM replays ORDER BY key"); }

std::optional<std::string> Store::get_replay(const std::string& key) const {
  const std::lock_guard lock(*mutex_);
  Statement find(*database_, "SELECT bytes, checksum FROM replays WHERE key = ?1");
  find.bind(1, key);
  if (!find.step()) return std::nullopt;
  std::string bytes = find.text(0);
  if (content_hash(bytes) == find.text(1)) return bytes;
  Statement(*database_, "DELETE FROM replays WHERE key = ?1").bind(1, key).step();  // makes room for the next
  return std::nullopt;
}

void Store::set_metadata(const std::string& name, std::string_view value) {
  const std::lock_guard lock(*mutex_);
  put_metadata(*database_, name, value);
  database_->check_place();
}

std::optional<std::string> Store::metadata(const std::string& name) const {
  const std::lock_guard lock(*mutex_);
  return find_metadata(*database_, name);
}

void Store::set_machine(const std::string& name, const std::vector<MachineNumber>& numbers) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  Statement(*database_, "DELETE FROM machine_numbers WHERE machine = ?1").bind(1, name).step();
  Statement insert(*database_, "INSERT INTO machine_numbers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
  for (const MachineNumber& n : numbers) {
    insert.reset().bind(1, name).bind(2, n.key).bind(4, n.unit).bind(5, origin_name(n.origin));
    insert.bind(6, n.uncertainty).bind(7, n.source);
    if (n.value) insert.bind(3, *n.value);
    insert.step();
  }
  seal(*database_, "machine_numbers", name);
  transaction.commit();
}

std::map<std::string, std::vector<MachineNumber>> Store::machines() const {
  const std::lock_guard lock(*mutex_);
  Statement all(*database_,
                "SELECT machine, key, value, unit, origin, uncertainty, source FROM machine_numbers ORDER BY rowid");
  std::map<std::string, std::vector<MachineNumber>> machines;
  while (all.step()) {
    const Cell value = all.cell(2);
    MachineNumber n;
    n.key = all.text(1), n.unit = all.text(3), n.uncertainty = all.real(5), n.source = all.text(6);
    if (const auto* number = std::get_if<double>(&value)) n.value = *number;
    try {
      n.origin = origin_from_name(all.text(4));
    } catch (const UserError& error) {
      throw UserError({path(), 0, 0}, fmt::format("machine_numbers, {} of {}: {}", n.key, all.text(0), error.what()));
    }
    machines[all.text(0)].push_back(std::move(n));
  }
  for (const auto& [name, numbers] : machines) verify_seal(*database_, "machine_numbers", name);
  return machines;
}

void Store::set_findings(const std::vector<Finding>& findings) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  database_->execute("DELETE FROM findings");
  for (const Finding& f : findings) {
    Statement insert(*database_, "INSERT INTO findings (title, text, detail, places) VALUES (?1, ?2, ?3, ?4)");
    insert.bind(1, f.title).bind(2, f.text).bind(3, f.detail).bind(4, f.places).step();
  }
  seal(*database_, "findings");
  transaction.commit();
}

std::vector<Finding> Store::findings() const {
  const std::lock_guard lock(*mutex_);
  verify_seal(*database_, "findings");
  Statement all(*database_, "SELECT title, text, detail, places FROM findings ORDER BY position");
  std::vector<Finding> findings;
  while (all.step()) findings.push_back({all.text(0), all.text(1), all.text(2), all.text(3)});
  return findings;
}

void Store::set_answers(const std::vector<Answer>& answers) {
  const std::lock_guard lock(*mutex_);
  Transaction transaction(*database_);
  database_->execute("DELETE FROM answers");
  for (const Answer& a : answers) {
    Statement row(*database_, "INSERT INTO answers (kind, question, text, details, data, runs) VALUES (?,?,?,?,?,?)");
    row.bind(1, a.kind).bind(2, a.question).bind(3, a.text).bind(4, fmt::format("{}", fmt::join(a.details, "\n")));
    row.bind(5, a.data.dump()).bind(6, static_cast<std::int64_t>(a.runs)).step();
  }
  seal(*database_, "answers");
  transaction.commit();
}

std::vector<Answer> Store::answers() const {
  const std::lock_guard lock(*mutex_);
  verify_seal(*database_, "answers");
  Statement all(*database_, "SELECT kind, question, text, details, data, runs FROM answers ORDER BY position");
  std::vector<Answer> answers;
  while (all.step()) {
    Answer& a = answers.emplace_back(Answer{all.text(0), all.text(1), all.text(2)});
    std::istringstream details(all.text(3));
    for (std::string line; std::getline(details, line);) a.details.push_back(line);
    try {
      a.data = nlohmann::json::parse(all.text(4));
    } catch (const nlohmann::json::exception& error) {
      throw UserError({path(), 0, 0}, fmt::format("answer {} cannot be read: {}", answers.size(), error.what()));
    }
    a.runs = static_cast<int>(all.integer(5));
  }
  return answers;
}

}  // namespace kvcast::store
