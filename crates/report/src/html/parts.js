// What lies in the boxes of large graphs: groups that the page has in it, or asks its server for. Each is added to the
// picture's groups when it comes and stays there.

class Parts {
  constructor(picture, at) {
    Object.assign(this, { picture, at, shown: new Map() });
    picture.groups.forEach((_, g) => this.note(g));
  }

  // Which group shows which node of a large graph.
  note(g) {
    const { part } = this.picture.groups[g];
    if (!part) return;
    if (!this.shown.has(part.of)) this.shown.set(part.of, new Map());
    part.numbers.forEach((number, n) => this.shown.get(part.of).set(number, [g, n]));
  }

  // Whether all nodes can be shown, those in boxes too.
  get complete() {
    return ask.server !== null || this.picture.groups.every(group => group.stands === undefined || group.nodes.every(node => node.opens !== undefined));
  }

  // The group that lies in a box.
  async open(g, n) {
    const { nodes, part } = this.picture.groups[g], node = nodes[n];
    if (node.opens !== true) return node.opens;
    const of = part ? part.of : g, path = [...part?.path ?? [], n];
    const { strings, group } = await ask.server('open', this.at, of, path.join('.'));
    // It may have come twice.
    if (node.opens === true) node.opens = this.adopt(strings, group);
    return node.opens;
  }

  adopt(strings, group) {
    const base = data.strings.length;
    for (const string of strings) data.strings.push(string);
    for (const node of group.nodes) {
      for (const name of ['label', 'brief', 'shown']) node[name] += base;
      for (const name of ['detail', 'lines']) node[name] = node[name].map(at => at + base);
      node.facts = node.facts.map(fact => fact.map(at => at + base));
    }
    for (const edge of group.edges) if (edge[5] !== null) edge[5] += base;
    for (const edge of group.part.outside) edge[2] += base;
    this.picture.groups.push(group);
    this.note(this.picture.groups.length - 1);
    return this.picture.groups.length - 1;
  }

  // The group at the end of a way through boxes.
  async reach(of, path) {
    let g = of;
    for (const n of path) g = await this.open(g, n);
    return g;
  }

  // The group that shows a node of a large graph, and its place there.
  async find(of, number) {
    const known = this.shown.get(of)?.get(number);
    if (known || !ask.server) return known;
    const [path, n] = await ask.server('where', this.at, of, number);
    return [await this.reach(of, path), n];
  }

  // Nodes of large graphs that have all the words: how many, the boxes they are in, the first of them.
  async search(words) {
    return ask.server('find', this.at, words.join(' '));
  }
}
