'use strict';
// A chart's specification at a width on paper: margins, columns, legends and titles follow from measured text.
const { columnTest } = require('../js/columns.js');

const smallest = 9.4;  // px of 1/96 inch: 7 pt
const titleLine = 14;

const copy = (value) => JSON.parse(JSON.stringify(value));

// Returns the specification with no more of the experiments' columns than it reads.
function trimmed(spec) {
  const reads = columnTest(spec);
  const kept = (row) => Object.fromEntries(Object.entries(row).filter(([column]) => reads(column)));
  return { ...spec, data: spec.data.map((set) => (set.name === 'experiments' && set.values ? { ...set, values: set.values.map(kept) } : set)) };
}

function setSignal(spec, name, value) {
  const signal = spec.signals.find((one) => one.name === name);
  if (signal) delete signal.update, signal.value = value;
}

function changeSignal(view, spec, name) {
  const signal = spec.signals.find((one) => one.name === name);
  if (signal) view.signal(name, signal.value);
}

// Raises every font size to at least `smallest`.
function raiseFonts(node) {
  if (node === null || typeof node !== 'object') return;
  for (const [key, value] of Object.entries(node)) {
    if (/fontsize$/i.test(key)) {
      if (typeof value === 'number') node[key] = Math.max(smallest, value);
      else if (value && typeof value.value === 'number') value.value = Math.max(smallest, value.value);
    }
    raiseFonts(value);
  }
}

// The group that a chart repeats for each panel, and the field that its title shows.
function panelsOf(spec) {
  const group = spec.marks.find((mark) => mark.type === 'group' && (mark.name === 'panel' || mark.name === 'surface'));
  if (!group) return null;
  const title = group.marks.find((mark) => mark.type === 'text' && /^parent\.\w+$/.test(mark.encode.update.text.signal || ''));
  const facet = group.from.facet;
  return { group, title, field: title.encode.update.text.signal.slice('parent.'.length), data: facet ? facet.data : group.from.data, faceted: Boolean(facet) };
}

function titlesIn(view, panels) { return [...new Set(view.data(panels.data).map((row) => row[panels.field]))]; }

// Returns the figure with only one of its panels.
function onePanel(spec, panels, title) {
  const alone = copy(spec);
  const name = panels.field === 'panel' ? 'scope' : panels.data;
  const set = alone.data.find((one) => one.name === name);
  set.transform = [...(set.transform || []), { type: 'filter', expr: 'datum.' + panels.field + ' === ' + JSON.stringify(title) }];
  return alone;
}

// Breaks a text at commas, otherwise at spaces, so that no line is wider than `room`.
function wrapped(text, room, widthOf) {
  const lines = [];
  for (const part of text.split(/(?<=, )/).flatMap((piece) => (widthOf(piece.trim()) > room ? piece.split(/(?<= )/) : [piece]))) {
    const last = lines.length - 1;
    if (last >= 0 && widthOf((lines[last] + part).trim()) <= room) lines[last] += part;
    else lines.push(part);
  }
  return lines.map((line) => line.trim());
}

// Items of the scene graph's groups of this name.
function itemsNamed(mark, name, found = []) {
  if (mark.marktype === 'group') {
    if (mark.name === name) found.push(...mark.items);
    for (const item of mark.items) for (const child of item.items || []) itemsNamed(child, name, found);
  }
  return found;
}

// Returns the distances by which the parts of the panels, except their titles, extend beyond the plots on either side.
function overhang(root, panels) {
  let left = 0, right = 0;
  for (const item of itemsNamed(root, panels.group.name)) {
    for (const mark of item.items) {
      const first = mark.items[0];
      if (mark.marktype === 'text' && first && first.y < 0 && first.fontSize === 12 || !first) continue;
      left = Math.max(left, -mark.bounds.x1), right = Math.max(right, mark.bounds.x2 - item.width);
    }
  }
  return { left: Math.ceil(left), right: Math.ceil(right) };
}

function legendEnd(root) {
  let end = 0;
  for (const mark of root.items[0].items) {
    if (mark.role === 'legend') for (const item of mark.items) end = Math.max(end, item.bounds.x2 - root.bounds.x1);
  }
  return end;
}

class Layout {
  constructor(vega, font, theme, target) { Object.assign(this, { vega, font, target, theme: { ...theme, background: null, font: font.family } }); }

  run(spec) {
    const still = copy(spec);
    for (const signal of still.signals) delete signal.on;  // paper has no pointer
    return new this.vega.View(this.vega.parse(still, this.theme), { renderer: 'none' }).run();
  }

  // The panels of a figure with their titles, and whether the figure shows anything.
  look(spec) {
    const view = this.run(spec), panels = panelsOf(spec), drawn = spec.usermeta && spec.usermeta.drawn;
    return { panels, titles: panels ? titlesIn(view, panels) : [], empty: Boolean(drawn) && view.data(drawn).length === 0 };
  }

  // An automatic axis is logarithmic where the values drawn span more than a decade, as on the page.
  chooseAxis(spec) {
    const axis = spec.signals.find((one) => one.name === 'axis');
    if (!axis || axis.value !== 'auto') return spec;
    const values = this.run(spec).data(spec.usermeta.drawn).map((row) => row.shown).filter((value) => value > 0);
    const chosen = copy(spec);
    setSignal(chosen, 'axis', 'linear');
    if (Math.max(...values) <= 10 * Math.min(...values)) return chosen;
    setSignal(chosen, 'axis', 'log');
    for (const scale of chosen.scales) Object.assign(scale, spec.usermeta.log[scale.name]);
    return chosen;
  }

  prepare(spec, { panels, titles }) {
    raiseFonts(spec);
    spec.padding = { left: 1, right: 1, top: 2, bottom: 1 };
    setSignal(spec, 'page_width', this.target);
    if (panels) {
      const here = panelsOf(spec).title.encode.update;
      const lines = 'print_titles[parent.' + panels.field + ']';
      here.text = { signal: lines };
      delete here.limit;  // lines are broken instead
      here.lineHeight = { value: titleLine };
      here.y = { signal: here.y.value + ' - ' + titleLine + ' * (length(' + lines + ') - 1)' };
      spec.signals.push({ name: 'print_titles', value: Object.fromEntries(titles.map((title) => [title, [title]])) });
    }
    const height = spec.signals.find((one) => one.name === 'plot_height');
    if (height && typeof height.value === 'number') height.value = this.target < 450 ? 210 : 240;
  }

  fitTitles(spec, titles, room) {
    const lines = titles.map((title) => wrapped(title, room, (text) => this.font.widthOf(text, 'bold 12px x')));
    setSignal(spec, 'print_titles', Object.fromEntries(titles.map((title, i) => [title, lines[i]])));
    if (spec.layout && spec.layout.padding) spec.layout.padding.row = this.rows + titleLine * (Math.max(...lines.map((all) => all.length)) - 1);
  }

  // Returns the view at the requested width. A step changes one thing: the columns of legends, then the width of plots. The
  // view is made anew only where no signal can change it.
  // titles: those of the panels that are drawn.
  fit(source, titles) {
    const spec = copy(source), panels = panelsOf(source);
    this.prepare(spec, { panels, titles });
    this.rows = spec.layout && spec.layout.padding ? spec.layout.padding.row : 0;
    let columns = 1, legend = 8, plot = Math.floor(this.target * 0.6), view = null;
    setSignal(spec, 'columns', columns);
    for (const one of spec.legends || []) {
      if (one.direction === 'horizontal' && one.type !== 'gradient') one.columns = { signal: 'print_legend' };
    }
    spec.signals.push({ name: 'print_legend', value: legend });
    for (let step = 0, layout = ''; step < 24; ++step) {
      setSignal(spec, 'plot_width', plot), setSignal(spec, 'print_legend', legend);
      const anew = step < 2 || layout !== JSON.stringify(spec.layout);
      layout = JSON.stringify(spec.layout);
      if (anew) view = this.run(spec);
      else for (const name of ['plot_width', 'print_legend', 'print_titles']) changeSignal(view, spec, name);
      view.run();
      const root = view.scenegraph().root;
      if (step === 0 && panels) {
        const { left, right } = overhang(root, panels);
        if (panels.faceted && titles.length > 1 && this.target / 2 - left - right > 130) columns = 2;
        setSignal(spec, 'columns', columns);
        setSignal(spec, 'margin_left', left + 8), setSignal(spec, 'margin_right', right + 8);
        plot = Math.floor(this.target / columns - left - right - 12);
        this.fitTitles(spec, titles, plot + right);
        continue;
      }
      if (legendEnd(root) > this.target - 2 && legend > 1) {
        --legend;
        continue;
      }
      const spare = this.target - (root.bounds.width() + 2);
      if (spare >= 0 && spare < columns + 1 || plot <= 60) break;
      plot = Math.max(60, plot + Math.floor(spare / columns));
      if (panels) this.fitTitles(spec, titles, plot + overhang(root, panels).right);
    }
    return view;
  }
}

module.exports = { Layout, onePanel, trimmed };
