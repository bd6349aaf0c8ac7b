// Starts the page.
function switchTheme() {
  document.documentElement.dataset.theme = currentTheme() === 'dark' ? 'light' : 'dark';
  drawFigures(currentTheme());
}

function start() {
  readAddress();
  drawHead();
  drawFilters();
  buildFigures();
  buildTable();
  drawTable();
  drawFoundations();
  drawColophon();
  document.getElementById('theme').addEventListener('click', switchTheme);
  drawFigures(currentTheme());
  onSelection(updateFigures);
  onSelection(drawTable);
  window.addEventListener('hashchange', () => { readAddress(); select({}); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawFigures(currentTheme()));
  new ResizeObserver(() => resizeFigures()).observe(document.getElementById('figures'));
  // Paper is white.
  window.addEventListener('beforeprint', () => drawFigures('light'));
  window.addEventListener('afterprint', () => drawFigures(currentTheme()));
  document.documentElement.dataset.ready = 'true';
}

start();
