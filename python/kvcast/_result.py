"""Results: mappings by the paths of metrics that show themselves in a notebook."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence

from ._draw import draw
from ._progress import Progress

# The metrics that a table begins with; the others are folded away.
_FIRST = ('decode.tokens_per_s', 'decode.tpot_s.mean', 'prefill.ttft_s', 'request.requests_per_s', 'memory.hbm_peak_bytes',
          'memory.dram_peak_bytes', 'accuracy.recall_mass_mean', 'accuracy.task.share_of_full', 'score.share_of_full',
          'serving.requests_per_s', 'serving.ttft_s.p99', 'serving.tpot_s.p99', 'serving.slo_share', 'serving.goodput_per_s',
          'serving.preemptions')
_PREFIXES = ((1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k'), (1, ''), (1e-3, 'm'), (1e-6, 'u'), (1e-9, 'n'))


def number_text(value, unit):
    """A number with its unit as people write it: "41.3 ms", "14.2 GB", "97.1 %"."""
    if unit == 'share':
        return f'{100 * value:.3g} %'
    base, _, rest = unit.partition('/')
    if base in ('s', 'seconds', 'bytes') and value:
        scale, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s), _PREFIXES[-1])
        scale, prefix = (1, '') if base == 'bytes' and scale < 1 or base != 'bytes' and scale > 1 else (scale, prefix)
        name = {'bytes': 'B', 'seconds': 's'}.get(base, base)
        return f'{value / scale:.4g} {prefix}{name}' + (f'/{rest}' if rest else '')
    return f'{value:.4g} {unit}' if abs(value) < 9999.5 else f'{value:,.0f} {unit}'


class Metrics:
    """The table of metrics by path and by alias."""

    def __init__(self, table):
        self.by_path = {metric['path']: metric for metric in table}
        self._by_name = {**{m['alias']: m for m in table if m['alias']}, **self.by_path}

    def __getitem__(self, name):
        if name not in self._by_name:
            raise KeyError(f'no metric is called {name!r}; kvcast.metrics() lists them')
        return self._by_name[name]


def _at(data, path):
    for name in path.split('.'):
        if not isinstance(data, dict) or name not in data:
            return None
        data = data[name]
    return None if isinstance(data, (dict, list, str)) else data


def _flat(settings, prefix='config'):
    """Settings by their dotted names."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f'{prefix}.{key}')
        else:
            yield f'{prefix}.{key}', value


class Result(Mapping):
    """One experiment: result['decode.tokens_per_s'] and every other metric that it has.

    .data is the JSON of `kvcast run --json`, .swept the values of a sweep that lead to it.
    """

    def __init__(self, session, work, data, swept=None, index=0):
        self.data, self.swept, self.index = data, swept or {}, index
        self.policy = None  # an object, if the policy is one in Python
        self._session, self._work = session, work

    @property
    def status(self):
        """ok, oom, or failed, in which case .error says why."""
        return self.data['status']

    @property
    def error(self):
        return self.data.get('error')

    @property
    def settings(self):
        """The resolved configuration by dotted keys: {'config.policy.budget': 512, ...}."""
        return dict(_flat(self.data['config']))

    def __getitem__(self, path):
        metric = self._session._metrics[path]
        value = _at(self.data, metric['path'])
        if value is None:
            reason = self.error or ('it does not fit in memory' if self.data.get('oom') else 'it does not apply')
            raise KeyError(f'this result has no {metric["path"]}: {reason}')
        return value

    def __iter__(self):
        return (path for path in self._session._metrics.by_path if _at(self.data, path) is not None)

    def __len__(self):
        return sum(1 for _ in self)

    def interval(self, path):
        """(low, high), or None for a number without an interval."""
        found = self.data.get('intervals', {}).get(self._session._metrics[path]['path'])
        return tuple(found) if found else None

    def origin(self, path):
        """The origin of the number: exact, measured, fitted, datasheet, assumed, extrapolated."""
        return self.data.get('origin', {}).get(self._session._metrics[path]['path'])

    def unit(self, path):
        return self._session._metrics[path]['unit']

    def definition(self, path):
        return self._session._metrics[path]['definition']

    def charts(self):
        """The charts of a report of this result; those of a sweep's result are of the whole sweep."""
        return self._session._charts([self._work])

    @property
    def title(self):
        config = self.data['config']
        def named(key):
            value = config.get(key, '')
            return value.get('name', '') if isinstance(value, dict) else str(value)
        policy = repr(self.policy) if self.policy is not None else named('policy')
        return f'{policy} on {named("hardware")}, {named("model")}'

    def _rows(self, paths):
        for path in paths:
            value, unit = self[path], self.unit(path)
            interval = self.interval(path)
            between = ' to '.join(number_text(end, unit) for end in interval) if interval else ''
            yield path, number_text(value, unit), between, self.origin(path) or ''

    def __repr__(self):
        if self.status == 'failed':
            return f'<kvcast.Result: {self.error}>'
        rows = self._rows(path for path in _FIRST if path in self)
        fit = '' if self.status == 'ok' else ', does not fit in memory'
        return '\n'.join([f'<kvcast.Result of {self.title}{fit}>'] +
                         [f'  {path:32} {value:>16}  {between}' for path, value, between, _ in rows])

    def _table(self, paths):
        cells = ''.join(
            f'<tr title="{html.escape(self.definition(path))}"><td style="text-align:left"><code>{path}</code></td><td>{value}</td>'
            f'<td>{between}</td><td>{origin}</td></tr>' for path, value, between, origin in self._rows(paths))
        return f'<table><tr><th>metric</th><th>value</th><th>interval</th><th>origin</th></tr>{cells}</table>'

    def _repr_html_(self):
        title = f'<b>{html.escape(self.title)}</b>'
        if self.status == 'failed':
            return f'{title}<p>{html.escape(self.error)}</p>'
        oom = self.data.get('oom')
        note = ''
        if oom:
            note = f'<p>Does not fit: {html.escape(oom["requested_for"])} in {html.escape(oom["pool"])}'
            note += f'; {html.escape(oom["nearest"]["change"])} would.</p>' if 'nearest' in oom else '.</p>'
        first = [path for path in _FIRST if path in self]
        rest = [path for path in self if path not in first]
        return (f'{title}{note}{self._table(first)}<details><summary>{len(rest)} more metrics</summary>{self._table(rest)}</details>')


class Sweep(Iterator):
    """The results of a sweep, in order of completion. What was iterated over stays in .results."""

    def __init__(self, session, work, progress=None):
        self.results = []
        self._session, self._work = session, work
        self._progress = Progress(progress, 'experiments finished')
        self._lines = self._progress.lines(work)

    def __next__(self):
        for line in self._lines:
            if 'result' in line:
                self.results.append(Result(self._session, self._work, line['result'], line['swept'], line['index']))
                return self.results[-1]
            if 'nearest' in line:
                next(r for r in self.results if r.index == line['index']).data['nearest'] = line['nearest']
        self._progress.__exit__()
        raise StopIteration

    def close(self):
        """Stops the work; results that are there stay."""
        self._work.close()

    def wait(self):
        """All results in the order of the sweep."""
        for _ in self:
            pass
        return sorted(self.results, key=lambda result: result.index)

    def frame(self):
        """All results as a pandas DataFrame: a column for each setting (config.*) and each metric.

        .attrs['units'] and .attrs['definitions'] describe the columns of metrics.
        """
        import pandas
        results = self.wait()
        table = self._session._metrics.by_path
        paths = [path for path in table if any(path in result for result in results)]
        rows = [{**result.settings, 'status': result.status, **result} for result in results]
        settings = dict.fromkeys(key for row in rows for key in row if key.startswith('config.'))
        frame = pandas.DataFrame(rows, columns=[*settings, 'status', *paths],
                                 index=pandas.Index([result.index for result in results], name='index'))
        frame.attrs['units'] = {path: table[path]['unit'] for path in paths}
        frame.attrs['definitions'] = {path: table[path]['definition'] for path in paths}
        return frame

    def charts(self):
        """The charts of a report of these results."""
        self.wait()
        return self._session._charts([self._work])

    def _repr_html_(self):
        results = self.wait()
        swept = list(dict.fromkeys(key for result in results for key in result.swept))
        paths = [path for path in _FIRST if any(path in result for result in results)]
        head = ''.join(f'<th>{html.escape(name)}</th>' for name in [*swept, *paths])
        body = ''
        for result in results:
            cells = [html.escape(str(result.swept.get(key, ''))) for key in swept]
            if result.status == 'ok':
                cells += [number_text(result[path], result.unit(path)) if path in result else '' for path in paths]
            else:
                cells += [html.escape(result.error or f'does not fit; {result.data.get("nearest", "")}')]
            body += '<tr>' + ''.join(f'<td>{cell}</td>' for cell in cells) + '</tr>'
        return f'<table><tr>{head}</tr>{body}</table>'


class Answer(Mapping):
    """The answer to a question of a plan: the JSON of `kvcast plan --json`, with .text, .details and .chart."""

    def __init__(self, vega, line):
        self.data = line['answer']
        self.kind, self.question, self.text = (self.data[key] for key in ('kind', 'question', 'text'))
        self.details = self.data['details']
        self.chart = Chart(vega, self.kind, self.question, self.text, line['spec']) if line['spec'] else None

    def __getitem__(self, key):
        return self.data[key]

    def __iter__(self):
        return iter(self.data)

    def __len__(self):
        return len(self.data)

    def __repr__(self):
        return '\n  '.join([self.question, self.text, *self.details])

    def _repr_html_(self):
        details = ''.join(f'<li>{html.escape(line)}</li>' for line in self.details)
        return f'<p><i>{html.escape(self.question)}</i></p><p><b>{html.escape(self.text)}</b></p><ul>{details}</ul>'


class Plan(list):
    """Answers, in the order of the questions."""

    def __init__(self, vega, lines):
        super().__init__(Answer(vega, line) for line in lines)

    def __repr__(self):
        return '\n'.join(map(repr, self))

    def _repr_html_(self):
        return '<hr>'.join(answer._repr_html_() for answer in self)


class Chart:
    """A Vega 5 specification with its data; JupyterLab draws it, and svg() where Node.js is installed."""

    def __init__(self, vega, name, title, caption, spec):
        self.name, self.title, self.caption, self.spec = name, title, caption, spec
        self._vega = vega  # the parts of _draw.draw

    def svg(self):
        """The chart as SVG; None without Node.js."""
        return draw(self.spec, self._vega)

    def save(self, path):
        """Writes the specification (.json) or the drawing (.svg)."""
        text = json.dumps(self.spec) if str(path).endswith('.json') else self.svg()
        if text is None:
            raise RuntimeError('drawing needs Node.js; a .json can be written without')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)

    def __repr__(self):
        return f'<kvcast.Chart {self.name}: {self.title}>'

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {'application/vnd.vega.v5+json': self.spec, 'text/plain': repr(self)}
        drawn = self.svg()
        if drawn is not None:
            bundle['image/svg+xml'] = drawn
        return bundle


class Charts(Sequence):
    """Charts by number or by name."""

    def __init__(self, vega, entries):
        self._charts = [Chart(vega, **entry) for entry in entries]

    def __getitem__(self, which):
        if isinstance(which, str):
            for chart in self._charts:
                if chart.name == which:
                    return chart
            raise KeyError(f'no chart is called {which!r}; there are {", ".join(chart.name for chart in self._charts)}')
        return self._charts[which]

    def __len__(self):
        return len(self._charts)

    def __repr__(self):
        return '\n'.join(f'{chart.name:28} {chart.title}' for chart in self._charts)
