// The texts around the figures.
const origins = [
  ['exact', 'follows from the configuration or the replayed trace alone, such as the bytes of a tensor'],
  ['measured', 'timed by kvcast\'s own kernels on the device named'],
  ['fitted', 'a model fitted to measurements, used inside their range'],
  ['literature', 'measured by others and published'],
  ['datasheet', 'stated by the maker'],
  ['assumed', 'our own judgement; no source'],
  ['extrapolated', 'outside the range for which the number was established'],
];

function drawHead() {
  const { sweep, findings } = page;
  const total = page.tables.experiments.rows;
  document.getElementById('title').textContent = sweep.name || (page.answers.length ? page.answers[0].question : 'Sweep') || 'Plan';
  document.getElementById('setting').textContent = settingText();
  const counts = total === 0 ? 'The store holds no experiments yet.'
    : countText(sweep, total) + ': ' + sentenceList([
      formatCount(sweep.counts.ok) + ' ran', formatCount(sweep.counts.oom) + ' ran out of memory',
      ...(sweep.counts.failed ? [formatCount(sweep.counts.failed) + ' failed'] : [])]) + '. All numbers are forecasts of a simulator, not measurements of a running model.';
  document.getElementById('lead').append(sweep.description ? sweep.description.trim().replace(/([^.!?])$/, '$1.') + ' ' : '', counts);
  if (sweep.part) document.getElementById('lead').after(otherParts(sweep.part));
  const box = document.getElementById('findings');
  box.hidden = !sweep.swept || Boolean(sweep.compared);
  const served = box.hidden ? null : drawServiceDecision(), others = served ? findings.filter(({ title }) => title !== kCapacity) : findings;
  if (!box.hidden) box.replaceChildren(...(served || findings.length
    ? [...(served ? [served] : []), ...others.map((finding, order) => drawFinding(finding, toldPlace(others), served ? order + 1 : order))]
    : [element('p', { class: 'empty' }, 'This store holds no findings: either its sweep has not finished, or nothing was concluded from it.')]));
}

function countText({ part, planned }, total) {
  if (part) {
    return 'This page shows ' + formatCount(total) + ' of ' + plural(part.of, 'experiment') + ', those with ' +
      sentenceList(part.where.map(([key, value]) => key + (value === '' ? ' not set' : ' = ' + value)));
  }
  return (planned > total ? 'So far ' + formatCount(total) + ' of ' : '') + plural(Math.max(total, planned || 0), 'experiment');
}

// How to see the experiments that a page of a large sweep leaves out.
function otherParts({ where, values }) {
  const [key, shown] = where[0];
  const other = values[key].find((value) => value !== shown && value !== '');
  return element('details', { id: 'other-parts', class: 'on-screen' }, element('summary', {}, 'Other parts of this sweep'),
    element('p', {}, 'Findings are those of the whole sweep, and tables/experiments.csv lists all of it. Pages of other parts: ',
      element('code', {}, 'kvcast report DIR -o OUT --where ' + key + '=' + (other === undefined ? shown : "'" + other + "'"))),
    ...where.map(([name]) => element('p', {}, name + ': ' + values[name].map((value) => (value === '' ? 'not set' : value)).join(', '))));
}

// Machines, models and workload in one line.
function settingText() {
  const span = (signal, show) => {
    const values = distinctValues(signal);
    return values.length > 2 ? show(values[0]) + ' to ' + show(values[values.length - 1]) : values.map(show).join(' and ');
  };
  const names = (signal, many) => (distinctValues(signal).length > 3 ? formatCount(distinctValues(signal).length) + ' ' + many : sentenceList(distinctValues(signal)));
  const part = (text, before, after) => (text ? before + text + after : '');
  return [names('model', 'models'), part(names('hardware', 'machines'), 'on ', ''), part(span('context', formatTokens), 'contexts of ', ' tokens'),
    part(span('batch', formatCount), 'batch ', ''), part(names('policy', 'policies'), '', '')].filter(Boolean).join(' · ');
}

// Contexts are in the format of the page, "130560 tokens" and "16K, 32K, 130560 tokens".
function withContexts(text) { return text.replace(/\b(\d[\d,]{3,}) tokens\b/g, (_, number) => formatTokens(Number(number.replace(/,/g, ''))) + ' tokens'); }

// Numbers of tokens in the texts of findings have the format of the table.
function withSeparators(text) { return withContexts(text).replace(/\b(budget|sink|recent|window|context|prompt|at|batch) (\d{4,})\b(?!\.?\d)/g, (_, what, number) => what + ' ' + formatCount(Number(number))); }

// No line starts with a percent sign.
function joinPercent(text) { return text.replace(/ %/g, '\u00a0%'); }

// The group that the cards describe: that of the fastest recommendation. The others are in the cards' details.
function toldPlace(findings) {
  const rate = ({ bars }) => (bars.length ? bars[0].to : -1);
  const places = findings[0].places;
  return places.length ? places.reduce((best, place) => (rate(place) > rate(best) ? place : best)).place : null;
}

// A finding shows one number, one sentence and one picture; the rest is folded.
function drawFinding({ title, text, detail, places }, told, order) {
  const lines = text.split('\n');
  // A finding without groups is its text alone, shown like a number if it is short enough.
  const alone = text.length <= 24 ? { number: text, text: '', bars: [] } : { number: '', text: lines[0], bars: [] };
  const shown = places.find(({ place }) => place === told) || places[0] || alone;
  const joined = (part) => joinPercent(withSeparators(part));
  const sentence = joined(shown.place ? 'On ' + shown.place + ': ' + shown.text + '.' : shown.text);
  const rest = [...(lines.length > 1 ? lines : []), ...(detail ? detail.split('\n') : [])].map(joined);
  const folded = rest.length ? element('details', {}, element('summary', {}, places.length > 2 ? 'Details for all ' + formatCount(places.length) : places.length === 2 ? 'Details for both' : 'Details'),
    rest.map((line) => element('p', { class: 'finding-detail' }, line))) : '';
  return (order === 0 && drawDecision({ title, places }, shown, folded)) || element('div', { class: 'finding' }, element('h2', {}, title),
    shown.number ? element('p', { class: 'finding-number' }, shown.number) : '',
    sentence ? element('p', { class: 'finding-text' }, sentence) : '', drawBars(shown.bars, shown.place), folded);
}

// Bars from 0; a label that names a number of the machine leads to its source.
function drawBars(bars, machine) {
  const whole = bars.some(({ text, to }) => /^\d+ % of /.test(text) && to <= 1.005);  // shares fill their track as they say
  const low = Math.min(0, ...bars.map(({ from }) => from)), high = Math.max(whole ? 1 : 0, ...bars.map(({ to }) => to));
  const share = (value) => (100 * (value - low)) / (high - low || 1);
  return element('div', { class: 'finding-bars' }, bars.map(({ label, text, from, to }) => element('div', { class: 'finding-bar' },
    element('span', { class: 'bar-label' }, sourceLink(withContexts(label), sourcesNamed(label, machine))),
    element('span', { class: 'bar-track' }, element('span', { class: to > from ? 'bar' : '', style: 'left: ' + share(from) + '%; width: ' + (share(to) - share(from)) + '%; background: ' + policyColor(label) })),
    element('span', { class: 'bar-text' }, text))));
}

// "gpu.floor_gemm and 4 of the same source" leads to the number named and to the machine's others of its source.
function sourcesNamed(label, machine) {
  const named = sourcesOf([machine], { key: label.split(' ')[0] });
  if (named.length === 0 || !label.endsWith(' of the same source')) return named;
  return sourcesOf([machine], {}).filter(({ source }) => source === named[0].source);
}

function policyColor(label) {
  const row = sharedRows('series').find(({ policy }) => policy === (label === 'full KV' ? 'full' : label));
  return row ? row.color : 'var(--accent)';
}

// The rows of the table of sources for these machines (all where none is named) that have the origin or the key.
function sourcesOf(machines, { origin, key }) {
  const own = (what) => machines.length === 0 || machines.some((machine) => what.startsWith(machine + ': '));
  return page.origins.filter((row) => own(row.what) && (!origin || row.origin === origin) && (!key || row.what.endsWith(': ' + key)));
}

// A link that opens the table of sources at these rows and marks them; plain text if there are none.
function sourceLink(text, rows) {
  if (rows.length === 0) return text;
  const show = (event) => {
    event.preventDefault();
    document.querySelector('#foundations details').open = true;
    const lines = [...document.querySelectorAll('#origins tbody tr')];
    lines.forEach((line, index) => line.classList.toggle('marked', rows.includes(page.origins[index])));
    lines.find((line) => line.classList.contains('marked')).scrollIntoView({ block: 'center' });
  };
  return element('a', { class: 'source-link', href: '#foundations', title: plural(rows.length, 'number') + ' in the table of sources', onclick: show }, text);
}

function drawFoundations() {
  const rows = page.origins;
  const used = new Set(rows.map((row) => row.origin));
  const uncertainty = (row) => (row.uncertainty === undefined ? 'not stated' : row.uncertainty === 0 ? 'none' : '±' + formatNumber(100 * row.uncertainty, '.3~r') + ' %');
  document.getElementById('foundations').append(
    element('h2', {}, 'Origins of these numbers'),
    element('p', {}, 'Which tokens a policy keeps, fetches and reads is computed, by replaying the policy over a trace of attention. The time is modelled: every operation has a cost in bytes, floating-point operations and launches, and a hardware profile turns costs into time. The origin of a time is the weakest origin that accounts for at least a twentieth of it. Its 80 % uncertainty interval combines the stated uncertainties of the numbers below as independent factors.'),
    element('dl', { class: 'origins' }, origins.filter(([name]) => used.has(name) || usedAsOrigin(name)).map(([name, meaning]) => [element('dt', {}, name), element('dd', {}, meaning)]).flat()),
    rows.length === 0 ? element('p', { class: 'empty' }, 'This store lists no numbers of its machines.')
      : element('details', {}, element('summary', {}, plural(rows.length, 'number') + ' of the machines, the weakest origins first'), element('div', { class: 'table-frame' }, element('table', { id: 'origins' },
        element('thead', {}, element('tr', {}, ['Number', 'Origin', 'Uncertainty', 'Source', 'Experiments'].map((name, i) => element('th', { scope: 'col', class: i === 4 ? 'number' : '' }, name)))),
        element('tbody', {}, rows.map((row) => element('tr', {}, element('td', {}, row.what), element('td', {}, row.origin), element('td', {}, uncertainty(row)),
          element('td', {}, row.source || 'none'), element('td', { class: 'number' }, formatCount(row.experiments)))))))));
}

function usedAsOrigin(name) {
  return Object.entries(page.tables.experiments.texts).some(([column, texts]) => column.startsWith('origin_') && texts.of.includes(name));
}

function drawColophon() {
  const { sweep } = page;
  const [first, last] = sweep.created;
  const [embedded, stored] = sweep.timelines;
  document.getElementById('colophon').append(
    element('p', {}, 'Made by kvcast ' + sweep.kvcast + ' from the store alone' +
      (sweep.code_versions.length ? '; experiments by version ' + sentenceList(sweep.code_versions) : '') +
      (first ? ', simulated ' + (first === last ? first : first + ' to ' + last) : '') + '.' +
      (stored > embedded ? ' Of ' + stored + ' timelines this page contains ' + embedded + '.' : '')),
    element('p', { class: 'on-screen' }, 'The folder ', element('code', {}, 'tables/'), ' next to this page contains every number as CSV; ', element('code', {}, 'figures/'),
      ' contains each figure as a Vega 5 specification with its data. Charts are drawn by Vega (vega.github.io).'),
    element('p', { class: 'on-screen' }, element('a', { href: 'methods.html' }, 'Assumptions of the model and definitions of the policies, with their sources')),
    page.validated ? element('p', { class: 'on-screen' }, element('a', { href: 'validation.html' }, 'Predictions compared with measured and published values')) : '',
    sweep.config ? element('details', {}, element('summary', {}, 'The ' + (sweep.swept ? 'sweep' : 'plan') + '\'s configuration'), element('pre', {}, sweep.config)) : '');
}
