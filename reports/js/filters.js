// The selection: one object, changed only through select() and kept in the address, so that views can be linked.
const selection = { ...page.defaults, hidden: [...page.defaults.hidden] };
const listeners = [];

function onSelection(listener) { listeners.push(listener); }

function select(change) {
  Object.assign(selection, change);
  writeAddress();
  drawFilters();
  for (const listener of listeners) listener();
}

const axes = [
  { signal: 'model', label: 'Model', none: 'all', show: String },
  { signal: 'hardware', label: 'Machine', none: 'all', show: String },
  { signal: 'context', label: 'Context', none: 'all', show: (tokens) => formatTokens(tokens) + ' tokens' },
  { signal: 'batch', label: 'Batch', none: 'fastest that fits', show: String },
  { signal: 'budget', label: page.defaults.cost ? capital(page.defaults.cost) : 'Budget', none: null, show: showBudget },
];

// Budgets that `match:` solves for are identified by the requested cost.
function showBudget(budget) { return (page.defaults.cost || '').startsWith('bytes') ? formatBytes(budget) : formatCount(budget) + ' tokens'; }

// Returns whether an experiment is in the selection: the table's counterpart of the filters in the charts' specifications.
function isSelected(row) {
  for (const { signal } of axes) {
    if (selection[signal] === null || row[signal] === selection[signal]) continue;
    if (signal === 'budget' && row.budget === undefined) continue;  // a policy without a budget belongs to every budget
    return false;
  }
  return !selection.hidden.includes(row.series);
}

function writeAddress() {
  const parts = new URLSearchParams();
  for (const { signal } of axes) {
    if (selection[signal] !== page.defaults[signal]) parts.set(signal, selection[signal] === null ? 'all' : selection[signal]);
  }
  const hidden = [...selection.hidden].sort().join('|');
  if (hidden !== [...page.defaults.hidden].sort().join('|')) parts.set('hidden', hidden);
  writeControls(parts);
  const address = parts.toString();
  history.replaceState(null, '', address ? '#' + address : location.pathname + location.search);
}

// Takes from the address what this sweep has. The rest of the address is ignored; what it lacks has its default.
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  Object.assign(selection, page.defaults, { hidden: [...page.defaults.hidden] });
  for (const { signal } of axes) {
    if (!parts.has(signal)) continue;
    const text = parts.get(signal);
    const value = distinctValues(signal).find((known) => String(known) === text);
    if (value !== undefined) selection[signal] = value;
    else if (text === 'all' && signal !== 'budget') selection[signal] = null;
  }
  if (parts.has('hidden')) {
    const known = sharedRows('series').map((row) => row.series);
    selection.hidden = parts.get('hidden').split('|').filter((name) => known.includes(name));
  }
  readControls(parts);
}

function drawFilters() {
  const box = document.getElementById('filters');
  keepFocus(() => box.replaceChildren(
    element('div', { class: 'axes' }, axes.map(drawAxis)),
    element('div', { class: 'chips', role: 'group', 'aria-label': 'Policies' }, drawPolicies(), drawShortcuts()),
    element('p', { class: 'on-paper note' }, selectionText())));
}

// The selection in words, for paper.
function selectionText() {
  const chosen = axes.filter(({ signal }) => distinctValues(signal).length > 0)
    .map(({ signal, label, none, show }) => label + ' ' + (selection[signal] !== null ? show(selection[signal]) : distinctValues(signal).length === 1 ? show(distinctValues(signal)[0]) : none));
  return 'Selection: ' + chosen.join('; ') + '.' + (selection.hidden.length ? ' Not shown: ' + selection.hidden.join('; ') + '.' : '');
}

function drawAxis({ signal, label, none, show }) {
  const values = distinctValues(signal);
  if (values.length === 0) return null;
  if (values.length === 1) {
    return element('span', { class: 'axis' }, element('span', { class: 'axis-label' }, label), show(values[0]));
  }
  const options = values.map((value) => element('option', { value: String(value), selected: selection[signal] === value }, show(value)));
  if (none !== null) options.unshift(element('option', { value: '', selected: selection[signal] === null }, none));
  const control = element('select', {
    id: 'filter-' + signal,
    onchange: (event) => select({ [signal]: values.find((value) => String(value) === event.target.value) ?? null }),
  }, options);
  return element('label', { class: 'axis' }, element('span', { class: 'axis-label' }, label), control);
}

function setHidden(names) { select({ hidden: names }); }

function drawChip(row, text) {
  const hidden = selection.hidden.includes(row.series);
  return element('button', {
    type: 'button', class: 'chip', id: 'chip-' + row.order, 'aria-pressed': String(!hidden), style: '--color: ' + row.color,
    title: row.series + ': click to ' + (hidden ? 'show' : 'hide') + ', double-click for this one alone',
    onclick: () => setHidden(hidden ? selection.hidden.filter((name) => name !== row.series) : [...selection.hidden, row.series]),
    ondblclick: () => setHidden(sharedRows('series').map((other) => other.series).filter((name) => name !== row.series)),
  }, text);
}

// A policy with one variant is one chip; the variants of other policies form a group that starts with the policy's name.
function drawPolicies() {
  const policies = new Map();
  for (const row of sharedRows('series')) {
    if (!policies.has(row.policy)) policies.set(row.policy, []);
    policies.get(row.policy).push(row);
  }
  return [...policies].map(([policy, rows]) => rows.length === 1
    ? drawChip(rows[0], policy)
    : element('span', { class: 'chip-group' }, rows.map((row, i) =>
      drawChip(row, i === 0 ? policy + (row.variant ? ' ' + row.variant : '') : shortVariant(row, rows[0])))));
}

// Next to "split_factor adaptive", "0.3" is enough to identify "split_factor 0.3".
function shortVariant(row, first) {
  const key = (variant) => (variant || '').split(' ')[0];
  const simple = row.variant && !row.variant.includes(',') && key(row.variant) === key(first.variant);
  return simple ? row.variant.slice(key(row.variant).length + 1) : row.variant || 'default';
}

function drawShortcuts() {
  const shortcut = (text, names) => element('button', { type: 'button', class: 'quiet-button', onclick: () => setHidden(names) }, text);
  const rows = sharedRows('series');
  if (rows.length < 2) return [];
  const all = rows.some((row) => !row.preferred) ? 'all variants' : 'all';
  return [
    element('span', { class: 'shortcuts' },
      rows.some((row) => !row.preferred) ? shortcut('one variant each', rows.filter((row) => !row.preferred).map((row) => row.series)) : null,
      shortcut(all, []), shortcut('none', rows.map((row) => row.series))),
  ];
}
