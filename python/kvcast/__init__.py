"""Forecasts what a KV-cache policy does to a long-context LLM: time, memory and accuracy, on any machine.

    import kvcast
    result = kvcast.run({'model': 'llama-3.1-8b', 'hardware': 'h100-sxm', 'policy': 'quest',
                         'workload': {'prompt_tokens': 32768, 'decode_tokens': 128}})
    result['decode.tokens_per_s'], result.interval('decode.tokens_per_s')

A configuration is a dict, YAML text or the path of a file; its keys are those of the command `kvcast`. Keyword arguments change
single keys: kvcast.run('run.yaml', **{'policy.budget': 512}).
"""

from ._errors import BrokenInvariant, Cancelled, Error
from ._kvcast import version as __version__
from ._policy import Policy
from ._result import Answer, Chart, Plan, Result, Sweep
from ._session import Session
from ._trace import Trace

__all__ = ['Answer', 'BrokenInvariant', 'Cancelled', 'Chart', 'Error', 'Plan', 'Policy', 'Result', 'Session', 'Sweep', 'Trace',
           'hardware', 'metrics', 'models', 'plan', 'policies', 'replay', 'run', 'sweep',
           'write_trace']

_default = None


def _session():
    """The session of the module's functions, made when one of them is first called."""
    global _default
    if _default is None:
        _default = Session()
    return _default


def run(config, *, timeline=False, progress=None, **changes):
    """Runs one experiment; see Session.run."""
    return _session().run(config, timeline=timeline, progress=progress, **changes)


def sweep(config, *, progress=None, **changes):
    """Runs the grid of a sweep; see Session.sweep."""
    return _session().sweep(config, progress=progress, **changes)


def plan(config, *, progress=None, **changes):
    """Answers the questions of a plan; see Session.plan."""
    return _session().plan(config, progress=progress, **changes)


def replay(trace, policy, *, selections='', **parameters):
    """Replays a policy over a trace; see Session.replay."""
    return _session().replay(trace, policy, selections=selections, **parameters)


def write_trace(config, path, **changes):
    """Writes the trace of a run as a file; see Session.write_trace."""
    return _session().write_trace(config, path, **changes)


def metrics():
    """The table of metrics: [{path, alias, unit, better, label, definition, ...}]."""
    return _session().catalogue['metrics']


def models():
    """The models under configs/models."""
    return _session().catalogue['models']


def hardware():
    """The machines under configs/hardware, with every number's origin and source."""
    return _session().catalogue['machines']


def policies():
    """The policies with their parameters."""
    return _session().catalogue['policies']
