// One picture: the main graph and the graphs that its nodes contain, one at a time. Where a graph is drawn as boxes, what
// lies in a box is a graph, too (`Parts`).

// What an edge lets its consumer do, by the lowest bits of its flags; further bits say more.
const EDGE_STYLES = ['dependency', 'programmatic dependency', 'launch order'];
const EDGE_FLAGS = [[4, 'redundant: other edges imply it'], [8, 'on the critical path'], [16, 'added by memory planning: two buffers share bytes']];

class Graph extends Painter {
  // `env`: chosen(view) after each change of the selection, wait(promise) for what takes time, `at` for the server, and for
  // comparisons `tint(group, node)` and `tintEdge`.
  constructor(host, picture, env) {
    super();
    Object.assign(this, { picture, env, trail: [], group: 0, selected: null, edge: null, over: null, hits: new Map(), searching: false, colour: 'kind', scenes: [] });
    this.emphasis = { critical: true, redundant: true };
    this.parts = new Parts(picture, env.at);
    this.camera = new Camera(host, {
      label: `Graph: ${picture.title}. Arrow keys follow edges.`,
      bounds: () => { const { w, h } = this.scene(); return { x: 0, y: 0, w, h }; },
      draw: c => this.draw(c),
      inset: env.inset,
      click: (px, py) => this.click(px, py),
      hover: (px, py) => this.hover(px, py),
    });
    this.camera.start = () => { const { nodes } = this.scene(), first = nodes[this.scene().first]; return first ? { x: first.x + first.w / 2, y: first.y } : { x: 0, y: 0 }; };
    this.camera.double = () => this.stepIn();
    this.camera.grab = (px, py) => this.grabMap(px, py);
  }

  // What the dearest node costs, of those that the page has.
  get maxCost() {
    const { groups } = this.picture;
    // Groups are only ever added.
    for (this.priced ??= 0; this.priced < groups.length; this.priced++) {
      for (const { cost } of groups[this.priced].nodes) if (cost > (this.dearest ?? 0)) this.dearest = cost;
    }
    return this.dearest ?? 0;
  }

  // Positions and adjacency of a group, made when it is first shown.
  scene(g = this.group) {
    if (this.scenes[g]) return this.scenes[g];
    const source = this.picture.groups[g] ?? { nodes: [], edges: [], notes: [], title: '', size: [0, 0] };
    const { numbers = [], outside = [] } = source.part ?? {};
    const nodes = source.nodes.map((node, n) => {
      const [x, y, w, h] = node.at.map(v => v / 10);
      return { ...node, number: numbers[n] ?? n, x, y, w, h, ins: [], outs: [], outside: [] };
    });
    for (const edge of outside) nodes[edge[0]].outside.push(edge);
    const edges = source.edges.map(([from, to, line, way, flags, why], index) => {
      let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
      const points = way.map(v => v / 10);
      for (let i = 0; i < points.length; i += i ? 3 : 2) {
        const at = i ? i + 1 : 0;
        left = Math.min(left, points[at]); right = Math.max(right, points[at]);
        top = Math.min(top, points[at + 1]); bottom = Math.max(bottom, points[at + 1]);
      }
      nodes[from].outs.push(index);
      nodes[to].ins.push(index);
      return { from, to, line, flags, why, points, kinds: way, left, right, top, bottom };
    });
    const first = nodes.reduce((best, node, n) => best < 0 || node.y < nodes[best].y ? n : best, -1);
    const { title, notes, stands, part, size } = source;
    return this.scenes[g] = { title, notes, stands, part, nodes, edges, first, w: size[0] / 10, h: size[1] / 10 };
  }

  open(g, trail, view) {
    Object.assign(this, { trail, group: g, selected: null, edge: null, over: null });
    if (view) this.camera.restore(view);
    else this.camera.begin();
    this.env.chosen(this);
  }

  // Steps into a graph that a node of this one contains; the way back leads to the same view.
  enter(n, body) { this.open(body, [...this.trail, [this.group, n, this.camera.view()]]); }

  async enterBox(n) {
    const g = this.group, body = await this.env.wait(this.parts.open(g, n));
    if (body !== undefined && this.group === g) this.enter(n, body);
  }

  // Steps out by one, or to a place of the trail.
  leave(depth = this.trail.length - 1) {
    if (depth < 0) return false;
    const [g, n, view] = this.trail[depth];
    this.open(g, this.trail.slice(0, depth), view);
    this.choose(n, !view);
    return true;
  }

  // The way from the main graph to any other.
  wayTo(g) {
    const { part } = this.picture.groups[g] ?? {};
    if (part) {
      const way = [...this.wayTo(part.of)];
      let at = part.of;
      for (const n of part.path) { way.push([at, n]); at = this.picture.groups[at].nodes[n].opens; }
      return way;
    }
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
    Object.assign(this, { selected: n, edge: null });
    if (n !== null && reveal) { const node = this.scene().nodes[n]; this.camera.reveal(node.x, node.y, node.w, node.h); }
    this.camera.draw();
    this.env.chosen(this);
  }

  chooseEdge(e) {
    Object.assign(this, { selected: null, edge: e });
    this.camera.draw();
    this.env.chosen(this);
  }

  // Chooses a node of what a group shows, a box or a node.
  chooseIn(g, n) {
    if (g !== this.group) this.open(g, this.wayTo(g));
    this.choose(n);
  }

  // Chooses a node by its number in the whole graph, which may be drawn as boxes.
  async chooseNumber(g, number) {
    if (this.picture.groups[g].stands === undefined) { this.chooseIn(g, number); return; }
    const place = await this.env.wait(this.parts.find(g, number));
    if (place) this.chooseIn(...place);
  }

  // What is known of a node by its number in the whole graph: nothing if it lies in a box that was never opened.
  known(g, number) {
    const [at, n] = this.picture.groups[g]?.stands === undefined ? [g, number] : this.parts.shown.get(g)?.get(number) ?? [];
    return at === undefined ? undefined : this.scene(at).nodes[n];
  }

  // The numbers of a node's producers and consumers in the whole graph, as far as they are known.
  around(g, number) {
    const node = this.known(g, number);
    if (!node) return { before: [], after: [] };
    const at = this.picture.groups[g].stands === undefined ? g : this.parts.shown.get(g).get(number)[0];
    const { nodes, edges } = this.scene(at), beyond = side => node.outside.filter(edge => edge[3] === side).map(edge => edge[1]);
    return { before: [...node.ins.map(e => nodes[edges[e].from].number), ...beyond(1)], after: [...node.outs.map(e => nodes[edges[e].to].number), ...beyond(0)] };
  }

  at(wx, wy) {
    const { nodes } = this.scene(), slack = 3 / this.camera.kx;
    return nodes.findIndex(node => wx >= node.x - slack && wx <= node.x + node.w + slack && wy >= node.y - slack && wy <= node.y + node.h + slack);
  }

  // The edge nearest to a point, if one is near.
  edgeAt(wx, wy) {
    let best = -1, least = 6 / this.camera.kx;
    this.scene().edges.forEach((edge, e) => {
      if (wx < edge.left - least || wx > edge.right + least || wy < edge.top - least || wy > edge.bottom + least || this.hidden(edge, e)) return;
      const far = this.farFrom(edge, wx, wy);
      if (far < least) { least = far; best = e; }
    });
    return best;
  }

  click(px, py) {
    const point = this.camera.toWorld(px, py), n = this.at(...point), e = n < 0 ? this.edgeAt(...point) : -1;
    if (e >= 0) this.chooseEdge(e);
    else this.choose(n < 0 ? null : n, false);
  }

  hover(px, py) {
    const point = px === undefined ? null : this.camera.toWorld(px, py);
    const n = point && !this.mapHas(px, py) ? this.at(...point) : -1, e = point && n < 0 && !this.mapHas(px, py) ? this.edgeAt(...point) : -1;
    const now = n >= 0 ? { node: n } : e >= 0 ? { edge: e } : null;
    if (now?.node !== this.over?.node || now?.edge !== this.over?.edge) { this.over = now; this.camera.draw(); }
    this.camera.canvas.classList.toggle('over', now !== null);
    if (e >= 0) return this.edgeWords(this.scene().edges[e]).join('\n');
    if (n < 0) return '';
    const node = this.scene().nodes[n];
    if (this.camera.kx > 0.6 && text(node.label) === text(node.shown)) return '';
    return [text(node.label), ...node.lines.map(text), ...(node.cost === undefined ? [] : [time(node.cost)])].join('\n');
  }

  nameOf(n) { const node = this.scene().nodes[n]; return `${node.number} ${text(node.brief)}`; }

  // Both ends, what kind of edge it is, and why it is there.
  edgeWords({ from, to, flags, why }) {
    return [`${this.nameOf(from)} → ${this.nameOf(to)}`, EDGE_STYLES[flags & 3], ...EDGE_FLAGS.filter(([bit]) => flags & bit).map(([, words]) => words), ...(why === null ? [] : [text(why)])];
  }

  stepIn() {
    if (this.selected === null) return false;
    const { opens, bodies = [] } = this.scene().nodes[this.selected];
    if (opens !== undefined) this.enterBox(this.selected);
    else if (bodies.length) this.enter(this.selected, bodies[0]);
    return opens !== undefined || bodies.length > 0;
  }

  key(event) {
    if (!event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key.startsWith('Arrow')) { this.follow(event.key); return true; }
      if (event.key === 'Enter') return this.stepIn();
      if (event.key === 'Backspace') return this.leave();
      if (event.key === 'Escape') {
        if (this.selected === null && this.edge === null) return this.leave();
        this.choose(null);
        return true;
      }
    }
    return this.camera.key(event);
  }

  // Up to a producer, down to a consumer, sideways to the neighbour of the same row.
  follow(key) {
    const { nodes, edges, first, part } = this.scene();
    if (this.edge !== null) { const { from, to } = edges[this.edge]; this.choose(key === 'ArrowUp' || key === 'ArrowLeft' ? from : to); return; }
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
    // Edges out of a box lead into the next.
    const beyond = node.outside.find(edge => edge[3] === (key === 'ArrowUp' ? 1 : key === 'ArrowDown' ? 0 : -1));
    if (next.length) this.choose(next[0]);
    else if (beyond) this.chooseNumber(part.of, beyond[1]);
  }

  // All nodes, of all groups, whose texts hold all words; those in boxes that only the server knows come with `more`.
  find(words) {
    const asks = ask.server !== null, skip = group => group.stands !== undefined && this.parts.complete || group.part && (asks || !group.part.numbers.length);
    this.index ??= this.picture.groups.flatMap((group, g) => skip(group) ? [] : group.nodes.map((node, n) => [g, n,
      [text(node.label), data.classes[node.class], ...node.lines.map(text), ...node.facts.map(([a, b]) => `${text(a)} ${text(b)}`)].join('\n').toLowerCase()]));
    const found = words.length ? this.index.filter(([, , all]) => words.every(word => all.includes(word))) : [];
    this.searching = words.length > 0 && found.length > 0;
    this.hits = new Map();
    for (const [g, n] of found) {
      this.mark(g, n);
      if (this.picture.groups[g].part) for (const [at, box] of this.wayTo(g)) this.mark(at, box);
    }
    this.camera.draw();
    return found.map(([g, n]) => {
      const group = this.picture.groups[g], number = group.part?.numbers[n] ?? n, home = group.part ? group.part.of : g;
      return { label: text(group.nodes[n].brief), note: home ? `node ${number} of ${this.picture.groups[home].title}` : `node ${number}`, go: () => this.chooseIn(g, n) };
    });
  }

  mark(g, n) {
    if (!this.hits.has(g)) this.hits.set(g, new Set());
    this.hits.get(g).add(n);
  }

  // What the server finds in boxes, and how much there is of it.
  async more(words) {
    if (!ask.server || !this.picture.groups.some(group => group.stands !== undefined)) return null;
    const { count: all, boxes, nodes } = await this.parts.search(words);
    const hits = nodes.map(([of, number, label, path, n]) => ({
      label, note: of ? `node ${number} of ${this.picture.groups[of].title}` : `node ${number}`,
      go: async () => {
        const g = await this.env.wait(this.parts.reach(of, path));
        if (g === undefined) return;
        this.mark(g, n);
        this.chooseIn(g, n);
      },
    }));
    return { all, hits, mark: () => {
      this.searching ||= boxes.length > 0;
      for (const [g, n] of boxes) this.mark(g, n);
      for (const [of, number] of nodes) { const place = this.parts.shown.get(of)?.get(number); if (place) this.mark(...place); }
      this.camera.draw();
    } };
  }

  // The panel's contents for what is chosen.
  describe(n = this.selected, extra = []) {
    if (n === null) return this.describeEdge(this.scene().edges[this.edge], extra);
    const { nodes, edges, title, part } = this.scene(), node = nodes[n];
    const link = (e, other) => ({ label: this.nameOf(other), note: edges[e].line ? data.lines[edges[e].line][1] : '', go: () => this.choose(other) });
    const beyond = side => node.outside.filter(edge => edge[3] === side).map(([, number, name, , line]) => ({
      label: `${number} ${text(name)}`, note: `in another box${line ? `, ${data.lines[line][1]}` : ''}`, go: () => this.chooseNumber(part.of, number),
    }));
    const rows = node.lines.map((line, i) => [i ? '' : 'what', text(line)]);
    if (node.lane !== undefined) rows.push(['stream', String(node.lane)]);
    if (node.cost !== undefined) rows.push(['cost', time(node.cost)]);
    if (node.critical) rows.push(['critical path', 'yes']);
    if (node.disabled) rows.push(['disabled', 'yes']);
    const badge = make('span', { class: 'badge' }, data.classes[node.class]);
    badge.style.background = theme.classes[node.class].fill;
    badge.style.borderColor = theme.classes[node.class].line;
    const inside = node.opens === undefined ? [] : [{ label: `Open: ${text(node.label)}`, note: 'Enter or a double click; Esc leads back', go: () => this.enterBox(n), mark: 'enter' }];
    const bodies = (node.bodies ?? []).map(body => ({
      label: this.picture.groups[body].title, note: count(this.picture.groups[body].stands ?? this.picture.groups[body].nodes.length, 'node'), go: () => this.enter(n, body), mark: 'enter',
    }));
    return [
      make('h2', { class: 'name' }, text(node.label)),
      make('p', { class: 'kind' }, badge, data.classes[node.class] === 'box' ? ` number ${n} of ${title}` : ` node ${node.number} of ${part ? this.picture.groups[part.of].title : title}`),
      ...extra,
      buttonList('Contains', [...inside, ...bodies]),
      table([...rows, ...node.facts.map(([name, value]) => [text(name), text(value)])]),
      buttonList('Depends on', [...node.ins.map(e => link(e, edges[e].from)), ...beyond(1)]),
      buttonList('Needed by', [...node.outs.map(e => link(e, edges[e].to)), ...beyond(0)]),
    ];
  }

  describeEdge(edge, extra) {
    const { from, to } = edge, [, kind, ...rest] = this.edgeWords(edge);
    const link = n => ({ label: this.nameOf(n), go: () => this.choose(n) });
    return [
      make('h2', {}, 'Edge'),
      ...extra,
      table([['kind', kind], ...rest.map((words, i) => [i ? '' : 'says', words])]),
      edge.why === null && !(edge.flags & 16) ? make('p', { class: 'note' }, 'No data that both ends are known to touch asks for it: it was recorded as it is.') : undefined,
      buttonList('From', [link(from)]),
      buttonList('To', [link(to)]),
    ];
  }

  // What the colours and lines of this graph mean, nothing that it lacks.
  legend() {
    const { nodes, edges } = this.scene(), list = make('ul', { class: 'legend' });
    const swatch = (style, words, n) => {
      const box = make('span', { class: 'swatch' });
      Object.assign(box.style, style);
      list.append(make('li', {}, box, words, n === undefined ? undefined : make('span', { class: 'note' }, `× ${n.toLocaleString('en')}`)));
    };
    const lanes = [...new Set(nodes.map(node => node.lane).filter(lane => lane !== undefined))].sort((a, b) => a - b);
    if (this.colour === 'stream') {
      for (const lane of lanes.slice(0, theme.lanes.length)) swatch({ background: laneColour(lane) }, `stream ${lane}`);
      if (lanes.length > theme.lanes.length) list.append(make('li', {}, `… ${lanes.length} streams, colours repeat`));
    } else if (this.colour === 'cost') {
      for (const share of [0.01, 0.1, 0.4, 1]) swatch({ background: heat(Math.sqrt(share)), borderColor: theme.muted }, time(Math.round(share * this.maxCost)));
    } else {
      const used = new Map();
      for (const node of nodes) used.set(node.class, (used.get(node.class) ?? 0) + 1);
      for (const [kind, n] of [...used].sort((a, b) => a[0] - b[0])) swatch({ background: theme.classes[kind].fill, borderColor: theme.classes[kind].line }, data.classes[kind], n);
    }
    if (this.colour !== 'stream' && lanes.length) {
      const bars = { border: 'none', borderRadius: '2px', background: `linear-gradient(90deg, ${lanes.slice(0, 4).map((lane, i, all) => `${laneColour(lane)} ${100 * i / all.length}% ${100 * (i + 1) / all.length}%`).join()})` };
      swatch(bars, 'bar: the stream');
    }
    if (nodes.some(node => node.bodies && node.opens === undefined)) swatch({ background: 'none', border: `3px double ${theme.muted}` }, 'holds a graph');
    if (nodes.some(node => node.disabled)) swatch({ background: 'none', border: `1px dashed ${theme.muted}` }, 'disabled');
    if (nodes.some(node => node.outside.length)) swatch({ background: 'none', border: 'none', borderLeft: `2px dotted ${theme.muted}`, width: '4px', borderRadius: '0' }, 'edges to other boxes');
    const lines = new Map();
    for (const edge of edges) lines.set(edge.line, (lines.get(edge.line) ?? 0) + 1);
    for (const [line, n] of [...lines].sort((a, b) => a[0] - b[0])) {
      const { colour, width, dash } = theme.lines[line];
      swatch({ background: 'none', border: 'none', borderTop: `${Math.max(2, width)}px ${dash.length ? 'dashed' : 'solid'} ${colour}`, height: '0', borderRadius: '0' }, data.lines[line][1], n);
    }
    return list;
  }
}
