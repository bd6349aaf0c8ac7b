// One suite's cases as a table, by verdict, as listed or the worst first; long ones a part at a time.
const rowsAtOnce = 200;
const worstAtFirst = 25;  // of longer tables, so that the next suite is not far below

function worstFirst(rows) {
  const off = (row) => (row.predicted > 0 && row.expected > 0 ? Math.abs(Math.log(row.predicted / row.expected)) : -1);
  return rows.slice().sort((a, b) => off(b) - off(a));
}

function intervalText(row) {
  return row.low === null || row.low === row.high ? '' : formatNumber(row.low, ',.3~r') + ' to ' + formatNumber(row.high, ',.3~r');
}

function words(row) { return [row.depends_on, row.note].filter(Boolean); }

function caseRow(row, wordy) {
  return element('tr', { class: 'case', 'data-verdict': row.verdict },
    element('td', {}, row.id, element('span', { class: 'quiet' }, row.group)),
    element('td', { class: 'quantity' }, row.quantity, element('span', { class: 'quiet' }, row.source)),
    element('td', { class: 'number' }, formatNumber(row.expected, ',.4~r')),
    element('td', { class: 'number' }, formatNumber(row.predicted, ',.4~r')),
    element('td', { class: 'number' }, intervalText(row)),
    element('td', {}, row.unit),
    element('td', { class: 'number' }, row.error === null ? '' : formatNumber(100 * row.error, '+,.1f') + ' %'),
    element('td', { class: 'verdict ' + row.verdict }, row.verdict, element('span', { class: 'quiet' }, row.origin || '')),
    wordy ? element('td', { class: 'words' }, words(row).map((text) => element('p', {}, text))) : '');
}

function buildTable(suite) {
  const rows = caseRows(suite);
  if (rows.length === 0) return '';
  const counts = tally([suite]);
  const hidden = new Set(counts.unanswered && Object.keys(counts).length > 1 ? ['unanswered'] : []);
  const wordy = rows.some((row) => words(row).length > 0);
  let listed = rows.length <= rowsAtOnce, limit = listed ? rowsAtOnce : worstAtFirst;
  const body = element('tbody');
  const more = element('p', { class: 'note' });
  const draw = () => {
    const shown = (listed ? rows : worstFirst(rows)).filter((row) => !hidden.has(row.verdict));
    body.replaceChildren(...shown.slice(0, limit).map((row) => caseRow(row, wordy)));
    more.replaceChildren(formatCount(Math.min(limit, shown.length)) + ' of ' + formatCount(shown.length) + ' shown' + (hidden.size ? ', without ' + sentenceList([...hidden]) : '') + '. ',
      shown.length > limit ? element('button', { type: 'button', class: 'quiet-button', onclick: () => { limit += rowsAtOnce; draw(); } }, 'show more') : '');
  };
  const chips = Object.keys(verdicts).filter((name) => counts[name]).map((name) => {
    const chip = element('button', { type: 'button', class: 'chip verdict-chip ' + name, title: verdicts[name], 'aria-pressed': String(!hidden.has(name)) }, name + ' ' + formatCount(counts[name]));
    chip.addEventListener('click', () => {
      if (!hidden.delete(name)) hidden.add(name);
      chip.setAttribute('aria-pressed', String(!hidden.has(name)));
      draw();
    });
    return chip;
  });
  const order = element('button', { type: 'button', class: 'quiet-button order' });
  const name = () => order.replaceChildren(listed ? 'worst first' : 'as listed');
  order.addEventListener('click', () => {
    listed = !listed;
    name();
    draw();
  });
  name();
  draw();
  return element('div', { class: 'case-table', id: 'cases-' + suite.name },
    element('div', { class: 'chips' }, chips, order),
    element('div', { class: 'table-frame' }, element('table', { class: 'cases' },
      element('thead', {}, element('tr', {}, ['Case', 'Quantity', capital(suite.expected_is), 'Predicted', 'Interval', 'Unit', 'Error', 'Verdict, origin', ...(wordy ? ['Based on'] : [])].map((name, i) => element('th', { scope: 'col', class: (i > 1 && i < 5) || i === 6 ? 'number' : '' }, name)))),
      body)), more);
}

start();
