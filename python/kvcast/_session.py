"""Sessions: configurations in, results out."""

import functools
import json
import math
import os
import tempfile

from . import _kvcast
from ._errors import Error
from ._policy import Policy, record
from ._progress import Progress
from ._result import Charts, Metrics, Plan, Result, Sweep
from ._trace import Trace


def _plain(value, key):
    """A value as JSON has it: of numpy, a path, or whole numbers that a column of floats holds."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise Error(f'{key or "the configuration"}: the key {name!r} is no text')
        return {name: _plain(one, f'{key}.{name}' if key else name) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, key) for one in value]
    if hasattr(value, 'tolist'):
        return _plain(value.tolist(), key)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Error(f'{key}: {value} is no number')
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Policy):
        raise Error(f'{key}: policies in Python are taken by run and replay alone')
    raise Error(f'{key or "the configuration"}: a {type(value).__name__} is no value of a configuration')


def _text(value, key=''):
    return json.dumps(_plain(value, key), allow_nan=False)


def _setting(key, value):
    """KEY=VALUE as --set takes it."""
    return f'{key}={value if isinstance(value, str) else _text(value, key)}'


def _config(config, changes):
    settings = [_setting(key, value) for key, value in changes.items()]
    if isinstance(config, str) and ('\n' in config or (':' in config and not os.path.exists(config))):
        return _kvcast.Config('yaml', config, settings)
    if isinstance(config, (str, os.PathLike)):
        return _kvcast.Config('file', os.fspath(config), settings)
    return _kvcast.Config('json', _text(config), settings)


def _split_policy(config, changes):
    """Takes a policy in Python out of a configuration: (policy or None, configuration, changes)."""
    given = changes.get('policy', config.get('policy') if isinstance(config, dict) else None)
    if not isinstance(given, Policy):
        return None, config, changes
    if isinstance(config, dict) and 'policy' in config:
        config = {**config, 'policy': 'full'}
    return given, config, {**changes, 'policy': 'full'}


class Session:
    """Runs experiments. Owns the folder of data and the replays that its calls share; sessions share nothing.

    data: a folder with configs/, reports/ and traces/; '' for the one that comes with the package.
    threads: 0 for all cores.
    """

    def __init__(self, data='', threads=0):
        self._session = _kvcast.Session(os.fspath(data), threads)

    @property
    def data(self):
        """The folder of data."""
        return self._session.data

    @property
    def version(self):
        """Identifies the code: results of equal versions and keys are equal."""
        return self._session.version

    @functools.cached_property
    def catalogue(self):
        """Lists of the names that configurations may have: models, machines, policies, metrics, questions."""
        return json.loads(self._session.catalogue())

    @functools.cached_property
    def _metrics(self):
        return Metrics(self.catalogue['metrics'])

    def run(self, config, *, timeline=False, progress=None, **changes):
        """Runs one experiment and returns its Result, the numbers of `kvcast run`.

        The policy may be an object of a class derived from kvcast.Policy. timeline=True keeps the spans of a decode step.
        """
        policy, config, changes = _split_policy(config, changes)
        if policy is not None:
            return self._run_policy(policy, config, changes, timeline, progress)
        work = self._session.run(_config(config, changes), timeline)
        with Progress(progress, 'simulating') as shown:
            data = shown.last(work)
        return Result(self, work, data)

    def _run_policy(self, policy, config, changes, timeline, progress):
        with tempfile.TemporaryDirectory(prefix='kvcast-') as folder:
            path = os.path.join(folder, 'trace.safetensors')
            window = {'trace.window': policy.window} if policy.window else {}
            work = self._session.write_trace(_config(config, {**changes, **window}), path)
            identity = json.loads(next(work))['identity']
            recorded = record(policy, Trace.open(path), os.path.join(folder, 'selections.jsonl'), identity)
            others = {key: value for key, value in changes.items() if key.split('.')[0] not in ('policy', 'trace')}
            result = self.run(config, timeline=timeline, progress=progress,
                              **{**others, 'policy': recorded, 'trace': {'file': path}})
            result.policy = policy
            return result

    def sweep(self, config, *, progress=None, **changes):
        """Runs the grid of a sweep: an iterator of Results in order of completion, with .frame() and .charts()."""
        return Sweep(self, self._session.sweep(_config(config, changes)), progress)

    def plan(self, config, *, progress=None, **changes):
        """Answers the questions of `plan:`; a list of Answers."""
        work = self._session.plan(_config(config, changes))
        with Progress(progress, 'answering') as shown:
            return Plan(self._drawing, [line for line in shown.lines(work) if 'answer' in line])

    def replay(self, trace, policy, *, selections='', **parameters):
        """Replays a policy over a trace without hardware: how close its attention is to full attention.

        trace: a kvcast.Trace or a file; policy: a name, a YAML file, a dict with a name, or a kvcast.Policy; parameters: of the policy.
        selections: a file to which the selections are written. Returns the dict of `kvcast replay --json`.
        """
        with tempfile.TemporaryDirectory(prefix='kvcast-') as folder:
            path = os.fspath(trace) if not isinstance(trace, Trace) else trace.file_in(folder)
            if isinstance(policy, Policy):
                identity = json.loads(next(self._session.check_trace(path)))['identity']
                policy_parameters = record(policy, Trace.open(path), os.path.join(folder, 'selections.jsonl'), identity)
            elif isinstance(policy, dict):
                policy_parameters = dict(policy)
            elif isinstance(policy, (str, os.PathLike)):
                policy_parameters = {'name': os.fspath(policy)}
            else:
                policy_parameters = {}
            name = policy_parameters.pop('name', None)
            if not isinstance(name, str):
                raise Error(f'policy: a name, a file, a dict with a name or a kvcast.Policy, not {policy!r}')
            parameters = {**policy_parameters, **parameters}
            settings = [_setting(key, value) for key, value in parameters.items()]
            answer = json.loads(next(self._session.replay(path, name, settings, os.fspath(selections))))
            if isinstance(policy, Policy):
                answer['policy'] = type(policy).__name__
            return answer

    def write_trace(self, config, path, **changes):
        """Writes the only trace of a run, made from its recipe, as a file, and returns it as a Trace."""
        next(self._session.write_trace(_config(config, {'policy': 'full', **changes}), os.fspath(path)))
        return Trace.open(path)

    def check_trace(self, trace):
        """Lists errors and unusual values of a trace, as `kvcast trace check` says it: [{severity, where, what}]."""
        with tempfile.TemporaryDirectory(prefix='kvcast-') as folder:
            path = os.fspath(trace) if not isinstance(trace, Trace) else trace.file_in(folder)
            return json.loads(next(self._session.check_trace(path)))['findings']

    def _drawing(self):
        return self._session.vega(), os.path.abspath(os.path.join(self.data, 'reports', 'print', 'canvas.js'))

    def _charts(self, works):
        return Charts(self._drawing, json.loads(next(self._session.charts(works))))
