// Traffic: requests that come and go in place of a batch. Times over the rate, and the rates that policies serve within the SLO.
const kGridReach = 4, kGridStep = Math.SQRT2;  // rates of the curve: so many steps below and above the run's own
const kClosed = 1.1;  // a capacity lies between two rates of at most this ratio
const kServes = 0.99;  // share of the requests that must be within the SLO
const kMostRounds = 8, kLongest = 1e5;  // seconds that requests may take to arrive

function lengthValue(tokens) { return state.cv === '0' ? tokens : { mean: tokens, cv: state.cv }; }

function trafficValue(rate) {
  const slo = {};
  if (state.ttft) slo.ttft = state.ttft + ' s';
  if (state.tpot) slo.tpot = state.tpot + ' ms';
  const value = { rate, requests: state.requests, prompt_tokens: lengthValue(state.prompt), output_tokens: lengthValue(state.decode) };
  return Object.keys(slo).length ? { ...value, slo } : value;
}

// A number on a logarithmic slider with four steps to a doubling, and a field for any value.
function rateSetting({ id, label, value, low, high, set }) {
  const place = (text) => Math.round(4 * Math.log2(Number(text) > 0 ? Number(text) : low));
  const field = element('input', { type: 'text', inputmode: 'decimal', id, value, onchange: (event) => {
    const text = event.target.value.trim();
    if (Number(text) > 0) slider.value = place(text);
    slider.setAttribute('aria-valuetext', text);
    set(text);
    changed();
  } });
  const slider = element('input', { type: 'range', id: id + '-slider', 'aria-label': label, min: Math.round(4 * Math.log2(low)), max: Math.round(4 * Math.log2(high)), step: 1, value: place(value), 'aria-valuetext': value,
    oninput: (event) => { const next = String(Number((2 ** (Number(event.target.value) / 4)).toPrecision(2))); field.value = next; event.target.setAttribute('aria-valuetext', next); set(next); changed(); } });
  return element('div', { class: 'setting' }, element('div', { class: 'setting-line' }, element('label', { for: id, class: 'axis-label' }, label), field), slider);
}

function trafficControls() {
  const toggle = element('label', { class: 'setting' }, element('input', { type: 'checkbox', id: 'traffic', checked: state.traffic, onchange: (event) => {
    state.traffic = event.target.checked;
    keepFocus(buildControls);
    changed();
  } }), ' requests come and go, in place of a batch');
  const alone = state.traffic ? element('p', { class: 'setting-note' }, 'No two prompts share anything: there is no prefix cache.') : '';
  const rate = (id, label, low, high) => rateSetting({ id, label, value: state[id], low, high, set: (text) => { state[id] = text; } });
  const fields = !state.traffic ? [] : [
    rate('rate', 'requests per second', 1 / 64, 256),
    labelled('lengths', 'cv', select({ id: 'cv' }, [['0', 'all as above'], ['0.5', 'vary: cv 0.5'], ['1', 'vary: cv 1'], ['2', 'vary: cv 2']], state.cv, (cv) => { state.cv = cv; changed(); })),
    countSetting({ id: 'requests', label: 'requests that are simulated', value: state.requests, low: 64, high: 8192, set: (text) => { state.requests = text; } })];
  return element('fieldset', {}, element('legend', {}, 'Traffic'), toggle, alone, fields);
}

// ---- loads that were simulated

const loads = { base: '', results: new Map() };  // of the present settings but for the rate: policy → rate → numbers

function keyOf(policy) { return flow(policyValue(policy)); }
function gridRates() {
  const middle = Math.round(Math.log(Number(state.rate)) / Math.log(kGridStep));
  return Array.from({ length: 2 * kGridReach + 1 }, (_, i) => Number((kGridStep ** (middle + i - kGridReach)).toPrecision(4)));
}

function numbersOf(result) {
  const s = result.serving;
  if (!s) return { note: noteOf(result) || 'cannot be served' };
  return { p50: s.ttft_s && s.ttft_s.p50, p99: s.ttft_s && s.ttft_s.p99, tpot: s.tpot_s && s.tpot_s.p99, share: s.slo_share, state: s.state, used_mean: numberAt(s, 'kv_used_share.mean'), used_max: numberAt(s, 'kv_used_share.max'), running: numberAt(s, 'running.mean') };
}

function loadsOf(policy) { return [...(loads.results.get(keyOf(policy)) || new Map())].map(([rate, numbers]) => ({ rate, ...numbers })).sort((a, b) => a.rate - b.rate); }
function passes(load) { return load.share >= kServes && load.state !== 'saturated'; }

// The largest rate that is served within the SLO, and the next one that is not, of those that were simulated.
function capacityOf(policy) {
  const all = loadsOf(policy), most = all.filter(passes).pop();
  return { known: all.length > 0, most: most && most.rate, fails: (all.find((load) => load.rate > (most ? most.rate : 0)) || {}).rate, least: all.length ? all[0].rate : undefined, note: (all.find((load) => load.note) || {}).note };
}

// Rates that close the bracket of a capacity, or look for one beyond the rates that were simulated.
function furtherRates(policy) {
  const { known, most, fails, least, note } = capacityOf(policy);
  if (!known || note || !(state.ttft || state.tpot)) return [];
  const steps = (from, ratio, count) => Array.from({ length: count }, (_, i) => Number((from * ratio ** (i + 1)).toPrecision(4)));
  if (most === undefined) return Number(state.requests) / least > kLongest ? [] : steps(least, 1 / 2, 3);
  if (fails === undefined) return most > 1e5 ? [] : steps(most, 2, 3);
  if (fails <= kClosed * most) return [];
  const parts = Math.max(2, Math.ceil(Math.log(fails / most) / Math.log(kClosed) - 1e-9));
  return steps(most, (fails / most) ** (1 / Math.min(parts, 4)), Math.min(parts, 4) - 1);
}

function casesYaml(cases) {
  return [...commonLines(), 'sweep:', '  cases:', ...cases.map(([policy, rate]) => '    - ' + flow({ policy: policyValue(policy), 'traffic.rate': String(rate) }))].join('\n') + '\n';
}

function ratesYaml() {
  return [...commonLines(), 'sweep:', '  policy:', ...state.policies.map((policy) => '    - ' + flow(policyValue(policy))), '  traffic.rate: ' + flow(gridRates().map(String))].join('\n') + '\n';
}

async function simulateLoads(signal) {
  if (!state.traffic) return;
  const base = JSON.stringify([commonLines(state.traffic ? '1' : undefined)]);
  if (loads.base !== base) Object.assign(loads, { base, results: new Map() });
  const { policies } = JSON.parse(JSON.stringify(state));
  try {
    for (let round = 0; round < kMostRounds; ++round) {
      const cases = policies.flatMap((policy) => (round === 0 ? gridRates() : furtherRates(policy))
        .filter((rate) => !(loads.results.get(keyOf(policy)) || new Map()).has(rate)).map((rate) => [policy, rate]));
      if (cases.length) {
        await postLines('/api/sweep?nominal=1', casesYaml(cases), signal, (line) => {
          if (!line.result || loads.base !== base) return;
          const [policy, rate] = cases[line.index];
          if (!loads.results.has(keyOf(policy))) loads.results.set(keyOf(policy), new Map());
          loads.results.get(keyOf(policy)).set(rate, numbersOf(line.result));
        });
      }
      if (round === 0 || cases.length) drawLoads();
      if (round > 0 && !cases.length) break;
    }
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    for (const name of ['throughput', 'load', 'cache']) emptyFigure(name, error.message);
  }
  performance.measure('kvcast-load', { start: lastChange, end: performance.now() });
}

function rateText(rate) { return formatNumber(rate, ',.3~r'); }

function drawLoads() {
  if (!state.traffic || !(Number(state.rate) > 0)) return;
  const labels = labelsOf(state.policies);
  const capacities = state.policies.map(capacityOf);
  const full = capacities[state.policies.findIndex(({ name }) => name === 'full')];
  const bars = capacities.map(({ known, most, fails, least, note }, order) => ({
    order, label: labels[order], color: policyColor(order), focus: order === state.focus, value: most === undefined ? null : most, low: most === undefined || fails === undefined ? null : most, high: fails === undefined ? null : fails,
    text: most === undefined ? '' : rateText(most) + (fails === undefined ? ' or more' : ' to ' + rateText(fails)) + (full && full.most ? ' · ' + formatNumber(most / full.most, ',.2~r') + '×' : ''),
    note: note || (!known ? 'being simulated' : !(state.ttft || state.tpot) ? 'no SLO is set' : most === undefined ? 'less than ' + rateText(least) + ' requests/s' : '') }));
  drawFigure('throughput', page.charts.planner_bars, { rows: bars }, { x_title: 'requests/s' + (full && full.most ? '; × full KV' : ''), row_height: 34, limit: 0 });
  const points = state.policies.flatMap((policy, order) => loadsOf(policy).filter(({ p99 }) => p99 > 0)
    .map((load) => ({ ...load, order, label: labels[order], color: policyColor(order), saturated: load.state === 'saturated' ? 1 : 0, share_text: load.share === undefined ? '' : formatNumber(100 * load.share, '.1~f') + ' %' })));
  drawBoard();
  if (!points.length) return ['load', 'cache'].forEach((name) => emptyFigure(name, 'No request is served.'));
  drawFigure('cache', page.charts.planner_cache, { points }, { rate: Number(state.rate) });
  drawFigure('load', page.charts.planner_load, { points }, { rate: Number(state.rate), slo: Number(state.ttft) || 0 });
  showNumbers('load', [numbersTable(['requests/s', ...labels.map((label) => label + ': TTFT p99, s (within the SLO)')],
    [...new Set(points.map(({ rate }) => rate))].sort((a, b) => a - b).map((rate) => [rateText(rate), ...labels.map((label) => {
      const load = points.find((point) => point.rate === rate && point.label === label);
      return !load ? '' : (load.saturated ? 'saturated' : formatNumber(load.p99, ',.3~r')) + (load.share_text ? ' (' + load.share_text + ')' : '');
    })]))]);
}

const loading = new Latest(simulateLoads, 1500);
