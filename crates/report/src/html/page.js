'use strict';
(() => {
  const make = (tag, text, cls) => {
    const el = document.createElement(tag);
    if (text !== undefined) el.textContent = text;
    if (cls) el.className = cls;
    return el;
  };
  const clamp = (x, low, high) => Math.max(low, Math.min(high, x));

  // Zoom and pan of one drawing: x and y are the picture's point at the upper left, k is pixels per unit.
  function view(section) {
    const box = section.querySelector('.view'), svg = box.querySelector('svg');
    const W = +svg.dataset.w, H = +svg.dataset.h, pad = +svg.dataset.pad;
    let x = 0, y = 0, k = 1;
    const size = () => [box.clientWidth || 1, box.clientHeight || 1];
    function draw() {
      const [w, h] = size();
      // Never lose the picture: some of it stays in sight.
      x = clamp(x, -pad - 0.8 * w / k, W - pad - 0.2 * w / k);
      y = clamp(y, -pad - 0.8 * h / k, H - pad - 0.2 * h / k);
      svg.setAttribute('viewBox', `${x} ${y} ${w / k} ${h / k}`);
    }
    const fits = () => { const [w, h] = size(); return Math.min(w / W, h / H); };
    function scale(to, px, py) {
      const [w, h] = size();
      px = px ?? w / 2; py = py ?? h / 2;
      to = clamp(to, Math.min(fits(), 1) / 2, 8);
      x += px / k - px / to; y += py / k - py / to; k = to;
      draw();
    }
    function show(cx, cy) { const [w, h] = size(); x = cx - w / k / 2; y = cy - h / k / 2; draw(); }
    function fit() { k = Math.min(fits(), 2); show(W / 2 - pad, H / 2 - pad); }
    function begin() {
      const [w, h] = size();
      k = clamp(fits(), 0.7, 1);
      show(W / 2 - pad, H / 2 - pad);
      const first = svg.querySelector('.n');
      if (first && W * k > w) { const c = centre(first); x = clamp(c.x - w / k / 2, -pad, W - pad - w / k); }
      if (H * k > h) y = -pad;
      draw();
    }
    function centre(el) {
      const r = el.querySelector('rect').getBoundingClientRect(), s = svg.getBoundingClientRect();
      return { x: x + (r.left + r.width / 2 - s.left) / k, y: y + (r.top + r.height / 2 - s.top) / k };
    }
    function reveal(el) {
      // The panel may just have changed the size.
      if (k < 0.7) k = 0.9;
      draw();
      const c = centre(el);
      show(c.x, c.y);
    }
    box.addEventListener('wheel', e => {
      e.preventDefault();
      const r = svg.getBoundingClientRect(), lines = e.deltaMode ? 16 : 1;
      scale(k * Math.exp(-clamp(e.deltaY * lines, -200, 200) * 0.0022), e.clientX - r.left, e.clientY - r.top);
    }, { passive: false });
    let drag = null, moved = false;
    svg.addEventListener('pointerdown', e => { if (e.button === 0) { drag = [e.clientX, e.clientY, x, y]; moved = false; } });
    svg.addEventListener('pointermove', e => {
      if (!drag) return;
      const dx = e.clientX - drag[0], dy = e.clientY - drag[1];
      if (!moved && Math.hypot(dx, dy) < 4) return;
      if (!moved) { moved = true; svg.setPointerCapture(e.pointerId); svg.classList.add('drag'); }
      x = drag[2] - dx / k; y = drag[3] - dy / k;
      draw();
    });
    const drop = () => { drag = null; svg.classList.remove('drag'); };
    svg.addEventListener('pointerup', drop);
    svg.addEventListener('pointercancel', drop);
    // A drag ends with a click, which is not meant as one.
    svg.addEventListener('click', e => { if (moved) { e.stopImmediatePropagation(); moved = false; } });
    const deeds = { in: () => scale(k * 1.25), out: () => scale(k / 1.25), fit, one: () => scale(1) };
    for (const b of section.querySelectorAll('[data-do]')) b.addEventListener('click', deeds[b.dataset.do]);
    const step = 60;
    const keys = {
      '+': deeds.in, '=': deeds.in, '-': deeds.out, '0': fit, '1': deeds.one,
      ArrowLeft: () => { x -= step / k; draw(); }, ArrowRight: () => { x += step / k; draw(); },
      ArrowUp: () => { y -= step / k; draw(); }, ArrowDown: () => { y += step / k; draw(); },
    };
    box.addEventListener('keydown', e => {
      const deed = !e.ctrlKey && !e.metaKey && !e.altKey && keys[e.key];
      if (deed) { e.preventDefault(); deed(); }
    });
    new ResizeObserver(draw).observe(box);
    begin();
    return { svg, box, reveal };
  }

  function graph(section, view) {
    const { svg } = view, aside = section.querySelector('aside'), prefix = section.id;
    const data = JSON.parse(section.querySelector('.data').textContent);
    const element = (g, n) => document.getElementById(`${prefix}g${g}n${n}`);
    let chosen = [];

    function links(title, g, list) {
      if (!list.length) return;
      aside.append(make('h3', `${title} (${list.length})`));
      const ul = make('ul');
      for (const [n, words] of list.slice(0, 200)) {
        const li = make('li'), b = make('button', `${n} ${data.groups[g].nodes[n].label.slice(0, 120)}`);
        if (words) b.append(make('br'), make('i', words));
        b.addEventListener('click', () => choose(g, n, true));
        li.append(b);
        ul.append(li);
      }
      if (list.length > 200) ul.append(make('li', `… ${list.length - 200} more`));
      aside.append(ul);
    }

    function choose(g, n, go) {
      for (const el of chosen) el.classList.remove('sel', 'on');
      chosen = [];
      if (g === null) { aside.hidden = true; return; }
      const el = element(g, n), node = data.groups[g].nodes[n];
      el.classList.add('sel');
      chosen.push(el);
      const before = [], after = [];
      data.groups[g].edges.forEach(([from, to, words], e) => {
        if (from !== n && to !== n) return;
        (from === n ? after : before).push([from === n ? to : from, words]);
        for (const id of [`${prefix}g${g}e${e}`, `${prefix}g${g}e${e}b`]) {
          const line = document.getElementById(id);
          if (line) { line.classList.add('on'); chosen.push(line); }
        }
      });
      const close = make('button', '×', 'close');
      close.title = 'Close (Esc)';
      close.addEventListener('click', () => choose(null));
      aside.replaceChildren(close, make('div', node.label, 'name'),
        make('div', `${node.kind}, node ${n} of ${data.groups[g].title}`, 'kind'));
      const table = make('table');
      for (const line of node.lines) { const td = make('td', line); td.colSpan = 2; table.append(make('tr')); table.lastChild.append(td); }
      for (const [name, value] of node.facts) { const tr = make('tr'); tr.append(make('td', name), make('td', value)); table.append(tr); }
      aside.append(table);
      if (node.bodies) {
        aside.append(make('h3', 'Contains'));
        const ul = make('ul');
        for (const b of node.bodies) {
          const li = make('li'), button = make('button', data.groups[b].title);
          button.addEventListener('click', () => { const frame = document.getElementById(`${prefix}g${b}`); if (frame) view.reveal(frame); });
          li.append(button);
          ul.append(li);
        }
        aside.append(ul);
      }
      links('Depends on', g, before);
      links('Needed by', g, after);
      aside.hidden = false;
      if (go) view.reveal(el);
    }

    svg.addEventListener('click', e => {
      const el = e.target.closest('.n');
      if (!el) { choose(null); return; }
      const [, g, n] = /g(\d+)n(\d+)$/.exec(el.id);
      choose(+g, +n, false);
    });

    const input = section.querySelector('input'), count = section.querySelector('.hits');
    const index = data.groups.flatMap((group, g) => group.nodes.map((node, n) =>
      [g, n, [node.label, node.kind, ...node.lines, ...node.facts.map(f => f.join(' '))].join('\n').toLowerCase()]));
    let hits = [], at = -1;
    function find() {
      for (const [g, n] of hits) element(g, n).classList.remove('hit');
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      hits = words.length ? index.filter(([, , text]) => words.every(w => text.includes(w))) : [];
      for (const [g, n] of hits) element(g, n).classList.add('hit');
      svg.classList.toggle('find', words.length > 0);
      at = -1;
      count.textContent = words.length ? `${hits.length} found` : '';
      if (hits.length) go(1, false);
    }
    function go(by, open) {
      if (!hits.length) return;
      at = (at + by + hits.length) % hits.length;
      count.textContent = `${at + 1} of ${hits.length}`;
      const [g, n] = hits[at];
      if (open) choose(g, n, true); else view.reveal(element(g, n));
    }
    input.addEventListener('input', find);
    input.addEventListener('keydown', e => {
      if (e.key === 'Enter') { e.preventDefault(); go(e.shiftKey ? -1 : 1, true); }
      if (e.key === 'Escape') { input.value = ''; find(); view.box.focus(); }
    });
    section.addEventListener('keydown', e => { if (e.key === 'Escape' && e.target !== input) choose(null); });
    return { input, choose };
  }

  const graphs = new Map();
  for (const section of document.querySelectorAll('section')) {
    const v = view(section);
    if (section.querySelector('.data')) graphs.set(section.id, graph(section, v));
    else v.svg.addEventListener('click', e => {
      const el = e.target.closest('[data-node]');
      const match = el && /^(s\d+)g(\d+)n(\d+)$/.exec(el.dataset.node);
      if (!match || !document.getElementById(el.dataset.node)) return;
      document.getElementById(match[1]).scrollIntoView({ block: 'nearest' });
      graphs.get(match[1]).choose(+match[2], +match[3], true);
    });
  }
  document.addEventListener('keydown', e => {
    if (e.key !== '/' || e.target.tagName === 'INPUT' || !graphs.size) return;
    e.preventDefault();
    graphs.values().next().value.input.focus();
  });
})();
