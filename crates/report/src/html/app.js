// The frame around the views: pages, tabs, search, the panel at the side, keys.

const kinds = {
  graph: { name: 'Graph', view: (host, tab, env) => new Graph(host, tab, env) },
  timeline: { name: 'Schedule', view: (host, tab, env) => new Times(host, tab, env) },
  skyline: { name: 'Memory', view: (host, tab, env) => new Memory(host, tab, env) },
  comparison: { name: 'Compare', view: (host, tab, env) => new Compare(host, tab, env) },
};

// `found` counts what is found, of which `hits` holds the first.
let page = 0, tab = 0, views = [], hits = [], hit = -1, found = 0, asking = 0;

const title = make('h1'), tabs = make('div', { role: 'tablist', 'aria-label': 'Views' }), stage = make('main', { id: 'stage' });
const panel = make('aside', { id: 'details', 'aria-label': 'Details' }), said = make('p', { class: 'said', 'aria-live': 'polite' });
const trouble = make('div', { id: 'trouble', role: 'alert', hidden: true });
const crumbs = make('nav', { id: 'crumbs', 'aria-label': 'Graph' }), tools = make('div', { id: 'tools' });
const results = make('ol', { id: 'results', hidden: true }), hitCount = make('span', { id: 'hits', 'aria-live': 'polite' });
const search = make('input', {
  type: 'search', id: 'search', placeholder: 'Search  ( / )', 'aria-label': 'Search', autocomplete: 'off', spellcheck: 'false',
  input: () => find(), keydown: event => searchKey(event), focus: () => { results.hidden = !hits.length; },
});
const pick = make('select', { id: 'pages', 'aria-label': 'File', change: () => openPage(+pick.value) },
  ...data.pages.map((p, i) => make('option', { value: i }, p.title)));
const button = (words, hint, click) => make('button', { title: hint, 'aria-label': hint, click }, words);
const help = make('dialog', { id: 'help', 'aria-label': 'Keys' },
  make('h2', {}, 'Keys'),
  table([
    ['/', 'search; Enter and Shift+Enter walk through what was found'],
    ['↑ ↓', 'along edges: to a producer, to a consumer'],
    ['← →', 'to the neighbour in the row; in a schedule, along the lane'],
    ['Enter', 'step into a child graph, body or box (also a double click); from a span, to its node'],
    ['Esc', 'clear the selection; then step out, back to where you were'],
    ['Backspace', 'step out'],
    ['+ − 0', 'zoom in, out, show all (also the wheel, or two fingers)'],
    ['Shift + arrows', 'move the picture (also by dragging, or the wheel sideways)'],
    ['1 … 9', 'tabs'],
    ['Tab', 'to the next control'],
    ['?', 'these keys'],
  ]),
  make('p', { class: 'note' }, 'Point at an edge to see why it is there; a click keeps it.'),
  make('form', { method: 'dialog' }, make('button', {}, 'Close')));

document.body.append(
  make('header', {}, title, data.pages.length > 1 ? pick : undefined, tabs, make('div', { class: 'search' }, search, hitCount, results), button('?', 'Keys (?)', () => help.showModal())),
  make('div', { id: 'bar' }, crumbs, tools),
  stage, panel, tip, help, said, trouble);

const view = () => views[tab]?.view;

// What a view may ask of the frame; the graph of a tab is the one that its spans or moments name.
function env(index) {
  const graph = () => { const at = data.pages[page].tabs[index].graph; return at === undefined ? null : ready(at); };
  return {
    at: { page, tab: index, side: 0 },
    wait,
    chosen: () => { if (views[tab] === views[index]) describe(); },
    graph,
    toNode: (g, n) => { const target = graph(); if (target) { show(data.pages[page].tabs[index].graph); target.chooseNumber(g, n); } },
  };
}

// Says that something takes its time, and what went wrong if it does; nothing comes of it then.
async function wait(promise) {
  trouble.hidden = true;
  stage.classList.add('busy');
  try {
    return await promise;
  } catch (error) {
    trouble.textContent = `What lies there did not come: ${error.message}. Is \`phonograph view\` still running?`;
    trouble.hidden = false;
    return undefined;
  } finally {
    stage.classList.remove('busy');
  }
}

// A view is made when it is first shown.
function ready(index) {
  const slot = views[index];
  if (!slot.view) slot.view = kinds[data.pages[page].tabs[index].is].view(slot.host, data.pages[page].tabs[index], env(index));
  return slot.view;
}

function openPage(index) {
  page = index;
  const { title: name, tabs: all } = data.pages[page];
  title.textContent = name;
  title.title = name;
  document.title = name;
  stage.replaceChildren();
  tabs.replaceChildren();
  const alone = kind => all.filter(other => other.is === kind).length === 1;
  views = all.map((content, i) => {
    const host = make('div', { class: `view ${content.is}`, role: 'tabpanel', id: `view${i}`, 'aria-labelledby': `tab${i}`, hidden: true });
    const name = alone(content.is) || !content.title ? kinds[content.is].name : content.title.slice(0, 28);
    const handle = make('button', { role: 'tab', id: `tab${i}`, 'aria-controls': `view${i}`, title: `${content.title ?? name} (${i + 1})`, click: () => show(i) }, name);
    stage.append(host);
    tabs.append(handle);
    return { host, handle, view: null };
  });
  if (all.length) show(0);
  else { crumbs.replaceChildren(); tools.replaceChildren(); panel.replaceChildren(make('p', {}, 'There is nothing to show.')); }
}

function show(index) {
  if (!views[index]) return;
  tab = index;
  views.forEach(({ host, handle }, i) => {
    host.hidden = i !== index;
    handle.setAttribute('aria-selected', String(i === index));
    handle.tabIndex = i === index ? 0 : -1;
  });
  ready(index);
  showTip({}, '');
  describe();
  if (search.value) find(false);
}

// The panel, the path and the tools for what is shown now.
function describe() {
  const now = view();
  if (!now) return;
  const chosen = [now.selected, now.edge].some(what => what !== null && what !== undefined);
  const close = button('×', 'Close (Esc)', () => { now.key(new KeyboardEvent('keydown', { key: 'Escape' })); now.camera.canvas.focus(); });
  close.className = 'close';
  panel.replaceChildren(...(chosen ? [close, ...now.describe()] : overview(now)).filter(Boolean));
  panel.scrollTop = 0;
  said.textContent = chosen ? panel.querySelector('h2')?.textContent.slice(0, 200) ?? '' : '';
  const graph = now instanceof Compare ? now.sides[now.active] : now instanceof Graph ? now : null;
  showTrail(now, graph);
  tools.replaceChildren(...(graph ? graphTools(now, graph) : now instanceof Times ? timeTools(now) : []),
    button('−', 'Zoom out (-)', () => now.camera.zoom(1 / 1.4)), button('+', 'Zoom in (+)', () => now.camera.zoom(1.4)), button('all', 'Show all (0)', () => now.camera.fit()));
}

function showTrail(now, graph) {
  if (!graph) { crumbs.replaceChildren(make('span', {}, now.source.title)); return; }
  const parts = graph.trail.map(([g, n], depth) => make('button', { click: () => graph.leave(depth) }, graph.picture.groups[g].title));
  const here = make('span', { 'aria-current': 'page' }, graph.scene().title || graph.picture.title);
  crumbs.replaceChildren(...parts.flatMap(part => [part, make('span', { class: 'sep' }, '›')]), here,
    make('span', { class: 'note' }, sizeOf(graph.scene())));
}

function sizeOf({ nodes, edges, stands, part }) {
  if (stands !== undefined) return `${count(stands, 'node')} in ${count(nodes.length, 'box')}`;
  if (part && !part.numbers.length) return count(nodes.length, 'box');
  return `${count(nodes.length, 'node')}, ${count(edges.length, 'edge')}`;
}

function colourBy(owner, colours, redraw) {
  return make('label', {}, 'colour by ', make('select', { id: 'colour', 'aria-label': 'Colour by', change: event => { owner.colour = event.target.value; redraw(); } },
    ...colours.map(value => make('option', { value, selected: value === owner.colour }, value))));
}

const timeTools = now => [colourBy(now, ['kind', 'name'], () => { now.camera.draw(); describe(); })];

function graphTools(now, graph) {
  const redraw = () => {
    for (const one of now.sides ?? [graph]) { one.mapKey = null; one.camera.draw(); }
    describe();
  };
  const toggle = (name, words) => make('label', {}, make('input', { type: 'checkbox', checked: graph.emphasis[name], change: event => { graph.emphasis[name] = event.target.checked; redraw(); } }), words);
  const has = test => graph.picture.groups.some(group => group.nodes.some(test));
  const colours = ['kind', ...(has(node => node.lane !== undefined) ? ['stream'] : []), ...(graph.maxCost ? ['cost'] : [])];
  const parts = [toggle('critical', 'critical path'), toggle('redundant', 'redundant edges')];
  if (!(now instanceof Compare)) parts.unshift(colourBy(graph, colours, redraw));
  return parts;
}

function overview(now) {
  const { summary } = data.pages[page];
  if (!(now instanceof Graph)) return now.overview();
  const { notes } = now.scene();
  return [
    make('h2', {}, now.scene().title || 'Graph'),
    summary.length && !now.trail.length ? table(summary) : undefined,
    ...notes.map(note => make('p', { class: 'note' }, note)),
    now.legend(),
    make('p', { class: 'note' }, 'Click a node or an edge, search with /, follow edges with the arrow keys; ? lists all keys.'),
  ];
}

function find(open = true) {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), now = view();
  hits = now?.find(words) ?? [];
  showHits(words, hits.length, open);
  if (!words.length || !now?.more) return;
  // What only the server knows comes later, unless somebody has typed on or gone elsewhere.
  const asked = search.value;
  clearTimeout(asking);
  asking = setTimeout(async () => {
    const found = await wait(now.more(words));
    if (!found || search.value !== asked || view() !== now) return;
    const own = hits.length;
    found.mark();
    hits = [...hits, ...found.hits];
    showHits(words, own + found.all, open && document.activeElement === search);
  }, 120);
}

function showHits(words, all, open) {
  hit = -1;
  found = all;
  hitCount.textContent = words.length ? (all ? `${all.toLocaleString('en')} found` : 'nothing found') : '';
  results.replaceChildren(...hits.slice(0, 60).map((found, i) => make('li', {}, make('button', { tabindex: '-1', click: () => goTo(i) }, make('span', { class: 'label' }, found.label), make('span', { class: 'note' }, found.note)))));
  if (all > 60) results.append(make('li', { class: 'note' }, `… and ${(all - 60).toLocaleString('en')} more`));
  results.hidden = !open || !hits.length;
}

function goTo(index) {
  if (!hits.length) return;
  hit = (index + hits.length) % hits.length;
  hits[hit].go();
  hitCount.textContent = `${hit + 1} of ${found.toLocaleString('en')}`;
  results.querySelectorAll('button').forEach((b, i) => b.classList.toggle('now', i === hit));
  results.hidden = true;
}

function searchKey(event) {
  if (event.key === 'Enter') { event.preventDefault(); goTo(hit + (event.shiftKey ? -1 : 1)); }
  if (event.key === 'Escape') {
    event.preventDefault();
    event.stopPropagation();
    search.value = '';
    find();
    view()?.camera.canvas.focus();
  }
}

document.addEventListener('pointerdown', event => { if (!event.target.closest('.search')) results.hidden = true; });
document.addEventListener('focusin', event => { if (!event.target.closest('.search')) results.hidden = true; });
document.addEventListener('keydown', event => {
  const typing = event.target.closest('input[type=search], select, dialog');
  if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const onTabs = event.target.closest('[role=tablist]');
  if (event.key === '/') search.select();
  else if (event.key === '?') help.showModal();
  else if (/^[1-9]$/.test(event.key) && views[event.key - 1]) show(event.key - 1);
  else if (onTabs && (event.key === 'ArrowLeft' || event.key === 'ArrowRight')) {
    show((tab + (event.key === 'ArrowRight' ? 1 : -1) + views.length) % views.length);
    views[tab].handle.focus();
  } else if ((event.key === 'Enter' || event.key === ' ') && event.target.closest('button, input')) return;
  else if (event.key === 'Escape' && search.value && view()?.selected === null) { search.value = ''; find(); }
  else if (!view()?.key(event)) return;
  event.preventDefault();
});

const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', () => {
  readTheme();
  for (const { view } of views) for (const part of view?.sides ?? [view]) part?.camera.draw();
  describe();
});
readTheme();
openPage(0);
