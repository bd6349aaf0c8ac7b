// The controls: each writes the state and requests new results.
const kFactorReach = 3;  // sliders of the machine's numbers reach from 1/8 to 8 times the profile's value

// Options are [value, label], or {group, options}.
function select(attributes, options, current, onchange) {
  const option = ([value, label]) => element('option', { value, selected: value === current }, label);
  return element('select', { ...attributes, onchange: (event) => onchange(event.target.value) },
    options.map((one) => (one.group ? element('optgroup', { label: one.group }, one.options.map(option)) : option(one))));
}

function labelled(text, id, control) {
  return element('div', { class: 'setting' }, element('label', { for: id, class: 'axis-label' }, text), control);
}

// A whole number on a logarithmic slider, and a field for any value.
function countSetting({ id, label, value, low, high, set }) {
  const place = (text) => Math.round(4 * Math.log2(Math.max(1, tokensOf(text) || low)));
  const field = element('input', { type: 'text', inputmode: 'numeric', id, value, onchange: (event) => {
    const text = event.target.value.trim();
    if (tokensOf(text)) slider.value = place(text);
    slider.setAttribute('aria-valuetext', text);
    set(text);
    changed();
  } });
  // Four steps to a doubling, on round numbers.
  const at = (position) => { const exact = 2 ** (position / 4), step = Math.max(1, 2 ** Math.floor(Math.log2(exact) - 2)); return Math.min(high, Math.max(low, Math.round(exact / step) * step)); };
  const slider = element('input', { type: 'range', id: id + '-slider', 'aria-label': label, min: Math.round(4 * Math.log2(low)), max: Math.ceil(4 * Math.log2(high)), step: 1,
    value: place(value), 'aria-valuetext': value,
    oninput: (event) => { const next = String(at(Number(event.target.value))); field.value = next; event.target.setAttribute('aria-valuetext', next); set(next); changed(); } });
  return element('div', { class: 'setting' }, element('div', { class: 'setting-line' }, element('label', { for: id, class: 'axis-label' }, label), field), slider);
}

const prefixedUnits = { bytes: [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]], 'bytes/s': [['TB/s', 1e12], ['GB/s', 1e9], ['MB/s', 1e6]], 'FLOP/s': [['TFLOP/s', 1e12], ['GFLOP/s', 1e9]],
  seconds: [['s', 1], ['ms', 1e-3], ['µs', 1e-6], ['ns', 1e-9]], hertz: [['GHz', 1e9], ['MHz', 1e6]], fraction: [['%', 0.01]] };

// "3.35 TB/s": a number in its base unit with a prefix.
function quantityText(value, unit) {
  const prefixed = prefixedUnits[unit];
  if (!prefixed) return formatNumber(value, ',.4~r');
  const [name, scale] = prefixed.find(([, least]) => Math.abs(value) >= least) || prefixed[prefixed.length - 1];
  return formatNumber(value / scale, '.4~r') + ' ' + name;
}

// Returns the ratio of a changed number to the profile's, or 1 where the text has a unit that this page does not show.
function factorOf(text, base, unit) {
  if (!text) return 1;
  if (text.startsWith('x')) return Number(text.slice(1));
  const [, amount, name] = /^([\d.]+)\s*(.*)$/.exec(text.replace(/us$/, 'µs')) || [];
  const known = [...(prefixedUnits[unit] || []), ['', 1]].find(([shown]) => shown === name);
  return (known && Number(amount) * known[1] / base) || 1;
}

// The field that holds the value before which a request of this page was refused; null if it is not a field's.
function refusedField(message, { line, before }) {
  const [, key] = /(\w+): $/.exec(before) || [];
  const [, number] = /^hardware\.(\S+): /.exec(message) || [];
  const policy = line - sweepYaml().split('\n').findIndex((text) => text.startsWith('    - '));
  const [, lengths] = /(\w+): \{mean: $/.exec(before) || [];
  const names = { price_per_hour: 'price', tensor_parallel: 'gpus', weights: 'weights', kv_cache: 'kv', framework: 'framework', prefill: 'prefill' };
  const id = /^(deployment|price_per_hour|framework|scheduler): /.test(before) ? names[key] || names[before.split(':')[0]]
    : /^(workload|traffic): /.test(before) ? { prompt_tokens: 'prompt', decode_tokens: 'decode', output_tokens: 'decode' }[lengths || key] || key
    : number ? 'machine-' + number.replaceAll('.', '-')
      : key === 'budget' ? 'budget-' + policy : 'parameter-' + policy + '-' + key;
  return document.getElementById(id);
}

// Marks the field of a refused value and gives the reason under it.
function markRefused(message, place) {
  for (const old of document.querySelectorAll('.setting-refused')) old.remove();
  for (const old of document.querySelectorAll('[aria-invalid]')) { old.removeAttribute('aria-invalid'); old.removeAttribute('aria-describedby'); }
  const field = place && refusedField(message, place);
  if (!field) return;
  field.setAttribute('aria-invalid', 'true');
  field.setAttribute('aria-describedby', field.id + '-refused');
  field.closest('.setting').append(element('p', { class: 'setting-refused', id: field.id + '-refused' }, message));
  const fold = field.closest('details');
  if (fold) fold.open = true;
}

const machineRows = new Map();  // key → the parts of its setting that change with it

function machineSetting(number) {
  const { key, unit, origin, uncertainty, source, range } = number;
  const curve = number.value === undefined;
  const id = 'machine-' + key.replaceAll('.', '-');
  const base = number.value;
  const shown = (text) => (text ? text : curve ? 'x1' : quantityText(base, unit));
  const setText = (text) => {
    if (text) state.changes = { ...state.changes, [key]: text };
    else { const rest = { ...state.changes }; delete rest[key]; state.changes = rest; }
    update();
    changed();
  };
  const current = () => state.changes[key];
  const field = element('input', { type: 'text', id, value: shown(current()), title: 'A value with its unit, or a factor such as x2',
    onchange: (event) => setText(event.target.value.trim()) });
  // Factors that keep the value within its limits.
  const within = (factor) => curve || base === 0 || (base * factor >= range[0] && base * factor <= range[1]);
  const slider = element('input', { type: 'range', id: id + '-slider', min: -kFactorReach * 8, max: kFactorReach * 8, step: 1, value: 0, 'aria-label': key + ', as a factor',
    oninput: (event) => {
      let position = Number(event.target.value);
      while (position > 0 && !within(2 ** (position / 8))) --position;
      while (position < 0 && !within(2 ** (position / 8))) ++position;
      setText(position === 0 ? '' : 'x' + Number((2 ** (position / 8)).toPrecision(3)));
    } });
  const reset = element('button', { type: 'button', class: 'quiet-button', hidden: true, 'aria-label': 'Reset ' + key, onclick: () => setText('') }, 'reset');
  const place = (factor) => 50 + 50 * Math.log2(factor) / kFactorReach;
  const low = Math.max(0, place(Math.max(1e-3, 1 - uncertainty))), high = Math.min(100, place(1 + uncertainty));
  const row = element('div', { class: 'setting', 'data-key': key, 'data-origin': origin },
    element('div', { class: 'setting-line' }, element('label', { for: id, class: 'axis-label' }, key.slice(key.indexOf('.') + 1)), reset, field),
    slider, element('div', { class: 'band', 'aria-hidden': 'true' }, element('span', { style: 'left:' + low.toFixed(1) + '%;width:' + Math.max(0.6, high - low).toFixed(1) + '%' })),
    element('p', { class: 'setting-note', title: source }, origin + ', ± ' + formatNumber(uncertainty, '.2~p')));
  function update() {
    const text = current();
    field.value = shown(text);
    row.classList.toggle('changed', Boolean(text));
    reset.hidden = !text;
    const factor = factorOf(text, base, unit);
    slider.value = Math.round(8 * Math.log2(factor > 0 ? factor : 1));
    slider.setAttribute('aria-valuetext', text && text.startsWith('x') && !curve ? text + ': ' + quantityText(base * factor, unit) : shown(text));
    row.querySelector('.setting-note').textContent = (text && text.startsWith('x') && !curve ? quantityText(base * factor, unit) + '; in the profile ' + quantityText(base, unit) + ', ' : '') + origin + ', ± ' + formatNumber(uncertainty, '.2~p');
  }
  machineRows.set(key, { update, slider });
  update();
  return row;
}

function machineControls() {
  const machine = catalogue.machines.find(({ name }) => name === state.hardware);
  const groups = [['gpu', 'GPU'], ['link', 'Link to the host'], ['host', 'Host']];
  machineRows.clear();
  return groups.map(([prefix, title]) => {
    const numbers = machine.numbers.filter(({ key }) => key.startsWith(prefix + '.'));
    const open = numbers.some(({ key }) => key in state.changes);
    return element('details', { open, id: 'machine-' + prefix }, element('summary', {}, title + ': ' + numbers.length + ' numbers'), numbers.map(machineSetting));
  });
}

// ---- policies

const unfolded = new WeakSet();  // policies whose parameters are shown

// A file with a paper's settings of a policy is chosen like a policy.
function fileOf(name) { return catalogue.policy_settings.find((file) => file.name === name); }
function descriptorOf(name) { return catalogue.policies.find((policy) => policy.name === (fileOf(name) ? fileOf(name).policy : name)); }
function policyOptions() {
  return [{ group: 'policies', options: catalogue.policies.map(({ name }) => [name, name]) }, { group: 'as in papers and releases', options: catalogue.policy_settings.map(({ name }) => [name, name]) }];
}

function budgetOf(descriptor) { return descriptor.parameters.find(({ key }) => key === 'budget'); }

function policyRow(policy, index) {
  const descriptor = descriptorOf(policy.name), file = fileOf(policy.name);
  const fallback = ({ key, default: own }) => String(file && key in file.set ? file.set[key] : own);
  const color = policyColor(index);
  const head = element('div', { class: 'policy-head' },
    element('input', { type: 'radio', name: 'focus', id: 'focus-' + index, checked: index === state.focus, 'aria-label': 'Show ' + policy.name + ' in the timeline and the comparison',
      onchange: () => { state.focus = index; changed(); } }),
    element('span', { class: 'swatch', style: 'background:' + color }),
    select({ id: 'policy-' + index, 'aria-label': 'Policy ' + (index + 1) }, policyOptions(), policy.name, (name) => {
      Object.assign(policy, { name, set: !fileOf(name) && budgetOf(descriptorOf(name)) ? { budget: policy.set.budget || '2048' } : {} });
      drawPolicies();
      changed();
    }),
    element('button', { type: 'button', class: 'quiet-button', 'aria-label': 'Remove ' + policy.name, disabled: state.policies.length === 1, onclick: () => {
      state.policies.splice(index, 1);
      state.focus = Math.min(state.focus > index ? state.focus - 1 : state.focus, state.policies.length - 1);
      drawPolicies();
      changed();
    } }, 'remove'));
  const parts = [head, file && file.description ? element('p', { class: 'setting-note' }, capital(file.description)) : ''];
  if (budgetOf(descriptor)) {
    parts.push(countSetting({ id: 'budget-' + index, label: 'budget, tokens', value: policy.set.budget || fallback(budgetOf(descriptor)), low: 64, high: 32768, set: (value) => { policy.set.budget = value; } }));
  }
  const others = descriptor.parameters.filter(({ key }) => key !== 'budget');
  if (others.length) {
    const fold = element('details', { open: unfolded.has(policy) }, element('summary', {}, others.length + (others.length === 1 ? ' parameter' : ' parameters')), others.map((parameter) => {
      const id = 'parameter-' + index + '-' + parameter.key;
      const value = parameter.key in policy.set ? policy.set[parameter.key] : fallback(parameter);
      const set = (text) => { if (text === '' || text === fallback(parameter)) delete policy.set[parameter.key]; else policy.set[parameter.key] = text; changed(); };
      const known = parameter.known || (typeof parameter.default === 'boolean' ? ['true', 'false'] : null);
      return element('div', { class: 'setting' }, element('div', { class: 'setting-line' }, element('label', { for: id, class: 'axis-label', title: parameter.meaning }, parameter.key),
        known ? select({ id }, known.map((name) => [name, name]), value, set)
          : element('input', { type: 'text', id, value, onchange: (event) => set(event.target.value.trim()) })),
        element('p', { class: 'setting-note' }, parameter.meaning));
    }));
    fold.policy = policy;
    parts.push(fold);
  }
  return element('div', { class: 'policy-row' }, parts);
}

// The focus stays where it is, so that arrow keys can step through a list of policies.
function drawPolicies() {
  const focus = document.activeElement.id;
  for (const fold of document.querySelectorAll('#policies details')) unfolded[fold.open ? 'add' : 'delete'](fold.policy);
  document.getElementById('policies').replaceChildren(...state.policies.map(policyRow));
  if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
}

function drawMachine() { document.getElementById('machine').replaceChildren(...machineControls()); }

function promptSetting() {
  const longest = catalogue.models.find(({ name }) => name === state.model).max_context - 1024;
  return countSetting({ id: 'prompt', label: 'prompt, tokens', value: state.prompt, low: 1024, high: longest, set: (value) => { state.prompt = value; } });
}

function targetControls() {
  const rate = (id, label, low, high) => rateSetting({ id, label, value: state[id], low, high, set: (text) => { state[id] = text; } });
  return element('fieldset', {}, element('legend', {}, 'Targets'), rate('ttft', 'first token within, s', 1 / 8, 64), rate('tpot', 'each output token within, ms', 4, 512),
    element('p', { class: 'setting-note' }, state.traffic ? '99 % of the requests keep both: the SLO.' : 'An empty field is no target.'));
}

function buildControls() {
  buildSetup();
  const traces = [['default', 'three texts (default)'], ['needle', 'needle'], ['longbench-single-doc', 'longbench-single-doc'], ['ruler-multikey2', 'ruler-multikey2'], ['reasoning', 'reasoning']];
  const keys = ['workload.batch', 'workload.prompt_tokens', 'hardware.gpu.hbm_bandwidth', 'hardware.link.h2d_bandwidth', 'hardware.link.issue_call', 'hardware.host.launch', 'hardware.host.dram_bandwidth'];
  document.getElementById('controls').replaceChildren(
    element('fieldset', {}, element('legend', {}, 'Workload'),
      promptSetting(),
      countSetting({ id: 'decode', label: 'generated, tokens', value: state.decode, low: 16, high: 8192, set: (value) => { state.decode = value; } }),
      state.traffic ? '' : countSetting({ id: 'batch', label: 'batch, sequences', value: state.batch, low: 1, high: 256, set: (value) => { state.batch = value; } }),
      labelled('attention traces', 'traces', select({ id: 'traces' }, traces, state.traces, (name) => { state.traces = name; changed(); }))),
    trafficControls(),
    targetControls(),
    element('fieldset', {}, element('legend', {}, 'Policies'), element('div', { id: 'policies' }),
      element('button', { type: 'button', id: 'add-policy', class: 'quiet-button', onclick: () => { state.policies.push({ name: 'snapkv', set: { budget: '2048' } }); drawPolicies(); changed(); } }, 'Add a policy'),
      element('label', { class: 'setting' }, element('input', { type: 'checkbox', id: 'score', checked: state.score, onchange: (event) => { state.score = event.target.checked; changed(); } }), ' predict the RULER score of every policy (replays take a while)')),
    element('fieldset', {}, element('legend', {}, 'Numbers of the machine'),
      element('p', { class: 'setting-note' }, 'A slider changes a number by a factor; the bar under it is its uncertainty.'), element('div', { id: 'machine' })),
    state.traffic ? '' : element('fieldset', {}, element('legend', {}, 'Break-even'),
      labelled('over', 'key', select({ id: 'key' }, keys.map((key) => [key, key]), state.key, (key) => { state.key = key; changed(); }))));
  drawPolicies();
  drawMachine();
}
