// The extension module kvcast._kvcast: sessions whose answers are JSON texts, to which the package kvcast gives a form.
//
// A call works in a thread of its own, without the interpreter; whoever waits for its lines looks for signals twenty
// times a second.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "api/catalogue.hpp"
#include "api/replay.hpp"
#include "api/session.hpp"
#include "api/settings.hpp"
#include "base/build.hpp"
#include "base/failure.hpp"
#include "base/parallel.hpp"
#include "base/whole_file.hpp"
#include "study/prepare.hpp"
#include "study/scoring.hpp"
#include "trace/inspect.hpp"
#include "trace/trace_file.hpp"

namespace py = pybind11;

namespace kvcast::python {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// A configuration as it is given, and keys of it that are changed: "policy.budget=512".
struct Config {
  std::string kind, text;  // "json", "yaml" or "file"
  std::vector<std::string> changes;

  Config(std::string as, std::string what, std::vector<std::string> with)
      : kind(std::move(as)), text(std::move(what)), changes(std::move(with)) {}

  config::Node node() const {
    config::Node node = kind == "file"   ? config::load_yaml(text)
                        : kind == "yaml" ? config::parse_yaml(text, "config")
                                         : api::node_of(nlohmann::ordered_json::parse(text));
    node = api::with_settings(std::move(node), changes);
    api::refuse_overridden(node, changes);
    return node;
  }
};

// One call of a session: an iterator of the lines of its answer.
class Work {
 public:
  using Body = std::function<void(const api::Call&, Work&)>;

  explicit Work(Body body) {
    thread_ = std::thread([this, body = std::move(body)] {
      std::exception_ptr failure;
      try {
        body({stop_.get_token(), [this](const json& line) { add(text_of(line)); }, {}}, *this);
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      failure_ = failure, ended_ = true;
      changed_.notify_all();
    });
  }
  ~Work() { close(); }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  // Called by the work, from several threads.
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  void keep(api::SimulatedTask outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_.push_back(std::move(outcome));
  }

  // Waits for the next line. Throws what the work has thrown, once its lines are read, and py::stop_iteration then.
  std::string next() {
    const py::gil_scoped_release others_go_on;
    std::unique_lock lock(mutex_);
    while (lines_.empty() && !ended_) {
      if (changed_.wait_for(lock, std::chrono::milliseconds(50)) == std::cv_status::no_timeout) continue;
      lock.unlock();
      look_for_signals();
      lock.lock();
    }
    if (lines_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      throw py::stop_iteration();
    }
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }

  // Stops the work and waits for its end, within a second.
  void close() {
    stop_.request_stop();
    if (!thread_.joinable()) return;
    const py::gil_scoped_release others_go_on;
    thread_.join();
  }

  // The experiments that have ended so far.
  std::vector<api::SimulatedTask> outcomes() {
    const std::lock_guard lock(mutex_);
    return outcomes_;
  }

 private:
  void look_for_signals() {
    const py::gil_scoped_acquire interpreter;
    if (PyErr_CheckSignals() == 0) return;
    const py::error_already_set interrupt;
    close();
    throw interrupt;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  std::vector<api::SimulatedTask> outcomes_;
  std::exception_ptr failure_;
  bool ended_ = false;
  std::stop_source stop_;
  std::thread thread_;
};

using Handle = std::unique_ptr<Work>;

class Session {
 public:
  Session(const std::string& data, int threads) {
    api::SessionOptions options;
    options.data = data;
    options.study.threads = threads > 0 ? threads : hardware_threads();
    options.study.scores = study::Scores::kAtHand;
    std::string ignored;
    options.study.score_replays = study::score_cache_file(ignored);
    options.sweep_scores = study::Scores::kAll;
    threads_ = options.study.threads;
    session_ = std::make_shared<api::Session>(std::move(options));
  }

  Handle run(Config config, bool timeline) const {
    return begin([config = std::move(config), timeline, session = session_](api::Call call, Work& work) {
      if (timeline) call.timeline = 0;
      api::SimulatedTask outcome = session->run({config.node(), {}, {}}, call);
      call.line(to_json(outcome));
      work.keep(std::move(outcome));
    });
  }

  Handle sweep(Config config) const {
    return begin([config = std::move(config), session = session_](const api::Call& call, Work& work) {
      session->sweep(config.node(), call, [&work](const study::Task& task, result::Result&& result) {
        work.keep({task, std::move(result), {}});
      });
    });
  }

  Handle plan(Config config) const {
    return begin([config = std::move(config), session = session_](const api::Call& call, Work&) {
      session->plan(config.node(), call);
    });
  }

  Handle replay(std::string trace, std::string policy, std::vector<std::string> settings,
                std::string selections) const {
    return begin([=, threads = threads_](const api::Call& call, Work&) {
      const api::ReplayedPolicy replayed =
          api::replay(trace, api::replay_choice(policy, settings), {threads, !selections.empty()}, call.cancel);
      if (!selections.empty()) {
        WholeFile out(selections);
        replay::write_selections(replayed.result, out.stream(), replayed.trace);
        out.commit();
      }
      call.line(to_json(replayed));
    });
  }

  // Writes the only trace of a run as a file. Line: {identity}.
  Handle write_trace(Config config, std::string path) const {
    return begin(
        [config = std::move(config), path = std::move(path), threads = threads_](const api::Call& call, Work&) {
          const study::Prepared prepared = study::prepare(config.node());
          if (prepared.run.traces.size() != 1) {
            throw UserError("a policy in Python is replayed on one trace, and the run has several: add `trace:`");
          }
          const auto trace = study::make_trace(prepared.run, prepared.run.traces.front());
          trace::write_trace(path, *trace, trace::Dtype::kBF16, threads);
          call.line({{"identity", trace::open_trace(path)->identity()}});
        });
  }

  // Line: {identity, findings} of a trace file.
  Handle check_trace(std::string path) const {
    return begin([path = std::move(path), threads = threads_](const api::Call& call, Work&) {
      call.line({{"identity", trace::open_trace(path)->identity()},
                 {"findings", trace::findings_json(trace::check_trace_file(path, threads))}});
    });
  }

  // Line: the charts of the experiments of some calls.
  Handle charts(const std::vector<Work*>& works) const {
    std::vector<api::SimulatedTask> outcomes;
    for (Work* const work : works) {
      for (api::SimulatedTask& outcome : work->outcomes()) {
        outcome.task.index = outcomes.size();
        outcomes.push_back(std::move(outcome));
      }
    }
    return begin([outcomes = std::move(outcomes), session = session_](const api::Call& call, Work&) {
      call.line(session->charts(outcomes));
    });
  }

  std::string catalogue() const {
    const DataFolder folder(session_->data());
    return text_of(api::catalogue_json());
  }

  // Vega as one script, which sets window.vega.
  std::string vega() const {
    const DataFolder folder(session_->data());
    return report::load_assets({}).vega;
  }

  std::string version() const { return session_->version(); }
  std::string data() const {
    const DataFolder folder(session_->data());
    return data_dir();
  }

 private:
  // The work happens in a thread that finds the session's data.
  Handle begin(Work::Body body) const {
    return std::make_unique<Work>([body = std::move(body), session = session_](const api::Call& call, Work& work) {
      const DataFolder folder(session->data());
      body(call, work);
    });
  }

  std::shared_ptr<api::Session> session_;
  int threads_ = 1;
};

void translate(std::exception_ptr failure) {
  const auto raise = [](const char* name, const std::string& text) {
    const py::object type = py::module_::import("kvcast._errors").attr(name);
    PyErr_SetString(type.ptr(), text.c_str());
  };
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const BrokenInvariant& error) {
    raise("BrokenInvariant", error.what());
  } catch (const UserError& error) {
    raise("Error", error.what());
  } catch (const OutputError& error) {
    raise("Error", error.what());
  } catch (const Cancelled& error) {
    raise("Cancelled", error.what());
  } catch (const NoMemory& error) {
    raise("Error", error.what());
  } catch (const std::bad_alloc&) {
    raise("Error", "too little memory for that input");
  }
}

PYBIND11_MODULE(_kvcast, m) {
  py::register_exception_translator(translate);
  m.attr("version") = version();
  m.def("validate_trace", [](const std::string& path) { trace::open_trace(path); });
  py::class_<Work>(m, "Work")
      .def(
          "__iter__", [](Work& work) -> Work& { return work; }, py::return_value_policy::reference_internal)
      .def("__next__", &Work::next)
      .def("close", &Work::close);
  py::class_<Config>(m, "Config").def(py::init<std::string, std::string, std::vector<std::string>>());
  py::class_<Session>(m, "Session")
      .def(py::init<const std::string&, int>(), py::arg("data"), py::arg("threads"))
      .def("run", &Session::run)
      .def("sweep", &Session::sweep)
      .def("plan", &Session::plan)
      .def("replay", &Session::replay)
      .def("write_trace", &Session::write_trace)
      .def("check_trace", &Session::check_trace)
      .def("charts", &Session::charts)
      .def("catalogue", &Session::catalogue)
      .def("vega", &Session::vega)
      .def_property_readonly("version", &Session::version)
      .def_property_readonly("data", &Session::data);
}

}  // namespace
}  // namespace kvcast::python
