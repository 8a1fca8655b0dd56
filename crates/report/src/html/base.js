// What every part of the page uses: the data, elements, colours, figures in words.

// The server that this page may ask for more, if it has one.
const ask = { server: null };
const data = JSON.parse(document.getElementById('data').textContent);
const text = at => data.strings[at];
const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
const still = matchMedia('(prefers-reduced-motion: reduce)');

// An element: attributes by name, functions as listeners, the rest as children. Text is always text, never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child !== undefined && child !== null));
  return element;
}

// The colours of the style sheet, read anew when the scheme changes.
const theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const get = name => style.getPropertyValue(name).trim();
  theme.sans = get('--sans');
  theme.mono = get('--mono');
  for (const name of ['bg', 'panel', 'ink', 'muted', 'rule', 'accent', 'hit', 'added', 'removed', 'changed', 'live', 'shade']) theme[name] = get(`--${name}`);
  theme.classes = data.classes.map(name => ({ fill: get(`--k-${name}`), line: get(`--k-${name}-line`) }));
  theme.lines = data.lines.map(([name]) => ({
    colour: get(`--${name}`),
    width: +get(`--${name}-width`),
    dash: get(`--${name}-dash`).split(' ').map(Number).filter(n => n > 0),
  }));
  theme.lanes = Array.from({ length: +get('--lanes') }, (_, i) => get(`--ln${i}`));
  theme.heat = get('--heat').split(/\s+/).map(hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)));
}

const laneColour = lane => theme.lanes[lane % theme.lanes.length];

// From little (0) to much (1).
function heat(t) {
  const at = clamp(t, 0, 1) * (theme.heat.length - 1), low = Math.min(Math.floor(at), theme.heat.length - 2);
  const mix = theme.heat[low].map((c, i) => Math.round(c + (theme.heat[low + 1][i] - c) * (at - low)));
  return `rgb(${mix.join()})`;
}

const round = (x, digits) => String(+x.toFixed(digits));

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit++; }
  return `${round(n, unit ? 1 : 0)} ${units[unit]}`;
}

// Nanoseconds in a unit that fits `scale`, or steps.
function time(n, steps, scale = n) {
  if (steps) return count(n, 'step');
  const [unit, name] = scale >= 1e9 ? [1e9, 's'] : scale >= 1e6 ? [1e6, 'ms'] : scale >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  return `${round(n / unit, 3)} ${name}`;
}

const count = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : noun.endsWith('x') ? 'es' : 's'}`;

// A round distance of ticks, at least `least`.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map(f => f * power).find(step => step >= least * 0.999999);
}

// One line that fits a width in pixels, in the font that the context has.
function fitText(context, words, width, advance) {
  const room = Math.floor(width / advance);
  if (words.length <= room) return words;
  // Less tells nothing apart.
  if (room < 7) return '';
  const head = Math.ceil((room - 1) * 0.6);
  return `${words.slice(0, head)}…${words.slice(words.length - (room - 1 - head))}`;
}

// Words beside the pointer.
const tip = make('div', { id: 'tip', role: 'tooltip', hidden: true });
function showTip(event, words) {
  if (!words) { tip.hidden = true; return; }
  tip.textContent = words.length > 600 ? `${words.slice(0, 600)}…` : words;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const x = event.clientX + 14, y = event.clientY + 16;
  tip.style.left = `${Math.max(4, x + width > innerWidth - 8 ? event.clientX - width - 10 : x)}px`;
  tip.style.top = `${Math.max(4, y + height > innerHeight - 8 ? event.clientY - height - 10 : y)}px`;
}

// A heading with a list of buttons, the first hundred of them.
function buttonList(heading, items) {
  if (!items.length) return undefined;
  const shown = items.slice(0, 100), list = make('ul', { class: 'links' });
  for (const { label, note, go, mark } of shown) {
    list.append(make('li', {}, make('button', { click: go, class: mark }, make('span', { class: 'label' }, label), note && make('span', { class: 'note' }, note))));
  }
  if (items.length > shown.length) list.append(make('li', { class: 'note' }, `… and ${items.length - shown.length} more`));
  return make('section', {}, make('h3', {}, `${heading} (${items.length.toLocaleString('en')})`), list);
}

function table(rows) {
  const body = make('table');
  for (const [name, value] of rows) body.append(make('tr', {}, make('th', { scope: 'row' }, name), make('td', {}, value)));
  return body;
}
