// The validation page: one section per suite, with its budgets, its two figures and its table.
const page = JSON.parse(document.getElementById('data').textContent);
const figures = [];

const verdicts = {
  agrees: 'within the tolerance of its case',
  bracketed: 'the setting is under-specified, and its readings span the value',
  fitted: 'within tolerance, with a parameter whose source names this very value',
  off: 'outside the tolerance',
  unanswered: 'no model here can answer; the table says why',
  unmeasured: 'needs a measurement on a machine that is not available here',
};

const verdictWords = { agrees: 'within tolerance', bracketed: 'between readings of their setting', fitted: 'fitted to the value', off: 'outside tolerance', unanswered: 'without a model', unmeasured: 'not measured here' };

// Rows for reading and for Vega: `expected` is the field that the suite names so.
function caseRows(suite) {
  return suite.cases.map((row) => ({ ...row, expected: row[suite.expected_is] }));
}

function tally(suites) {
  const counts = {};
  for (const suite of suites) for (const row of suite.cases) counts[row.verdict] = (counts[row.verdict] || 0) + 1;
  return counts;
}

function countsText(counts) {
  return Object.keys(verdicts).filter((name) => counts[name]).map((name) => formatCount(counts[name]) + ' ' + verdictWords[name]).join(', ');
}

function percent(value) { return formatNumber(100 * value, value < 1 ? ',.1f' : ',.0f') + ' %'; }

function drawHead() {
  const total = page.suites.reduce((sum, suite) => sum + suite.cases.length, 0);
  const missed = page.suites.flatMap((suite) => suite.budgets.filter((budget) => !budget.passed));
  document.getElementById('lead').append(
    plural(total, 'case') + ' in ' + plural(page.suites.length, 'suite') + ': ' + (countsText(tally(page.suites)) || 'none') + '. ' +
    (missed.length ? plural(missed.length, 'budget') + ' missed.' : 'No budget is missed.') +
    ' Averages take only cases whose value no parameter was chosen for.');
  document.getElementById('findings').append(...page.suites.map((suite) => {
    const all = suite.summary.find((part) => part.group === '');
    const judged = all && all.n > 0;
    return element('div', { class: 'finding' }, element('h2', {}, element('a', { href: '#suite-' + suite.name }, suite.name)),
      element('p', { class: 'finding-number' }, judged ? 'median error ' + percent(all.median) : suite.status ? 'not measured here' : 'nothing to average'),
      element('p', { class: 'finding-detail' }, judged
        ? 'over ' + plural(all.n, 'held-out number') + ', p90 ' + percent(all.p90) + ', bias ' + formatNumber(100 * all.bias, '+,.1f') + ' %\n' + countsText(tally([suite]))
        : suite.status || countsText(tally([suite]))));
  }));
}

const kLongestError = 1;  // errors beyond 100 % end at the edge, with their number

// Median and 90th percentile of the errors of each part on one scale, with its name and its numbers.
function errorChart(parts, label) {
  const most = Math.min(kLongestError, Math.max(...parts.map(({ p90 }) => p90), 0.1)), at = (error) => (100 * Math.min(error, most) / most).toFixed(2) + '%';
  const ticks = [0, 0.5, 1].map((share) => element('span', { style: 'left:' + 100 * share + '%' }, formatNumber(100 * share * most, ',.3~r') + (share === 1 ? ' %' : '')));
  const line = (part) => element('div', { class: 'error-row' }, element('span', { class: 'error-name' }, label(part), element('span', { class: 'quiet' }, formatCount(part.n))),
    element('span', { class: 'error-track' }, element('span', { class: 'error-span', style: 'left:' + at(part.median) + ';width:calc(' + at(part.p90) + ' - ' + at(part.median) + ')' }), element('span', { class: 'error-dot', style: 'left:' + at(part.median) })),
    element('span', { class: 'error-value' }, percent(part.median) + ' ', element('span', { class: 'quiet' }, 'p90 ' + percent(part.p90))));
  return element('div', { class: 'errors' }, element('div', { class: 'error-row error-head' }, element('span', { class: 'error-name' }, 'numbers held out'), element('span', { class: 'error-track' }, ticks), element('span', { class: 'error-value' }, 'median error')), parts.map(line));
}

// One line for each suite that has numbers to average.
function drawOverview() {
  const parts = page.suites.map((suite) => ({ ...suite.summary.find((part) => part.group === ''), name: suite.name })).filter(({ n }) => n > 0).sort((a, b) => a.median - b.median);
  if (parts.length < 2) return;
  document.getElementById('findings').before(element('figure', { id: 'overview' }, element('div', { class: 'figure-head' }, element('h2', {}, 'Errors of predictions by suite')),
    errorChart(parts, (part) => element('a', { href: '#suite-' + part.name }, part.name)), element('p', { class: 'note' }, 'The dot is the median of the relative errors; the line ends at the 90th percentile.')));
}

function groupFigure(suite) {
  const parts = suite.summary.filter((part) => part.n > 0 && part.group !== '').sort((a, b) => a.median - b.median);
  return parts.length < 2 ? '' : element('figure', { class: 'groups' }, element('div', { class: 'figure-head' }, element('h2', {}, 'Errors by group')), errorChart(parts, (part) => element('span', {}, part.group)),
    element('p', { class: 'note' }, 'The dot is the median of the relative errors; the line ends at the 90th percentile. The number after a name counts its cases.'));
}

// A table under a line that summarises it; open if it is short or the reader must see it.
function folded(title, open, table) {
  return element('details', { class: 'folded', open }, element('summary', {}, title), element('div', { class: 'table-frame' }, table));
}

const fewRows = 12;

function budgetList(suite) {
  if (suite.budgets.length === 0) return '';
  const missed = suite.budgets.filter((budget) => !budget.passed).length;
  const title = plural(suite.budgets.length, 'budget') + ': ' + (missed ? formatCount(missed) + ' missed' : 'none missed');
  return folded(title, missed > 0 || suite.budgets.length <= fewRows, element('table', { class: 'budgets' },
    element('thead', {}, element('tr', {}, ['Budget', 'Value', 'Allowed', 'Outcome'].map((name, i) => element('th', { scope: 'col', class: i === 1 || i === 2 ? 'number' : '' }, name)))),
    element('tbody', {}, suite.budgets.map((budget) => element('tr', {}, element('td', {}, budget.name),
      element('td', { class: 'number' }, budget.value === null ? 'none' : formatNumber(budget.value, ',.3~r') + ' ' + budget.unit),
      element('td', { class: 'number' }, (budget.at_least ? 'at least ' : 'at most ') + formatNumber(budget.limit, ',.3~r') + ' ' + budget.unit),
      element('td', { class: budget.passed ? '' : 'missed' }, budget.value === null ? 'no data' : budget.passed ? 'met' : 'missed'))))));
}

// Errors and interval coverage of the numbers of a group that are based on times; for suites that also have numbers
// based on counts alone.
function timesOf(part) {
  const { times, intervals } = part;
  return [times.n ? formatCount(times.n) : '', times.n ? percent(times.median) : '',
    intervals.costs.n ? formatCount(intervals.costs.covered) + ' of ' + formatCount(intervals.costs.n) : '',
    intervals.costs.n && intervals.costs.median_width !== null ? formatNumber(intervals.costs.median_width, ',.2f') : ''];
}

function summaryTable(suite) {
  const rows = suite.summary.filter((part) => part.n > 0);
  if (rows.length < 2) return '';
  const apart = rows.some((part) => part.times && part.times.n < part.n);
  const heads = ['Group', 'Held-out numbers', 'Median error', 'p90', 'Largest', 'Bias'].concat(apart ? ['Based on times', 'Median of these', 'In interval', 'High / low'] : []);
  return folded('Errors by group, in numbers', rows.length <= fewRows, element('table', { class: 'summary' },
    element('thead', {}, element('tr', {}, heads.map((name, i) => element('th', { scope: 'col', class: i ? 'number' : '' }, name)))),
    element('tbody', {}, rows.map((part) => element('tr', {}, element('td', {}, part.group || 'all'),
      [formatCount(part.n), percent(part.median), percent(part.p90), percent(part.max), formatNumber(100 * part.bias, '+,.1f') + ' %'].concat(apart ? timesOf(part) : [])
        .map((text) => element('td', { class: 'number' }, text)))))));
}

// Errors of predicted scores by table, in points, with those of predictions that need no model.
function scoresTable(suite) {
  const detail = suite.detail || {};
  const rows = Array.isArray(detail)
    ? detail.filter((row) => row.error).map((row) => ['new ' + row.novelty + ', ' + row.benchmark, row.n, row.kendall.evidence, row.error.evidence, row.error.simulation, row.error.lookup, row.error.full, row.within])
    : Object.entries(detail.by_table || {}).filter(([, row]) => row.n).map(([name, row]) => [name, row.n, row.kendall, row.mae, row.mae_simulated, row.mae_lookup, row.mae_full, row.within]);
  if (rows.length === 0) return '';
  const heads = ['Table', 'Cells', 'Kendall', 'Mean error, points', 'Simulation alone', 'Lookup in published rows', 'Full score', 'In interval'];
  const text = (value, i) => (value === undefined || value === null ? '' : i === 1 ? formatCount(value) : i === 7 ? percent(value) : formatNumber(value, i === 2 ? ',.2f' : ',.1f'));
  return folded('Errors by table, and of predictions without a model', true, element('table', { class: 'summary scores' },
    element('thead', {}, element('tr', {}, heads.map((name, i) => element('th', { scope: 'col', class: i ? 'number' : '' }, name)))),
    element('tbody', {}, rows.map((row) => element('tr', {}, row.map((value, i) => element('td', { class: i ? 'number' : '' }, i ? text(value, i) : value)))))));
}

function buildFigure(suite, chart) {
  const figure = { suite, chart, width: 0, view: null, plot: element('div', { class: 'plot', id: 'plot-' + suite.name + '-' + chart.name }) };
  figures.push(figure);
  return element('figure', { id: 'figure-' + suite.name + '-' + chart.name }, element('div', { class: 'figure-head' }, element('h2', {}, chart.spec.usermeta.title)),
    figure.plot, element('figcaption', {}, element('p', {}, chart.spec.usermeta.caption)));
}

function drawFigures(theme) {
  for (const figure of figures) {
    figure.width = figure.plot.clientWidth || figure.width || 520;
    if (figure.view) figure.view.finalize();
    figure.plot.replaceChildren();
    const data = figure.chart.spec.data.map((set) => (set.name === 'cases' ? { ...set, values: caseRows(figure.suite) } : set));
    figure.view = new vega.View(vega.parse({ ...figure.chart.spec, data }, page.themes[theme]), { renderer: 'svg', container: figure.plot, hover: true });
    figure.view.signal('page_width', figure.width).signal('expected_is', figure.suite.expected_is);
    if (figure.chart.name === 'validation_scatter') figure.view.signal('units', unitsText(figure.suite));
    if (figure.chart.name === 'validation_residuals') figure.view.signal('size_unit', figure.suite.size_unit);
    figure.view.tooltip(showTooltip);
    figure.view.run();
  }
}

// The unit of the drawn numbers, or a note that the cases of the suite have many units.
function unitsText(suite) {
  const units = [...new Set(suite.cases.filter((row) => row.predicted > 0 && row[suite.expected_is] > 0).map((row) => row.unit))];
  return units.length <= 3 ? units.join(' or ') : 'in ' + units.length + ' units, each in its case\'s';
}

function drawable(suite, chart) {
  return caseRows(suite).some((row) => row.predicted > 0 && row.expected > 0 && (chart.name !== 'validation_residuals' || row.size > 0));
}

function buildSuite(suite) {
  const charts = page.charts.filter((chart) => drawable(suite, chart)).map((chart) => buildFigure(suite, chart));
  document.getElementById('suites').append(element('section', { id: 'suite-' + suite.name, class: 'suite' },
    element('h2', { class: 'suite-name' }, suite.name), element('p', { class: 'lead' }, suite.question),
    suite.status ? element('p', { class: 'empty' }, suite.status) : '',
    groupFigure(suite), element('div', { class: 'figure-pair' }, charts), summaryTable(suite), scoresTable(suite), budgetList(suite), buildTable(suite)));
}

function start() {
  drawHead();
  drawOverview();
  page.suites.forEach(buildSuite);
  document.getElementById('colophon').append(element('p', {}, 'Made by kvcast ' + page.kvcast + ' from validation.json alone. ', element('code', {}, 'tables/validation.csv'), ' next to this page contains every case.'),
    element('dl', { class: 'origins' }, Object.entries(verdicts).map(([name, meaning]) => [element('dt', {}, name), element('dd', {}, meaning)]).flat()),
    page.sweep ? element('p', {}, element('a', { href: 'index.html' }, 'Report of the sweep in the same folder')) : '');
  document.getElementById('theme').addEventListener('click', () => {
    document.documentElement.dataset.theme = currentTheme() === 'dark' ? 'light' : 'dark';
    drawFigures(currentTheme());
  });
  drawFigures(currentTheme());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawFigures(currentTheme()));
  onResize(document.getElementById('suites'), () => {
    for (const figure of figures) {
      const width = figure.plot.clientWidth;
      if (width === 0 || width === figure.width) continue;
      figure.width = width;
      figure.view.signal('page_width', width).run();
    }
  });
  window.addEventListener('beforeprint', () => drawFigures('light'));
  window.addEventListener('afterprint', () => drawFigures(currentTheme()));
  document.documentElement.dataset.ready = 'true';
}
