// Building blocks. Data only ever become text nodes and plain attributes, never markup.

const $ = (id) => document.getElementById(id);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const svg = (tag, props, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

function select(label, options, value, onchange) {
  const box = h('select', { onchange: () => onchange(box.value) },
    options.map(([key, text]) => h('option', { value: key, selected: key === value }, text)));
  return h('label', { class: 'field' }, h('span', {}, label), box);
}

function table(caption, head, rows) {
  return h('div', { class: 'scroll', role: 'region', tabindex: 0, 'aria-label': caption },
    h('table', {},
      h('caption', { class: 'hidden' }, caption),
      h('thead', {}, h('tr', {}, head.map((cell) => h('th', { scope: 'col' }, cell)))),
      h('tbody', {}, rows.map((row) => h('tr', {}, row.map((cell, i) =>
        (i === 0 ? h('th', { scope: 'row' }, cell) : h('td', {}, cell))))))));
}

const say = (text) => { $('live').textContent = text; };

const known = (x) => x !== null && x !== undefined;

function num(x) {
  if (!known(x)) return '–';
  const size = Math.abs(x);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return x.toExponential(2).replace('-', '−');
  const digits = Number.isInteger(x) || size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return x.toLocaleString('en', { maximumFractionDigits: digits }).replace('-', '−');
}

const change = (from, to, format) => `${format(from)}\u00a0→\u00a0${format(to)}`;
const signed = (x) => (known(x) && x > 0 ? `+${num(x)}` : num(x));
const percent = (x) => (known(x) ? `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)}\u00a0%` : '–');
const plural = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;

function duration(seconds) {
  if (!known(seconds)) return '–';
  if (seconds < 120) return `${num(Math.round(seconds))} s`;
  return seconds < 7200 ? `${num(Math.round(seconds / 60))} min` : `${num(seconds / 3600)} h`;
}

/** Makes what has no shape visible: control characters, and those that would reorder or hide text around them. */
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, (c) => {
    const code = c.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? '\u2421' : `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`;
  });
}

/** A long text folded behind a button. */
function longText(text, className) {
  const most = 1500;
  const box = h('div', { class: `text ${className ?? ''}`, dir: 'auto' }, visible(text.slice(0, most)));
  if (text.length <= most) return box;
  const more = h('button', { class: 'more', onclick: () => {
    box.textContent = visible(text);
    more.remove();
  } }, `Show all ${text.length.toLocaleString('en')} characters`);
  return h('div', {}, box, more);
}

function showTip(anchor, rows) {
  const tip = $('tip');
  tip.replaceChildren(h('dl', {}, rows.map(([name, value]) => [h('dt', {}, name), h('dd', { dir: 'auto' }, value)])));
  tip.hidden = false;
  const at = anchor.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left), document.documentElement.clientWidth - tip.offsetWidth - 8);
  const below = at.bottom + tip.offsetHeight + 12 < window.innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? at.bottom + 6 : at.top - tip.offsetHeight - 6}px`;
}

const hideTip = () => { $('tip').hidden = true; };
