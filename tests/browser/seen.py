"""Finds texts that overlap, are cut, or hardly differ from what is behind them, by the boxes of a page that is laid out."""

# Boxes of the visible texts of drawings: [text, left, right, top, bottom, index of the drawing].
TEXTS = '''[...document.querySelectorAll('svg')].flatMap((svg, at) => [...svg.querySelectorAll('text')].filter((t) => {
  if (!t.textContent.trim() || !t.checkVisibility()) return false;
  for (let n = t; n !== svg; n = n.parentNode) if (Number(getComputedStyle(n).opacity) < 0.1) return false;
  return true; }).map((t) => { const r = t.getBoundingClientRect(); return [t.textContent, r.left, r.right, r.top, r.bottom, at]; }))'''

DRAWINGS = '''[...document.querySelectorAll('svg')].map((svg) => { const r = svg.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom]; })'''

# Texts of the page whose box is wider than what shows it, or reaches beyond the window without a frame that scrolls.
CUT = '''[...document.querySelectorAll('h1, h2, p, th, td, label, legend, summary, button, dt, dd, li')].filter((n) => n.checkVisibility() && n.textContent.trim() && !n.closest('dialog')).filter((n) => {
  const style = getComputedStyle(n);
  if (n.scrollWidth > n.clientWidth + 1 && style.overflowX !== 'visible' && style.overflowX !== 'auto') return true;
  if (n.closest('.table-frame, pre')) return false;
  const r = n.getBoundingClientRect();
  return r.right > innerWidth + 1 || r.left < -1; }).map((n) => n.textContent.trim().slice(0, 60))'''

# [text, ratio] of texts with a contrast (WCAG 2.1) below 4.5 with the nearest background that is not transparent.
FAINT = '''(() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (n) => { for (; n; n = n.parentElement) { const c = parts(getComputedStyle(n).backgroundColor); if (c.length === 3 || c[3] > 0.5) return c; } return [255, 255, 255]; };
  return [...document.querySelectorAll('body *')].filter((n) => [...n.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim()) && n.checkVisibility() && !n.closest('svg, dialog, script, style, option'))
    .map((n) => { const [a, b] = [light(parts(getComputedStyle(n).color)), light(behind(n))].sort((x, y) => y - x); return [n.textContent.trim().slice(0, 40), (a + 0.05) / (b + 0.05)]; }).filter(([, ratio]) => ratio < 4.5); })()'''


def overlapping(page):
    """Pairs of texts of one drawing that cover each other, unless they are the same text at the same place."""
    texts, pairs = page.evaluate(TEXTS), []
    for i, (a, left, right, top, bottom, at) in enumerate(texts):
        for b, other_left, other_right, other_top, other_bottom, other in texts[i + 1:]:
            # Boxes of lines of text include the space between lines, about a quarter of their height.
            blank = 0.25 * min(bottom - top, other_bottom - other_top)
            same = a == b and abs(left - other_left) < 1.5 and abs(top - other_top) < 1.5
            if not same and at == other and min(right, other_right) - max(left, other_left) > 1 and min(bottom, other_bottom) - max(top, other_top) > blank:
                pairs.append((a, b))
    return pairs


def outside(page):
    """Texts of drawings that are not whole within their drawing."""
    drawings = page.evaluate(DRAWINGS)
    return [text for text, left, right, top, bottom, at in page.evaluate(TEXTS)
            if left < drawings[at][0] - 1 or right > drawings[at][1] + 1 or top < drawings[at][2] - 2 or bottom > drawings[at][3] + 2]
