// The figures of the planner: one Vega view each, whose rows and signals are replaced with every answer.
const figures = new Map();  // by name: {spec, node, view, plot}

// A policy's colour, or a shade of it if the policy occurs more than once.
function policyColor(index) {
  const { policies, shades } = page.palette;
  const base = ({ name }) => descriptorOf(name).name, name = base(state.policies[index]);
  const nth = state.policies.slice(0, index).filter((earlier) => base(earlier) === name).length;
  const share = shades[nth % shades.length];
  const mixed = (part) => Math.round(part + ((share > 0 ? 255 : 0) - part) * Math.abs(share));
  return '#' + [1, 3, 5].map((at) => mixed(parseInt(policies[name].color.slice(at, at + 2), 16)).toString(16).padStart(2, '0')).join('');
}

function figureBlock(name, title, caption) {
  const figure = { name, heading: title, spec: null, view: null, width: 0, data: {}, signals: {} };
  figure.title = element('h2', {}, title);
  figure.plot = element('div', { class: 'plot', id: 'plot-' + name });
  figure.caption = element('p', { class: 'note' }, caption);
  figure.numbers = element('details', { class: 'note', hidden: true }, element('summary', {}, 'In numbers'), element('div'));
  figure.node = element('figure', { id: 'figure-' + name }, element('div', { class: 'figure-head' }, figure.title), figure.plot, figure.caption, figure.numbers);
  figures.set(name, figure);
  return figure.node;
}

// A specification that stays the same keeps its view, which is the fast way; a new one makes a new view.
function drawFigure(name, spec, data, signals) {
  const figure = figures.get(name);
  Object.assign(figure, { data, signals });
  figure.width = figure.plot.clientWidth || figure.width || 600;
  const key = JSON.stringify(spec) + currentTheme();
  if (!figure.view || figure.key !== key) {
    if (figure.view) figure.view.finalize();
    figure.plot.replaceChildren();
    figure.view = new vega.View(vega.parse(spec, page.themes[currentTheme()]), { renderer: 'svg', container: figure.plot, hover: true });
    figure.view.tooltip(showTooltip);
    Object.assign(figure, { key, spec });
  }
  figure.caption.hidden = false;
  figure.view.signal('page_width', figure.width);
  for (const [signal, value] of Object.entries(signals || {})) figure.view.signal(signal, value);
  for (const [set, rows] of Object.entries(data || {})) figure.view.data(set, rows.map((row) => ({ ...row })));
  figure.view.description(figure.title.textContent);
  figure.view.run();
}

function redrawFigures() {
  for (const figure of figures.values()) {
    if (figure.spec) drawFigure(figure.name, figure.spec, figure.data, figure.signals);
  }
}

function emptyFigure(name, text) {
  const figure = figures.get(name);
  if (figure.view) figure.view.finalize();
  Object.assign(figure, { view: null, spec: null });
  figure.plot.replaceChildren(element('p', { class: 'empty' }, text));
  figure.caption.hidden = true;
  showNumbers(name, []);
}

// Gives the numbers of a figure, for those who do not see it and for those who want them exactly.
function showNumbers(name, content) {
  const { numbers } = figures.get(name);
  numbers.hidden = content.length === 0;
  numbers.lastChild.replaceChildren(...content);
}

function numbersTable(heads, lines) {
  const cells = (tag, line, attributes) => element('tr', {}, line.map((text, at) => element(at === 0 ? 'th' : tag, { class: at === 0 ? '' : 'number', scope: at === 0 && tag === 'td' ? 'row' : attributes }, text)));
  return element('div', { class: 'table-frame' }, element('table', {}, element('thead', {}, cells('th', heads, 'col')), element('tbody', {}, lines.map((line) => cells('td', line)))));
}

// ---- rows from results

function numberAt(result, path) { return path.split('.').reduce((at, name) => (at === undefined || at === null ? undefined : at[name]), result); }

function metricText(result, path, scale, format, unit) {
  const value = numberAt(result, path);
  if (typeof value !== 'number') return '';
  const range = result.intervals && result.intervals[path];
  return formatNumber(value * scale, format) + unit + (range && range[0] < range[1] ? ' (' + formatNumber(range[0] * scale, format) + ' to ' + formatNumber(range[1] * scale, format) + ')' : '');
}

function barRows(path, scale) {
  return rows.map((row, order) => {
    const value = row.result && row.result.status === 'ok' ? numberAt(row.result, path) : undefined;
    const range = row.result && row.result.intervals && row.result.intervals[path];
    return { order, label: row.label, color: row.color, focus: order === state.focus, value: value === undefined ? null : value * scale, low: range && value !== undefined ? range[0] * scale : null,
      high: range && value !== undefined ? range[1] * scale : null, note: row.note };
  });
}

function drawBars() {
  const height = 34;
  const full = rows.find((row) => row.name === 'full' && row.result && row.result.status === 'ok');
  const reference = full ? numberAt(full.result, 'decode.tokens_per_s') : null;
  const throughput = barRows('decode.tokens_per_s', 1);
  for (const row of throughput) row.text = row.value === null ? '' : formatNumber(row.value, ',.4~r') + (reference ? ' · ' + formatNumber(row.value / reference, ',.3~r') + '×' : '');
  if (!state.traffic) drawFigure('throughput', page.charts.planner_bars, { rows: throughput }, { x_title: 'tokens/s of the whole batch' + (reference ? '; × full KV' : ''), row_height: height, limit: 0 });
  const score = barRows('score.share_of_full', 100);
  for (const row of score) {
    row.text = row.value === null ? '' : formatNumber(row.value, '.3~r') + ' %';
    row.note = row.value === null && !row.note ? 'no score available' : row.note;
  }
  drawFigure('score', page.charts.planner_bars, { rows: score }, { x_title: '% of the uncompressed model’s RULER score', row_height: height, limit: 100 });
  const groups = page.palette.memory, groupOf = (owner) => groups.findIndex((group) => group.owners.includes(owner));
  const owners = [], totals = [];
  rows.forEach((row, order) => {
    const memory = row.result && row.result.memory;
    const oom = row.result && row.result.oom;
    const refused = oom && oom.pool === 'hbm' ? [{ owner: 'does not fit', bytes: oom.requested_bytes }] : [];
    const parts = [...((memory && memory.hbm_owners) || []), ...refused].sort((a, b) => groupOf(a.owner) - groupOf(b.owner) || b.bytes - a.bytes);
    let at = 0;
    for (const { owner, bytes } of parts) {
      const group = groupOf(owner);
      owners.push({ order, owner, group, name: groups[group].name, from: at / 1e9, to: (at + bytes) / 1e9, color: groups[group].color });
      at += bytes;
    }
    totals.push({ order, label: row.label, focus: order === state.focus, at: at / 1e9, text: parts.length ? formatNumber(at / 1e9, ',.3~r') + ' GB' + (refused.length ? ' needed' : oom ? ' at failure' : '') : '', note: row.note });
  });
  const capacity = rows.map((row) => row.result && numberAt(row.result, 'memory.hbm_capacity_bytes')).find(Boolean);
  figures.get('memory').caption.textContent = 'HBM at its peak' + (state.traffic ? ' with as many requests as run at a time in the mean' : '') + ' of each GPU, by use; the line is the capacity' + (capacity ? ', ' + formatBytes(capacity) : '') + '.';
  const shown = [...new Set(owners.map(({ owner }) => owner))];
  const sizeOf = (order, owner) => owners.filter((part) => part.order === order && part.owner === owner).reduce((sum, part) => sum + part.to - part.from, 0);
  showNumbers('memory', shown.length ? [numbersTable(['GB of HBM', ...rows.map(({ label }) => label)], shown.map((owner) => [owner, ...rows.map((row, order) => formatNumber(sizeOf(order, owner), ',.3~r'))]))] : []);
  drawFigure('memory', page.charts.planner_memory, { parts: owners, rows: totals }, { row_height: height, capacity: capacity ? capacity / 1e9 : 0 });
}

function drawTimeline() {
  const row = rows[state.focus];
  const spans = row && row.result && row.result.timeline;
  figures.get('timeline').title.textContent = 'One decode step of ' + (row ? row.label : 'the policy in focus');
  if (!spans || spans.length === 0) return emptyFigure('timeline', row && row.note ? row.note : 'There is no decode step to show.');
  const lanes = [...new Set(spans.map(({ lane }) => lane))];
  drawFigure('timeline', page.charts.planner_timeline, {
    spans: spans.map((span) => ({ ...span, end_s: span.start_s + span.dur_s, color: page.palette.kinds[span.kind] || page.palette.cycles.kinds[0] })),
    lanes: lanes.map((lane) => ({ lane })),
  }, {});
  const kinds = [...new Set(spans.map(({ kind }) => kind))];
  const timeOf = (lane, kind) => spans.filter((span) => span.lane === lane && span.kind === kind).reduce((sum, span) => sum + span.dur_s, 0);
  showNumbers('timeline', [numbersTable(['ms on each lane', ...lanes], kinds.map((kind) => [kind, ...lanes.map((lane) => formatNumber(1e3 * timeOf(lane, kind), ',.3~r'))]))]);
}

function drawTable() {
  const columns = state.traffic ? [['requests/s served', 'serving.requests_per_s', 1, ',.4~r', ''], ['first token p99, s', 'serving.ttft_s.p99', 1, ',.4~r', ''], ['per output token p99, ms', 'serving.tpot_s.p99', 1e3, ',.4~r', ''], ['within the SLO, %', 'serving.slo_share', 100, '.4~r', ''],
    ['cache in use at most, %', 'serving.kv_used_share.max', 100, '.3~r', ''], ['RULER score, % of full', 'score.share_of_full', 100, '.3~r', '']] : [['decode throughput, tokens/s', 'decode.tokens_per_s', 1, ',.4~r', ''], ['time per output token, ms', 'decode.tpot_s.mean', 1e3, ',.4~r', ''], ['time to first token, s', 'prefill.ttft_s', 1, ',.4~r', ''],
    ['peak HBM, GB', 'memory.hbm_peak_bytes', 1e-9, ',.4~r', ''], ['RULER score, % of full', 'score.share_of_full', 100, '.3~r', '']];
  document.getElementById('table-section').replaceChildren(element('p', { id: 'results-note', class: 'note' }, 'With 80 % intervals. “no score” means that none is known without replays.'), element('div', { class: 'table-frame' }, element('table', { id: 'results', 'aria-describedby': 'results-note' },
    element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'policy'), columns.map(([label]) => element('th', { scope: 'col', class: 'number' }, label)), element('th', { scope: 'col' }, state.traffic ? 'queue' : 'bottleneck'), element('th', { scope: 'col' }, 'origin'))),
    element('tbody', {}, rows.map((row) => element('tr', {}, element('th', { scope: 'row' }, row.label),
      row.note ? element('td', { colspan: columns.length + 2, class: 'why' }, row.note)
        : row.result ? [columns.map(([, path, scale, format]) => {
          const [value, range] = metricText(row.result, path, scale, format, '').split(' (');
          return element('td', { class: 'number', 'data-path': path }, value || (path.startsWith('score') ? 'no score' : ''), range ? element('span', { class: 'quiet' }, range.replace(')', '')) : '');
        }),
          element('td', {}, state.traffic ? row.result.serving.state : row.result.bottleneck || ''), element('td', {}, (row.result.origin || {})[columns[0][1]] || '')]
          : element('td', { colspan: columns.length + 2 }, 'being simulated')))))));
}
