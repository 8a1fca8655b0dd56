// Two graphs side by side: what is in one only, what changed; choosing a node chooses its partner.

class Compare {
  constructor(host, source, env) {
    Object.assign(this, { source, env, active: 0 });
    const partner = [new Map(), new Map()];
    for (const [g, n, h, m] of source.pairs) {
      partner[0].set([g, n].join(), [h, m]);
      if (!partner[1].has([h, m].join())) partner[1].set([h, m].join(), [g, n]);
    }
    this.partner = partner;
    this.sides = [source.before, source.after].map((picture, side) => {
      const box = make('div', { class: 'side' }, make('div', { class: 'side-title' }, `${side ? 'after' : 'before'}: ${picture.title}`));
      host.append(box);
      return new Graph(box, picture, {
        at: { ...env.at, side },
        wait: env.wait,
        // Room for the heading.
        inset: [36, 0, 0, 0],
        tint: (g, n) => this.colour(side, source.changes[side][g]?.nodes[n]),
        tintEdge: (g, e) => this.colour(side, source.changes[side][g]?.edges[e]),
        chosen: view => this.follow(side, view),
      });
    });
    this.sides[1].emphasis = this.sides[0].emphasis;
    // What differs, each once: a changed node stands for both sides.
    this.list = [];
    source.changes.forEach((groups, side) => groups.forEach((group, g) => group.nodes.forEach((change, n) => {
      if (change === 2 || change === 1 && (side === 0 || !partner[1].has([g, n].join()))) this.list.push([side, g, n, change]);
    })));
    this.edges = source.changes.map((groups, side) => groups.flatMap((group, g) => group.edges
      .map((change, e) => [change, e]).filter(([change]) => change === 2)
      .map(([, e]) => { const [from, to] = this.sides[side].picture.groups[g].edges[e]; return { side, g, from, to }; })));
  }

  // Buttons and keys work on the side that was used last.
  get camera() { return this.sides[this.active].camera; }

  colour(side, change) { return change === 2 ? (side ? theme.added : theme.removed) : change === 1 ? theme.changed : undefined; }

  follow(side, view) {
    if (this.following) return;
    this.active = side;
    this.following = true;
    const other = this.sides[1 - side], at = view.selected === null ? null : this.partner[side].get([view.group, view.selected].join());
    if (at) other.chooseIn(...at);
    else other.choose(null);
    this.following = false;
    this.env.chosen(this);
  }

  get selected() { return this.sides[this.active].selected; }

  get edge() { return this.sides[this.active].edge; }

  key(event) { return this.sides[this.active].key(event); }

  find(words) {
    return this.sides.flatMap((view, side) => view.find(words).map(hit => ({
      ...hit, note: `${side ? 'after' : 'before'}, ${hit.note}`, go: () => { this.active = side; hit.go(); },
    })));
  }

  // What the server finds in boxes, on both sides.
  async more(words) {
    const sides = await Promise.all(this.sides.map(view => view.more(words))), found = sides.filter(Boolean);
    if (!found.length) return null;
    return {
      all: found.reduce((sum, { all }) => sum + all, 0),
      hits: sides.flatMap((one, side) => (one?.hits ?? []).map(hit => ({
        ...hit, note: `${side ? 'after' : 'before'}, ${hit.note}`, go: () => { this.active = side; return hit.go(); },
      }))),
      mark: () => { for (const one of found) one.mark(); },
    };
  }

  describe() {
    const view = this.sides[this.active], g = view.group, n = view.selected;
    if (n === null) return view.describe(n, this.verdict(this.source.changes[this.active][g]?.edges[view.edge]));
    const change = this.source.changes[this.active][g]?.nodes[n] ?? 0, at = this.partner[this.active].get([g, n].join());
    const extra = this.verdict(this.source.changes[this.active][g]?.nodes[n]);
    if (change === 1 && at) {
      const facts = (picture, [h, m]) => { const node = picture.groups[h].nodes[m]; return new Map([['name', text(node.label)], ['what', node.lines.map(text).join(', ')], ...node.facts.map(([a, b]) => [text(a), text(b)])]); };
      const mine = facts(view.picture, [g, n]), its = facts(this.sides[1 - this.active].picture, at);
      const rows = [...new Set([...mine.keys(), ...its.keys()])].filter(name => name !== 'id' && mine.get(name) !== its.get(name))
        .map(name => [name, make('span', {}, make('del', {}, (this.active ? its : mine).get(name) ?? '–'), ' ', make('ins', {}, (this.active ? mine : its).get(name) ?? '–'))]);
      if (rows.length) extra.push(make('h3', {}, 'What changed'), table(rows));
    }
    return view.describe(n, extra);
  }

  verdict(change) {
    if (change === undefined) return [];
    const words = ['the same in both', 'changed', this.active ? 'only after' : 'only before'][change];
    return [make('p', { class: ['', 'changed', this.active ? 'added' : 'removed'][change] }, words)];
  }

  overview() {
    const { only, changed, before, after } = this.source, none = !changed && only.flat().every(n => n === 0);
    return [
      make('h2', {}, this.source.title),
      table([
        ['only before', `${count(only[0][0], 'node')}, ${count(only[0][1], 'edge')}`],
        ['only after', `${count(only[1][0], 'node')}, ${count(only[1][1], 'edge')}`],
        ['changed', count(changed, 'node')],
      ]),
      make('ul', { class: 'legend' }, ...[['removed', 'only before'], ['added', 'only after'], ['changed', 'changed']].map(([name, words]) => {
        const swatch = make('span', { class: 'swatch' });
        swatch.style.background = theme[name];
        return make('li', {}, swatch, words);
      })),
      none ? make('p', {}, 'The graphs are the same: every node and edge of one is in the other.') : make('p', { class: 'note' }, 'Choosing a node chooses what it became on the other side.'),
      before.whole && after.whole ? undefined : make('p', { class: 'note' }, 'The graphs are too large to be drawn node by node: differences are only counted.'),
      buttonList('Differences', this.list.map(([side, g, n, change]) => ({
        label: text(this.sides[side].picture.groups[g].nodes[n].brief),
        note: change === 1 ? 'changed' : side ? 'only after' : 'only before',
        mark: change === 1 ? 'changed' : side ? 'added' : 'removed',
        go: () => { this.active = side; this.sides[side].chooseIn(g, n); },
      }))),
      ...this.edges.map((list, side) => buttonList(side ? 'Edges only after' : 'Edges only before', list.map(({ g, from, to }) => ({
        label: `${from} → ${to}`,
        note: `${text(this.sides[side].picture.groups[g].nodes[from].shown)} → ${text(this.sides[side].picture.groups[g].nodes[to].shown)}`,
        mark: side ? 'added' : 'removed',
        go: () => { this.active = side; this.sides[side].chooseIn(g, from); },
      })))),
    ];
  }
}
