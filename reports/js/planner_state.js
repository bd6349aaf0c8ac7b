// The state of the planner's page: the contents of the URL, and the YAML of the run, the sweep and the plan that it defines.
// The page sends exactly the text that "Copy" copies, so a command reproduces what the page showed.
const initialState = {
  model: 'llama-3.1-8b', hardware: 'h100-sxm', changes: {},
  prompt: '32768', decode: '512', batch: '4',
  policies: [{ name: 'full', set: {} }, { name: 'quest', set: { budget: '1024' } }, { name: 'rocketkv', set: { budget: '1024', split_factor: 'adaptive' } }, { name: 'freekv', set: { budget: '1024', sink: '64', recent: '64' } }],
  framework: 'default', gpus: '1', weights: 'released', kv: 'bf16', prefill: 'default', price: '',
  pins: [], traffic: false, rate: '0.25', cv: '0', requests: '200', ttft: '10', tpot: '50',
  focus: 1, traces: 'default', score: false, key: 'workload.batch', unit: 'absolute',
};
let state = JSON.parse(JSON.stringify(initialState));

function differences() {
  return Object.fromEntries(Object.entries(state).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(initialState[name])));
}

// Only differences from the initial state are written.
function stateToHash() {
  const changed = differences();
  return Object.keys(changed).length ? '#' + encodeURIComponent(JSON.stringify(changed)) : '';
}

// A URL may contain numbers where the fields of this page contain texts.
function textsOf(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && typeof value !== 'object').map(([key, value]) => [key, String(value)]));
}

// The state that differs from the initial one by what was read; what has an unknown name or another type is left out.
function stateFrom(read) {
  const fresh = JSON.parse(JSON.stringify(initialState));
  for (const [name, value] of Object.entries(read)) {
    if (value !== null && Object.hasOwn(fresh, name) && typeof value === typeof fresh[name] && Array.isArray(value) === Array.isArray(fresh[name])) fresh[name] = value;
  }
  fresh.pins = fresh.pins.filter((pin) => pin && typeof pin === 'object' && !Array.isArray(pin));
  fresh.changes = textsOf(fresh.changes);
  fresh.policies = fresh.policies.filter((policy) => policy && typeof policy.name === 'string' && policy.set && typeof policy.set === 'object')
    .map(({ name, set }) => ({ name, set: textsOf(set) }));
  if (fresh.policies.length === 0) fresh.policies = JSON.parse(JSON.stringify(initialState.policies));
  fresh.focus = Math.min(Math.max(0, fresh.focus | 0), fresh.policies.length - 1);
  return fresh;
}

// A URL that cannot be read, or that contains unknown names, leaves the initial state.
function stateFromHash(hash) {
  try {
    return stateFrom(hash.length > 1 ? JSON.parse(decodeURIComponent(hash.slice(1))) || {} : {});
  } catch (error) {
    return stateFrom({});
  }
}

// ---- YAML

// A scalar as a user would write it; texts that YAML would read otherwise are quoted.
function scalar(text) {
  return /^-?[A-Za-z0-9][A-Za-z0-9 ._\/+-]*$/.test(text) && !/\s$/.test(text) ? text : JSON.stringify(text);
}

function flow(value) {
  if (Array.isArray(value)) return '[' + value.map(flow).join(', ') + ']';
  if (value && typeof value === 'object') return '{' + Object.entries(value).map(([key, item]) => key + ': ' + flow(item)).join(', ') + '}';
  return scalar(String(value));
}

function policyValue(policy) { return Object.keys(policy.set).length ? { name: policy.name, ...policy.set } : policy.name; }

function hardwareValue() {
  const changed = Object.entries(state.changes);
  if (changed.length === 0) return state.hardware;
  const value = { like: state.hardware };
  for (const [key, text] of changed) {
    const dot = key.lastIndexOf('.');
    let part = value;
    for (const name of key.slice(0, dot).split('.')) part = part[name] = part[name] || {};
    part[key.slice(dot + 1)] = text;
  }
  return value;
}

function commonLines(rate = state.rate) {
  const lines = ['model: ' + flow(state.model), 'hardware: ' + flow(hardwareValue())];
  const prefill = state.prefill === 'default' ? {} : { prefill: state.prefill };
  lines.push(state.traffic ? 'traffic: ' + flow(trafficValue(rate)) : 'workload: ' + flow({ prompt_tokens: state.prompt, decode_tokens: state.decode, batch: state.batch, ...prefill }));
  // No two prompts share anything, so that a prefix cache would only hold what nobody finds.
  if (state.traffic) lines.push('scheduler: ' + flow({ ...prefill, prefix_caching: 'false' }));
  if (state.framework !== 'default') lines.push('framework: ' + flow(state.framework));
  const deployment = { ...(state.gpus === '1' ? {} : { tensor_parallel: state.gpus }), ...(state.weights === 'released' ? {} : { weights: state.weights }), ...(state.kv === 'bf16' ? {} : { kv_cache: state.kv }) };
  if (Object.keys(deployment).length) lines.push('deployment: ' + flow(deployment));
  if (state.price) lines.push('price_per_hour: ' + flow(state.price));
  if (state.traces !== 'default') lines.push('trace: ' + flow({ recipe: state.traces }));
  if (state.score) lines.push('score: ruler');
  return lines;
}

function focused() { return state.policies[state.focus]; }
// The policy that the one in focus is compared with: full KV where it is selected, otherwise the first other policy.
function rival() {
  const others = state.policies.filter((policy) => policy !== focused());
  return others.find((policy) => policy.name === 'full') || others[0] || null;
}

function runYaml() { return [...commonLines(), 'policy: ' + flow(policyValue(focused()))].join('\n') + '\n'; }

function sweepYaml() {
  return [...commonLines(), 'sweep:', '  policy:', ...state.policies.map((policy) => '    - ' + flow(policyValue(policy)))].join('\n') + '\n';
}

// Users may write "32K", which YAML reads as 32768. Returns NaN if the text is not a count.
function tokensOf(text) {
  const [, digits, suffix] = /^([1-9]\d*)([KM]?)$/.exec(text) || [];
  return Number(digits) * ({ K: 1024, M: 1024 * 1024 }[suffix] || 1);
}

// Ranges of break-even questions: keys of the workload in their own numbers, those of the machine as factors.
function breakEvenRange() {
  if (state.traffic) return { from: 'x0.25', to: 'x4' };
  if (state.key === 'workload.batch') return { from: '1', to: '64' };
  if (state.key === 'workload.prompt_tokens') return { from: '4096', to: String(Math.max(8192, tokensOf(state.prompt) || 0)) };
  return { from: 'x0.25', to: 'x4' };
}

function planYaml() {
  const against = rival();
  if (!against) return null;
  const sides = { of: { policy: policyValue(focused()) }, against: { policy: policyValue(against) } };
  const [why, ratio] = state.traffic ? ['serving.ttft_s.mean', 'serving.ttft_s.p99'] : ['decode.tpot_s.mean', 'decode.tokens_per_s'];
  return [...commonLines(), 'policy: ' + flow(policyValue(focused())), 'plan:',
    '  - why: ' + flow({ metric: why, ...sides, if_free: 'false' }),
    '  - break_even: ' + flow({ key: state.traffic ? 'traffic.rate' : state.key, ...breakEvenRange(), metric: ratio, ...sides })].join('\n') + '\n';
}
