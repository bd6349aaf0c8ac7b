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

// Bars with their ranges, and the score or the cost where lines have one: {name, rest, color, value, low, high, text, side}.
function drawLines({ head, unit, side, note }, lines) {
  const reach = Math.max(...lines.map(({ value, high }) => Math.max(value, high || 0)));
  const at = (value) => (reach > 0 ? 100 * value / reach : 0).toFixed(2) + '%', sided = lines.some((line) => line.side);
  const line = ({ name, rest, color, value, low, high, text, side: more, chosen, below }) => element('div', { class: 'best' + (chosen ? ' chosen' : '') + (below ? ' below' : '') },
    element('span', { class: 'best-name' }, name, element('span', { class: 'quiet' }, rest)),
    element('span', { class: 'best-track' }, element('span', { class: 'best-bar', style: 'width:' + at(value) + ';background:' + color }),
      low < high ? element('span', { class: 'best-range', style: 'left:' + at(low) + ';width:' + at(high - low) }) : ''),
    element('span', { class: 'best-value' }, text), sided ? element('span', { class: 'best-score' }, more) : '');
  return element('div', { class: 'best-lines' + (sided ? ' scored' : '') }, element('div', { class: 'best best-head' }, element('span', { class: 'best-name' }, head), element('span', { class: 'best-track' }), element('span', { class: 'best-value' }, unit), sided ? element('span', { class: 'best-score' }, side) : ''),
    lines.map(line), element('p', { class: 'note' }, note));
}

function scoreText(row) { return row.score === undefined ? '' : formatNumber(100 * row.score, '.3~r') + '\u00a0%'; }

// The first lines, full KV among them.
function keptLines(lines) {
  const kept = lines.slice(0, kMostLines), full = lines.find(({ row }) => row.policy === 'full');
  if (full && !kept.includes(full)) kept.splice(-1, 1, full);
  return kept;
}

function noteText(lines, kept, ranges) {
  const left = lines.length - kept.length, scored = kept.some(({ row }) => row.score !== undefined);
  return ranges + (scored ? ' Faint bars keep less than ' + formatNumber(100 * scoreFloor(), '.3~r') + '\u00a0% of full KV’s score.' : '') + (left > 0 ? ' ' + plural(left, 'policy is', 'policies are') + ' in the table below.' : '');
}

// A bar with its 80 % interval for each policy, and the score where there is one.
function drawBest({ field, lines }, chosen) {
  const kept = keptLines(lines), metric = metricOf(field);
  return drawLines({ head: 'each policy at its best batch that was swept', unit: metric.unit, side: 'score', note: noteText(lines, kept, 'Lines are 80\u00a0% intervals.') },
    kept.map(({ row, keeps }) => ({ name: row.policy, rest: rowName(row).slice(row.policy.length), color: policyColor(row.policy), value: row[field], low: row[field + '_low'], high: row[field + '_high'], text: formatMetric(metric, row[field]), side: scoreText(row), chosen: row.policy === chosen, below: !keeps })));
}

function chosenOf({ bars, text }) { return bars.length ? (bars[0].label === 'full KV' ? 'full' : bars[0].label) : /^full KV/.test(text) ? 'full' : ''; }

// Cost of a thousand requests, or an empty text if the run states no price. `times`: how much longer each request takes than
// in this row.
function priceOf(row, times = 1) { return row.request_cost ? formatMetric(metricOf('request_cost'), 1000 * times * row.request_cost) : ''; }

// The best policy of each machine, the fastest machine first; empty if there is one.
function drawPlaces(places, told) {
  const lines = places.filter(({ bars }) => bars.length).map((shown) => {
    const chosen = chosenOf(shown), best = bestByPolicy(shown, chosen).lines.find(({ row }) => row.policy === chosen), batch = (/\bbatch (\d+)/.exec(shown.text) || [])[1], unit = shown.bars[0].text.split(' ')[1];
    return { name: shown.place, rest: ': ' + chosen + (batch ? ', batch ' + formatCount(Number(batch)) : ''), color: policyColor(chosen), value: shown.bars[0].to, text: shown.bars[0].text.split(' ')[0], unit, side: best && unit === 'requests/s' ? priceOf(best.row, best.row.rps / shown.bars[0].to) : '', chosen: shown.place === told };
  }).sort((a, b) => b.value - a.value);
  if (lines.length < 2) return '';
  const kept = lines.slice(0, kMostLines), left = lines.length - kept.length;
  return drawLines({ head: 'each machine with its best policy', unit: lines[0].unit, side: 'cost, 1K requests', note: 'Each at its own best batch.' + (left > 0 ? ' ' + formatCount(left) + ' more are in the details.' : '') }, kept);
}

function savedText(ratio) { return formatNumber(100 * Math.abs(1 - ratio), '.2~r') + ' % ' + (ratio < 1 ? 'less' : 'more'); }

function scoreFact(row) {
  const range = rangeText(row, 'score', (value) => formatNumber(100 * value, '.3~r'));
  return scoreText(row) + ' of full KV’s score' + (range && ' (' + range + ' %)');
}

// The finding's own experiments are at batches that a search found; those that were swept may be others.
function withNumbers(line, numbers) { return line && numbers ? { ...line, row: { ...line.row, ...numbers } } : line; }

// The next policy, as {name, value}.
function nextOf({ best, bars }, { field, lines }, chosen) {
  if (best) return bars.slice(1).filter(({ label }) => label !== 'full KV').map(({ label, to }) => ({ name: label + ' at its best batch', value: to }))[0];
  return lines.filter(({ row, keeps }) => row.policy !== chosen && keeps && row.policy !== 'full').map(({ row }) => ({ name: rowName(row), value: row[field] }))[0];
}

// [what, text] of what the chosen experiment costs and how sure its number is.
function costsOf({ field, lines, context }, shown, chosen) {
  const own = withNumbers(lines.find(({ row }) => row.policy === chosen), shown.best), full = withNumbers(lines.find(({ row }) => row.policy === 'full'), shown.full);
  if (!own) return [];
  const { row } = own, metric = metricOf(field), show = (value) => formatMetric(metric, value), other = full && chosen !== 'full' ? full : null;
  const next = nextOf(shown, { field, lines }, chosen);
  const costs = [];
  if (row.score !== undefined) costs.push(scoreFact(row));
  if (row.hbm) costs.push(formatBytes(row.hbm) + ' of HBM' + (other && other.row.hbm ? ', full KV ' + formatBytes(other.row.hbm) + ' at batch ' + formatCount(other.row.batch) : ''));
  if (row.request_cost) costs.push('1K requests cost ' + priceOf(row) + (other && other.row.request_cost ? ', with full KV ' + priceOf(other.row) + ' (' + savedText(row.request_cost / other.row.request_cost) + ')' : ''));
  const range = rangeText(row, field, show), inside = next && range && next.value >= row[field + '_low'] && next.value <= row[field + '_high'];
  return [['It costs', costs.join('; ')], ['How sure', range ? '80 % interval ' + range + ' ' + metric.unit + (next ? '; ' + next.name + ' (' + show(next.value) + ') is ' + (inside ? 'within it: the order of the two is open' : 'outside it') : '') : 'no interval is known'], ['What fits', fitsText(shown.place, context)]].filter(([, text]) => text);
}

function drawPanel({ title, choice, number, text, facts, rest }, ...charts) {
  return element('div', { class: 'finding decision' }, element('div', { class: 'decision-words' }, element('h2', {}, title), element('p', { class: 'finding-choice' }, choice === 'full' ? 'full KV' : choice), element('p', { class: 'finding-number' }, number),
    element('p', { class: 'finding-text' }, joinPercent(text)), element('dl', {}, facts.map(([what, fact]) => [element('dt', {}, what), element('dd', {}, joinPercent(fact))]).flat()), rest), element('div', {}, charts));
}

// The panel of the first finding; null where its place has no experiments that could be drawn.
function drawDecision(finding, shown, rest) {
  const chosen = shown.place && chosenOf(shown);
  const best = chosen === undefined || !shown.place ? null : bestByPolicy(shown, chosen);
  if (!best || best.lines.length < 2) return null;
  const text = 'On ' + shown.place + (best.context && !/ tokens\b/.test(shown.text) ? ', ' + formatTokens(best.context) + ' tokens' : '') + ': ' + withSeparators(shown.text) + '.';
  return drawPanel({ title: finding.title, choice: chosen, number: shown.number, text, facts: costsOf(best, shown, chosen), rest }, drawBest(best, chosen), drawPlaces(finding.places, shown.place));
}
