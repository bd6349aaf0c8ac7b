// The answers of a plan: question, conclusion, chart and details of each.
const plans = [];

function buildPlan() {
  const section = document.getElementById('plan');
  section.hidden = page.answers.length === 0;
  if (section.hidden) return;
  const title = page.sweep.compared ? 'Changes' : 'Plan';
  section.append(element('h2', { class: 'plan-title' }, title), ...page.answers.map(buildAnswer));
  const sections = document.getElementById('sections');
  sections.hidden = false;
  const link = (id, text) => element('a', { href: '#' + id, onclick: (event) => { event.preventDefault(); document.getElementById(id).scrollIntoView(); } }, text);
  sections.append(link('plan', title), page.sweep.swept ? link('figures', 'Figures') : '', link('table-section', 'All experiments'), link('foundations', 'Origins'));
}

function buildAnswer(answer) {
  const head = element('div', { class: 'figure-head' }, element('h2', {}, answer.question));
  const block = element('figure', { id: answer.name, class: 'answer' }, head, element('p', { class: 'answer-text' }, answer.text));
  if (answer.spec) {
    const figure = { name: answer.name, spec: answer.spec, meta: answer.spec.usermeta, title: answer.question, newView: answerView, width: 0, view: null };
    figure.plot = element('div', { class: 'plot', id: 'plot-' + answer.name });
    head.append(element('button', { type: 'button', class: 'quiet-button', title: 'Download this chart as SVG, in light colours', 'aria-label': 'Download the chart of answer ' + (plans.length + 1) + ' as SVG', onclick: () => saveSvg(figure) }, 'SVG'));
    block.append(figure.plot, element('figcaption', {}, element('p', {}, figure.meta.caption)));
    plans.push(figure);
  }
  if (answer.details.length) {
    block.append(element('details', {}, element('summary', {}, 'Details'),
      answer.details.map((line) => element('p', { class: line.startsWith('  ') ? 'answer-row' : '' }, line))));
  }
  block.append(element('p', { class: 'note' }, plural(answer.runs, 'experiment')));
  return block;
}

// Vega marks the rows that it is given, so that every view needs rows of its own.
function answerView(figure, theme, options) {
  const view = new vega.View(vega.parse(JSON.parse(JSON.stringify(figure.spec)), page.themes[theme]), options);
  return view.signal('page_width', figure.width);
}

function drawPlan(theme) {
  for (const figure of plans) {
    figure.width = figure.plot.clientWidth || figure.width || 1000;
    if (figure.view) figure.view.finalize();
    figure.plot.replaceChildren();
    figure.view = answerView(figure, theme, { renderer: 'svg', container: figure.plot, hover: true });
    figure.view.description(figure.title);
    figure.view.tooltip(showTooltip);
    figure.view.run();
  }
}

function resizePlan() {
  for (const figure of plans) {
    const width = figure.plot.clientWidth;
    if (!figure.view || width === 0 || width === figure.width) continue;
    figure.width = width;
    figure.view.signal('page_width', width).run();
  }
}
