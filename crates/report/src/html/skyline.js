// Pools of memory: buffers over moments and bytes.

class Memory {
  constructor(host, source, env) {
    Object.assign(this, { source, env, pool: 0, selected: null, hits: null });
    this.camera = new Camera(host, {
      mode: 'stretch',
      inset: [26, 16, 34, 86],
      label: `Memory: ${source.title}`,
      // Bytes grow upward, the canvas downward.
      bounds: () => ({ x: 0, y: -this.top(), w: Math.max(1, this.now().order.length), h: this.top() }),
      draw: c => this.draw(c),
      click: (px, py) => this.choose(this.at(px, py)),
      hover: (px, py) => this.hover(px, py),
    });
  }

  now() { return this.source.pools[this.pool] ?? { name: '', bytes: 0, unshared: 0, order: [], live: [], blocks: [] }; }

  // A little air above the peak.
  top() { return Math.max(1, this.now().bytes) * 1.06; }

  show(pool) {
    Object.assign(this, { pool, selected: null, hits: null });
    this.camera.begin();
    this.env.chosen(this);
  }

  at(px, py) {
    const [moment, y] = this.camera.toWorld(px, py), byte = -y;
    const found = this.now().blocks.findIndex(([, offset, length, first, last]) => byte >= offset && byte < offset + length && moment >= first && moment < last + 1);
    return found < 0 ? null : found;
  }

  nodeName(moment) {
    const { order, group } = this.now(), n = order[moment], node = this.env.graph()?.known(group, n);
    return node ? `${n} ${text(node.brief)}` : `node ${n}`;
  }

  hover(px, py) {
    const found = this.at(px, py), [x] = this.camera.toWorld(px, py), moment = Math.floor(x), { live, order } = this.now();
    this.camera.canvas.classList.toggle('over', found !== null);
    const words = [];
    if (found !== null) { const [label, offset, length, first, last] = this.now().blocks[found]; words.push(text(label), `${bytes(length)} at byte ${offset.toLocaleString('en')}, moments ${first.toLocaleString('en')} to ${last.toLocaleString('en')}`); }
    if (moment >= 0 && moment < order.length) words.push(`moment ${moment.toLocaleString('en')}: ${this.nodeName(moment)}`, `${bytes(live[moment])} in use`);
    return words.join('\n');
  }

  choose(block, reveal = false) {
    this.selected = block;
    if (block !== null && reveal) {
      const [, offset, length, first, last] = this.now().blocks[block];
      this.camera.reveal(first, -(offset + length), last - first + 1, length);
    }
    this.camera.draw();
    this.env.chosen(this);
  }

  key(event) {
    if (!event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key === 'Escape' && this.selected !== null) { this.choose(null); return true; }
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], { blocks } = this.now();
      if (step && blocks.length) {
        const order = blocks.map((_, b) => b).sort((a, b) => blocks[a][3] - blocks[b][3] || blocks[a][1] - blocks[b][1]);
        const place = order.indexOf(this.selected);
        this.choose(order[this.selected === null ? 0 : clamp(place + step, 0, order.length - 1)], true);
        return true;
      }
    }
    return this.camera.key(event);
  }

  find(words) {
    const found = [];
    this.source.pools.forEach((pool, p) => pool.blocks.forEach(([label, , length], b) => {
      const all = text(label).toLowerCase();
      if (words.length && words.every(word => all.includes(word))) {
        found.push({ p, b, label: text(label), note: bytes(length), go: () => { if (p !== this.pool) this.show(p); this.choose(b, true); } });
      }
    }));
    this.hits = words.length ? new Set(found.filter(({ p }) => p === this.pool).map(({ b }) => b)) : null;
    this.camera.draw();
    return found;
  }

  draw(c) {
    const { camera } = this, pool = this.now(), [top, , , left] = camera.inset, [width, height] = camera.plot();
    const sx = moment => left + (moment - camera.x) * camera.kx, sy = byte => top + (-byte - camera.y) * camera.ky;
    c.font = `11px ${theme.sans}`;
    c.lineWidth = 1;
    c.textBaseline = 'middle';
    if (!pool.blocks.length) {
      c.fillStyle = theme.muted;
      c.font = `13px ${theme.sans}`;
      c.fillText('This graph has no buffers of its own to place.', 20, 40);
      return;
    }
    // Bytes: a round number in powers of two.
    let step = 1;
    while (step * camera.ky < 34) step *= 2;
    const low = Math.max(0, Math.floor(-(camera.y + height / camera.ky) / step)), high = Math.ceil(-camera.y / step);
    for (let i = low; i <= high; i++) {
      const y = Math.round(sy(i * step)) + 0.5;
      if (y < top - 4 || y > top + height + 1) continue;
      c.strokeStyle = theme.rule;
      c.beginPath();
      c.moveTo(left, y);
      c.lineTo(left + width, y);
      c.stroke();
      c.fillStyle = theme.muted;
      c.textAlign = 'right';
      c.fillText(bytes(i * step), left - 8, y);
    }
    const tick = Math.max(1, roundStep(width / camera.kx / Math.max(2, width / 80)));
    for (let i = Math.ceil(camera.x / tick); i * tick <= Math.min(camera.x + width / camera.kx, pool.order.length); i++) {
      const x = sx(i * tick);
      c.fillStyle = theme.muted;
      c.textAlign = 'center';
      c.fillText(Math.round(i * tick).toLocaleString('en'), x, top + height + 12);
    }
    c.textAlign = 'left';
    c.fillText('moment, in the order of issue', left, top + height + 26);
    c.save();
    c.beginPath();
    c.rect(left, top - 2, width + 2, height + 4);
    c.clip();
    c.font = `10.5px ${theme.mono}`;
    const drawn = new Set();
    pool.blocks.forEach(([label, offset, length, first, last], b) => {
      const x = sx(first), w = Math.max((last - first + 1) * camera.kx, 1), y = sy(offset + length), h = Math.max(length * camera.ky, 1);
      if (x > left + width || x + w < left || y > top + height || y + h < top) return;
      if (w < 2 && !this.hits?.has(b)) {
        // Many in one column of pixels, at the same bytes, are drawn once.
        const key = (Math.floor(x) * 8192 + Math.floor(clamp(y, 0, 8191))) * 8192 + Math.floor(clamp(h, 0, 8191));
        if (drawn.has(key)) return;
        drawn.add(key);
      }
      const colour = laneColour(b);
      c.globalAlpha = this.hits && !this.hits.has(b) ? 0.12 : 0.34;
      c.fillStyle = colour;
      c.fillRect(x, y, w, h);
      c.globalAlpha = this.hits && !this.hits.has(b) ? 0.3 : 1;
      if (w > 3 && h > 3) { c.strokeStyle = colour; c.lineWidth = 1; c.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1); }
      const shown = Math.max(x, left), words = h >= 11 ? fitText(c, text(label), Math.min(x + w, left + width) - shown - 8, 6.35) : '';
      if (words) { c.fillStyle = theme.ink; c.fillText(words, shown + 4, h > 26 ? y + 11 : y + h / 2); }
      c.globalAlpha = 1;
    });
    // Bytes in use.
    c.strokeStyle = theme.live;
    // Where moments are narrow a heavy line would hide what it is about.
    c.lineWidth = clamp(camera.kx / 6, 0.7, 2);
    c.beginPath();
    const begin = Math.max(0, Math.floor(camera.x)), end = Math.min(pool.live.length, Math.ceil(camera.x + width / camera.kx) + 1);
    for (let moment = begin; moment < end;) {
      // Of moments that share a column of pixels, the least and the most.
      const column = Math.floor(sx(moment));
      let least = pool.live[moment], most = least, last = least;
      const from = moment;
      do { last = pool.live[moment]; least = Math.min(least, last); most = Math.max(most, last); moment++; } while (moment < end && Math.floor(sx(moment)) === column);
      c.lineTo(sx(from), sy(pool.live[from]));
      if (moment - from > 1) { c.lineTo(column, sy(least)); c.lineTo(column, sy(most)); c.lineTo(column, sy(last)); }
      c.lineTo(sx(moment), sy(last));
    }
    c.stroke();
    const level = (amount, colour, dash) => {
      const y = sy(amount);
      c.strokeStyle = colour;
      c.setLineDash(dash);
      c.lineWidth = 1.6;
      c.beginPath();
      c.moveTo(left, y);
      c.lineTo(left + width, y);
      c.stroke();
      c.setLineDash([]);
    };
    level(pool.bytes, theme.removed, []);
    if (pool.bound) level(pool.bound[0], theme.accent, [6, 4]);
    if (this.selected !== null) {
      const [, offset, length, first, last] = pool.blocks[this.selected];
      c.strokeStyle = theme.accent;
      c.lineWidth = 2.6;
      c.strokeRect(sx(first) - 1, sy(offset + length) - 1, (last - first + 1) * camera.kx + 2, length * camera.ky + 2);
    }
    c.restore();
    c.font = `11.5px ${theme.sans}`;
    let x = left;
    for (const [colour, words] of [
      [theme.removed, `pool ${bytes(pool.bytes)}`],
      ...(pool.bound ? [[theme.accent, `at least ${bytes(pool.bound[0])}: ${pool.bound[1]}`]] : []),
      [theme.live, 'bytes in use'],
    ]) {
      c.fillStyle = colour;
      c.fillRect(x, 12, 18, 3);
      c.fillStyle = theme.ink;
      c.fillText(words, x + 24, 13);
      x += 24 + c.measureText(words).width + 22;
    }
  }

  describe() {
    const [label, offset, length, first, last] = this.now().blocks[this.selected], { blocks, group, order } = this.now();
    const overlaps = (a, b, c, d) => a < d && c < b;
    const sharing = blocks.map((block, b) => [block, b]).filter(([[, o, l], b]) => b !== this.selected && overlaps(offset, offset + length, o, o + l));
    const at = moment => this.env.graph()
      ? make('button', { class: 'inline', click: () => this.env.toNode(group, order[moment]) }, this.nodeName(moment))
      : this.nodeName(moment);
    return [
      make('h2', { class: 'name' }, text(label)),
      make('p', { class: 'kind' }, `buffer in ${this.now().name}`),
      table([
        ['size', `${bytes(length)} (${length.toLocaleString('en')} B)`],
        ['offset', `${offset.toLocaleString('en')} B`],
        ['lives', `moments ${first.toLocaleString('en')} to ${last.toLocaleString('en')} of ${order.length.toLocaleString('en')}`],
        ['first user', at(first)],
        ['last user', at(last)],
      ]),
      buttonList('Shares bytes with', sharing.map(([[name, , l, f, e], b]) => ({ label: text(name), note: `${bytes(l)}, moments ${f.toLocaleString('en')} to ${e.toLocaleString('en')}`, go: () => this.choose(b, true) }))),
    ];
  }

  overview() {
    const pool = this.now(), { pools } = this.source;
    const pick = pools.length > 1 && make('p', {}, 'pool ', make('select', { 'aria-label': 'Pool', change: event => this.show(+event.target.value) },
      ...pools.map((p, i) => make('option', { value: i, selected: i === this.pool }, `${p.name}, ${bytes(p.bytes)}`))));
    if (!pool.blocks.length) return [make('h2', {}, this.source.title), make('p', {}, 'This graph has no buffers of its own to place: all memory that its nodes name is the caller’s.'),
      make('p', { class: 'note' }, 'A graph that a driver dumped as DOT tells no buffers but those that its nodes allocate. One in JSON, or built by a program with internal buffers, tells them all: their places in memory are planned and drawn here.')];
    return [
      make('h2', {}, this.source.title),
      pick || make('p', { class: 'kind' }, pool.name),
      table([
        ['pool', bytes(pool.bytes)],
        ...(pool.bound ? [['at least', `${bytes(pool.bound[0])}, ${pool.bound[1]}`], ['above that', pool.bound[0] ? `${round(100 * (pool.bytes / pool.bound[0] - 1), 1)} %` : 'no bound']] : []),
        ['nothing shared', bytes(pool.unshared)],
        ['saved', pool.unshared ? `${round(100 * (1 - pool.bytes / pool.unshared), 1)} %` : '0 %'],
        ['buffers', pool.blocks.length.toLocaleString('en')],
      ]),
    ];
  }
}
