// Keys enlarge and move the x axis of a chart with the signals `zoomed` and `whole`, as dragging does.
function zoomByKeys(plot, viewOf) {
  plot.tabIndex = 0;
  plot.addEventListener('keydown', (event) => {
    const view = viewOf();
    if (!view || event.ctrlKey || event.metaKey || event.altKey) return;
    const whole = view.signal('whole'), [from, to] = view.signal('zoomed') || whole, quarter = (to - from) / 4;
    const [left, right] = { '+': [1, -1], '=': [1, -1], '-': [-2, 2], ArrowLeft: [-1, -1], ArrowRight: [1, 1], Escape: [-Infinity, Infinity] }[event.key] || [];
    if (left === undefined) return;
    let start = Math.max(whole[0], from + left * quarter), end = Math.min(whole[1], to + right * quarter);
    if (left === right) {  // moves, and keeps the width
      const by = Math.max(whole[0] - from, Math.min(whole[1] - to, left * quarter));
      start = from + by, end = to + by;
    }
    view.signal('zoomed', start <= whole[0] && end >= whole[1] ? null : [start, end]).run();
    event.preventDefault();
  });
}
