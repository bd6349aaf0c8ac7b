// Scenarios that were pinned, and the present one compared with one of them. A pin is what differs from the initial state, so
// that links contain pins, and their results are simulated again.
const pinned = new Map();  // text of a pin → its rows, or the reason why there are none
let against = 0;  // the pin that is compared

function pinText(pin) { return JSON.stringify(pin); }

function withState(other, ask) {
  const own = state;
  state = other;
  try {
    return ask();
  } finally {
    state = own;
  }
}

function addPin() {
  const { pins, ...pin } = differences();
  const text = pinText(pin);
  if (!state.pins.some((other) => pinText(other) === text)) state.pins = [...state.pins, pin];
  against = state.pins.findIndex((other) => pinText(other) === text);
  if (rows.length === state.policies.length && rows.every(({ result }) => result)) pinned.set(text, rows.map((row) => ({ ...row })));
  keepState();
  comparePins();
}

function removePin(at) {
  state.pins = state.pins.filter((_, index) => index !== at);
  against = Math.max(0, Math.min(against >= at ? against - 1 : against, state.pins.length - 1));
  keepState();
  comparePins();
}

async function simulatePin(pin, signal) {
  const [yaml, fresh] = withState(stateFrom(pin), () => [sweepYaml(), freshRows()]);
  await postLines('/api/sweep?nominal=1', yaml, signal, (line) => {
    if (line.result) Object.assign(fresh[line.index], { result: line.result, note: noteOf(line.result) });
  });
  return fresh;
}

// Draws what there is, and simulates the pin if it has no results yet.
async function comparePins() {
  drawCompared();
  const pin = state.pins[against], text = pin && pinText(pin);
  if (!pin || pinned.has(text)) return;
  pinned.set(text, []);
  try {
    pinned.set(text, await simulatePin(pin));
  } catch (error) {
    pinned.set(text, error.message);
  }
  drawCompared();
}

// [name, its text in A, its text in B] of each setting that differs.
function changedSettings(a, b) {
  const names = { hardware: 'machine', gpus: 'GPUs', kv: 'KV cache', prompt: 'prompt', decode: 'generated', ttft: 'target of the first token, s', tpot: 'target of a token, ms' };
  const text = (value) => (value === '' ? 'none' : tokensOf(value) >= 1024 ? formatTokens(tokensOf(value)) : String(value));
  const single = Object.keys(initialState).filter((key) => !['pins', 'focus', 'changes', 'policies', 'key', 'unit'].includes(key) && a[key] !== b[key]).map((key) => [names[key] || key, text(a[key]), text(b[key])]);
  const numbers = [...new Set([...Object.keys(a.changes), ...Object.keys(b.changes)])].filter((key) => a.changes[key] !== b.changes[key]).map((key) => [key, a.changes[key] || 'profile', b.changes[key] || 'profile']);
  const labels = (of) => withState(of, () => labelsOf(of.policies)).join('; ');
  return [...single, ...numbers, ...(labels(a) === labels(b) ? [] : [['policies', labels(a), labels(b)]])];
}

const comparedMetrics = [
  ['decode, tokens/s', 'decode.tokens_per_s', 1, ',.3~r'], ['requests/s of the full batch', 'request.requests_per_s', 1, ',.3~r'], ['first token, s', 'request.ttft_s', 1, ',.3~r'], ['decode step, ms', 'decode.tpot_s.mean', 1e3, ',.3~r'],
  ['whole request, s', 'request.latency_s', 1, ',.3~r'], ['cost of 1K requests', 'request.cost', 1e3, ',.3~r'], ['peak HBM, GB', 'memory.hbm_peak_bytes', 1e-9, ',.3~r'], ['RULER score, % of full', 'score.share_of_full', 100, '.3~r']];
const comparedService = [
  ['requests/s served', 'serving.requests_per_s', 1, ',.3~r'], ['first token p99, s', 'serving.ttft_s.p99', 1, ',.3~r'], ['each token p99, ms', 'serving.tpot_s.p99', 1e3, ',.3~r'], ['whole request, s', 'serving.e2e_s.mean', 1, ',.3~r'],
  ['within the SLO, %', 'serving.slo_share', 100, '.3~r'], ['cost of 1M output tokens', 'serving.cost_per_million_output_tokens', 1, ',.3~r']];

function differenceText(a, b) {
  if (!(a > 0) || !(b > 0)) return a === b ? 'same' : '';
  const ratio = b / a;
  if (Math.abs(ratio - 1) < 5e-4) return 'same';
  return ratio >= 2 || ratio <= 0.5 ? formatNumber(ratio, ',.3~r') + '×' : formatNumber(100 * (ratio - 1), '+.3~r') + ' %';
}

function comparedLines(pin, theirs) {
  const [mine, other] = [rows[state.focus], theirs[pin.focus]];
  const metrics = [...(state.traffic || pin.traffic ? [] : comparedMetrics), ...(state.traffic && pin.traffic ? comparedService : [])];
  const cell = (row, [, path, scale, format]) => { const value = row && row.result && !row.note ? numberAt(row.result, path) : undefined; return [value, typeof value === 'number' ? formatNumber(value * scale, format) : row && row.note ? 'does not fit' : '']; };
  const line = (label, a, b, metric, title) => {
    const [x, before] = cell(a, metric), [y, after] = cell(b, metric);
    return before || after ? element('tr', { title }, element('th', { scope: 'row' }, label), element('td', { class: 'number' }, before), element('td', { class: 'number' }, after), element('td', { class: 'number' }, differenceText(x, y))) : '';
  };
  const headline = metrics[0];
  const common = !headline ? [] : rows.map((row) => [row, theirs.find(({ label }) => label === row.label)]).filter(([row, a]) => a && row !== mine);
  return [...metrics.map((metric) => line(metric[0], other, mine, metric)), ...common.map(([row, a]) => line(row.label + ': ' + headline[0], a, row, headline))];
}

function drawCompared() {
  const box = document.getElementById('compared'), pin = state.pins[against];
  document.getElementById('pin').textContent = 'Pin as ' + String.fromCharCode(65 + state.pins.length % 26);
  box.hidden = !pin;
  if (!pin) return box.replaceChildren();
  const theirs = pinned.get(pinText(pin)), other = stateFrom(pin), letter = (at) => String.fromCharCode(65 + at % 26);
  const chips = element('div', { class: 'pins' }, state.pins.map((one, at) => element('span', { class: 'pin' + (at === against ? ' chosen' : '') },
    element('button', { type: 'button', class: 'row-button', id: 'pin-' + at, 'aria-pressed': String(at === against), title: 'Compare with this', onclick: () => { against = at; keepFocus(comparePins); } }, element('strong', {}, letter(at)), ' ' + settingText(stateFrom(one))),
    element('button', { type: 'button', class: 'quiet-button', 'aria-label': 'Return to ' + letter(at), onclick: () => { state = { ...stateFrom(one), pins: state.pins }; buildControls(); changed(); } }, 'open'),
    element('button', { type: 'button', class: 'quiet-button', 'aria-label': 'Remove ' + letter(at), onclick: () => removePin(at) }, '×'))));
  const differs = changedSettings(other, state);
  const names = [theirs && theirs[other.focus] && theirs[other.focus].label, rows[state.focus] && rows[state.focus].label];
  const table = !Array.isArray(theirs) ? element('p', { class: 'note' }, theirs) : !theirs.length || !rows.length ? element('p', { class: 'note' }, 'What was pinned is being simulated.')
    : element('div', { class: 'table-frame' }, element('table', { id: 'compared-table' }, element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, ''), element('th', { scope: 'col', class: 'number' }, letter(against) + ': ' + names[0]), element('th', { scope: 'col', class: 'number' }, 'now: ' + names[1]), element('th', { scope: 'col', class: 'number' }, 'difference'))),
      element('tbody', {}, comparedLines(other, theirs))));
  box.replaceChildren(element('h2', {}, 'Now against ' + letter(against)), chips,
    element('p', { id: 'compared-settings' }, differs.length ? sentenceList(differs.map(([name, a, b]) => name + ' ' + a + ' → ' + b)) + '.' : 'Same settings.'), table);
}
