// The board: a line for each policy, in view while controls below it are moved.
const kOk = '✓', kMissed = '✗';

// The targets that a batch misses; null if none is set.
function missedTargets(result) {
  const targets = [['TTFT', numberAt(result, 'request.ttft_s'), Number(state.ttft)], ['TPOT', numberAt(result, 'decode.tpot_s.mean'), Number(state.tpot) / 1e3]];
  const set = targets.filter(([, , most]) => most > 0);
  return set.length ? set.filter(([, value, most]) => !(value <= most)).map(([name]) => name) : null;
}

function targetCell(missed) {
  if (missed === null) return element('span', { class: 'quiet' }, 'none');
  return missed.length ? element('span', { class: 'missed', title: 'missed: ' + missed.join(', ') }, kMissed, element('span', { class: 'wider-only' }, ' ' + missed.join(', '))) : element('span', { class: 'met' }, kOk, element('span', { class: 'wider-only' }, ' met'));
}

// Columns of the board: {head, short, text or cell, class}; the first is drawn as a bar.
function batchColumns() {
  const at = (path, scale, format, unit) => (row) => { const value = numberAt(row.result, path); return value === undefined || value === null ? '' : formatNumber(value * scale, format) + unit; };
  return [
    { head: 'decode, tokens/s', bar: (row) => numberAt(row.result, 'decode.tokens_per_s'), text: at('decode.tokens_per_s', 1, ',.3~r', '') },
    { head: 'first token', text: at('request.ttft_s', 1, ',.3~r', ' s'), class: 'wide-only' },
    { head: 'decode step', text: at('decode.tpot_s.mean', 1e3, ',.3~r', ' ms'), class: 'wider-only' },
    { head: 'whole request', text: at('request.latency_s', 1, ',.3~r', ' s') },
    ...(state.price ? [{ head: 'cost, 1K requests', text: at('request.cost', 1e3, ',.3~r', '') }] : []),
    scoreColumn,
    { head: 'HBM', cell: memoryCell },
    { head: 'targets', title: targetsText(), cell: (row) => targetCell(missedTargets(row.result)) }];
}

function serviceColumns() {
  const at = (path, scale, format, unit) => (row) => { const value = numberAt(row.result, path); return value === undefined || value === null ? '' : formatNumber(value * scale, format) + unit; };
  const saturated = (text, otherwise = '–') => (row) => (row.result.serving.state === 'saturated' ? otherwise : text(row));
  const capacity = (row) => capacityOf(state.policies[row.order]);
  return [
    { head: 'capacity, requests/s', bar: (row) => capacity(row).most, text: (row) => { const { known, most, fails, least, note } = capacity(row); return most !== undefined ? rateText(most) + (fails === undefined ? ' or more' : '') : note || !known ? '…' : '< ' + rateText(least); } },
    { head: 'first token, p99', text: saturated(at('serving.ttft_s.p99', 1, ',.3~r', ' s'), 'saturated') },
    { head: 'each token, p99', text: saturated(at('serving.tpot_s.p99', 1e3, ',.3~r', ' ms')), class: 'wide-only' },
    { head: 'whole request', text: saturated(at('serving.e2e_s.mean', 1, ',.3~r', ' s')), class: 'wide-only' },
    ...(state.price ? [{ head: 'cost, 1M tokens', text: at('serving.cost_per_million_output_tokens', 1, ',.3~r', '') }] : []),
    scoreColumn,
    { head: 'cache in use', text: at('serving.kv_used_share.max', 100, '.3~r', ' %'), class: 'wider-only' },
    { head: 'in SLO', text: at('serving.slo_share', 100, '.3~r', ' %') }];
}

function memoryCell({ result }) {
  const peak = numberAt(result, 'memory.hbm_peak_bytes'), capacity = numberAt(result, 'memory.hbm_capacity_bytes');
  return peak ? element('span', {}, element('span', { class: 'wider-only' }, formatBytes(peak) + ', '), formatNumber(100 * peak / capacity, '.2~r') + ' %') : '';
}

const scoreColumn = { head: 'score', title: 'RULER score, % of the uncompressed model', text: ({ result }) => { const share = shareOfScore(result); return share === undefined ? '' : formatNumber(100 * share, '.3~r') + ' %'; } };
function shareOfScore(result) { return numberAt(result, 'score.share_of_full'); }

// ---- the verdict: the sentence that a reader in a hurry takes along

const kKeeps = 0.95;  // share of full KV's score below which a policy is not recommended, as in a report

function targetsText() {
  return sentenceList([...(state.ttft ? ['first token ' + state.ttft + ' s'] : []), ...(state.tpot ? ['each token ' + state.tpot + ' ms'] : [])]);
}

function labelsText(of) { return sentenceList(of.map(({ label }) => label)); }

// The best of those that fit, meet the targets and are known to keep the score; then what the others lack.
function verdictText(shown, serves, measure) {
  const unfit = shown.filter(({ result }) => result && result.oom);
  const missing = serves.filter((row) => (state.traffic ? !(measure(row) > 0) : (missedTargets(row.result) || []).length > 0));
  const losing = serves.filter(({ result }) => shareOfScore(result) < kKeeps);
  const unknown = serves.filter((row) => row.name !== 'full' && shareOfScore(row.result) === undefined);
  const able = serves.filter((row) => !missing.includes(row) && measure(row) > 0);
  const rank = (row) => (losing.includes(row) ? 2 : unknown.includes(row) ? 1 : 0);
  const best = [...able].sort((a, b) => rank(a) - rank(b) || measure(b) - measure(a))[0];
  const does = [' does', ' do'], has = [' has', ' have'];
  const lacks = [[unfit, does, ' not fit in memory'], [missing, does, ' not meet the targets (' + targetsText() + ')'], [losing.filter((row) => !missing.includes(row)), does, ' not keep ' + formatNumber(100 * kKeeps, '.3~r') + ' % of the score'],
    [unknown.filter((row) => row !== best && !missing.includes(row)), has, ' no known score' + (state.score ? '' : ' (the box at the policies predicts it)')]]
    .filter(([of]) => of.length).map(([of, [one, several], what]) => labelsText(of) + (of.length === 1 ? one : several) + what);
  if (!best) return serves.length || unfit.length ? 'No policy can be recommended here: ' + lacks.join('; ') + '.' : '';
  const full = serves.find(({ name }) => name === 'full'), times = full && full !== best && measure(full) > 0 ? ', ' + formatNumber(measure(best) / measure(full), ',.3~r') + ' times full KV' : '';
  const share = shareOfScore(best.result);
  const number = state.traffic ? rateText(measure(best)) + ' requests/s within the SLO' : metricText(best.result, 'decode.tokens_per_s', 1, ',.3~r', ' tokens/s');
  return best.label + (losing.includes(best) ? ' is the fastest, but loses score: ' : unknown.includes(best) ? ' is the fastest, but its score is not known: ' : able.length > 1 ? ' is the best choice: ' : ' is the only choice: ') + number + times + (share !== undefined && best !== full ? ', ' + formatNumber(100 * share, '.3~r') + ' % of its score' : '') + '.' + (lacks.length ? ' ' + lacks.join('; ') + '.' : '');
}

// The share of a bar's cell that the largest value fills leaves room for its number.
function drawBoard() {
  drawSetting();
  const shown = rows.map((row, order) => ({ ...row, order })), usable = shown.filter(({ result, note }) => result && !note);
  const columns = (state.traffic ? serviceColumns() : batchColumns()), serves = usable.filter(({ result }) => Boolean(result.serving) === state.traffic);
  const most = Math.max(0, ...serves.map((row) => columns[0].bar(row) || 0));
  const full = serves.find(({ name }) => name === 'full'), unit = full && columns[0].bar(full);
  const line = (row) => {
    const head = element('th', { scope: 'row' }, element('button', { type: 'button', class: 'row-button', 'aria-pressed': String(row.order === state.focus), title: 'Show it in the timeline and the comparisons', onclick: () => { state.focus = row.order; keepFocus(drawPolicies); changed(); } },
      element('span', { class: 'swatch', style: 'background:' + row.color }), row.label));
    if (!serves.includes(row)) return element('tr', {}, head, element('td', { colspan: columns.length, class: 'why' }, row.note || 'being simulated'));
    const value = columns[0].bar(row);
    const bar = element('td', { class: 'board-bar' }, element('div', { class: 'board-track' }, element('span', { style: 'background:' + row.color + ';width:' + (most > 0 && value > 0 ? 100 * value / most : 0).toFixed(2) + '%' })),
      element('span', { class: 'board-value' }, columns[0].text(row), unit && value && row !== full ? element('span', { class: 'quiet' }, ' ' + formatNumber(value / unit, ',.2~r') + '×') : ''));
    return element('tr', { class: row.order === state.focus ? 'focus' : '' }, head, bar, columns.slice(1).map(({ text, cell, class: name }) => element('td', { class: 'number ' + (name || '') }, cell ? cell(row) : text(row))));
  };
  document.getElementById('verdict').textContent = verdictText(shown, serves, columns[0].bar);
  document.getElementById('board-rows').replaceChildren(rows.length ? element('table', {}, element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'policy'),
    columns.map(({ head, title, class: name }, at) => element('th', { scope: 'col', title, class: (at ? 'number ' : '') + (name || '') }, head)))), element('tbody', {}, shown.map(line))) : '');
}
