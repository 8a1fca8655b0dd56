// Lanes of spans over time.

class Times {
  constructor(host, source, env) {
    Object.assign(this, { source, env, selected: null, hits: null });
    // Few rows may be tall.
    const rows = source.lanes.reduce((sum, lane) => sum + Math.max(1, lane.rows), 0);
    this.row = clamp(Math.floor(420 / Math.max(1, rows)), 20, 64);
    this.gap = 12;
    let y = 0;
    this.lanes = source.lanes.map((lane, l) => {
      const top = y;
      y += this.row * Math.max(1, lane.rows) + this.gap;
      const spans = lane.spans.map(([label, brief, kind, start, end, row, critical, node], s) => ({
        label, brief, kind, start, end, node, critical: critical === 1, y: top + row * this.row, l, s,
      }));
      spans.sort((a, b) => a.y - b.y || a.start - b.start);
      // Spans of a row do not overlap, so their ends are sorted, too.
      const rows = Array.from({ length: Math.max(1, lane.rows) }, () => []);
      for (const span of spans) rows[Math.round((span.y - top) / this.row)].push(span);
      return { ...lane, top, bottom: y - this.gap, spans, rows };
    });
    this.all = this.lanes.flatMap(lane => lane.spans);
    this.length = Math.max(1, source.length);
    this.strip = source.lanes.length > 1 ? { top: y + 10, height: clamp(this.row * 2, 48, 96) } : null;
    this.height = y + (this.strip ? this.strip.height + 24 : 0);
    this.sums = ['start', 'end'].map(end => {
      const times = Float64Array.from(this.all, span => span[end]).sort(), sums = new Float64Array(times.length + 1);
      times.forEach((t, i) => { sums[i + 1] = sums[i] + t; });
      return { times, sums };
    });
    this.byNode = new Map();
    for (const span of this.all) {
      if (!span.node) continue;
      // A node that several workers shared has several spans.
      const key = span.node.join();
      if (!this.byNode.has(key)) this.byNode.set(key, []);
      this.byNode.get(key).push(span);
    }
    // Time by name, the greatest first; the first few names have colours of their own.
    const names = new Map(), base = span => text(span.brief).split('<', 1)[0] || text(span.brief);
    // Where most names are numbered, what they have in common says more.
    const many = new Set(this.all.map(base)).size > Math.max(24, this.all.length / 2);
    for (const span of this.all) {
      const name = many ? base(span).replace(/\d+/g, '#') : base(span), known = names.get(name);
      span.name = known ?? { name, total: 0, count: 0 };
      span.name.total += span.end - span.start;
      span.name.count++;
      names.set(name, span.name);
    }
    this.names = [...names.values()].sort((a, b) => b.total - a.total || (a.name < b.name ? -1 : 1));
    this.names.forEach((name, i) => { name.place = i; });
    this.colour = new Set(this.all.map(span => span.kind)).size > 1 ? 'kind' : 'name';
    this.camera = new Camera(host, {
      mode: 'time',
      inset: [30, 16, 8, 150],
      label: `Timeline: ${source.title}`,
      bounds: () => ({ x: 0, y: 0, w: this.length, h: this.height }),
      draw: c => this.draw(c),
      click: (px, py) => this.choose(this.at(px, py)),
      hover: (px, py) => { const span = this.at(px, py); this.camera.canvas.classList.toggle('over', Boolean(span)); return span ? this.words(span) : ''; },
    });
  }

  colours(span) {
    if (this.colour === 'kind') return theme.classes[span.kind];
    if (span.name.place >= theme.lanes.length - 1) return theme.classes[data.classes.indexOf('empty')];
    return { line: laneColour(span.name.place), alpha: 0.34 };
  }

  words(span) {
    const { steps } = this.source;
    return `${text(span.label)}\n${data.classes[span.kind]}, ${this.lanes[span.l].name}\nfrom ${time(span.start, steps)} to ${time(span.end, steps)}: ${time(span.end - span.start, steps)}${span.critical ? '\non the critical path' : ''}`;
  }

  at(px, py) {
    const [top, , , left] = this.camera.inset;
    if (px < left || py < top) return null;
    const [t, y] = this.camera.toWorld(px, py), slack = 2 / this.camera.kx;
    const spans = this.lanes.flatMap(lane => lane.rows).find(spans => spans.length && y >= spans[0].y && y < spans[0].y + this.row);
    let best = null;
    for (let at = spans ? this.firstAfter(spans, t - slack) : Infinity; at < spans?.length && spans[at].start <= t + slack; at++) {
      // Of thin neighbours, the one that really is there.
      const off = Math.max(spans[at].start - t, t - spans[at].end, 0);
      if (!best || off < best.off) best = { span: spans[at], off };
    }
    return best?.span ?? null;
  }

  choose(span, reveal = false) {
    this.selected = span;
    if (span && reveal) {
      const { camera } = this, [width, height] = camera.plot();
      // A span too thin to be seen is magnified.
      const kx = Math.max(camera.kx, Math.min(camera.limit(Infinity), 24 / Math.max(span.end - span.start, 1e-9)));
      const x = (span.start + span.end) / 2 - width / 2 / kx;
      const y = span.y < camera.y || span.y + this.row > camera.y + height ? span.y - height / 2 : camera.y;
      const sees = kx === camera.kx && span.start >= camera.x && span.end <= camera.x + width / kx && y === camera.y;
      if (!sees) { camera.touched = true; camera.move({ x, y, kx, ky: 1 }); }
    }
    this.camera.draw();
    this.env.chosen(this);
  }

  key(event) {
    if (!event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key.startsWith('Arrow')) { this.step(event.key); return true; }
      if (event.key === 'Escape' && this.selected) { this.choose(null); return true; }
      if (event.key === 'Enter' && this.selected?.node) { this.env.toNode(...this.selected.node); return true; }
    }
    return this.camera.key(event);
  }

  // Left and right in the lane, up and down to what runs at the same time in the next.
  step(key) {
    const spans = this.sorted ??= [...this.all].sort((a, b) => a.start - b.start || a.y - b.y);
    if (!spans.length) return;
    const now = this.selected;
    if (!now) { this.choose(spans[0], true); return; }
    let next;
    if (key === 'ArrowRight') next = spans.filter(s => s.l === now.l && s.start >= now.end && s !== now)[0];
    if (key === 'ArrowLeft') next = spans.filter(s => s.l === now.l && s.end <= now.start && s !== now).pop();
    if (key === 'ArrowUp' || key === 'ArrowDown') {
      const by = key === 'ArrowUp' ? -1 : 1, off = s => Math.max(s.start - now.end, now.start - s.end, 0);
      next = spans.filter(s => s.l === now.l + by).sort((a, b) => off(a) - off(b) || a.start - b.start)[0];
    }
    if (next) this.choose(next, true);
  }

  find(words) {
    const found = words.length ? this.all.filter(span => {
      const all = text(span.label).toLowerCase();
      return words.every(word => all.includes(word));
    }) : [];
    found.sort((a, b) => a.start - b.start);
    this.hits = words.length ? new Set(found) : null;
    this.camera.draw();
    return found.map(span => ({
      label: text(span.brief), note: `${this.lanes[span.l].name}, ${time(span.start, this.source.steps)}`, go: () => this.choose(span, true),
    }));
  }

  draw(c) {
    const { camera, source, row } = this, [top, , , left] = camera.inset, [width, height] = camera.plot();
    const sx = t => left + (t - camera.x) * camera.kx, sy = y => top + y - camera.y;
    if (!this.all.length) {
      c.fillStyle = theme.muted;
      c.font = `13px ${theme.sans}`;
      c.textBaseline = 'middle';
      c.fillText('Nothing runs here: the graph has no nodes.', 20, 40);
      return;
    }
    c.textBaseline = 'middle';
    c.fillStyle = theme.muted;
    c.font = `11px ${theme.sans}`;
    c.fillText(source.steps ? 'step' : 'time', 12, top - 14);
    // Ticks.
    const visible = width / camera.kx, tick = Math.max(roundStep(visible / Math.max(2, width / 110)), source.steps ? 1 : 0);
    c.font = `11px ${theme.sans}`;
    c.textBaseline = 'middle';
    c.lineWidth = 1;
    for (let i = Math.ceil(camera.x / tick); i * tick <= camera.x + visible; i++) {
      const x = Math.round(sx(i * tick)) + 0.5;
      c.strokeStyle = theme.rule;
      c.beginPath();
      c.moveTo(x, top - 6);
      c.lineTo(x, camera.height);
      c.stroke();
      c.fillStyle = theme.muted;
      const words = source.steps ? Math.round(i * tick).toLocaleString('en') : time(i * tick, false, Math.max(i * tick, tick * 10));
      c.fillText(words, x + 4, top - 14);
    }
    c.save();
    c.beginPath();
    c.rect(0, top, camera.width, height + camera.inset[2]);
    c.clip();
    for (const lane of this.lanes) {
      if (sy(lane.bottom) < top || sy(lane.top) > camera.height) continue;
      c.fillStyle = theme.shade;
      c.fillRect(left, sy(lane.top) - 2, width + 16, lane.bottom - lane.top + 2);
    }
    c.save();
    c.beginPath();
    c.rect(left, top, width + 16, height + 8);
    c.clip();
    c.font = `10.5px ${theme.mono}`;
    // Beside what is chosen and what it touches, the rest steps back.
    const near = this.selected && this.neighbours(this.selected), around = near && new Set([this.selected, ...near.before, ...near.after]);
    const bright = around ?? this.hits;
    for (const spans of this.lanes.flatMap(lane => lane.rows)) {
      if (!spans.length || sy(spans[0].y) + row < top || sy(spans[0].y) > camera.height) continue;
      let at = this.firstAfter(spans, camera.x), lastX = [-Infinity, -Infinity];
      for (; at < spans.length; at++) {
        const span = spans[at], x0 = sx(span.start), x1 = sx(span.end);
        if (x0 > left + width + 16) break;
        const w = Math.max(x1 - x0, 1), light = bright?.has(span) ?? true;
        // Many in one pixel are drawn once, those that stand out in any case.
        if (w <= 1 && Math.floor(x0) === lastX[+light]) continue;
        lastX[+light] = Math.floor(x0);
        this.drawSpan(c, span, x0, w, sy(span.y), light ? 1 : around ? 0.45 : 0.25, left);
      }
    }
    c.globalAlpha = 1;
    this.drawLinks(c, sx, sy);
    c.restore();
    if (this.strip && sy(this.strip.top) < camera.height) this.drawStrip(c, left, top, width, sy);
    for (const lane of this.lanes) {
      const y = sy(lane.top);
      if (y + 40 < top || y > camera.height) continue;
      c.fillStyle = theme.ink;
      c.font = `12px ${theme.sans}`;
      c.fillText(fitText(c, lane.name, left - 16, 6.6), 12, y + 9);
      c.fillStyle = theme.muted;
      c.font = `10.5px ${theme.sans}`;
      if (lane.bottom - lane.top >= row) c.fillText(`${Math.round(100 * lane.busy / this.length)} % busy, ${count(lane.spans.length, 'span')}`, 12, y + 22);
    }
    c.restore();
  }

  // The first span of a row that ends after a time.
  firstAfter(spans, time) {
    let low = 0, high = spans.length;
    while (low < high) { const middle = (low + high) >> 1; if (spans[middle].end < time) low = middle + 1; else high = middle; }
    return low;
  }

  drawSpan(c, span, x0, w, y, dim, left) {
    const { row } = this, { fill, line, alpha } = this.colours(span);
    c.globalAlpha = dim * (w < 4 ? 0.75 : alpha ?? 1);
    c.fillStyle = w < 4 ? line : fill ?? line;
    // Whole pixels for the thinnest: side by side they would look like a comb.
    c.fillRect(w > 1 ? x0 : Math.floor(x0), y + 1, w, row - 3);
    c.globalAlpha = dim;
    if (w >= 4) {
      c.strokeStyle = line;
      c.lineWidth = span.critical ? 2 : 0.8;
      c.strokeRect(x0 + 0.5, y + 1.5, w - 1, row - 4);
    }
    if (span.critical) { c.fillStyle = theme.ink; c.fillRect(x0, y + row - 4, w, 2); }
    const shown = Math.max(x0, left), room = x0 + w - shown - 8;
    if (room < 12) return;
    c.fillStyle = theme.ink;
    c.fillText(fitText(c, text(span.brief), room, 6.35), shown + 4, y + row / 2 - 0.5);
  }

  // Time that all spans together have taken until a moment.
  taken(moment) {
    const [begun, ended] = this.sums.map(({ times, sums }) => {
      let low = 0, high = times.length;
      while (low < high) { const middle = (low + high) >> 1; if (times[middle] < moment) low = middle + 1; else high = middle; }
      return low * moment - sums[low];
    });
    return begun - ended;
  }

  // How many run at once, below the lanes: the mean of each column of pixels.
  drawStrip(c, left, top, width, sy) {
    const { camera, strip } = this, most = this.lanes.length, floor = sy(strip.top) + strip.height;
    c.fillStyle = theme.shade;
    c.fillRect(left, floor - strip.height, width + 16, strip.height);
    c.save();
    c.beginPath();
    c.rect(left, top, width + 16, camera.height);
    c.clip();
    c.beginPath();
    c.moveTo(left, floor);
    let before = this.taken(camera.x);
    for (let x = 0; x < width; x++) {
      const now = this.taken(camera.x + (x + 1) / camera.kx), mean = (now - before) * camera.kx;
      c.lineTo(left + x, floor - strip.height * Math.min(mean / most, 1));
      c.lineTo(left + x + 1, floor - strip.height * Math.min(mean / most, 1));
      before = now;
    }
    c.lineTo(left + width, floor);
    c.closePath();
    c.globalAlpha = 0.3;
    c.fillStyle = theme.accent;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = theme.accent;
    c.lineWidth = 1;
    c.stroke();
    c.restore();
    c.fillStyle = theme.ink;
    c.font = `12px ${theme.sans}`;
    c.fillText('running at once', 12, floor - strip.height + 9);
    c.fillStyle = theme.muted;
    c.font = `10.5px ${theme.sans}`;
    c.fillText(`of ${count(most, 'lane')}`, 12, floor - strip.height + 22);
    c.textAlign = 'right';
    c.fillText(String(most), left - 6, floor - strip.height + 6);
    c.fillText('0', left - 6, floor - 5);
    c.textAlign = 'left';
  }

  // The dependencies of the selected span, as arrows.
  drawLinks(c, sx, sy) {
    const now = this.selected;
    if (!now) return;
    const ends = span => [sx(span.start), sx(span.end), sy(span.y) + this.row / 2 - 1];
    const { before, after } = this.neighbours(now);
    const [x0, x1, y] = ends(now);
    c.strokeStyle = theme.accent;
    c.fillStyle = theme.accent;
    c.lineWidth = 1.6;
    const arrow = (ax, ay, bx, by) => {
      const reach = Math.max(16, Math.min(60, Math.abs(bx - ax) / 2));
      // Within a row, over what lies between.
      const over = Math.abs(ay - by) < 1 && bx - ax > 12 ? this.row * 0.9 : 0;
      c.beginPath();
      c.moveTo(ax, ay);
      c.bezierCurveTo(ax + reach, ay - over, bx - reach, by - over, bx, by);
      c.stroke();
      c.beginPath();
      c.moveTo(bx, by);
      c.lineTo(bx - 7, by - 3.5);
      c.lineTo(bx - 7, by + 3.5);
      c.fill();
    };
    for (const span of before) { const [, end, at] = ends(span); arrow(end, at, x0, y); }
    for (const span of after) { const [start, , at] = ends(span); arrow(x1, y, start, at); }
    c.lineWidth = 2.4;
    c.strokeRect(x0 - 1, sy(now.y), Math.max(x1 - x0, 1) + 2, this.row - 2);
  }

  neighbours(span) {
    const graph = span.node && this.env.graph();
    if (!graph) return { before: [], after: [] };
    const [g, n] = span.node, { before, after } = graph.around(g, n);
    const spansOf = others => others.flatMap(other => this.byNode.get([g, other].join()) ?? []).filter(other => other !== span);
    return { before: spansOf(before), after: spansOf(after) };
  }

  describe() {
    const { selected: span, source } = this, { before, after } = this.neighbours(span);
    const badge = make('span', { class: 'badge' }, data.classes[span.kind]);
    badge.style.background = theme.classes[span.kind].fill;
    badge.style.borderColor = theme.classes[span.kind].line;
    const link = other => ({ label: text(other.brief), note: `${this.lanes[other.l].name}, ends ${time(other.end, source.steps)}`, go: () => this.choose(other, true) });
    return [
      make('h2', { class: 'name' }, text(span.label)),
      make('p', { class: 'kind' }, badge, ` ${this.lanes[span.l].name}`),
      span.node && this.env.graph() ? make('p', {}, make('button', { class: 'enter', click: () => this.env.toNode(...span.node) }, `Show node ${span.node[1]} in the graph`)) : undefined,
      table([
        ['start', time(span.start, source.steps)], ['end', time(span.end, source.steps)], ['takes', time(span.end - span.start, source.steps)],
        ...(span.critical ? [['critical path', 'yes']] : []),
      ]),
      buttonList('Waits for', before.map(link)),
      buttonList('Needed by', after.map(link)),
    ];
  }

  overview() {
    const spans = this.all, busy = this.lanes.reduce((sum, lane) => sum + lane.busy, 0);
    return [
      make('h2', {}, this.source.title),
      table([
        ['length', time(this.source.length, this.source.steps)],
        ['lanes', String(this.lanes.length)],
        ['spans', spans.length.toLocaleString('en')],
        ['busy lanes', this.source.length ? `${round(busy / this.source.length, 2)} on average` : 'none'],
      ]),
      make('h3', {}, this.source.steps ? 'Steps by name' : 'Time by name'),
      this.byName(),
      this.all.some(span => span.critical) ? make('ul', { class: 'legend' }, make('li', {}, make('span', { class: 'swatch underline' }), 'underlined: on the critical path')) : undefined,
      this.source.steps ? make('p', { class: 'note' }, 'What nodes cost is not known: each takes one step. `--costs FILE` gives times, from a trace of PyTorch’s profiler or a file of `phonograph run --profile`.') : undefined,
    ];
  }
  byName() {
    if (!this.names.length) return make('p', { class: 'note' }, 'No node has run.');
    const shown = this.names.slice(0, 24), list = make('ul', { class: 'names' }), most = this.names[0]?.total || 1;
    for (const name of shown) {
      const bar = make('span', { class: 'bar' }), one = this.all.find(span => span.name === name);
      bar.style.width = `${100 * name.total / most}%`;
      bar.style.background = this.colours(one).line;
      list.append(make('li', {}, make('span', { class: 'mono' }, name.name), make('span', { class: 'note' }, `${time(name.total, this.source.steps)}, ${count(name.count, 'span')}`), bar));
    }
    if (this.names.length > shown.length) list.append(make('li', { class: 'note' }, `… and ${this.names.length - shown.length} more names`));
    return list;
  }
}
