// The planner's page: state in, results out.
const page = JSON.parse(document.getElementById('data').textContent);
let catalogue = null;
let rows = [];  // one for each policy: {name, label, color, result, note}

// Parameters that rarely matter are left out of the labels, unless policies would have the same label.
function labelsOf(policies) {
  const label = ({ name, set }, keep) => [name, ...Object.entries(set).filter(keep).map(([key, value]) => key + ' ' + value)].join(', ');
  const short = policies.map((policy) => label(policy, ([key, value]) => !['sink', 'recent', 'page'].includes(key) && value !== 'adaptive'));
  return short.map((text, index) => (short.indexOf(text) === short.lastIndexOf(text) ? text : label(policies[index], () => true)));
}

function noteOf(result) {
  if (result.status === 'failed') return withoutPosition(result.error);
  const oom = result.oom;
  if (!oom) return '';
  return 'does not fit in ' + poolName(oom.pool) + ': ' + formatBytes(oom.requested_bytes) + ' requested for ' + oom.requested_for + ' at ' + oom.moment + '; ' +
    formatBytes(oom.capacity_bytes - oom.in_use_bytes) + ' of ' + formatBytes(oom.capacity_bytes) + ' are free';
}

// Earlier results stay, but dimmed, so that nobody mistakes them for results of the refused settings.
function showRefusal(message, place) {
  markRefused(message, place);
  const box = document.getElementById('refused'), summary = document.getElementById('summary');
  box.textContent = message && rows.length ? message + '. The results below are those of the last settings that were simulated.' : message;
  box.hidden = !message;
  if (message && !rows.length) summary.textContent = 'There are no results yet.';
  mark('is-stale', Boolean(message));
}

function mark(name, on) {
  for (const id of ['verdict', 'board-rows', 'summary', 'figures', 'table-section']) document.getElementById(id).classList.toggle(name, on);
}

// Results of the last settings stay until those of new ones come, and are marked as such.
let working = { timer: 0, since: 0 };
function showWorking(text, done, of) {
  const box = document.getElementById('working');
  clearInterval(working.timer);
  if (text && box.hidden) working.since = performance.now();
  const draw = () => {
    const seconds = Math.round((performance.now() - working.since) / 1e3);
    box.replaceChildren(of ? element('progress', { value: done, max: of, 'aria-label': text }) : '', text + (seconds > 1 ? ', ' + seconds + ' s' : '') + (rows.length ? '. Shown: the last settings.' : ''));
  };
  box.hidden = !text;
  mark('is-working', Boolean(text));
  if (!text) return;
  draw();
  working.timer = setInterval(draw, 1000);
}

function summarise() {
  const row = rows[state.focus], result = row && row.result;
  if (!result) return;
  const against = rows[state.policies.indexOf(rival())];
  const other = against && against.result && against.result.status === 'ok' ? against.result.decode.tokens_per_s : null;
  if (state.traffic && result.serving) return summariseService(row, result);
  document.getElementById('summary').textContent = row.note ? row.label + ': ' + row.note + '.'
    : row.label + ': ' + metricText(result, 'request.requests_per_s', 1, ',.3~r', ' requests/s') + ', first token after ' + formatNumber(result.request.ttft_s, ',.3~r') + ' s, all after ' + formatNumber(result.request.latency_s, ',.3~r') + ' s' + (result.fit === 'borderline' ? ' (borderline in memory)' : '') + '. Decoding: ' + metricText(result, 'decode.tokens_per_s', 1, ',.4~r', ' tokens/s') + (other ? ', ' + formatNumber(result.decode.tokens_per_s / other, ',.3~r') + ' times ' + against.label : '') + '. The bottleneck is ' + result.bottleneck + '.';
}

function summariseService(row, result) {
  const saturated = result.serving.state === 'saturated';
  document.getElementById('summary').textContent = row.label + ' at ' + state.rate + ' requests/s: ' + (saturated ? 'saturated, the queue grows as long as requests arrive' : result.serving.state + ', first token after ' + metricText(result, 'serving.ttft_s.mean', 1, ',.3~r', ' s') + ', p99 ' + metricText(result, 'serving.ttft_s.p99', 1, ',.3~r', ' s')) +
    '. ' + formatNumber(numberAt(result, 'serving.running.mean'), ',.3~r') + ' requests run at a time' + (result.serving.slo_share === undefined ? '' : '; ' + metricText(result, 'serving.slo_share', 100, '.3~r', ' %') + ' are within the SLO') + '.';
}

function freshRows() {
  const labels = labelsOf(state.policies);
  return state.policies.map((policy, index) => ({ name: policy.name, label: labels[index], color: policyColor(index), result: null, note: '' }));
}

// Throughput, score, memory and timeline of every policy: simulated once at first, and then for their intervals if nothing
// has changed meanwhile.
let replayed = '';  // the settings that replays depend on, of the last results
function replaySettings() { return JSON.stringify([state.model, state.prompt, state.decode, state.kv, state.traces, state.policies]); }

async function simulate(signal) {
  simulation.patience = kPatience;
  const asked = replaySettings();
  try {
    await simulateOnce('nominal=1&', 'kvcast-sweep', signal);
  } catch (error) {
    if (error.name !== 'AbortError' && replayed !== asked) showNoComparison(error.message);
    throw error;
  }
  if (replayed !== asked) {
    replayed = asked;
    comparison.request();
  }
  if (simulation.again) return;
  simulation.patience = 0;
  await simulateOnce('', 'kvcast-intervals', signal);
}

async function simulateOnce(how, measured, signal) {
  const fresh = freshRows();
  const slow = setTimeout(() => showWorking('Simulating'), 400);
  let open = fresh.length;
  const show = () => {
    clearTimeout(slow);
    showWorking('');
    rows = fresh;
    showRefusal('');
    drawBoard();
    drawBars();
    drawTimeline();
    drawTable();
    summarise();
    comparePins();
    performance.measure(measured, { start: lastChange, end: performance.now() });
  };
  try {
    await postLines('/api/sweep?' + how + 'timeline=' + state.focus, sweepYaml(), signal, (line) => {
      if (line.progress) {
        clearTimeout(slow);
        const { what, done, of } = line.progress;
        showWorking(capital(what) + ': ' + done + ' of ' + of, done, of);
      }
      if (line.nearest) {
        fresh[line.index].note += '; ' + line.nearest;
        if (rows === fresh) {
          drawBoard();
          drawTable();
          summarise();
        }
      }
      if (!line.result) return;
      fresh[line.index].result = line.result;
      fresh[line.index].note = noteOf(line.result);
      open -= 1;
      if (open === 0) show();
    });
  } finally {
    clearTimeout(slow);
    showWorking('');
  }
}

const questions = ['why', 'break_even'];
function showNoComparison(text) {
  for (const name of questions) {
    figures.get(name).title.textContent = figures.get(name).heading;
    emptyFigure(name, text);
  }
}

// The comparison of the policy in focus with its rival. Replays that it shares with the results are not made twice: it waits.
async function compare(signal) {
  const yaml = planYaml();
  if (yaml && replayed !== replaySettings()) return;
  if (!yaml) return showNoComparison('A second policy is needed for a comparison.');
  try {
    await postLines('/api/plan', yaml, signal, (line) => {
      if (!line.answer) return;
      const name = questions[line.index], figure = figures.get(name);
      figure.title.textContent = line.answer.question;
      figure.caption.textContent = line.answer.text + ' (' + plural(line.answer.runs, 'experiment') + ')';
      if (line.spec) drawFigure(name, line.spec, {}, {}); else emptyFigure(name, line.answer.text);
      showNumbers(name, line.answer.details.map((text) => element('p', {}, text)));
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    showNoComparison(error.message);
  }
  performance.measure('kvcast-plan', { start: lastChange, end: performance.now() });
}

const kPatience = 1500;  // milliseconds that older settings may still take
const simulation = new Latest(simulate, kPatience), comparison = new Latest(compare, kPatience);
let lastChange = 0;
function keepState() { history.replaceState(null, '', location.pathname + location.search + stateToHash()); }
function changed() {
  lastChange = performance.now();
  keepState();
  showMode();
  drawSetting();
  simulation.request();
  comparison.request();
  loading.request();
}

// The figures of a batch, or of traffic.
function showMode() {
  const heading = (name, title, caption) => { Object.assign(figures.get(name), { heading: title }); figures.get(name).title.textContent = title; figures.get(name).caption.textContent = caption; };
  for (const name of ['load', 'cache']) figures.get(name).node.hidden = !state.traffic;
  heading('throughput', state.traffic ? 'Capacity within the SLO' : 'Decode throughput', state.traffic ? 'The rate at which 99 % of the requests are within the SLO lies in the range of the whisker.' : 'Whiskers are 80 % intervals.');
  if (state.traffic) drawLoads();
}

async function copy(text, hint) {
  const told = document.getElementById('copied');
  try {
    await navigator.clipboard.writeText(text);
    told.textContent = 'Copied. ' + hint;
  } catch (error) {  // the browser denies access to the clipboard: show the text to copy by hand
    document.getElementById('yaml').textContent = text;
    document.getElementById('yaml-hint').textContent = hint;
    document.getElementById('yaml-dialog').showModal();
  }
}

function buildPage() {
  document.getElementById('figures').replaceChildren(
    figureBlock('throughput', 'Decode throughput', 'Whiskers are 80 % intervals.'),
    figureBlock('load', 'Time to first token over the rate', '99th percentiles; thin lines are medians. Hollow points, at the ends of dashed lines, are saturated: their times grow with the number of requests. The dotted line is the present rate.'),
    figureBlock('cache', 'Cache in use over the rate', 'At most; thin lines are means over time. Where it is full, requests wait or lose their memory. The dotted line is the present rate.'),
    element('div', { class: 'planner-pair' }, figureBlock('score', 'Predicted score', 'The share of the uncompressed model’s RULER score at the nearest context, with its 80 % interval.'), figureBlock('memory', 'Memory', '')),
    figureBlock('timeline', 'One decode step', 'Drag to zoom in, double-click to see the whole step; or use the keys + and -, the arrows and Escape.'),
    element('div', { class: 'planner-pair' }, figureBlock('why', 'Difference in time', ''), figureBlock('break_even', 'Break-even', '')));
  const { timeline } = Object.fromEntries(figures);
  zoomByKeys(timeline.plot, () => timeline.view);
  document.getElementById('copy-run').onclick = () => copy(runYaml(), 'Save it as run.yaml: kvcast run run.yaml');
  document.getElementById('copy-sweep').onclick = () => copy(state.traffic ? ratesYaml() : sweepYaml(), 'Save it as sweep.yaml: kvcast sweep sweep.yaml -o results');
  document.getElementById('copy-plan').onclick = () => (planYaml() ? copy(planYaml(), 'Save it as plan.yaml: kvcast plan plan.yaml') : copy(runYaml(), 'A plan needs two policies. Save this as run.yaml: kvcast run run.yaml'));
  document.getElementById('pin').onclick = addPin;
  document.getElementById('copy-link').onclick = () => copy(location.href, 'The link contains all settings.');
  document.getElementById('theme').onclick = () => { document.documentElement.dataset.theme = currentTheme() === 'dark' ? 'light' : 'dark'; redrawFigures(); };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawFigures);
  onResize(document.querySelector('.planner-results'), () => {
    const moved = [...figures.values()].some((figure) => figure.view && Math.abs((figure.plot.clientWidth || figure.width) - figure.width) > 1);
    if (moved) redrawFigures();
  });
  addEventListener('hashchange', () => { takeState(); buildControls(); changed(); });
}

// Unknown names reset the page to its initial state.
function takeState() {
  state = stateFromHash(location.hash);
  const known = (list, name) => list.some((entry) => entry.name === name && !entry.refused);
  if (!known(catalogue.models, state.model)) state.model = initialState.model;
  if (!known(catalogue.machines, state.hardware)) Object.assign(state, { hardware: initialState.hardware, changes: {} });
  const { numbers } = catalogue.machines.find(({ name }) => name === state.hardware);
  state.changes = Object.fromEntries(Object.entries(state.changes).filter(([changed]) => numbers.some(({ key }) => key === changed)));
  state.policies = state.policies.filter(({ name }) => descriptorOf(name));
  if (state.policies.length === 0) state.policies = JSON.parse(JSON.stringify(initialState.policies));
  state.focus = Math.min(state.focus, state.policies.length - 1);
}

async function start() {
  catalogue = await getJson('/api/catalogue');
  takeState();
  buildPage();
  buildControls();
  for (const id of ['setup', 'controls']) document.getElementById(id).addEventListener('submit', (event) => event.preventDefault());
  lastChange = performance.now();
  showMode();
  drawBoard();
  comparePins();
  await Promise.all([simulation.start(), loading.start()]);
  while (comparison.running) await new Promise((next) => setTimeout(next, 20));
  document.documentElement.dataset.ready = 'true';
}
start();
