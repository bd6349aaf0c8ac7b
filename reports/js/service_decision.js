// The decision of a sweep over loads: the policy that serves the largest load, what it costs and how sure that is.
const kCapacity = 'Capacity within the SLO';  // the finding whose place the panel takes

// Each model, machine, policy, variant and budget with the largest load that it serves and the next one that it does not:
// within the SLO, or, if no run has one, without a queue that grows. Loads at which that is undecided count as neither.
function servedLines() {
  if (!hasColumn('experiments', 'load') || !hasColumn('experiments', 'state')) return [];
  const known = new Map('capacities' in page.tables ? sharedRows('capacities').map((row) => [row.id, row]) : []);
  const groups = new Map();
  for (const row of sharedRows('experiments')) {
    if (row.load === undefined || row.status === 'failed' || row.oracle) continue;
    const key = [row.model, row.hardware, row.context, row.series, row.budget, row.load_unit].join('|');
    groups.set(key, [...(groups.get(key) || []), row]);
  }
  return [...groups.values()].map((rows) => {
    const stable = rows.filter(({ state }) => state === 'stable').map(({ load }) => load), most = stable.length ? Math.max(...stable) : undefined;
    const over = rows.filter(({ state, load }) => state !== 'stable' && state !== 'undecided' && !(load < most)).map(({ load }) => load);
    const bounds = known.size ? known.get(rows[0].id) : { most, fails: over.length ? Math.min(...over) : undefined, least: Math.min(...rows.map(({ load }) => load)) };
    const row = rows.find(({ load }) => load === (bounds && bounds.most !== undefined ? bounds.most : Math.min(...rows.map((other) => other.load))));
    return bounds && { ...bounds, row, bounded: known.size > 0, keeps: row.score === undefined || row.score >= scoreFloor() };
  }).filter(Boolean);
}

function servedText({ most, fails, least }) {
  const number = (value) => formatNumber(value, ',.3~r');
  return most === undefined ? '< ' + number(least) : fails === undefined ? number(most) + ' or more' : number(most) + ' to ' + number(fails);
}

// Larger loads first; of equal ones those of the cheaper machine, then full KV, as a compression that serves no more is not
// worth its loss, then the better score.
function byServed(a, b) {
  const full = ({ row }) => row.policy === 'full', score = ({ row }) => (row.score === undefined ? 1 : row.score);
  const dearer = a.row.hardware !== b.row.hardware && a.row.served_cost && b.row.served_cost ? a.row.served_cost - b.row.served_cost : 0;
  return b.keeps - a.keeps || (b.most || 0) - (a.most || 0) || dearer || full(b) - full(a) || score(b) - score(a);
}

function sloText(row) {
  const bounds = [['slo_ttft', 'first token'], ['slo_tpot', 'each token'], ['slo_e2e', 'whole request']].filter(([bound]) => row[bound] !== undefined);
  return bounds.map(([bound, what]) => what + ' ' + secondsText(row[bound])).join(', ');
}

function secondsText(seconds) { return seconds === 0 ? '0' : seconds < 0.1 ? formatNumber(1e3 * seconds, ',.3~r') + ' ms' : formatNumber(seconds, ',.3~r') + ' s'; }

function servedFacts({ row, most }, full) {
  const costs = [], show = (field, value) => formatMetric(metricOf(field), value);
  if (row.score !== undefined) costs.push(scoreFact(row));
  if (row.served_cost) costs.push(show('served_cost', row.served_cost) + ' per million output tokens' + (full && full.row !== row && full.most > 0 && full.row.served_cost ? ', with full KV ' + show('served_cost', full.row.served_cost) + ' (' + savedText(row.served_cost / full.row.served_cost) + ')' : ''));
  const sure = rangeText(row, 'served_ttft_p99', secondsText), slo = row.slo_ttft;
  const open = sure && slo !== undefined && row.served_ttft_p99_low <= slo && slo <= row.served_ttft_p99_high;
  return [['It costs', costs.join('; ')], ['How sure', !(most > 0) || !sure ? '' : '80 % interval of the first token’s 99th percentile: ' + sure + (slo === undefined ? '' : open ? '; the SLO of ' + secondsText(slo) + ' lies within it: whether it holds is open' : '; the SLO of ' + secondsText(slo) + ' lies outside it')]].filter(([, text]) => text);
}

// Null for a page without services, or with a single one at a single load.
function drawServiceDecision() {
  const all = servedLines().sort(byServed);
  if (all.length === 0 || distinctValues('load').length < 2) return null;
  const best = all[0], here = ({ row }) => ['model', 'hardware', 'context', 'load_unit'].every((key) => row[key] === best.row[key]);
  const single = all.every(here), unit = best.row.load_unit;
  const first = (lines, key) => lines.filter((line, at) => lines.findIndex((other) => key(other) === key(line)) === at);
  const policies = first(all.filter(here), ({ row }) => row.policy), full = policies.find(({ row }) => row.policy === 'full');
  const name = ({ row }) => (row.policy === 'full' ? 'full KV' : row.policy) + (row.budget === undefined ? '' : ', ' + showBudget(row.budget));
  const number = (value) => formatNumber(value, ',.3~r'), served = best.most > 0;
  const equal = policies.filter((line) => line !== best && line.keeps && line.most === best.most).map(({ row }) => row.policy);
  const times = served && full && full !== best && full.most > 0 ? ', ' + number(best.most / full.most) + ' × full KV' : '';
  const does = best.bounded ? 'serves ' + number(best.most) + ' ' + unit + ' within the SLO (' + sloText(best.row) + ')' : 'keeps up with ' + number(best.most) + ' ' + unit;
  const text = 'On ' + best.row.hardware + (best.row.context ? ', ' + formatTokens(best.row.context) + ' tokens' : '') + ': ' + (served
    ? name(best) + ' ' + does + (best.fails === undefined ? ', the largest swept' : ', but not ' + number(best.fails)) + '. There the first token comes after ' + secondsText(best.row.served_ttft_p99) + ', each further one after ' + secondsText(best.row.served_tpot_p99) + ' (99th percentiles).' +
      (equal.length ? ' ' + sentenceList(equal) + (equal.length === 1 ? ' serves' : ' serve') + ' the same swept load' + (best.fails === undefined ? '.' : '; loads between ' + number(best.most) + ' and ' + number(best.fails) + ' would separate them.') : '')
    : 'no policy that keeps the score ' + (best.bounded ? 'is within the SLO' : 'keeps up') + ' at the smallest swept load, ' + number(best.least) + ' ' + unit + '.');
  const places = single ? [] : first(all, ({ row }) => row.model + '|' + row.hardware + '|' + row.context + '|' + row.load_unit).filter(({ row }) => row.load_unit === unit);
  const same = places.filter((line) => line.row.hardware !== best.row.hardware && line.row.model === best.row.model && line.row.context === best.row.context && line.keeps && served && line.most === best.most).map(({ row }) => row.hardware + (row.served_cost && best.row.served_cost ? ' (' + savedText(row.served_cost / best.row.served_cost) + ' a token)' : ''));
  const elsewhere = same.length ? ' So ' + (same.length === 1 ? 'does ' : 'do ') + sentenceList(same) + '.' : '';
  const draw = (head, lines, label) => { const kept = keptLines(lines); return drawLines({ head, unit, side: 'score', note: noteText(lines, kept, 'Lines lead to the next swept load, which is too much.') },
    kept.map((line) => ({ ...label(line), color: policyColor(line.row.policy), value: line.most || 0, low: line.most || 0, high: line.most === undefined ? line.least : line.fails, text: servedText(line), side: line.most > 0 ? scoreText(line.row) : '', chosen: line === best, below: !line.keeps }))); };
  const models = distinctValues('model').length > 1, contexts = distinctValues('context').length > 1;
  return drawPanel({ title: best.bounded ? kCapacity : 'Load that is served without a growing queue', choice: served ? best.row.policy : 'none', number: served ? number(best.most) + ' ' + unit + times : 'less than ' + number(best.least) + ' ' + unit, text: text + elsewhere, facts: servedFacts(best, full), rest: '' },
    draw('each policy at its best budget', policies, (line) => ({ name: line.row.policy, rest: line.row.budget === undefined ? '' : ', ' + showBudget(line.row.budget) })),
    places.length > 1 ? draw('each machine with its best policy', places, ({ row, most }) => ({ name: (models ? row.model + ' on ' : '') + row.hardware, rest: (contexts ? ', ' + formatTokens(row.context) + ' tokens' : '') + ': ' + (most > 0 ? row.policy : 'none') })) : '');
}
