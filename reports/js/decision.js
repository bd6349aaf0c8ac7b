// Draws the decision: the first finding, every policy at its best, and what its choice costs.
const kKeeps = 0.95;  // share of full KV's score below which a policy is not recommended, unless the sweep states another
const kMostLines = 8;

function scoreFloor() {
  const [, number, percent] = /floor:\s*([\d.]+)\s*(%?)/.exec(page.sweep.config || '') || [];
  return number ? Number(number) / (percent ? 100 : 1) : kKeeps;
}

function isIn(place, row) { return [row.hardware, row.model + ' on ' + row.hardware].some((name) => place === name || place.startsWith(name + ', ')); }

// "batch 16: snapkv; batch 1: full; no batch: quest": the largest batch of each policy that was swept and fits at a context of
// a place, at its smallest cost in memory; empty where nothing runs out of memory.
function fitsText(place, context) {
  const here = sharedRows('experiments').filter((row) => isIn(place, row) && (row.context || 0) === context && row.batch !== undefined && !row.oracle && ['ok', 'oom'].includes(row.status));
  if (!here.some(({ status }) => status === 'oom')) return '';
  const largest = new Map();
  for (const { policy, status, batch } of here) largest.set(policy, Math.max(largest.get(policy) || 0, status === 'ok' ? batch : 0));
  const batches = [...new Set(largest.values())].sort((a, b) => b - a);
  return batches.map((batch) => (batch ? 'batch ' + formatCount(batch) : 'no batch') + ': ' + sentenceList([...largest].filter(([, most]) => most === batch).map(([policy]) => policy))).join('; ');
}

// The best experiment of each policy at the longest context of a place, those that keep enough of the score first.
function bestByPolicy({ place, bars, text }, chosen) {
  const stated = Number((/\bbudget (\d+)/.exec(text) || [])[1]);
  const field = bars.length && bars[0].text.includes('requests/s') ? 'rps' : 'tps', floor = scoreFloor();
  const here = sharedRows('experiments').filter((row) => row.status === 'ok' && row[field] > 0 && isIn(place, row));
  const context = Math.max(...here.map((row) => row.context || 0));
  const keeps = (row) => row.score === undefined || row.score >= floor;
  const best = new Map();
  for (const row of here) {
    if ((row.context || 0) !== context || row.oracle || (row.policy === chosen && stated && row.budget !== stated)) continue;
    const other = best.get(row.policy);
    if (!other || (keeps(row) !== keeps(other) ? keeps(row) : keeps(row) ? row[field] > other[field] : row.score > other.score)) best.set(row.policy, row);
  }
  return { field, context, lines: [...best.values()].map((row) => ({ row, keeps: keeps(row) })).sort((a, b) => b.keeps - a.keeps || b.row[field] - a.row[field]) };
}

function rowName(row) { return row.policy + (row.budget === undefined ? '' : ', ' + showBudget(row.budget)) + (row.batch === undefined ? '' : ', batch ' + formatCount(row.batch)); }
function rangeText(row, field, show) { return row[field + '_low'] < row[field + '_high'] ? show(row[field + '_low']) + ' to ' + show(row[field + '_high']) : ''; }

// A bar with its 80 % interval for each policy, and the score where there is one.
function drawBest({ field, lines }, chosen) {
  const kept = lines.slice(0, kMostLines), full = lines.find(({ row }) => row.policy === 'full');
  if (full && !kept.includes(full)) kept.splice(-1, 1, full);
  const reach = Math.max(...kept.map(({ row }) => Math.max(row[field], row[field + '_high'] || 0)));
  const at = (value) => (100 * value / reach).toFixed(2) + '%', metric = metricOf(field);
  const scored = kept.some(({ row }) => row.score !== undefined);
  const line = ({ row, keeps }) => element('div', { class: 'best' + (row.policy === chosen ? ' chosen' : '') + (keeps ? '' : ' below') },
    element('span', { class: 'best-name' }, row.policy, element('span', { class: 'quiet' }, rowName(row).slice(row.policy.length))),
    element('span', { class: 'best-track', title: rangeText(row, field, (value) => formatMetric(metric, value)) }, element('span', { class: 'best-bar', style: 'width:' + at(row[field]) + ';background:' + policyColor(row.policy) }),
      row[field + '_low'] < row[field + '_high'] ? element('span', { class: 'best-range', style: 'left:' + at(row[field + '_low']) + ';width:' + at(row[field + '_high'] - row[field + '_low']) }) : ''),
    element('span', { class: 'best-value' }, formatMetric(metric, row[field])),
    scored ? element('span', { class: 'best-score' }, row.score === undefined ? '' : formatNumber(100 * row.score, '.3~r') + ' %') : '');
  const left = lines.length - kept.length;
  return element('div', { class: 'best-lines' + (scored ? ' scored' : '') }, element('div', { class: 'best best-head' }, element('span', { class: 'best-name' }, 'each policy at its best batch that was swept'), element('span', { class: 'best-track' }), element('span', { class: 'best-value' }, metric.unit), scored ? element('span', { class: 'best-score' }, 'score') : ''),
    kept.map(line), element('p', { class: 'note' }, 'Lines are 80 % intervals.' + (scored ? ' Faint bars keep less than ' + formatNumber(100 * scoreFloor(), '.3~r') + ' % of full KV’s score.' : '') + (left > 0 ? ' ' + plural(left, 'policy is', 'policies are') + ' in the table below.' : '')));
}

// [what, text] of what the chosen experiment costs and how sure its number is.
function costsOf({ field, lines, context }, place, chosen) {
  const own = lines.find(({ row }) => row.policy === chosen), full = lines.find(({ row }) => row.policy === 'full');
  if (!own) return [];
  const { row } = own, metric = metricOf(field), show = (value) => formatMetric(metric, value);
  const next = lines.find((other) => other !== own && other.keeps && other.row.policy !== 'full');
  const costs = [];
  if (row.score !== undefined) costs.push(formatNumber(100 * row.score, '.3~r') + ' % of full KV’s score' + (rangeText(row, 'score', (value) => formatNumber(100 * value, '.3~r')) && ' (' + rangeText(row, 'score', (value) => formatNumber(100 * value, '.3~r')) + ' %)'));
  if (row.hbm) costs.push(formatBytes(row.hbm) + ' of HBM' + (full && full.row.hbm && full !== own ? ', full KV ' + formatBytes(full.row.hbm) + ' at batch ' + formatCount(full.row.batch) : ''));
  if (row.request_cost) costs.push(formatMetric(metricOf('request_cost'), row.request_cost) + ' for a request');
  const range = rangeText(row, field, show), inside = next && range && next.row[field] >= row[field + '_low'] && next.row[field] <= row[field + '_high'];
  return [['It costs', costs.join('; ')], ['How sure', range ? '80 % interval ' + range + ' ' + metric.unit + (next ? '; ' + rowName(next.row) + ' (' + show(next.row[field]) + ') is ' + (inside ? 'within it: the order of the two is open' : 'outside it') : '') : 'no interval is known'], ['What fits', fitsText(place, context)]].filter(([, text]) => text);
}

// The panel of the first finding; null where its place has no experiments that could be drawn.
function drawDecision(finding, shown, rest) {
  const chosen = shown.place && (shown.bars.length ? (shown.bars[0].label === 'full KV' ? 'full' : shown.bars[0].label) : /^full KV/.test(shown.text) ? 'full' : '');
  const best = chosen === undefined || !shown.place ? null : bestByPolicy(shown, chosen);
  if (!best || best.lines.length < 2) return null;
  return element('div', { class: 'finding decision' }, element('div', { class: 'decision-words' }, element('h2', {}, finding.title), element('p', { class: 'finding-choice' }, chosen === 'full' ? 'full KV' : chosen), element('p', { class: 'finding-number' }, shown.number),
    element('p', { class: 'finding-text' }, 'On ' + shown.place + (best.context && !/ tokens\b/.test(shown.text) ? ', ' + formatTokens(best.context) + ' tokens' : '') + ': ' + withSeparators(shown.text) + '.'),
    element('dl', {}, costsOf(best, shown.place, chosen).map(([what, text]) => [element('dt', {}, what), element('dd', {}, text)]).flat()), rest), drawBest(best, chosen));
}
