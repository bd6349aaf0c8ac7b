'use strict';
// Small helpers: elements, numbers, names.

// element('td', {class: 'number'}, 'text', other): texts are set as text, so nothing in the data can become markup.
function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== '') node.append(child);
  }
  return node;
}

// Redraws and returns the focus to the element of the same id, so that keyboard users keep their position.
function keepFocus(draw) {
  const focused = document.activeElement && document.activeElement.id;
  draw();
  const again = focused && document.getElementById(focused);
  if (again) again.focus({ preventScroll: true });
}

// Calls the function after the element's size has changed. It waits for the next frame, because a browser reports an
// error if the observer's own call changes the layout.
function onResize(node, redraw) { new ResizeObserver(() => requestAnimationFrame(redraw)).observe(node); }

const formatters = new Map();
function formatNumber(value, format) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '';
  if (!formatters.has(format)) formatters.set(format, vega.defaultLocale().format(format));
  return formatters.get(format)(value).replace(/^[+\u2212](?=[0.]+%?$)/, '');  // zero has no sign
}

// Formats a metric of a row as the metrics list specifies, without the unit. An exact zero has no decimals.
function formatMetric(metric, value) {
  if (value === 0 && !metric.format.endsWith('%')) return '0';
  return formatNumber(value === undefined || value === null ? value : value * (metric.scale || 1), metric.format);
}

function formatCount(value) { return formatNumber(value, ',d'); }

// "128K", in units of 1024 tokens; the exact number is in titles of elements and in files.
function formatTokens(tokens) { return tokens >= 1024 ? formatNumber(tokens / 1024, ',.4~r') + 'K' : formatCount(tokens); }

function formatBytes(bytes) {
  const [scale, unit] = bytes >= 1e9 ? [1e9, 'GB'] : bytes >= 1e6 ? [1e6, 'MB'] : [1e3, 'kB'];
  return formatNumber(bytes / scale, ',.3~r') + ' ' + unit;
}

// Names of memory pools for readers.
function poolName(pool) { return { hbm: 'HBM', dram: 'host DRAM' }[pool] || pool; }

function capital(text) { return text.charAt(0).toUpperCase() + text.slice(1); }

function plural(count, one, many) { return formatCount(count) + ' ' + (count === 1 ? one : many || one + 's'); }

// "a, b and c"
function sentenceList(items) {
  if (items.length < 2) return items.join('');
  return items.slice(0, -1).join(', ') + ' and ' + items[items.length - 1];
}
