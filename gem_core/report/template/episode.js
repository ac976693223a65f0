// One episode, turn by turn: what the environment said, what the model sampled, what each turn earned.

const BATCH = 700; // tokens drawn at once; the rest waits behind a button
const SHADES = [[0.95, 'p ≥ 0.95'], [0.8, '≥ 0.8'], [0.5, '≥ 0.5'], [0.2, '≥ 0.2'], [0.05, '≥ 0.05'], [0, '< 0.05']];
const shade = (logprob) => SHADES.findIndex(([p]) => Math.exp(logprob) >= p);
const FINISH = { length: 'cut at the token limit', abort: 'generation aborted' };

function episodePage(e, data, heading) {
  const run = data.runs[e.run];
  const tokens = e.turns.reduce((n, t) => n + (t.ids?.length ?? 0), 0);
  const largest = Math.max(1e-9, ...e.turns.map((t) => Math.abs(t.a ?? 0)));
  const facts = [
    data.runs.length > 1 && ['Run', run.name], ['Step', num(e.step)], ['Split', splitName(e.split)], ['Seed', known(e.seed) ? String(e.seed) : '–'],
    ['Stopped by', e.stop.replace(/_/g, ' ')], ['Return', num(e.return)], known(run.gamma) && run.gamma !== 1 && ['Discount a turn', num(run.gamma)], ['Turns', num(e.turns.length)], ['Sampled tokens', num(tokens)],
    e.id && ['Id', e.id], e.group && ['Group', e.group], ...(e.metadata ?? []),
  ].filter(Boolean);
  const turns = h('div', { class: 'turns' });
  let showContext = false;
  const button = h('button', { class: 'toggle', 'aria-pressed': 'false', onclick: () => {
    showContext = !showContext;
    button.setAttribute('aria-pressed', String(showContext));
    turns.replaceChildren();
    drawTurns(0);
  } }, 'Context tokens');

  function drawTurns(from) {
    let i = from;
    for (let spent = 0; i < e.turns.length && spent < BATCH; i += 1) {
      turns.append(turnCard(e, i, run.vocabulary, largest, showContext));
      spent += 20 + Math.min(BATCH, e.turns[i].ids?.length ?? 0) + (showContext ? e.turns[i].ctx?.length ?? 0 : 0);
    }
    if (i < e.turns.length) {
      const more = h('button', { class: 'more', onclick: () => { more.remove(); drawTurns(i); } }, `Show turns ${i + 1} and on, of ${e.turns.length}`);
      turns.append(more);
    }
  }

  drawTurns(0);
  const hasTokens = tokens > 0;
  const hasLogprobs = e.turns.some((t) => t.lp);
  return h('article', { class: 'episode', 'aria-label': heading ?? 'Episode' },
    h('header', {},
      heading && h('p', { class: 'hint' }, heading),
      h('h2', {}, badge(e), ` ${visible(e.env)}`),
      h('dl', { class: 'facts' }, facts.map(([k, v]) => h('div', {}, h('dt', {}, visible(k)), h('dd', {}, visible(v))))),
      e.error && h('p', { class: 'error' }, visible(e.error.slice(0, 1500))),
      hasTokens && h('div', { class: 'legend' }, hasLogprobs && [h('span', {}, 'Probability'), SHADES.map(([, name], i) => h('span', { class: `tok w${i}` }, name))], button)),
    turns,
    e.final && h('section', { class: 'env after' }, h('h4', {}, 'Environment, after the last action'), longText(e.final)));
}

function turnCard(e, i, vocabulary, largest, showContext) {
  const t = e.turns[i];
  const tokens = t.ids?.length ?? 0;
  const textOf = (id, k) => t.tok?.[k] ?? vocabulary[id];
  const spoken = tokens > 0 && t.ids.every((id, k) => textOf(id, k) !== undefined);
  const changed = spoken && t.act && !t.ids.map(textOf).join('').includes(t.act);
  return h('section', { class: 'turn', 'aria-label': `Turn ${i + 1} of ${e.turns.length}` },
    h('header', {},
      h('h3', {}, `Turn ${i + 1}`),
      measure('reward', t.r, signed), measure('return from here', t.g ?? (t.r === null ? null : 0), num), known(t.a) && advantage(t.a, largest),
      t.finish && h('span', { class: 'flag' }, FINISH[t.finish] ?? visible(t.finish)),
      i > 0 && t.new && h('span', { class: 'flag' }, 'new sequence')),
    h('div', { class: 'env' }, h('h4', {}, 'Environment'), longText(t.obs ?? ''),
      showContext && t.ctx && chips(t, t.ctx, (id) => vocabulary[id], null, t.ctx_n)),
    h('div', { class: 'model' }, h('h4', {}, 'Model'),
      tokens > 0 ? chips(t, t.ids, textOf, t.lp ?? [], tokens) : longText(t.act ?? '', t.act ? '' : 'empty'),
      (changed || (tokens > 0 && !spoken)) && h('div', { class: 'sent' }, h('h4', {}, 'Sent to the environment'), longText(t.act ?? ''))),
    t.info && h('details', { class: 'info' }, h('summary', {}, 'Info'),
      h('dl', {}, t.info.map(([k, v]) => h('div', {}, h('dt', {}, visible(k)), h('dd', {}, visible(v)))))));
}

const measure = (name, value, format) => h('span', { class: 'measure' }, `${name} `, h('b', {}, format(value)));

/** A bar from the middle: right and blue above zero, left and orange below; the sign says it without colour. */
function advantage(value, largest) {
  const width = (Math.abs(value) / largest) * 28;
  return h('span', { class: `measure advantage ${value < 0 ? 'minus' : 'plus'}` }, 'advantage ', h('b', {}, signed(value)),
    svg('svg', { width: 60, height: 12, 'aria-hidden': 'true' },
      svg('line', { x1: 30, x2: 30, y1: 0, y2: 12 }), svg('rect', { x: value < 0 ? 30 - width : 30, y: 2, width, height: 8, rx: 1 })));
}

/** Tokens as chips: logprobs null = the environment's (mask 0), else the model's (mask 1). */
function chips(turn, ids, textOf, logprobs, total) {
  const own = logprobs !== null;
  const box = h('div', { class: 'toks', role: 'group', tabindex: 0, dir: 'ltr', onblur: () => read(null), onpointerleave: () => read(null),
    onclick: (event) => read(event.target.closest('.tok')), onpointerover: (event) => read(event.target.closest('.tok')),
    'aria-label': `${own ? 'Sampled' : 'Context'} tokens: ${plural(total, 'token')}. Left and right arrow keys read them.` });
  let active = null;

  function draw(from) {
    const end = Math.min(ids.length, from + BATCH);
    for (let k = from; k < end; k += 1) {
      const text = textOf(ids[k], k);
      const shown = text === undefined ? `#${ids[k]}` : text === '' ? '∅' : visible(text).replace(/^ +$/, '␣').replace(/\n/g, '⏎');
      box.append(h('span', { class: `tok ${own ? `w${known(logprobs[k]) ? shade(logprobs[k]) : 'x'}` : 'mask0'}`, 'data-k': k }, shown));
      if (text?.includes('\n')) box.append('\n');
    }
    if (end < ids.length) {
      const more = h('button', { class: 'more', onclick: () => { more.remove(); draw(end); } }, `Show ${(ids.length - end).toLocaleString('en')} more tokens`);
      box.append(more);
    } else if (ids.length < total) box.append(h('span', { class: 'hint' }, ` and ${plural(total - ids.length, 'token')} more`));
  }

  function read(chip) {
    active?.classList.remove('active');
    active = chip;
    if (!chip) return hideTip();
    chip.classList.add('active');
    const k = Number(chip.dataset.k);
    const text = textOf(ids[k], k);
    const rows = [['id', String(ids[k])], ['text', text === undefined ? 'not recorded' : visible(JSON.stringify(text))],
      ...(own ? [['log prob', known(logprobs[k]) ? `${num(logprobs[k])} (p = ${num(Math.exp(logprobs[k]))})` : 'not recorded']] : []),
      ['mask', own ? '1, sampled' : '0, environment']];
    showTip(chip, rows);
    if (document.activeElement === box) say(rows.map((r) => r.join(' ')).join(', '));
    return undefined;
  }

  box.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: 'previousElementSibling', ArrowRight: 'nextElementSibling' }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = active ? active[move] : box.firstElementChild;
    if (next?.classList.contains('tok')) read(next);
  });
  draw(0);
  return box;
}
