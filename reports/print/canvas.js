'use strict';
// The part of a canvas that Vega needs without a browser: widths of texts, and which pixels marks cover, for labels
// that avoid them. A filled path covers its bounding box, which for small symbols is nearly the path; a stroked one the
// boxes of its segments.

function makeDocument(widthOf) {
  class Context {
    constructor(canvas) {
      this.canvas = canvas;
      this.font = '11px sans-serif';
      this.shift = [0, 0];
      this.stack = [];
      this.beginPath();
    }
    measureText(text) { return { width: widthOf(text, this.font) }; }
    save() { this.stack.push(this.shift); }
    restore() { this.shift = this.stack.pop() || [0, 0]; }
    translate(x, y) { this.shift = [this.shift[0] + x, this.shift[1] + y]; }
    setTransform(a, b, c, d, x, y) { this.shift = [x, y]; }
    beginPath() { this.box = [Infinity, Infinity, -Infinity, -Infinity], this.segments = [], this.at = null; }
    closePath() {}
    moveTo(x, y) {
      const [dx, dy] = this.shift, [x1, y1, x2, y2] = this.box;
      this.box = [Math.min(x1, x + dx), Math.min(y1, y + dy), Math.max(x2, x + dx), Math.max(y2, y + dy)];
      this.at = [x + dx, y + dy];
    }
    lineTo(x, y) {
      const from = this.at;
      this.moveTo(x, y);
      const [a, b] = from || this.at, [c, d] = this.at;
      this.segments.push([Math.min(a, c) - 0.5, Math.min(b, d) - 0.5, Math.max(a, c) + 0.5, Math.max(b, d) + 0.5]);
    }
    quadraticCurveTo(a, b, x, y) { this.moveTo(a, b), this.moveTo(x, y); }
    bezierCurveTo(a, b, c, d, x, y) { this.moveTo(a, b), this.moveTo(c, d), this.moveTo(x, y); }
    rect(x, y, w, h) { this.moveTo(x, y), this.moveTo(x + w, y + h); }
    arc(x, y, r) { this.rect(x - r, y - r, 2 * r, 2 * r); }
    fill() { if (this.fillStyle !== 'transparent') this.canvas.cover(this.box); }
    stroke() { (this.segments.length ? this.segments : [this.box]).forEach((box) => this.canvas.cover(box)); }
    fillRect(x, y, w, h) {
      this.beginPath();
      this.rect(x, y, w, h);
      this.fill();
    }
    getImageData() { return { data: this.canvas.pixels() }; }
  }

  class Canvas {
    constructor() { this.width = this.height = 1, this.boxes = []; }
    getContext() { return new Context(this); }
    cover(box) { this.boxes.push(box); }
    pixels() {
      const data = new Uint8ClampedArray(4 * this.width * this.height);
      for (const [x1, y1, x2, y2] of this.boxes) {
        for (let y = Math.max(0, Math.floor(y1)); y < Math.min(this.height, Math.ceil(y2)); ++y) {
          for (let x = Math.max(0, Math.floor(x1)); x < Math.min(this.width, Math.ceil(x2)); ++x) data[4 * (y * this.width + x) + 3] = 255;
        }
      }
      return data;
    }
  }
  return { createElement: () => new Canvas() };
}

module.exports = { makeDocument };
