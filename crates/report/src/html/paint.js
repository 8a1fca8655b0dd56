// How a graph is drawn: edges, boxes, the overview in the corner. What is drawn is told by `Graph`.

class Painter {
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
      c.fillText('This graph has no nodes: nothing was recorded into it. Did the work go to a stream that was being captured?', 20, 60);
      return;
    }
    camera.enter(c);
    const hits = this.searching ? this.hits.get(this.group) ?? new Set() : null;
    this.drawEdges(c, edges, seen, k, hits);
    const boxes = [];
    for (let n = 0; n < nodes.length; n++) {
      const node = nodes[n];
      if (node.x > right || node.x + node.w < left || node.y - 14 > bottom || node.y + node.h + 14 < top) continue;
      c.globalAlpha = hits && !hits.has(n) && n !== this.selected ? 0.25 : node.disabled ? 0.5 : 1;
      if (k * node.h < 9) this.drawSmall(c, node, n, k, hits);
      else {
        if (node.outside.length) this.drawStubs(c, node);
        this.drawBox(c, node, n, k, hits);
        boxes.push([node, c.globalAlpha]);
      }
    }
    this.drawTexts(c, boxes, k);
    c.globalAlpha = 1;
    if (this.over?.edge !== undefined) this.drawEdgeRing(c, edges[this.over.edge], k, 1.4);
    if (this.over?.node !== undefined && this.over.node !== this.selected) this.drawRing(c, nodes[this.over.node], theme.accent, Math.max(1.4, 1.4 / k), 2);
    if (this.edge !== null) this.drawEdgeRing(c, edges[this.edge], k, 2.4);
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

  // How far a point is from an edge, in world units.
  farFrom(edge, px, py) {
    const { points, kinds } = edge;
    let x = points[0], y = points[1], best = Infinity;
    const line = (ax, ay, bx, by) => {
      const dx = bx - ax, dy = by - ay, t = clamp(((px - ax) * dx + (py - ay) * dy) / (dx * dx + dy * dy || 1), 0, 1);
      best = Math.min(best, Math.hypot(px - ax - t * dx, py - ay - t * dy));
    };
    for (let i = 2; i < points.length; i += 3) {
      const nx = points[i + 1], ny = points[i + 2];
      if (kinds[i] === 1) {
        // The curve leaves and arrives vertically.
        const middle = (y + ny) / 2, steps = 12;
        let [ax, ay] = [x, y];
        for (let s = 1; s <= steps; s++) {
          const t = s / steps, u = 1 - t;
          const bx = x * (u ** 3 + 3 * u * u * t) + nx * (3 * u * t * t + t ** 3), by = y * u ** 3 + middle * (3 * u * u * t + 3 * u * t * t) + ny * t ** 3;
          line(ax, ay, bx, by);
          [ax, ay] = [bx, by];
        }
      } else if (kinds[i] === 2) {
        line(x, y, x, y + 12);
        line(nx, ny - 12, nx, ny);
      } else line(x, y, nx, ny);
      x = nx; y = ny;
    }
    return best;
  }

  // Whether the boxes ticked above the picture leave an edge out.
  hidden(edge, e) {
    return data.lines[edge.line][0] === 'l-red' && !this.emphasis.redundant && !this.env.tintEdge?.(this.group, e);
  }

  drawEdges(c, edges, seen, k, hits) {
    const near = this.selected === null ? null : new Set([...this.scene().nodes[this.selected].ins, ...this.scene().nodes[this.selected].outs]);
    const layers = new Map();
    edges.forEach((edge, e) => {
      if (!seen(edge) || this.hidden(edge, e)) return;
      const line = data.lines[edge.line][0] === 'l-crit' && !this.emphasis.critical ? 0 : edge.line;
      const key = near?.has(e) ? 'near' : this.env.tintEdge?.(this.group, e) ?? line;
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
      c.beginPath();
      const ends = [];
      for (const edge of layers.get(key)) {
        const end = this.way(c, edge);
        if (k > 0.22) ends.push([end, this.arrives(edge, end)]);
      }
      c.stroke();
      c.setLineDash([]);
      this.drawHeads(c, ends);
    }
    c.globalAlpha = 1;
  }

  // The angle at which an edge comes to its end.
  arrives({ points, kinds }, end) {
    const last = points.length - 3, from = last > 2 ? [points[last - 2], points[last - 1]] : [points[0], points[1]];
    return kinds[last] === 0 && points.length > 5 ? Math.atan2(end[1] - from[1], end[0] - from[0]) : Math.PI / 2;
  }

  drawHeads(c, ends) {
    if (!ends.length) return;
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

  // An edge that is pointed at or chosen, with both ends.
  drawEdgeRing(c, edge, k, width) {
    const { nodes } = this.scene();
    c.strokeStyle = c.fillStyle = theme.accent;
    c.lineWidth = Math.max(width + 1.6, (width + 1) / k);
    c.beginPath();
    const end = this.way(c, edge);
    c.stroke();
    this.drawHeads(c, [[end, this.arrives(edge, end)]]);
    for (const n of [edge.from, edge.to]) this.drawRing(c, nodes[n], theme.accent, Math.max(width, width / k), 3);
  }

  // In a part of a graph: there are producers above, or consumers below, in other boxes.
  drawStubs(c, node) {
    const x = node.x + Math.min(node.w / 2, 60) - 8;
    c.strokeStyle = c.fillStyle = theme.muted;
    c.lineWidth = 1.2;
    c.setLineDash([2, 2]);
    c.beginPath();
    for (const [produces, from, to] of [[1, node.y - 15, node.y], [0, node.y + node.h, node.y + node.h + 13]]) {
      if (!node.outside.some(edge => edge[3] === produces)) continue;
      c.moveTo(x, from);
      c.lineTo(x, to);
    }
    c.stroke();
    c.setLineDash([]);
    if (node.outside.some(edge => edge[3] === 1)) this.drawHeads(c, [[[x, node.y], Math.PI / 2]]);
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
    if (node.opens !== undefined) {
      // There is more behind it.
      c.strokeStyle = colours.line;
      c.fillStyle = theme.panel;
      c.lineWidth = 1;
      for (const off of [6, 3]) {
        c.beginPath();
        c.roundRect(x + off, y + off, w, h, radius);
        c.fill();
        c.stroke();
      }
    }
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
    if (node.bodies && node.opens === undefined) {
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
  }

  // What is written in boxes, font by font: changing fonts takes more time than writing.
  drawTexts(c, boxes, k) {
    // Seen from afar there is less text, not smaller.
    const size = Math.max(12, 9 / k), whole = k * 10.5 >= 7;
    c.textBaseline = 'alphabetic';
    c.fillStyle = theme.ink;
    c.font = `${size}px ${theme.mono}`;
    for (const [{ x, y, w, h, shown, lane }, alpha] of boxes) {
      if (size > h - 4) continue;
      c.globalAlpha = alpha;
      const indent = (lane === undefined ? 2 : 8) + 4 / k;
      if (size > 12) c.fillText(fitText(c, text(shown), w - indent - 3 / k, size * 0.605), x + indent, whole ? y + 5 + size : y + h / 2 + size * 0.35);
      else c.fillText(text(shown), x + 12, y + 17);
    }
    if (!whole) return;
    // Muted text is hard to read on a warm fill.
    c.fillStyle = this.colour === 'cost' ? theme.ink : theme.muted;
    c.font = `10.5px ${theme.mono}`;
    for (const [{ x, y, detail }, alpha] of boxes) {
      c.globalAlpha = alpha;
      detail.forEach((line, i) => c.fillText(text(line), x + 12, y + 17 + 14 * (i + 1)));
    }
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
    const scale = Math.min((camera.width < 640 ? 110 : 180) / w, (camera.width < 640 ? 80 : 120) / h), width = Math.max(24, w * scale), height = Math.max(16, h * scale);
    return { x: camera.width - width - 14, y: camera.height - height - 14, width, height, sx: width / w, sy: height / h };
  }

  mapHas(px, py) {
    const place = this.mapPlace();
    return place !== null && px >= place.x - 6 && py >= place.y - 6;
  }

  grabMap(px, py) {
    if (!this.mapHas(px, py)) return null;
    const place = this.mapPlace();
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
}
