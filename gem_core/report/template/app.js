// Reads the data and shows the view that the address names: #learning, #episodes or #episodes/NUMBER.

async function readData() {
  const { textContent, dataset } = $('data');
  if (dataset.encoding === 'plain') return JSON.parse(textContent);
  if (typeof DecompressionStream === 'undefined') throw new Error('This browser cannot unpack the data. Write the report with --plain.');
  const raw = atob(textContent);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).json();
}

function start(data) {
  $('data').remove();
  data.episodes.forEach((e, i) => { e.index = i; });
  $('title').textContent = visible(data.title);
  const main = $('main');
  const views = {};
  const tabs = { learning: 'Learning', episodes: `Episodes ${data.episodes.length.toLocaleString('en')}` };
  $('tabs').replaceChildren(...Object.entries(tabs).map(([key, name]) => h('a', { href: `#${key}`, id: `tab-${key}` }, name)));

  function navigate(to, replace = false) {
    if (replace) history.replaceState(null, '', `#${to}`);
    else location.hash = to;
  }

  function route() {
    const [name, index] = location.hash.slice(1).split('/');
    const key = name in tabs ? name : 'learning';
    views[key] ??= key === 'learning' ? { view: learningView(data), keys: {} } : episodesView(data, navigate);
    for (const other of Object.keys(tabs)) $(`tab-${other}`).setAttribute('aria-current', other === key ? 'page' : 'false');
    if (main.firstChild !== views[key].view) main.replaceChildren(views[key].view);
    if (key === 'episodes') views.episodes.open(/^\d+$/.test(index ?? '') ? Number(index) : null);
    shown = key;
  }

  let shown = 'learning';
  addEventListener('hashchange', route);
  addEventListener('scroll', hideTip, { passive: true, capture: true });
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const act = views[shown].keys[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
  });
  route();
}

readData().then(start).catch((error) => {
  $('main').replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message));
  throw error;
});
