// Line charts in SVG: axes, bands, a read-out by pointer or arrow keys, and the same numbers as a table.

/** Round numbers that cover low..high. */
function ticks(low, high, count) {
  const span = high - low || 1;
  const raw = span / count;
  const size = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 2.5, 5, 10].find((u) => u * size >= raw * 0.999) * size;
  const out = [];
  for (let i = Math.ceil(low / unit - 1e-9); i * unit <= high + unit * 1e-9; i += 1) out.push(Number((i * unit).toPrecision(12)));
  return out;
}

/** Running mean over the points around; gaps stay gaps. */
function smooth(values, width) {
  if (!values || width <= 1) return values;
  const half = Math.floor(width / 2);
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}

const MARKS = [
  (x, y) => `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0`,
  (x, y) => `M${x - 3} ${y - 3}h6v6h-6z`,
  (x, y) => `M${x} ${y - 4}l4 7h-8z`,
  (x, y) => `M${x} ${y - 4.5}l4.5 4.5l-4.5 4.5l-4.5 -4.5z`,
];

const path = (points) => {
  let out = '';
  let pen = false;
  for (const [x, y] of points) {
    if (y === null) { pen = false; continue; }
    out += `${pen ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  }
  return out;
};

/**
 * lines: [{label, color, shape, mark, main, x: [...], mean: [...], low, high, n, of}]; share: values are shares of 1.
 * Returns a <figure> that redraws itself when its width changes.
 */
function lineChart({ title, xLabel, formatX, share, lines }) {
  const format = share ? percent : num;
  const plot = h('div', { class: 'plot', tabindex: 0, role: 'group', onblur: leave, onpointerleave: leave,
    'aria-label': `${title} over ${xLabel}. Left and right arrow keys read the values.` });
  const readout = h('div', { class: 'readout', hidden: true });
  const rows = [...new Set(lines.flatMap((l) => l.x))].sort((a, b) => a - b);
  const values = lines.flatMap((l) => (l.main && l.low ? [l.low, l.high] : [l.mean]).flat()).filter((v) => v !== null);
  const index = lines.map((l) => new Map(l.x.map((x, i) => [x, i])));
  let cursor = null;
  let place = null;

  function draw(width) {
    const height = 230;
    const m = { left: 46, right: 12, top: 12, bottom: 38 };
    let [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    if (share) [low, high] = [0, 1];
    else if (low === high) [low, high] = [low - 1, high + 1];
    else [low, high] = [low - (high - low) * 0.06, high + (high - low) * 0.06];
    const [first, last] = [rows[0], rows[rows.length - 1]];
    const px = (x) => m.left + (last === first ? 0.5 : (x - first) / (last - first)) * (width - m.left - m.right);
    const py = (y) => (y === null ? null : height - m.bottom - ((y - low) / (high - low)) * (height - m.top - m.bottom));
    const ys = ticks(low, high, 4);
    const decimals = Math.max(...ys.map((y) => (String(y).split('.')[1] ?? '').length));
    const axis = (y) => (share || decimals > 4 ? format(y) : y.toFixed(decimals).replace('-', '−'));
    place = px;
    const rule = svg('line', { class: 'rule', y1: m.top, y2: height - m.bottom, visibility: 'hidden' });
    const drawing = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': summary() },
      ys.map((y) => [
        svg('line', { class: 'grid', x1: m.left, x2: width - m.right, y1: py(y), y2: py(y) }),
        svg('text', { x: m.left - 8, y: py(y) + 4, 'text-anchor': 'end' }, axis(y)),
      ]),
      ticks(first, last, Math.max(2, Math.floor(width / 95))).map((x) =>
        svg('text', { x: px(x), y: height - m.bottom + 17, 'text-anchor': 'middle' }, formatX(x))),
      svg('text', { class: 'axis', x: width - m.right, y: height - 4, 'text-anchor': 'end' }, xLabel),
      lines.map((l) => {
        const at = (column) => l.x.map((x, i) => [px(x), py(column[i])]);
        if (!l.low || !l.main) return null;
        const full = l.x.map((x, i) => i).filter((i) => l.low[i] !== null);
        const edge = [...full.map((i) => at(l.high)[i]), ...full.reverse().map((i) => at(l.low)[i])];
        return svg('path', { class: `band ${l.color}`, d: `${path(edge)}Z` });
      }),
      lines.map((l) => {
        const points = l.x.map((x, i) => [px(x), py(l.mean[i])]);
        const alone = points.filter(([, y], i) => y !== null && (l.mark || (!known(l.mean[i - 1]) && !known(l.mean[i + 1]))));
        return [
          svg('path', { class: `line ${l.color} ${l.main ? 'strong' : ''}`, d: path(points) }),
          alone.length <= 60 && svg('path', { class: `marks ${l.color}`, d: alone.map(([x, y]) => MARKS[l.shape % 4](x, y)).join('') }),
        ];
      }),
      rule);
    plot.replaceChildren(drawing, readout);
    if (cursor !== null) point(cursor);
  }

  function summary() {
    const ends = lines.map((l) => {
      const there = l.mean.filter((v) => v !== null);
      return `${l.label} from ${format(there[0])} to ${format(there[there.length - 1])}`;
    });
    return `${title}: ${ends.join('; ')}`;
  }

  /** Each line with its point nearest to x. */
  function at(x) {
    const nearest = (l) => l.x.reduce((best, other, i) =>
      (l.mean[i] !== null && (best < 0 || Math.abs(other - x) < Math.abs(l.x[best] - x)) ? i : best), -1);
    return lines.map((l) => [l, nearest(l)]).filter(([, i]) => i >= 0);
  }

  function point(i) {
    cursor = Math.min(Math.max(i, 0), rows.length - 1);
    const x = place(rows[cursor]);
    const rule = plot.querySelector('.rule');
    for (const end of ['x1', 'x2']) rule.setAttribute(end, x);
    rule.setAttribute('visibility', 'visible');
    const found = at(rows[cursor]);
    readout.replaceChildren(h('b', {}, `${formatX(rows[cursor])} ${xLabel}`), ...found.map(([l, k]) =>
      h('div', {}, h('i', { class: `swatch ${l.color} ${l.main ? '' : 'thin'}` }), `${l.label} `, h('b', {}, format(l.mean[k])),
        l.low && known(l.low[k]) ? ` (${format(l.low[k])} to ${format(l.high[k])}${l.n[k] < l.of ? `, ${l.n[k]} of ${l.of} runs` : ''})` : '', l.x[k] !== rows[cursor] && ` at ${formatX(l.x[k])}`)));
    readout.hidden = false;
    readout.style.left = `${Math.max(0, Math.min(x - readout.offsetWidth / 2, plot.clientWidth - readout.offsetWidth))}px`;
    if (document.activeElement === plot) say(readout.textContent);
  }

  function leave() {
    cursor = null;
    readout.hidden = true;
    plot.querySelector('.rule')?.setAttribute('visibility', 'hidden');
  }

  plot.addEventListener('pointermove', (event) => {
    const x = event.clientX - plot.getBoundingClientRect().left;
    let best = 0;
    rows.forEach((r, i) => { if (Math.abs(place(r) - x) < Math.abs(place(rows[best]) - x)) best = i; });
    point(best);
  });
  plot.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    point(cursor === null ? (move > 0 ? 0 : rows.length - 1) : cursor + move);
  });

  const numbers = h('details', { class: 'numbers', ontoggle: () => {
    if (!numbers.open || numbers.children.length > 1) return;
    numbers.append(table(title, [xLabel, ...lines.map((l) => l.label)], rows.map((x) =>
      [formatX(x), ...lines.map((l, k) => (index[k].has(x) ? format(l.mean[index[k].get(x)]) : '–'))])));
  } }, h('summary', {}, 'Numbers'));
  const figure = h('figure', { class: 'card chart' }, h('figcaption', {}, title), plot, numbers);
  if (values.length === 0) plot.replaceChildren(h('p', { class: 'empty' }, 'No finite value was recorded.'));
  else new ResizeObserver(([entry]) => draw(Math.max(220, Math.round(entry.contentRect.width)))).observe(plot);
  return figure;
}
