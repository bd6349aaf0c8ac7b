// The columns of the experiments that a chart reads. The table has three times as many, and Vega copies rows at each step.

// Returns a test for columns: the specification has their name, or that of the metric or pool with which an expression forms it.
function readBy(spec) {
  const named = new Set(JSON.stringify({ ...spec, data: spec.data.map(({ values, ...set }) => set) }).match(/\w+/g));
  return (column) => column.startsWith('share_') || named.has(column) || named.has(column.replace(/^origin_|_(low|high|capacity)$/, ''));
}

if (typeof module !== 'undefined') module.exports = { readBy };
