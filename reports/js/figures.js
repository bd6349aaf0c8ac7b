// The figures: one Vega view each, fed once, then driven by signals.
const figures = [];

// The specification with the store's rows in the data sets that wait for them, and with logarithmic scales where asked:
// no signal can change the type of a scale.
function filledSpec({ spec, axis }) {
  const rows = (name) => tableRows(name, name === 'experiments' ? columnTest(spec) : () => true);
  const data = spec.data.map((set) => (set.name in page.tables && !set.source ? { ...set, values: rows(set.name) } : set));
  const scales = spec.scales.map((scale) => (axis === 'log' ? { ...scale, ...spec.usermeta.log[scale.name] } : scale));
  return { ...spec, data, scales };
}

function figureSignals(figure) {
  const signals = { page_width: figure.width };
  for (const { signal } of axes) signals[signal] = selection[signal];
  signals.hidden = selection.hidden;
  signals.cost = page.defaults.cost;
  if (figure.own.x_axis === 'machine') signals.hardware = null;  // the machines side by side
  return { ...signals, ...figure.own, ...(figure.axis ? { axis: figure.axis } : {}) };
}

function newView(figure, theme, options) {
  const view = new vega.View(vega.parse(filledSpec(figure), page.themes[theme]), options);
  for (const [name, value] of Object.entries(figureSignals(figure))) view.signal(name, value);
  return view.signal('paper', page.themes[theme].background);
}

function buildFigures() {
  const section = document.getElementById('figures');
  page.charts.forEach(({ name, spec }, index) => {
    const meta = spec.usermeta;
    const figure = { name, spec, meta, newView, own: {}, width: 0, view: null };
    for (const { signal } of meta.controls || []) figure.own[signal] = firstChoice(spec, signal);
    figure.plot = element('div', { class: 'plot', id: 'plot-' + name });
    figure.title = element('span');
    figure.caption = element('p');
    figure.notice = element('p', { class: 'empty', hidden: true });
    figure.controls = element('span', { class: 'controls' });
    figure.note = element('p', { class: 'note' });
    figure.save = element('button', { type: 'button', class: 'quiet-button', title: 'Download this figure as SVG, in light colours', 'aria-label': 'Download figure ' + (index + 1) + ' as SVG', onclick: () => saveSvg(figure) }, 'SVG');
    section.append(element('figure', { id: 'figure-' + name },
      element('div', { class: 'figure-head' },
        element('h2', {}, element('span', { class: 'figure-number' }, 'Figure ' + (index + 1)), figure.title), figure.controls, figure.save),
      figure.plot, figure.notice,
      element('figcaption', {}, figure.caption, figure.note)));
    if (spec.signals.some((signal) => signal.name === 'zoomed')) zoomByKeys(figure.plot, () => figure.view);
    figures.push(figure);
  });
}

// The initial value of a figure's control: the page's own choice where it has one.
function firstChoice(spec, signal) {
  return signal in page.defaults ? page.defaults[signal] : spec.signals.find(({ name }) => name === signal).value;
}

// Recreates the views, as for another theme. Runs synchronously, because a browser that prints does not wait.
function drawFigures(theme) {
  for (const figure of figures) drawFigure(figure, theme);
}

function drawFigure(figure, theme) {
  figure.width = figure.plot.clientWidth || figure.width || 1000;
  if (figure.view) figure.view.finalize();
  figure.plot.replaceChildren();
  figure.axis = figure.own.axis === 'auto' ? figure.axis || 'linear' : figure.own.axis;
  figure.view = newView(figure, theme, { renderer: 'svg', container: figure.plot, hover: true });
  figure.view.tooltip(showTooltip);
  figure.view.run();
  if (figure.axis !== wantedAxis(figure)) {
    figure.axis = wantedAxis(figure);
    drawFigure(figure, theme);
    return;
  }
  describeFigure(figure);
}

// An automatic axis is logarithmic where the values drawn span more than a decade.
function wantedAxis(figure) {
  if (figure.own.axis !== 'auto') return figure.own.axis;
  const values = drawnRows(figure).map((row) => row.shown).filter((value) => value > 0);
  return Math.max(...values) > 10 * Math.min(...values) ? 'log' : 'linear';
}

function updateFigures() {
  for (const figure of figures) {
    for (const [name, value] of Object.entries(figureSignals(figure))) figure.view.signal(name, value);
    figure.view.run();
    if (figure.axis !== wantedAxis(figure)) {
      drawFigure(figure, currentTheme());
      continue;
    }
    describeFigure(figure);
  }
}

function resizeFigures() {
  for (const figure of figures) {
    const width = figure.plot.clientWidth;
    if (!figure.view || width === 0 || width === figure.width) continue;
    figure.width = width;
    figure.view.signal('page_width', width).run();
  }
}

function drawnRows(figure) { return figure.view.data(figure.meta.drawn); }

// Returns a text of the figure, as reworded by the chosen options of its controls.
function worded(figure, text) {
  const chosen = (figure.meta.controls || []).map(({ signal, options = [] }) => options.find(({ value }) => value === figure.own[signal]));
  const changes = chosen.flatMap((option) => Object.entries((option && option.rewords) || {}));
  const reworded = changes.reduce((done, [from, to]) => done.replace(from, to), text);
  return page.defaults.cost ? reworded.replace('the KV budget', page.defaults.cost) : reworded;
}

// The texts around a figure. Its note has the reason where the plot is empty, otherwise the origins of its numbers.
function describeFigure(figure) {
  figure.title.textContent = worded(figure, figure.meta.title);
  figure.caption.textContent = worded(figure, figure.meta.caption);
  figure.view.description(figure.title.textContent + '; its numbers are in table 1');
  const rows = drawnRows(figure);
  const empty = rows.length === 0;
  figure.plot.classList.toggle('is-empty', empty);
  figure.notice.hidden = !empty;
  figure.save.hidden = empty;
  figure.notice.textContent = empty ? [figure.meta.empty, ratioNote(figure)].join(' ').trim() : '';
  drawControls(figure);
  const notes = empty ? [] : [selectionNote(figure.meta), elsewhereNote(figure.meta, rows), ratioNote(figure), missingNote(figure, rows), ...originNotes(figure, rows), shareNote(figure.meta, rows)];
  figure.note.replaceChildren(...notes.filter(Boolean).flatMap((note) => [...[note].flat(), ' ']));
}

function selectionNote(meta) {
  const parts = [];
  if (meta.batch_rule && distinctValues('batch').length > 1) {
    parts.push(selection.batch === null ? 'Batch: for every point the fastest that fits.' : 'Batch ' + selection.batch + '.');
  }
  if (meta.budget_rule && selection.budget !== null) parts.push(capital(page.defaults.cost || 'budget') + ': ' + showBudget(selection.budget) + '.');
  return parts.join(' ');
}

// A figure of single experiments shows others rather than none, with a note.
function elsewhereNote(meta, rows) { return meta.elsewhere && !rows.some((row) => row.here) ? meta.elsewhere : ''; }

// The machines and contexts at which full KV, the reference of ratios, has no throughput.
function ratioNote(figure) {
  if (figure.own.relative !== 'ratio') return '';
  const placeOf = (row) => row.hardware + ' at ' + row.context_text;
  const [without, all] = [(row) => row.fits && row.full_tps == null, () => true]
    .map((choose) => new Set(figure.view.data('chosen').filter(choose).map(placeOf)));
  if (without.size === 0) return '';
  const misfit = figure.view.data('scope').some((row) => row.policy === 'full' && row.status === 'oom' && without.has(placeOf(row)) && [null, row.batch].includes(selection.batch));
  return 'No ratio' + (without.size === all.size ? '' : ' on ' + sentenceList([...without])) + ': full KV ' + (misfit ? 'does not fit' : 'was not simulated') +
    (selection.batch === null ? '' : ' at batch ' + selection.batch) + '.';
}

function missingNote(figure, rows) {
  if (!figure.meta.batch_rule) return '';
  const drawn = new Set(rows.map((row) => row.series));
  const missing = sharedRows('series').map((row) => row.series).filter((name) => !selection.hidden.includes(name) && !drawn.has(name));
  return missing.length ? 'Without a point here: ' + sentenceList(missing) + '.' : '';
}

function originNotes(figure, rows) {
  return figure.meta.metrics.map((name) => {
    const metric = metricOf(name.startsWith('$') ? figure.view.signal(name.slice(1)) : name);
    if (!metric) return '';
    const values = rows.filter((row) => row[metric.field] !== undefined);
    if (values.length === 0) return '';
    const counts = new Map();
    for (const row of values) {
      const origin = row['origin_' + metric.field] || 'not stated';
      counts.set(origin, (counts.get(origin) || 0) + 1);
    }
    const machines = [...new Set(values.map((row) => row.hardware))];
    const origins = [...counts].map(([origin, count]) => [formatCount(count) + ' ', sourceLink(origin, sourcesOf(machines, { origin }))]);
    const intervals = values.filter((row) => row[metric.field + '_low'] !== undefined).length;
    return [metric.label + ' (' + plural(values.length, 'value') + '), by origin: ',
      ...origins.flatMap((origin, i) => [i === 0 ? '' : i === origins.length - 1 ? ' and ' : ', ', ...origin]),
      '; ' + (values.length === 1 ? (intervals ? 'with' : 'without') : (intervals === values.length ? 'all' : intervals === 0 ? 'none' : formatCount(intervals)) + ' with') + ' an uncertainty interval.'];
  });
}

// Shares of the decode step time by the origin of the costs, averaged over the points.
function shareNote(meta, rows) {
  if (!meta.metrics.some((name) => name === 'tps' || name === 'tpot')) return '';
  const share = (row, origin) => row['share_' + origin] || 0;
  const stated = rows.filter((row) => origins.some(([origin]) => share(row, origin) > 0));
  const shares = origins.map(([origin]) => ({ origin, mean: stated.reduce((sum, row) => sum + share(row, origin), 0) / stated.length })).filter(({ mean }) => mean > 0.005);
  return shares.length ? 'Decode step time by origin of its costs: ' + sentenceList(shares.map(({ origin, mean }) => formatNumber(100 * mean, '.0f') + '\u00a0% ' + origin)) + '.' : '';
}

function drawControls(figure) {
  figure.controls.replaceChildren(...(figure.meta.controls || []).map((control) => {
    const current = control.signal === 'axis' ? figure.own.axis : figure.view.signal(control.shown || (control.signal === 'asked_id' ? 'shown_id' : control.signal));
    const options = controlOptions(figure, control);
    if (options.length < 2) return '';
    const set = (event) => {
      figure.own[control.signal] = options[event.target.selectedIndex].value;
      select({});
      document.getElementById(event.target.id).focus();
    };
    return element('label', { class: 'control' }, element('span', { class: 'axis-label' }, control.label),
      element('select', { id: 'control-' + figure.name + '-' + control.signal, onchange: set },
        options.map(({ value, label }) => element('option', { selected: value === current }, label))));
  }));
}

function controlOptions(figure, control) {
  if (control.across && distinctValues(control.across).length < 2) return [];
  if (control.options) return control.options;
  if (control.values_of) return distinctValues(control.values_of).map((value) => ({ value, label: [formatNumber(value, ',~r'), ...distinctValues(control.values_of + '_unit')].slice(0, 2).join(' ') }));
  if (control.metrics) {
    return control.metrics.filter((field) => hasColumn('experiments', field)).map((field) => ({ value: field, label: metricOf(field).label }));
  }
  return figure.view.data(control.rows_of).map((row) => ({ value: row.id, label: row.label }));
}

// In the address, a figure's control is "figure.signal=value".
function writeControls(parts) {
  for (const figure of figures) {
    for (const [signal, value] of Object.entries(figure.own)) {
      if (value !== firstChoice(figure.spec, signal)) parts.set(figure.name + '.' + signal, value);
    }
  }
}

function readControls(parts) {
  for (const figure of figures) {
    for (const control of figure.meta.controls || []) {
      const text = parts.get(figure.name + '.' + control.signal);
      const known = control.rows_of ? sharedRows('experiments').map((row) => ({ value: row.id })) : controlOptions(figure, control);
      const found = known.find(({ value }) => String(value) === text);
      figure.own[control.signal] = found ? found.value : firstChoice(figure.spec, control.signal);
    }
  }
}

// The figure as a document of its own, in light colours for paper.
async function figureSvg(figure) {
  const view = figure.newView(figure, 'light', { renderer: 'none' });
  view.run();
  const svg = await view.toSVG();
  view.finalize();
  return svg;
}

async function saveSvg(figure) {
  const url = URL.createObjectURL(new Blob([await figureSvg(figure)], { type: 'image/svg+xml' }));
  element('a', { href: url, download: figure.name + '.svg' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
