// One picture: the main graph and the graphs that its nodes contain, one at a time.

class Graph {
  // `env`: chosen(view) after each change of the selection, and for comparisons `tint(group, node)` and `tintEdge`.
  constructor(host, picture, env) {
    Object.assign(this, { picture, env, trail: [], group: 0, selected: null, hits: new Map(), colour: 'kind', scenes: [] });
    this.emphasis = { critical: true, redundant: true };
    this.camera = new Camera(host, {
      label: `Graph: ${picture.title}. Arrow keys follow edges.`,
      bounds: () => { const { w, h } = this.scene(); return { x: 0, y: 0, w, h }; },
      draw: c => this.draw(c),
      click: (px, py) => this.click(px, py),
      hover: (px, py) => this.hover(px, py),
    });
    this.camera.start = () => { const { nodes } = this.scene(), first = nodes[this.scene().first]; return first ? { x: first.x + first.w / 2, y: first.y } : { x: 0, y: 0 }; };
    this.camera.double = () => this.stepIn();
    this.camera.grab = (px, py) => this.grabMap(px, py);
    this.maxCost = Math.max(0, ...picture.groups.map(group => group.nodes.reduce((most, node) => Math.max(most, node.cost ?? 0), 0)));
  }

  // Positions and adjacency of a group, made when it is first shown.
  scene(g = this.group) {
    if (this.scenes[g]) return this.scenes[g];
    const source = this.picture.groups[g] ?? { nodes: [], edges: [], notes: [], title: '', size: [0, 0] };
    const nodes = source.nodes.map(node => {
      const [x, y, w, h] = node.at.map(v => v / 10);
      return { ...node, x, y, w, h, ins: [], outs: [] };
    });
    const edges = source.edges.map(([from, to, line, way], index) => {
      let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
      const points = way.map(v => v / 10);
      for (let i = 0; i < points.length; i += i ? 3 : 2) {
        const at = i ? i + 1 : 0;
        left = Math.min(left, points[at]); right = Math.max(right, points[at]);
        top = Math.min(top, points[at + 1]); bottom = Math.max(bottom, points[at + 1]);
      }
      nodes[from].outs.push(index);
      nodes[to].ins.push(index);
      return { from, to, line, points, kinds: way, left, right, top, bottom };
    });
    const first = nodes.reduce((best, node, n) => best < 0 || node.y < nodes[best].y ? n : best, -1);
    const scene = { title: source.title, notes: source.notes, nodes, edges, first, w: source.size[0] / 10, h: source.size[1] / 10 };
    return this.scenes[g] = scene;
  }

  open(g, trail) {
    this.trail = trail;
    this.group = g;
    this.selected = null;
    this.camera.begin();
    this.env.chosen(this);
  }

  // Steps into a graph that a node of this one contains.
  enter(n, body) { this.open(body, [...this.trail, [this.group, n]]); }

  // Steps out by one, or to a place of the trail.
  leave(depth = this.trail.length - 1) {
    if (depth < 0) return false;
    const [g, n] = this.trail[depth];
    this.open(g, this.trail.slice(0, depth));
    this.choose(n);
    return true;
  }

  // The way from the main graph to any other.
  wayTo(g) {
    if (!this.ways) {
      this.ways = new Map([[0, []]]);
      const todo = [0];
      while (todo.length) {
        const at = todo.pop();
        this.picture.groups[at]?.nodes.forEach((node, n) => {
          for (const body of node.bodies ?? []) {
            if (this.ways.has(body)) continue;
            this.ways.set(body, [...this.ways.get(at), [at, n]]);
            todo.push(body);
          }
        });
      }
    }
    return this.ways.get(g) ?? [];
  }

  choose(n, reveal = true) {
    this.selected = n;
    if (n !== null && reveal) { const node = this.scene().nodes[n]; this.camera.reveal(node.x, node.y, node.w, node.h); }
    this.camera.draw();
    this.env.chosen(this);
  }

  chooseIn(g, n) {
    if (g !== this.group) this.open(g, this.wayTo(g));
    this.choose(n);
  }

  at(wx, wy) {
    const { nodes } = this.scene(), slack = 3 / this.camera.kx;
    return nodes.findIndex(node => wx >= node.x - slack && wx <= node.x + node.w + slack && wy >= node.y - slack && wy <= node.y + node.h + slack);
  }

  click(px, py) {
    const n = this.at(...this.camera.toWorld(px, py));
    this.choose(n < 0 ? null : n, false);
  }

  hover(px, py) {
    const n = this.at(...this.camera.toWorld(px, py));
    this.camera.canvas.classList.toggle('over', n >= 0);
    if (n < 0) return '';
    const node = this.scene().nodes[n];
    if (this.camera.kx > 0.6 && text(node.label) === text(node.shown)) return '';
    return [text(node.label), ...node.lines.map(text), ...(node.cost === undefined ? [] : [time(node.cost)])].join('\n');
  }

  stepIn() {
    const bodies = this.selected === null ? [] : this.scene().nodes[this.selected].bodies ?? [];
    if (bodies.length) this.enter(this.selected, bodies[0]);
    return bodies.length > 0;
  }

  key(event) {
    if (!event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key.startsWith('Arrow')) { this.follow(event.key); return true; }
      if (event.key === 'Enter') return this.stepIn();
      if (event.key === 'Backspace') return this.leave();
      if (event.key === 'Escape') {
        if (this.selected === null) return false;
        this.choose(null);
        return true;
      }
    }
    return this.camera.key(event);
  }

  // Up to a producer, down to a consumer, sideways to the neighbour of the same row.
  follow(key) {
    const { nodes, edges, first } = this.scene();
    if (this.selected === null) { if (first >= 0) this.choose(first); return; }
    const node = nodes[this.selected];
    const middle = other => Math.abs(other.x + other.w / 2 - node.x - node.w / 2);
    let next = [];
    if (key === 'ArrowUp') next = node.ins.map(e => edges[e].from);
    if (key === 'ArrowDown') next = node.outs.map(e => edges[e].to);
    if (key === 'ArrowLeft' || key === 'ArrowRight') {
      const side = key === 'ArrowLeft' ? -1 : 1;
      next = nodes.map((_, n) => n).filter(n => Math.abs(nodes[n].y - node.y) < 1 && side * (nodes[n].x - node.x) > 0);
    }
    // The critical path first, then what lies nearest.
    next.sort((a, b) => (nodes[b].critical ?? false) - (nodes[a].critical ?? false) || middle(nodes[a]) - middle(nodes[b]) || a - b);
    if (key === 'ArrowLeft' || key === 'ArrowRight') next.sort((a, b) => middle(nodes[a]) - middle(nodes[b]));
    if (next.length) this.choose(next[0]);
  }

  // All nodes, of all groups, whose texts hold all words.
  find(words) {
    this.index ??= this.picture.groups.flatMap((group, g) => group.nodes.map((node, n) => [g, n,
      [text(node.label), data.classes[node.class], ...node.lines.map(text), ...node.facts.map(([a, b]) => `${text(a)} ${text(b)}`)].join('\n').toLowerCase()]));
    const found = words.length ? this.index.filter(([, , all]) => words.every(word => all.includes(word))) : [];
    this.hits = new Map();
    for (const [g, n] of found) {
      if (!this.hits.has(g)) this.hits.set(g, new Set());
      this.hits.get(g).add(n);
    }
    this.camera.draw();
    return found.map(([g, n]) => ({
      label: text(this.picture.groups[g].nodes[n].brief),
      note: g ? `node ${n} of ${this.picture.groups[g].title}` : `node ${n}`,
      go: () => this.chooseIn(g, n),
    }));
  }

  colours(node, n) {
    const tint = this.env.tint?.(this.group, n);
    if (tint) return { fill: theme.panel, line: tint, tint };
    if (this.colour === 'stream') return node.lane === undefined ? theme.classes[data.classes.indexOf('empty')] : { fill: theme.panel, line: laneColour(node.lane), tint: laneColour(node.lane) };
    if (this.colour === 'cost') return node.cost === undefined ? theme.classes[data.classes.indexOf('empty')] : { fill: heat(Math.sqrt(node.cost / (this.maxCost || 1))), line: theme.muted };
    return theme.classes[node.class];
  }

  draw(c) {
    const { nodes, edges } = this.scene(), { camera } = this, k = camera.kx;
    const [left, top] = camera.toWorld(0, 0), [right, bottom] = camera.toWorld(camera.width, camera.height);
    const seen = thing => thing.right >= left && thing.left <= right && thing.bottom >= top && thing.top <= bottom;
    if (!nodes.length) {
      c.fillStyle = theme.muted;
      c.font = `13px ${theme.sans}`;
      c.fillText('This graph has no nodes.', 20, 60);
      return;
    }
    camera.enter(c);
    const hits = this.hits.size ? this.hits.get(this.group) ?? new Set() : null;
    this.drawEdges(c, edges, seen, k, hits);
    for (let n = 0; n < nodes.length; n++) {
      const node = nodes[n];
      if (node.x > right || node.x + node.w < left || node.y > bottom || node.y + node.h < top) continue;
      c.globalAlpha = hits && !hits.has(n) && n !== this.selected ? 0.25 : node.disabled ? 0.5 : 1;
      if (k * node.h < 9) this.drawSmall(c, node, n, k, hits);
      else this.drawBox(c, node, n, k, hits);
    }
    c.globalAlpha = 1;
    if (this.selected !== null) this.drawRing(c, nodes[this.selected], theme.accent, Math.max(2.4, 2.4 / k), 3);
    this.drawMap(c);
  }

  way(c, edge) {
    const { points, kinds } = edge;
    let x = points[0], y = points[1];
    c.moveTo(x, y);
    for (let i = 2; i < points.length; i += 3) {
      const nx = points[i + 1], ny = points[i + 2];
      if (kinds[i] === 1) {
        const middle = (y + ny) / 2;
        c.bezierCurveTo(x, middle, nx, middle, nx, ny);
      } else if (kinds[i] === 2) {
        c.lineTo(x, y + 12);
        c.moveTo(nx, ny - 12);
        c.lineTo(nx, ny);
      } else if (kinds[i + 3] === 0 && i + 3 < points.length) {
        const fx = points[i + 4], fy = points[i + 5];
        c.arcTo(nx, ny, fx, fy, Math.min(7, Math.hypot(nx - x, ny - y) / 2, Math.hypot(fx - nx, fy - ny) / 2));
      } else c.lineTo(nx, ny);
      x = nx; y = ny;
    }
    return [x, y];
  }

  drawEdges(c, edges, seen, k, hits) {
    const near = this.selected === null ? null : new Set([...this.scene().nodes[this.selected].ins, ...this.scene().nodes[this.selected].outs]);
    const layers = new Map();
    edges.forEach((edge, e) => {
      if (!seen(edge)) return;
      const tint = this.env.tintEdge?.(this.group, e);
      const name = data.lines[edge.line][0];
      if (name === 'l-red' && !this.emphasis.redundant && !tint) return;
      const line = name === 'l-crit' && !this.emphasis.critical ? 0 : edge.line;
      const key = near?.has(e) ? 'near' : tint ?? line;
      if (!layers.has(key)) layers.set(key, []);
      layers.get(key).push(edge);
    });
    const critical = data.lines.findIndex(([name]) => name === 'l-crit');
    const rank = key => key === 'near' ? 3 : typeof key === 'string' ? 2 : key === critical ? 1 : 0;
    const order = [...layers.keys()].sort((a, b) => rank(a) - rank(b));
    for (const key of order) {
      const style = key === 'near' ? { colour: theme.accent, width: 2.4, dash: [] }
        : typeof key === 'string' ? { colour: key, width: 2.2, dash: [] } : theme.lines[key];
      // Thin lines far away would vanish, heavy ones would hide the picture.
      c.lineWidth = Math.max(style.width, Math.min(style.width, 1.2) * 0.55 / k);
      c.strokeStyle = c.fillStyle = style.colour;
      c.setLineDash(k > 0.2 ? style.dash : []);
      c.globalAlpha = (near && key !== 'near' || hits ? 0.4 : 1) * (k < 0.12 && key === 0 ? 0.55 : 1);
      const ends = [];
      c.beginPath();
      for (const edge of layers.get(key)) {
        const end = this.way(c, edge), { points, kinds } = edge, last = points.length - 3;
        if (k > 0.22) {
          const straight = kinds[last] === 0 && points.length > 5;
          const from = last > 2 ? [points[last - 2], points[last - 1]] : [points[0], points[1]];
          ends.push([end, straight ? Math.atan2(end[1] - from[1], end[0] - from[0]) : Math.PI / 2]);
        }
      }
      c.stroke();
      c.setLineDash([]);
      if (ends.length) {
        c.beginPath();
        for (const [[x, y], angle] of ends) {
          const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
          const point = (along, across) => [x + along * cos - across * sin, y + along * sin + across * cos];
          c.moveTo(x, y);
          c.lineTo(...point(-7.5, 3.4));
          c.lineTo(...point(-7.5, -3.4));
          c.closePath();
        }
        c.fill();
      }
    }
    c.globalAlpha = 1;
  }

  drawSmall(c, node, n, k, hits) {
    const colours = this.colours(node, n);
    // Small boxes get the border's colour, which stands out from the background; no less than a pixel and a half.
    const grow = Math.max(0, 1.5 / k - node.h) / 2;
    const critical = node.critical && this.emphasis.critical;
    c.fillStyle = hits?.has(n) ? theme.hit : critical && !colours.tint ? theme.ink : this.colour === 'cost' && node.cost !== undefined && !colours.tint ? colours.fill : colours.line;
    c.fillRect(node.x - grow, node.y - grow, node.w + 2 * grow, node.h + 2 * grow);
  }

  drawBox(c, node, n, k, hits) {
    const { x, y, w, h } = node, colours = this.colours(node, n), name = data.classes[node.class];
    const radius = name === 'empty' || name === 'event' ? Math.min(h / 2, 14) : name === 'alloc' || name === 'free' ? 1 : name === 'memcpy' || name === 'memset' ? 8 : 4;
    c.beginPath();
    c.roundRect(x, y, w, h, radius);
    c.fillStyle = colours.fill;
    c.fill();
    if (colours.tint) { const alpha = c.globalAlpha; c.globalAlpha = alpha * 0.22; c.fillStyle = colours.tint; c.fill(); c.globalAlpha = alpha; }
    const critical = node.critical && this.emphasis.critical;
    c.strokeStyle = critical ? theme.lines[data.lines.findIndex(([line]) => line === 'l-crit')].colour : colours.line;
    c.lineWidth = critical ? 2.6 : colours.tint ? 2 : 1.2;
    if (node.disabled) c.setLineDash([4, 3]);
    c.stroke();
    c.setLineDash([]);
    if (node.bodies) {
      // A second border: there is a graph inside.
      c.strokeStyle = colours.line;
      c.lineWidth = 1.2;
      c.beginPath();
      c.roundRect(x + 3.5, y + 3.5, w - 7, h - 7, 2);
      c.stroke();
    }
    if (node.lane !== undefined) {
      c.fillStyle = laneColour(node.lane);
      c.beginPath();
      c.roundRect(x + 3.5, y + 5, 4, h - 10, 2);
      c.fill();
    }
    if (hits?.has(n)) this.drawRing(c, node, theme.hit, Math.max(3, 2 / k), 2.5);
    if (k * 12 < 4.4) return;
    c.textBaseline = 'alphabetic';
    c.fillStyle = theme.ink;
    c.font = `12px ${theme.mono}`;
    c.fillText(text(node.shown), x + 12, y + 17);
    if (k * 10.5 < 5) return;
    // Muted text is hard to read on a warm fill.
    c.fillStyle = this.colour === 'cost' ? theme.ink : theme.muted;
    c.font = `10.5px ${theme.mono}`;
    node.detail.forEach((line, i) => c.fillText(text(line), x + 12, y + 17 + 14 * (i + 1)));
  }

  drawRing(c, node, colour, width, gap) {
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.beginPath();
    c.roundRect(node.x - gap, node.y - gap, node.w + 2 * gap, node.h + 2 * gap, 6);
    c.stroke();
  }

  // Where the overview lies in the canvas, if the picture is larger than the window.
  mapPlace() {
    const { camera } = this, { w, h } = this.scene(), [fit] = camera.fitScale();
    if (camera.kx < fit * 1.5 || camera.width < 420) return null;
    const scale = Math.min(180 / w, 120 / h), width = Math.max(24, w * scale), height = Math.max(16, h * scale);
    return { x: camera.width - width - 14, y: camera.height - height - 14, width, height, sx: width / w, sy: height / h };
  }

  grabMap(px, py) {
    const place = this.mapPlace();
    if (!place || px < place.x - 4 || py < place.y - 4) return null;
    const go = (x, y) => {
      const { camera } = this;
      camera.touched = true;
      camera.x = (x - place.x) / place.sx - camera.width / 2 / camera.kx;
      camera.y = (y - place.y) / place.sy - camera.height / 2 / camera.ky;
      camera.draw();
    };
    go(px, py);
    return go;
  }

  drawMap(c) {
    const place = this.mapPlace();
    if (!place) return;
    const { camera } = this, ratio = devicePixelRatio || 1, { nodes } = this.scene();
    const key = [this.group, this.colour, theme.bg, place.width, place.height, ratio].join();
    if (this.mapKey !== key) {
      this.mapKey = key;
      this.map = make('canvas', { width: Math.ceil(place.width * ratio), height: Math.ceil(place.height * ratio) });
      const m = this.map.getContext('2d');
      m.scale(ratio, ratio);
      nodes.forEach((node, n) => {
        m.fillStyle = this.colours(node, n).line;
        m.fillRect(node.x * place.sx, node.y * place.sy, Math.max(node.w * place.sx, 1), Math.max(node.h * place.sy, 0.8));
      });
    }
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.globalAlpha = 0.94;
    c.fillStyle = theme.panel;
    c.strokeStyle = theme.rule;
    c.lineWidth = 1;
    c.beginPath();
    c.roundRect(place.x - 6, place.y - 6, place.width + 12, place.height + 12, 5);
    c.fill();
    c.stroke();
    c.globalAlpha = 1;
    c.drawImage(this.map, place.x, place.y, place.width, place.height);
    const [left, top] = camera.toWorld(0, 0), [right, bottom] = camera.toWorld(camera.width, camera.height);
    const x0 = clamp(place.x + left * place.sx, place.x - 4, place.x + place.width), x1 = clamp(place.x + right * place.sx, place.x, place.x + place.width + 4);
    const y0 = clamp(place.y + top * place.sy, place.y - 4, place.y + place.height), y1 = clamp(place.y + bottom * place.sy, place.y, place.y + place.height + 4);
    c.strokeStyle = theme.accent;
    c.lineWidth = 1.6;
    c.strokeRect(x0, y0, x1 - x0, y1 - y0);
  }

  // The panel's contents for a node.
  describe(n = this.selected, extra = []) {
    const { nodes, edges, title } = this.scene(), node = nodes[n];
    const link = (e, other) => ({
      label: `${other} ${text(nodes[other].brief)}`,
      note: edges[e].line ? data.lines[edges[e].line][1] : '',
      go: () => this.choose(other),
    });
    const rows = node.lines.map((line, i) => [i ? '' : 'what', text(line)]);
    if (node.lane !== undefined) rows.push(['stream', String(node.lane)]);
    if (node.cost !== undefined) rows.push(['cost', time(node.cost)]);
    if (node.critical) rows.push(['critical path', 'yes']);
    if (node.disabled) rows.push(['disabled', 'yes']);
    const badge = make('span', { class: 'badge' }, data.classes[node.class]);
    badge.style.background = theme.classes[node.class].fill;
    badge.style.borderColor = theme.classes[node.class].line;
    return [
      make('h2', { class: 'name' }, text(node.label)),
      make('p', { class: 'kind' }, badge, ` node ${n} of ${title}`),
      ...extra,
      buttonList('Contains', (node.bodies ?? []).map(body => ({
        label: this.picture.groups[body].title, note: count(this.picture.groups[body].nodes.length, 'node'), go: () => this.enter(n, body), mark: 'enter',
      }))),
      table([...rows, ...node.facts.map(([name, value]) => [text(name), text(value)])]),
      buttonList('Depends on', node.ins.map(e => link(e, edges[e].from))),
      buttonList('Needed by', node.outs.map(e => link(e, edges[e].to))),
    ];
  }

  // What the colours and lines of this graph mean, nothing that it lacks.
  legend() {
    const { nodes, edges } = this.scene(), list = make('ul', { class: 'legend' });
    const swatch = (style, words) => {
      const box = make('span', { class: 'swatch' });
      Object.assign(box.style, style);
      list.append(make('li', {}, box, words));
    };
    if (this.colour === 'stream') {
      const lanes = [...new Set(nodes.map(node => node.lane).filter(lane => lane !== undefined))].sort((a, b) => a - b);
      for (const lane of lanes.slice(0, theme.lanes.length)) swatch({ background: laneColour(lane) }, `stream ${lane}`);
      if (lanes.length > theme.lanes.length) list.append(make('li', {}, `… ${lanes.length} streams, colours repeat`));
    } else if (this.colour === 'cost') {
      for (const share of [0.01, 0.1, 0.4, 1]) swatch({ background: heat(Math.sqrt(share)), borderColor: theme.muted }, time(Math.round(share * this.maxCost)));
    } else {
      const used = new Map();
      for (const node of nodes) used.set(node.class, (used.get(node.class) ?? 0) + 1);
      for (const [kind, n] of [...used].sort((a, b) => a[0] - b[0])) swatch({ background: theme.classes[kind].fill, borderColor: theme.classes[kind].line }, `${data.classes[kind]} ${n.toLocaleString('en')}`);
    }
    const lines = new Map();
    for (const edge of edges) lines.set(edge.line, (lines.get(edge.line) ?? 0) + 1);
    for (const [line, n] of [...lines].sort((a, b) => a[0] - b[0])) {
      const { colour, width, dash } = theme.lines[line];
      swatch({ background: 'none', border: 'none', borderTop: `${Math.max(2, width)}px ${dash.length ? 'dashed' : 'solid'} ${colour}`, height: '0', borderRadius: '0' }, `${data.lines[line][1]} ${n.toLocaleString('en')}`);
    }
    return list;
  }
}
