// The machine, the model and how it is deployed: named at the top of the page, and changed there.
const kPrecisions = ['fp8', 'int8', 'int4', 'mxfp4', 'nvfp4'];

function buildSetup() {
  const choose = (id, label, options) => element('div', { class: 'setting' }, element('label', { for: id, class: 'axis-label' }, label),
    select({ id }, options, state[id], (value) => { state[id] = value; changed(); }));
  const machine = select({ id: 'hardware' }, catalogue.machines.map(({ name, title }) => [name, title]), state.hardware, (name) => { Object.assign(state, { hardware: name, changes: {} }); drawMachine(); changed(); });
  const models = catalogue.models.filter(({ refused }) => !refused);
  const model = select({ id: 'model' }, models.map(({ name, title }) => [name, title || name]), state.model, (name) => { state.model = name; document.getElementById('prompt').closest('.setting').replaceWith(promptSetting()); changed(); });
  const price = element('input', { type: 'text', inputmode: 'decimal', id: 'price', value: state.price, placeholder: 'none', title: 'In any currency, with the GPU’s share of the host',
    onchange: (event) => { state.price = event.target.value.trim(); changed(); } });
  document.getElementById('setup').replaceChildren(
    labelled('machine', 'hardware', machine), labelled('model', 'model', model),
    choose('gpus', 'GPUs (TP)', ['1', '2', '4', '8', '16'].map((count) => [count, count])),
    choose('framework', 'framework', [['default', 'none in particular'], ...catalogue.frameworks.map(({ name, title }) => [name, title || name])]),
    choose('weights', 'weights', [['released', 'as released'], ['bf16', 'bf16'], ...kPrecisions.map((name) => [name, name])]),
    choose('kv', 'KV cache', [['bf16', 'bf16'], ...kPrecisions.map((name) => [name, name])]),
    choose('prefill', 'prompts are read', [['default', state.traffic ? 'policy’s way' : 'framework’s way'], ['chunked', 'in chunks'], ['whole', 'whole'], ...(state.traffic ? [['alone', 'alone']] : [])]),
    labelled('price, GPU-hour', 'price', price));
}

// "2 × H100 SXM, Llama-3.1-8B, 32K in, 512 out, batch 4": the setting of results, in words.
function settingText(of = state) {
  const machine = catalogue.machines.find(({ name }) => name === of.hardware), model = catalogue.models.find(({ name }) => name === of.model);
  const tokens = (text) => (tokensOf(text) ? formatTokens(tokensOf(text)) : text);
  const changes = Object.keys(of.changes).length;
  return [(of.gpus === '1' ? '' : of.gpus + ' × ') + (machine ? machine.title : of.hardware) + (changes ? ', ' + plural(changes, 'number') + ' changed' : ''), (model && model.title) || of.model,
    ...(of.framework === 'default' ? [] : [of.framework]), ...(of.weights === 'released' ? [] : ['weights ' + of.weights]), ...(of.kv === 'bf16' ? [] : ['cache ' + of.kv]),
    tokens(of.prompt) + ' in', tokens(of.decode) + ' out', of.traffic ? of.rate + ' requests/s' : 'batch ' + of.batch].join(' · ');
}

function drawSetting() {
  const line = document.getElementById('setting');
  line.textContent = settingText();
  line.title = state.prompt + ' tokens in, ' + state.decode + ' out';
}
