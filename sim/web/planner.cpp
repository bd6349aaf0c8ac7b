#include "web/planner.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "config/find.hpp"
#include "web/client_text.hpp"

namespace kvcast::web {
namespace {

using nlohmann::json;

constexpr const char* kJsonType = "application/json";

// Keys that take files. Wherever a name is looked up it may be that of a listed file only (config/find.hpp).
void refuse_files(const config::Node& node) {
  if (node.kind() == config::Node::Kind::kList) {
    for (const config::Node& item : node.items()) refuse_files(item);
  }
  if (node.kind() != config::Node::Kind::kMap) return;
  for (const auto& [key, value] : node.entries()) {
    if (key == "file" || key.ends_with(".file")) config::refuse_request_for_file(node.key_where(key));
    refuse_files(value);
  }
}

config::Node read_body(const HttpRequest& request) {
  static const std::set<std::string> known = {kJsonType, "application/yaml", "application/x-yaml", "text/yaml"};
  // Any other type could come from a form on another page.
  if (!known.contains(request.content_type)) {
    throw UserError({}, fmt::format("Content-Type \"{}\" is not read", request.content_type),
                    {known.begin(), known.end()});
  }
  if (request.content_type == kJsonType) {
    try {
      [[maybe_unused]] const json parsed = json::parse(request.body);
    } catch (const json::parse_error& error) {
      SourceLocation at{"request"};
      at.from_request = true;
      throw UserError(at, fmt::format("not valid JSON at byte {}", error.byte));
    }
  }
  config::Node config = config::parse_request(request.body);  // JSON is YAML, and has locations this way
  refuse_files(config);
  return config;
}

// Returns the number after `timeline=` in the query.
std::optional<std::size_t> timeline_of(const std::string& query) {
  constexpr std::string_view kKey = "timeline=";
  const std::size_t at = query.find(kKey);
  if (at == std::string::npos) return {};
  std::size_t number = 0;
  const char* const from = query.data() + at + kKey.size();
  const auto [end, error] = std::from_chars(from, query.data() + query.size(), number);
  if (error != std::errc() || (end != query.data() + query.size() && *end != '&'))
    throw UserError("timeline= in the query needs a number");
  return number;
}

std::string error_text(const std::string& what) {
  return json{{"error", what}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The whole answer, or the last line of one that has begun.
void refuse(int status, const std::string& why, Reply& reply) {
  reply.send(status, kJsonType, error_text(why) + "\n");
  reply.line(error_text(why));
}

void run(api::Session& session, const config::Node& config, const std::string& query, Reply& reply) {
  const auto timeline = timeline_of(query);
  if (timeline && *timeline != 1) throw UserError("timeline= in the query of a run can only be 1");
  const api::SimulatedTask outcome = session.run({config, {}, {}}, {.cancel = reply.stop(), .timeline = timeline});
  reply.send(200, kJsonType, to_json(outcome).dump() + "\n");
}

api::Call streamed(Reply& reply, const std::string& query = "") {
  const bool nominal = ("&" + query + "&").find("&nominal=1&") != std::string::npos;
  return {reply.stop(), [&reply](const json& line) { reply.line(line.dump()); }, timeline_of(query), nominal};
}

}  // namespace

void answer(api::Session& session, const HttpRequest& request, Reply& reply) {
  try {
    const config::Node config = read_body(request);
    if (request.path == "/api/run") return run(session, config, request.query, reply);
    if (request.path == "/api/sweep") return session.sweep(config, streamed(reply, request.query));
    if (request.path == "/api/plan") return session.plan(config, streamed(reply));
    reply.send(404, kJsonType, error_text(fmt::format("nothing at {}", request.path)) + "\n");
  } catch (const Cancelled&) {  // nobody waits for an answer
  } catch (const UserError& error) {
    const std::string text = client_text(error);
    if (text != error.what()) fmt::print(stderr, "kvcast: {}\n", error.what());
    refuse(400, text, reply);
  } catch (const std::bad_alloc&) {
    refuse(503, "this machine has too little memory for that request", reply);
  }
}

}  // namespace kvcast::web
