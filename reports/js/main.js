// Starts the page.
function switchTheme() {
  document.documentElement.dataset.theme = currentTheme() === 'dark' ? 'light' : 'dark';
  drawAll(currentTheme());
}

function drawAll(theme) {
  drawPlan(theme);
  drawFigures(theme);
}

function start() {
  drawHead();
  document.getElementById('filters').hidden = !page.sweep.swept;
  document.getElementById('figures').hidden = !page.sweep.swept;
  buildPlan();
  buildFigures();
  readAddress();
  drawFilters();
  buildTable();
  drawTable();
  drawFoundations();
  drawColophon();
  document.getElementById('theme').addEventListener('click', switchTheme);
  drawAll(currentTheme());
  onSelection(updateFigures);
  onSelection(drawTable);
  window.addEventListener('hashchange', () => { readAddress(); select({}); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawAll(currentTheme()));
  onResize(document.getElementById('figures'), resizeFigures);
  onResize(document.getElementById('plan'), resizePlan);
  // Paper is white.
  window.addEventListener('beforeprint', () => drawAll('light'));
  window.addEventListener('afterprint', () => drawAll(currentTheme()));
  document.documentElement.dataset.ready = 'true';
}

start();
