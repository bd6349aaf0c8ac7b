// The columns of the experiments that a chart reads. The table has three times as many, and Vega copies rows at each step.

// Returns a test for columns: the specification has their name, the name of the metric that they belong to, or the beginning
// or end from which an expression forms it, as 'served_' + latency + '_p99'.
function columnTest(spec) {
  const named = new Set(JSON.stringify({ ...spec, data: spec.data.map(({ values, ...set }) => set) }).match(/\w+/g));
  const beginnings = ['share_', ...[...named].filter((word) => word.endsWith('_'))], ends = [...named].filter((word) => word.startsWith('_'));
  return (column) => named.has(column) || named.has(column.replace(/^origin_|_(low|high)$/, '')) ||
    beginnings.some((part) => column.startsWith(part)) || ends.some((part) => column.endsWith(part));
}

if (typeof module !== 'undefined') module.exports = { columnTest };
