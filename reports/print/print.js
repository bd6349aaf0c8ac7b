'use strict';
// Draws figures for print: node print.js JOB, where JOB is the JSON that sim/report/print.hpp describes.
const { execFileSync } = require('child_process');
const fs = require('fs');
const path = require('path');
const { makeDocument } = require('./canvas.js');
const { Font } = require('./fonts.js');
const { Layout, onePanel, trimmed } = require('./layout.js');

const perInch = 96, mmPerInch = 25.4;
const mm = (px) => (px * mmPerInch / perInch).toFixed(2) + 'mm';

function loadVega(script, font) {
  const window = {};
  new Function('window', 'document', script)(window, makeDocument((text, css) => font.widthOf(text, css)));
  return window.vega;
}

const decoded = (text) => text.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"').replace(/&amp;/g, '&');

// Vega's document at its width on paper, with the letters that it uses.
function onPaper(svg, target, font) {
  const [, width, height] = /<svg[^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"/.exec(svg);
  const wide = Math.max(target, Number(width));
  const letters = { normal: new Set(), bold: new Set() };
  const drawn = svg.replace(/font-weight="[6-9]00"/g, 'font-weight="bold"').replace(/font-weight="[1-5]00"/g, 'font-weight="normal"')
    .replace(/font-family="[^"]*"/g, () => `font-family="${font.family}"`);
  for (const [, attributes, text] of drawn.matchAll(/<text([^>]*)>(.*?)<\/text>/gs)) {
    const weight = /font-weight="bold"/.test(attributes) ? 'bold' : 'normal';
    for (const letter of decoded(text.replace(/<[^>]*>/g, ''))) letters[weight].add(letter);
  }
  const faces = Object.entries(letters).filter(([, used]) => used.size).map(([weight, used]) => font.embedded(weight, [...used].join(''))).join('\n');
  const scale = target / wide;
  return drawn.replace(/<svg[^>]*>/, () => `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1" class="marks" ` +
    `width="${mm(target)}" height="${mm(Number(height) * scale)}" viewBox="0 0 ${wide} ${height}"><style>${faces}</style>`);
}

// The system's message about a failed write does not name the file.
function written(file, write) {
  try {
    write();
  } catch (error) {
    throw new Error(`${file} cannot be written: ${String(error.stderr || error.message).trim()}`);
  }
}

async function main() {
  const job = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
  const target = job.width_mm / mmPerInch * perInch;
  const font = new Font(job.font, JSON.stringify(job.figures), path.dirname(process.argv[2]));
  const layout = new Layout(loadVega(job.vega, font), font, job.theme, target);
  const write = async (name, spec, titles) => {
    const view = layout.fit(spec, titles), file = path.join(job.out, name);
    const svg = onPaper(await view.toSVG(), target, font);
    written(file + '.svg', () => fs.writeFileSync(file + '.svg', svg));
    written(file + '.pdf', () => execFileSync('rsvg-convert', ['--format=pdf', '--output=' + file + '.pdf', file + '.svg'], { stdio: 'pipe' }));
    view.finalize();
    process.stdout.write(file + '.pdf\n');
  };
  for (const { name, spec: given } of job.figures) {
    const spec = layout.chooseAxis(trimmed(given));
    const { panels, titles, empty } = layout.look(spec);
    if (empty) continue;
    await write(name, spec, titles);
    if (!panels || !panels.faceted || titles.length < 2) continue;
    for (const [i, title] of titles.entries()) await write(name + '_panel_' + (i + 1), onePanel(spec, panels, title), [title]);
  }
}

main().catch((error) => {
  process.stderr.write('kvcast: ' + (error.stderr ? String(error.stderr) : error.message) + '\n');
  process.exit(2);
});
