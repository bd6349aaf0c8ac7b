// The embedded data: tables by column, unpacked to rows on demand.
const page = JSON.parse(document.getElementById('data').textContent);
const unpacked = new Map();

// Fresh row objects each time: Vega marks the objects it is given, so no two views may share them.
function tableRows(name, wanted) {
  const table = page.tables[name];
  const rows = Array.from({ length: table.rows }, () => ({}));
  for (const [column, cells] of Object.entries(table.numbers)) {
    if (wanted(column)) cells.forEach((cell, row) => { if (cell !== null) rows[row][column] = cell; });
  }
  for (const [column, texts] of Object.entries(table.texts)) {
    if (wanted(column)) texts.at.forEach((cell, row) => { if (cell !== null) rows[row][column] = texts.of[cell]; });
  }
  return rows;
}

// Returns the same rows for read-only use.
function sharedRows(name) {
  if (!unpacked.has(name)) unpacked.set(name, tableRows(name, () => true));
  return unpacked.get(name);
}

function hasColumn(table, column) {
  return column in page.tables[table].numbers || column in page.tables[table].texts;
}

// Rows of a table that belong to experiments, by the experiment's id.
const grouped = new Map();
function rowsOf(table, id) {
  if (!grouped.has(table)) {
    const groups = new Map();
    for (const row of sharedRows(table)) {
      if (!groups.has(row.id)) groups.set(row.id, []);
      groups.get(row.id).push(row);
    }
    grouped.set(table, groups);
  }
  return grouped.get(table).get(id) || [];
}

function distinctValues(column) {
  const values = new Set();
  for (const row of sharedRows('experiments')) if (row[column] !== undefined) values.add(row[column]);
  const list = [...values];
  return typeof list[0] === 'number' ? list.sort((a, b) => a - b) : list;
}

function metricOf(field) { return page.metrics.find((metric) => metric.field === field); }
