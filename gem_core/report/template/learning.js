// The view of learning curves, results and configurations.

const METRICS = {
  success: 'Success', return: 'Return', turns: 'Turns an episode', sampled_tokens: 'Sampled tokens an episode',
  failed: 'Failed by a fault', loss: 'Loss', kl: 'KL divergence', entropy: 'Entropy', episodes: 'Episodes a point',
};
const metricName = (name) => METRICS[name] ?? (name.startsWith('stop/') ? `Stopped: ${name.slice(5).replace(/_/g, ' ')}` : name);
const isShare = (name) => ['success', 'failed', 'kl_stop'].includes(name) || name.startsWith('stop/');
const splitName = (split) => ({ train: 'training', eval: 'held out' }[split] ?? split);
const color = (group) => `c${group % 7}`;

function learningView(data) {
  const recorded = new Set(data.curves.flatMap((c) => Object.keys(c.metrics)));
  const names = [...new Set([...Object.keys(METRICS), ...recorded])].filter((n) => recorded.has(n));
  const envs = [...new Set(data.curves.map((c) => c.env))];
  const state = {
    shown: new Set(names.slice(0, 3)), groups: new Set(data.groups.keys()),
    splits: new Set(data.curves.map((c) => c.split)), env: envs[0], x: 'step', smooth: '1',
  };
  const charts = h('div', { class: 'charts' });

  function draw() {
    const time = state.x === 'wall_s';
    charts.replaceChildren(...[...state.shown].map((name) => {
      const curves = data.curves.filter((c) =>
        c.metrics[name] && state.groups.has(c.group) && state.splits.has(c.split) && c.env === state.env);
      const lines = curves.map((c) => {
        const keep = c[state.x].map((x, i) => i).filter((i) => known(c[state.x][i]));
        const column = (values) => values && smooth(keep.map((i) => values[i]), c.split === 'train' ? Number(state.smooth) : 1);
        const { mean, low, high } = c.metrics[name];
        const sparse = c.split !== 'train';
        const main = sparse || !curves.some((o) => o.group === c.group && o.split !== 'train' && o.step.length > 1);
        return {
          label: `${data.groups.length > 1 ? `${data.groups[c.group].label} ` : ''}${splitName(c.split)}`,
          color: color(c.group), shape: c.group, mark: sparse, main,
          x: keep.map((i) => c[state.x][i]), n: keep.map((i) => c.n[i]), of: data.groups[c.group].runs.length,
          mean: column(mean), low: column(low), high: column(high),
        };
      }).filter((l) => l.x.length > 0);
      if (lines.length === 0) return h('figure', { class: 'card chart' }, h('figcaption', {}, metricName(name)), h('p', { class: 'empty' }, 'Nothing is selected.'));
      return lineChart({ title: metricName(name), share: isShare(name), lines,
        xLabel: time ? 'of wall clock' : 'updates', formatX: time ? duration : num });
    }));
  }

  const toggle = (set, key, ...label) => {
    const button = h('button', { class: 'toggle', 'aria-pressed': String(set.has(key)), onclick: () => {
      if (!set.delete(key)) set.add(key);
      button.setAttribute('aria-pressed', String(set.has(key)));
      draw();
    } }, label);
    return button;
  };
  const anyBand = data.groups.some((g) => g.runs.length > 1);
  const uneven = data.curves.some((c) => c.n.some((n) => n < data.groups[c.group].runs.length));
  const tools = h('div', { class: 'tools' },
    data.groups.length > 1 && h('div', { class: 'toggles', role: 'group', 'aria-label': 'Runs' },
      data.groups.map((g, i) => toggle(state.groups, i, h('i', { class: `swatch ${color(i)}` }), g.label))),
    state.splits.size > 1 && h('div', { class: 'toggles', role: 'group', 'aria-label': 'Splits' },
      [...state.splits].map((s) => toggle(state.splits, s, h('i', { class: `swatch ${s === 'train' ? 'thin' : ''}` }), splitName(s)))),
    envs.length > 1 && select('Environment', envs.map((e) => [e, e || 'all']), state.env, (v) => { state.env = v; draw(); }),
    select('Over', [['step', 'updates'], ['wall_s', 'wall clock']], 'step', (v) => { state.x = v; draw(); }),
    select('Smoothing', [['1', 'none'], ['5', '5 points'], ['15', '15 points']], '1', (v) => { state.smooth = v; draw(); }));
  draw();
  const more = names.length > state.shown.size && h('details', { class: 'pick' }, h('summary', {}, 'Metrics'),
    h('div', { class: 'toggles', role: 'group', 'aria-label': 'Metrics' }, names.map((n) => toggle(state.shown, n, metricName(n)))));
  return h('div', { class: 'learning' },
    notes(data), headline(data),
    names.length ? h('section', {}, h('h2', {}, 'Learning curves'), tools, charts, more,
      anyBand && h('p', { class: 'hint' }, 'Line: mean over the runs that differ only in their seed. Band: lowest to highest.',
        uneven && ' Some runs end before others; from there on, the line is the mean of those that go on.'))
      : h('p', { class: 'card empty' }, 'No metrics are recorded yet.'),
    results(data), configuration(data));
}

function notes(data) {
  const all = data.runs.flatMap((r) => r.notes.map((n) => [data.runs.length > 1 ? `${r.name}: ${n}` : n]));
  return all.length > 0 && h('ul', { class: 'notes', 'aria-label': 'Notes' }, all.map(([text]) => h('li', {}, visible(text))));
}

/** One tile a group: where it started and where it is, on held-out episodes if there are any. */
function headline(data) {
  const tiles = data.groups.map((group, g) => {
    const own = data.curves.filter((c) => c.group === g);
    const curve = own.find((c) => c.split === 'eval' && c.step.length > 1) 
      ?? own.find((c) => c.metrics.success && c.split !== 'eval') ?? own[0];
    const ends = (name) => (curve?.metrics[name]?.mean ?? []).filter((v) => v !== null);
    const [success, total, turns] = ['success', 'return', 'turns'].map(ends);
    const wall = group.runs.map((i) => data.runs[i].wall_s).filter(known);
    const arrow = (values, format) => (values.length ? change(values[0], values[values.length - 1], format) : '–');
    return h('article', { class: 'card tile' },
      h('h2', {}, data.groups.length > 1 && h('i', { class: `swatch ${color(g)}` }), group.label),
      h('p', { class: 'big' }, success.length ? percent(success[success.length - 1]) : num(total[total.length - 1])),
      h('p', {}, `${success.length ? 'success' : 'return'}, ${curve ? splitName(curve.split) : 'nothing recorded'}`,
        success.length > 1 && `, from ${percent(success[0])}`),
      h('dl', {}, [['Return', arrow(total, num)], ['Turns', arrow(turns, num)],
        [plural(group.runs.length, 'run'), wall.length ? duration(Math.max(...wall)) : '–']].map(([k, v]) => h('div', {}, h('dt', {}, k), h('dd', {}, v)))));
  });
  return h('section', { class: 'tiles', 'aria-label': 'Results at a glance' }, tiles);
}

function results(data) {
  if (data.envs.length === 0) return null;
  const several = data.groups.length > 1;
  const pair = (e, key, format) => change(e.first[key], e.last[key], format);
  return h('section', {}, h('h2', {}, 'Environments'), table('Results by environment',
    ['Environment', several && 'Run', 'Split', 'Episodes', 'Success', '95 % interval', 'Return', 'Turns', 'Stopped by'].filter(Boolean),
    data.envs.map((e) => [
      visible(e.env), several && h('span', {}, h('i', { class: `swatch ${color(e.group)}` }), data.groups[e.group].label), splitName(e.split),
      num(e.episodes), pair(e, 'success', percent), e.last.interval ? e.last.interval.map(percent).join(' to ') : '–',
      pair(e, 'return', num), pair(e, 'turns', num), e.stops.map(([r, n]) => `${visible(r)} ${percent(n / e.last.episodes)}`).join(', '),
    ].filter((cell) => cell !== false))),
  h('p', { class: 'hint' }, 'Recorded episodes only: first quarter of their steps → last quarter; interval (Wilson) and stop reasons of the last.'));
}

function configuration(data) {
  const names = [...new Set(data.runs.flatMap((r) => Object.keys(r.config)))];
  if (names.length === 0) return null;
  const differ = (n) => new Set(data.runs.map((r) => r.config[n])).size > 1;
  const rows = (keys) => keys.map((n) => [n, ...data.runs.map((r) => visible(r.config[n] ?? '–'))]);
  const head = ['Setting', ...data.runs.map((r) => r.name)];
  const [different, same] = [names.filter(differ), names.filter((n) => !differ(n))];
  return h('section', {}, h('h2', {}, 'Configuration'),
    different.length > 0 && table('Settings that differ', head, rows(different)),
    same.length > 0 && h('details', { open: data.runs.length === 1 }, h('summary', {}, data.runs.length > 1 ? `${plural(same.length, 'setting')} in common` : plural(same.length, 'setting')),
      table('Settings in common', ['Setting', 'Value'], same.map((n) => [n, visible(data.runs[0].config[n])]))));
}
