// The table of all experiments: search, sort, details. Only a limited number of rows is drawn; a click shows the rest.
const tableState = { search: '', sort: null, descending: false, selected: page.sweep.swept, limit: 100, open: new Set() };

const tableColumns = [
  { name: 'Model', text: (row) => row.model },
  { name: 'Machine', text: (row) => row.hardware },
  { name: 'Policy', text: (row) => row.policy },
  { name: 'Variant', text: (row) => row.variant },
  { name: 'Replica', text: (row) => row.replica },
  { name: 'Context', value: (row) => row.context, text: (row) => (row.context === undefined ? '' : formatTokens(row.context)), title: (row) => formatCount(row.context) + ' tokens' },
  { name: 'Batch', value: (row) => row.batch, text: (row) => formatCount(row.batch) },
  { name: page.defaults.cost ? capital(page.defaults.cost) : 'Budget', value: (row) => row.budget, text: (row) => formatCount(row.budget) },
  { name: 'Solved budget', value: (row) => row.solved_budget, text: (row) => formatCount(row.solved_budget) },
  { name: 'Load', value: (row) => row.load, text: (row) => (row.load === undefined ? '' : formatNumber(row.load, ',~r') + ' ' + row.load_unit) },
  { name: 'State', text: (row) => row.state },
  ...page.metrics.filter((metric) => metric.table).map((metric) => ({
    name: metric.short, unit: metric.short === metric.unit ? '' : metric.unit, title: metric.label, field: metric.field,
    value: (row) => row[metric.field], text: (row) => tailMark(metric, row) + formatMetric(metric, row[metric.field]),
  })),
  { name: 'Bottleneck', text: (row) => row.bottleneck },
  { name: 'Status', text: statusText },
].filter((column) => column.name === 'Status' || isTelling(column));

// Times of requests of a saturated service are longer the longer one looks.
function tailMark(metric, row) {
  return row.state === 'saturated' && row[metric.field] !== undefined && /^served_(ttft|tpot|e2e)_p/.test(metric.field) ? '> ' : '';
}

// Leaves out empty columns, and models and machines that never change.
function isTelling(column) {
  const texts = new Set(sharedRows('experiments').map((row) => column.text(row) || ''));
  return column.name === 'Model' || column.name === 'Machine' ? texts.size > 1 : [...texts].some(Boolean);
}

const firstResult = tableColumns.findIndex((column) => column.field || column.name === 'Bottleneck' || column.name === 'Status');

function statusText(row) {
  if (row.status === 'ok') return row.fit || 'ok';
  if (row.status === 'failed') return 'failed: ' + (row.error || 'no reason given');
  const owners = rowsOf('owners', row.id).filter((part) => part.pool === row.oom_pool && part.owner !== 'does not fit');
  return (row.fit === 'borderline' ? 'borderline, out of memory' : 'out of memory') + (row.oom_pool ? ' in ' + poolName(row.oom_pool) : '') + (row.oom_moment ? ' at ' + row.oom_moment : '') +
    (row.oom_requested === undefined ? '' : ': ' + (row.oom_requested_for ? row.oom_requested_for + ' ' : '') + 'requested ' + formatBytes(row.oom_requested) + ', ' + formatBytes(row.oom_capacity - row.oom_in_use) + ' free') +
    (owners.length ? '; in use: ' + owners.map((part) => part.owner + ' ' + formatBytes(part.bytes)).join(', ') : '');
}

// Converts to lower case and removes the thousands separators of numbers.
function plainText(text) { return text.toLowerCase().replace(/(\d),(?=\d{3}(?!\d))/g, '$1'); }

function searchText(row) {
  const named = ['budget', 'batch', 'context'].filter((name) => row[name] !== undefined)
    .flatMap((name) => [name + ' ' + row[name], name + ' ' + formatTokens(row[name]) + (name === 'batch' ? '' : ' tokens')]);
  return plainText([...tableColumns.map((column) => column.text(row)), row.status, ...named].join('\n'));
}

// Patterns for the terms of a search: a number matches as a whole, other terms match where a word begins; "batch 1" is one term.
function searchPatterns(search) {
  const terms = plainText(search).match(/\b(?:budget|batch|context)\s+\d\S*|\S+/g) || [];
  return terms.map((term) => {
    const start = /^[\d.]+$/.test(term) ? '(?<![\\w.])' : '(?<![a-z0-9])';
    const end = /(?:^|\s)\d+(?:\.\d+)?$/.test(term) ? '(?!\\w|\\.\\d)' : '';
    return new RegExp(start + term.replace(/[^\w\s]/g, '\\$&').replace(/\s+/g, ' ') + end);
  });
}

function tableMatches() {
  const patterns = searchPatterns(tableState.search);
  const rows = sharedRows('experiments').filter((row) => {
    if (tableState.selected && !isSelected(row)) return false;
    if (patterns.length === 0) return true;
    if (row.searched === undefined) row.searched = searchText(row);
    return patterns.every((pattern) => pattern.test(row.searched));
  });
  if (tableState.sort === null) return rows;
  const column = tableColumns[tableState.sort];
  const key = column.value || ((row) => column.text(row) || undefined);
  const sign = tableState.descending ? -1 : 1;
  // Rows without a value come last, whichever way the others are sorted.
  return rows.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return x < y ? -sign : x > y ? sign : a.id - b.id;
  });
}

function buildTable() {
  const search = element('input', { type: 'search', id: 'table-search', placeholder: 'search: quest h100 batch 1', 'aria-label': 'Search the table',
    oninput: (event) => changeTable({ search: event.target.value, limit: 100 }) });
  const everything = element('input', { type: 'checkbox', id: 'table-selected', checked: true,
    onchange: (event) => changeTable({ selected: event.target.checked, limit: 100 }) });
  document.getElementById('table-section').append(
    element('div', { class: 'figure-head' }, element('h2', {}, element('span', { class: 'figure-number' }, 'Table 1'), 'All experiments'),
      element('span', { class: 'controls' }, page.sweep.swept ? element('label', { class: 'control' }, everything, 'only what the filters select') : '', search)),
    element('p', { class: 'note' }, element('span', { id: 'table-count', 'aria-live': 'polite' }), element('span', { class: 'on-screen' }, ' Click a heading to sort, a row for all its numbers.')),
    element('div', { class: 'table-frame' }, element('table', { id: 'table' }, element('thead'), element('tbody'))),
    element('p', { id: 'table-more', class: 'note' }));
}

function changeTable(change) {
  Object.assign(tableState, change);
  drawTable();
}

function sortBy(index) {
  const numeric = Boolean(tableColumns[index].value);
  if (tableState.sort !== index) changeTable({ sort: index, descending: numeric });
  else if (tableState.descending === numeric) changeTable({ descending: !numeric });
  else changeTable({ sort: null });
}

function drawTable() { keepFocus(replaceTable); }

function replaceTable() {
  const rows = tableMatches();
  const all = sharedRows('experiments').length;
  const count = (status) => rows.filter((row) => row.status === status).length;
  document.getElementById('table-count').textContent = formatCount(rows.length) + ' of ' + plural(all, 'experiment') + ': ' +
    formatCount(count('ok')) + ' ok, ' + formatCount(count('oom')) + ' out of memory, ' + formatCount(count('failed')) +
    ' failed.';
  const arrow = (index) => (tableState.sort !== index ? '' : tableState.descending ? ' ↓' : ' ↑');
  document.querySelector('#table thead').replaceChildren(element('tr', {}, tableColumns.map((column, index) =>
    element('th', { scope: 'col', class: column.value ? 'number' : '', title: typeof column.title === 'string' ? column.title : null, 'aria-sort': tableState.sort !== index ? null : tableState.descending ? 'descending' : 'ascending' },
      element('button', { type: 'button', id: 'sort-' + index, onclick: () => sortBy(index) }, column.name + arrow(index)),
      column.unit ? element('span', { class: 'unit' }, column.unit) : ''))));
  document.querySelector('#table tbody').replaceChildren(...rows.slice(0, tableState.limit).flatMap(drawRow));
  const more = document.getElementById('table-more');
  more.replaceChildren();
  if (rows.length > tableState.limit) {
    const next = 'row-' + rows[tableState.limit].id;
    const show = () => {
      changeTable({ limit: Infinity });
      document.getElementById(next).focus({ preventScroll: true });  // this button is gone
    };
    more.append(plural(rows.length - tableState.limit, 'more row'), ' ',
      element('button', { type: 'button', class: 'quiet-button', id: 'table-all', onclick: show }, 'show them'));
  }
}

function drawRow(row) {
  const open = tableState.open.has(row.id);
  const toggle = () => {
    if (!tableState.open.delete(row.id)) tableState.open.add(row.id);
    drawTable();
  };
  // A row without results states the reason in the cells of its numbers.
  const shown = row.status === 'ok' ? tableColumns : tableColumns.slice(0, firstResult);
  const name = tableColumns.slice(0, firstResult).map((column) => column.text(row)).filter(Boolean).join(', ');
  const cells = shown.map((column, index) => {
    const worst = column.field && row['origin_' + column.field];
    const text = column.text(row) || '';
    const cell = element('td', { class: column.value ? 'number' : text.length > 40 ? 'long' : index >= firstResult ? 'wraps' : '', title: worst ? 'origin: ' + worst : column.title && text ? column.title(row) : null });
    // The first cell holds the button, so that the details open from the keyboard too.
    cell.append(index === 0 ? element('button', { type: 'button', class: 'row-button', id: 'row-' + row.id, 'aria-label': name, 'aria-expanded': String(open) }, text || 'details') : text);
    return cell;
  });
  if (row.status !== 'ok') cells.push(element('td', { class: 'why', colspan: tableColumns.length - firstResult }, statusText(row)));
  const line = element('tr', { class: 'row', onclick: toggle }, cells);
  return open ? [line, element('tr', { class: 'details' }, element('td', { colspan: tableColumns.length }, drawDetails(row)))] : [line];
}

function drawDetails(row) {
  const numbers = page.metrics.filter((metric) => row[metric.field] !== undefined).map((metric) => {
    const low = row[metric.field + '_low'];
    const interval = low === undefined ? '' : ' (' + formatMetric(metric, low) + ' to ' + formatMetric(metric, row[metric.field + '_high']) + ')';
    const origin = row['origin_' + metric.field];
    return [element('dt', {}, metric.label), element('dd', {}, tailMark(metric, row) + formatMetric(metric, row[metric.field]) + (metric.unit ? ' ' + metric.unit : '') + interval, origin ? [', ', sourceLink(origin, sourcesOf([row.hardware], { origin }))] : '')];
  });
  const parts = rowsOf('breakdown', row.id).map((part) => [element('dt', {}, part.kind),
    element('dd', {}, [['exposed', part.exposed_s], ['hidden', part.hidden_s]].filter(([, seconds]) => seconds > 0)
      .map(([name, seconds]) => formatNumber(seconds * 1e3, ',.3~r') + ' ms ' + name).join(', '))]);
  const owners = rowsOf('owners', row.id).map((part) => [element('dt', {}, poolName(part.pool) + ': ' + part.owner), element('dd', {}, formatBytes(part.bytes))]);
  const block = (title, entries) => (entries.length ? element('div', {}, element('h3', {}, title), element('dl', {}, entries.flat())) : '');
  return element('div', { class: 'detail-columns' }, block('Metrics', numbers), block('Decode step', parts), block('Memory', owners),
    element('div', {}, element('h3', {}, 'Experiment key'), element('code', {}, row.key || '')));
}
