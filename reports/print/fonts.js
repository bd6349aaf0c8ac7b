'use strict';
// A font for print: its file from fontconfig, widths and subsets from HarfBuzz.
const { execFileSync } = require('child_process');
const fs = require('fs');
const path = require('path');

// Rarer characters are added from the figures' own texts.
const common = Array.from({ length: 95 }, (_, i) => String.fromCharCode(32 + i)).join('') + '−–…✕»«·×µ≤≥±⁹';

const codes = (text) => [...text].map((letter) => letter.codePointAt(0).toString(16)).join(',');

class Font {
  // scratch: a folder for temporary files.
  constructor(family, texts, scratch) {
    this.family = family;
    this.scratch = scratch;
    this.faces = {};
    for (const weight of ['normal', 'bold']) {
      const style = weight === 'bold' ? ':bold' : ':regular';
      const [found, file] = execFileSync('fc-match', ['-f', '%{family}|%{file}', family + style], { encoding: 'utf8' }).split('|');
      const generic = ['sans-serif', 'serif', 'monospace'].includes(family);
      if (!generic && !found.split(',').some((name) => name.toLowerCase() === family.toLowerCase())) {
        throw new Error('the font "' + family + '" is not installed (fontconfig would put ' + found + ' in its place); known: `fc-list : family`');
      }
      if (generic && weight === 'normal') this.family = found.split(',')[0];
      this.faces[weight] = { file, widths: this.measure(file, [...new Set(common + texts)].filter((c) => c >= ' ').join('')) };
    }
  }

  // Advance of each character in thousandths of the font size, without kerning.
  measure(file, characters) {
    const glyphs = JSON.parse(execFileSync('hb-shape', ['--font-size=1000', '--features=-kern,-liga,-clig,-calt,-dlig', '--no-glyph-names', '--output-format=json', '--font-file=' + file, '--unicodes=' + codes(characters)],
      { encoding: 'utf8', maxBuffer: 1 << 26 }));
    const letters = [...characters], widths = new Map();
    for (const { cl, ax } of glyphs) widths.set(letters[cl], (widths.get(letters[cl]) || 0) + ax / 1000);
    return widths;
  }

  // The width of a text in a CSS font such as "600 11px Name".
  widthOf(text, css) {
    const size = Number(/([\d.]+)px/.exec(css)[1]);
    const face = this.faces[/^(bold|[6-9]00)\b/.test(css) ? 'bold' : 'normal'];
    let width = 0;
    for (const letter of String(text)) width += face.widths.get(letter) ?? 0.7;
    return width * size;
  }

  // An @font-face of the letters that an SVG uses in this weight, as base64.
  embedded(weight, letters) {
    const part = path.join(this.scratch, 'subset.ttf');
    execFileSync('hb-subset', ['--font-file=' + this.faces[weight].file, '--unicodes=' + codes(letters), '--output-file=' + part]);
    const font = fs.readFileSync(part);
    return `@font-face{font-family:"${this.family}";font-weight:${weight};src:url(data:font/ttf;base64,${font.toString('base64')})}`;
  }
}

module.exports = { Font };
