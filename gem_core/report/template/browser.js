// The episode browser: filters, a list by pages, and one episode (or two side by side) next to it.

const PAGE = 50;
const ALL = { text: '', run: '', split: '', env: '', outcome: '', stop: '', from: null, to: null, sort: 'recorded' };
const outcome = (e) => (e.success === null ? 'none' : e.success ? 'yes' : 'no');
const OUTCOMES = { yes: ['✓', 'solved'], no: ['✕', 'not solved'], none: ['·', 'not judged'] };

function badge(e) {
  const [sign, name] = OUTCOMES[outcome(e)];
  return h('span', { class: `badge ${outcome(e)}`, role: 'img', 'aria-label': name, title: name }, sign);
}

const SORTS = {
  recorded: ['order', null],
  low: ['lowest return', (a, b) => (a.return ?? Infinity) - (b.return ?? Infinity)],
  high: ['highest return', (a, b) => (b.return ?? -Infinity) - (a.return ?? -Infinity)],
  long: ['most turns', (a, b) => b.turns.length - a.turns.length],
};

function searchText(e) {
  e.words ??= [e.id, e.error ?? '', e.final ?? '', ...e.turns.flatMap((t) => [t.obs ?? '', t.act ?? ''])].join('\n').toLowerCase();
  return e.words;
}

/** Prepares the search between two frames, so that its first use is as quick as the later ones. */
function prepareSearch(episodes, from = 0) {
  const start = performance.now();
  let i = from;
  while (i < episodes.length && performance.now() - start < 8) searchText(episodes[i++]);
  if (i < episodes.length) setTimeout(() => prepareSearch(episodes, i), 0);
}

function episodesView(data, navigate) {
  const all = data.episodes;
  const filter = { ...ALL };
  const [envs, splits, stops] = ['env', 'split', 'stop'].map((key) => [...new Set(all.map((e) => e[key]))].sort());
  const recorded = data.runs.reduce((n, r) => n + r.recorded, 0);
  let found = all;
  let page = 0;
  let current = null;
  let pinned = null;
  const list = h('ul', { class: 'list', role: 'listbox', tabindex: 0, 'aria-label': 'Episodes' });
  const count = h('p', { class: 'count', role: 'status' });
  const pages = h('div', { class: 'pages' });
  const detail = h('div', { class: 'detail' });

  function apply() {
    const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
    found = all.filter((e) => (filter.run === '' || e.run === Number(filter.run)) && (filter.split === '' || e.split === filter.split)
      && (filter.env === '' || e.env === filter.env) && (filter.outcome === '' || outcome(e) === filter.outcome)
      && (filter.stop === '' || e.stop === filter.stop) && (filter.from === null || e.step >= filter.from)
      && (filter.to === null || e.step <= filter.to) && words.every((w) => searchText(e).includes(w)));
    if (SORTS[filter.sort][1]) found.sort(SORTS[filter.sort][1]);
    page = 0;
    drawList();
  }

  const set = (name) => (value) => { filter[name] = value; apply(); };
  const choose = (label, name, values, text = (v) => v) => values.length > 1
    && select(label, [['', 'all'], ...values.map((v) => [v, visible(text(v))])], '', set(name));
  const step = (label, name) => {
    const box = h('input', { type: 'number', min: 0, oninput: () => set(name)(box.value === '' ? null : Number(box.value)) });
    return h('label', { class: 'field' }, h('span', {}, label), box);
  };
  const search = h('input', { type: 'search', id: 'search', placeholder: 'Search texts', 'aria-label': 'Search texts', oninput: () => set('text')(search.value) });
  const fields = h('details', { class: 'filters', open: window.innerWidth > 760 }, h('summary', {}, 'Filters'), h('div', { class: 'tools' },
    data.runs.length > 1 && select('Run', [['', 'all'], ...data.runs.map((r, i) => [String(i), r.name])], '', set('run')),
    choose('Environment', 'env', envs), choose('Split', 'split', splits, splitName),
    select('Outcome', [['', 'all'], ...Object.entries(OUTCOMES).map(([k, [, name]]) => [k, name])], '', set('outcome')),
    choose('Stopped by', 'stop', stops, (s) => s.replace(/_/g, ' ')),
    step('From step', 'from'), step('To step', 'to'),
    select('Sort', Object.entries(SORTS).map(([k, [name]]) => [k, name]), 'recorded', set('sort')),
    h('button', { onclick: () => {
      Object.assign(filter, ALL);
      for (const box of side.querySelectorAll('input, select')) box.value = box.tagName === 'SELECT' ? box.options[0].value : '';
      apply();
    } }, 'Reset')));

  function drawList() {
    const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
    page = Math.min(Math.max(page, 0), last);
    count.textContent = `${found.length === all.length ? '' : `${num(found.length)} of `}${plural(all.length, 'episode')}`
      + (recorded > all.length ? ` (${num(recorded)} were recorded)` : '');
    list.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(row));
    if (found.length === 0) list.append(h('li', { class: 'empty', role: 'presentation' }, all.length ? 'No episode matches.' : 'No episodes are recorded yet.'));
    const turn = (by, label, sign) => h('button', { 'aria-label': label, disabled: page + by < 0 || page + by > last, onclick: () => { page += by; drawList(); list.scrollTop = 0; } }, sign);
    pages.replaceChildren(turn(-1, 'Previous page', '‹'), `Page ${page + 1} of ${last + 1}`, turn(1, 'Next page', '›'));
    pages.hidden = last === 0;
    mark();
  }

  const when = (e) => `${splitName(e.split)}, step ${num(e.step)}`;

  function row(e) {
    return h('li', { role: 'option', id: `episode-${e.index}`, 'data-index': e.index, 'aria-selected': 'false' },
      badge(e),
      h('span', { class: 'name' }, envs.length > 1 ? visible(e.env) : when(e)),
      measure('return', e.return, num),
      h('small', {}, data.groups.length > 1 && h('i', { class: `swatch ${color(data.runs[e.run].group)}` }),
        [envs.length > 1 && when(e), plural(e.turns.length, 'turn'), visible(e.stop), known(e.seed) && `seed ${e.seed}`].filter(Boolean).join(', ')));
  }

  function mark() {
    for (const item of list.children) item.setAttribute('aria-selected', String(Number(item.dataset.index) === current?.index));
    const id = current && `episode-${current.index}`;
    list.setAttribute('aria-activedescendant', id && $(id) ? id : '');
    if (id) $(id)?.scrollIntoView({ block: 'nearest' });
  }

  list.addEventListener('click', (event) => {
    const item = event.target.closest('[data-index]');
    if (item) navigate(`episodes/${item.dataset.index}`);
  });
  list.addEventListener('keydown', (event) => {
    const move = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    go(move);
  });

  /** Moves through what the filters found; starts at the page that is shown. */
  function go(by) {
    if (found.length === 0) return;
    const at = current ? found.indexOf(current) : -1;
    const next = at < 0 ? page * PAGE : Math.min(Math.max(at + by, 0), found.length - 1);
    open(found[next].index);
    navigate(`episodes/${found[next].index}`, true);
    say(`Episode ${next + 1} of ${found.length}, ${OUTCOMES[outcome(current)][1]}, return ${num(current.return)}`);
  }

  function open(index) {
    current = all[index] ?? null;
    const at = found.indexOf(current);
    if (at >= 0 && Math.floor(at / PAGE) !== page) {
      page = Math.floor(at / PAGE);
      drawList();
    }
    mark();
    drawDetail();
  }

  function drawDetail() {
    view.classList.toggle('opened', current !== null);
    hideTip();
    if (current === null) {
      detail.replaceChildren(h('p', { class: 'empty' }, 'Choose an episode: click, or press j and k. / searches, p pins one for comparison.'));
      return;
    }
    const bar = h('div', { class: 'bar' },
      h('button', { class: 'back', onclick: () => navigate('episodes') }, '‹ List'),
      h('button', { onclick: () => go(-1), title: 'k' }, 'Previous'), h('button', { onclick: () => go(1), title: 'j' }, 'Next'),
      h('button', { 'aria-pressed': String(pinned === current), onclick: pin, title: 'p' }, pinned === current ? 'Unpin' : 'Pin to compare'),
      pinned && pinned !== current && h('button', { onclick: () => { pinned = null; drawDetail(); } }, 'End comparison'));
    const pair = pinned && pinned !== current;
    detail.replaceChildren(bar, twins(current) ?? '', h('div', { class: pair ? 'pair' : '' },
      pair && episodePage(pinned, data, 'Pinned'), episodePage(current, data, pair ? 'Selected' : null)));
    detail.scrollTop = 0;
  }

  /** Episodes that began in the same state, the nearest in training first: a click compares. */
  function twins(e) {
    const met = new Set();
    const same = all.filter((o) => o !== e && known(o.seed) && o.seed === e.seed && o.env === e.env)
      .sort((a, b) => Math.abs(a.step - e.step) - Math.abs(b.step - e.step) || (a.run === e.run) - (b.run === e.run))
      .filter((o) => !met.has(`${o.run} ${o.step}`) && met.add(`${o.run} ${o.step}`)).slice(0, 8);
    return same.length === 0 ? null : h('p', { class: 'twins' }, 'Compare with the same start: ', same.map((o) =>
      h('button', { class: 'link', onclick: () => { pinned = e; navigate(`episodes/${o.index}`); } },
        badge(o), `${data.runs.length > 1 ? `${data.runs[o.run].name}, ` : ''}step ${num(o.step)}`)));
  }

  function pin() {
    if (!current) return;
    pinned = pinned === current ? null : current;
    drawDetail();
  }

  const side = h('div', { class: 'side' }, search, fields, count, list, pages);
  const view = h('div', { class: 'episodes' }, side, detail);
  drawList();
  drawDetail();
  prepareSearch(all);
  const keys = { j: () => go(1), k: () => go(-1), p: pin, '/': () => { if (view.classList.contains('opened') && window.innerWidth <= 760) navigate('episodes'); search.focus(); }, Escape: () => navigate('episodes') };
  return { view, open, keys };
}
