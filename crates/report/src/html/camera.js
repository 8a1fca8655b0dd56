// Zoom and pan of one canvas. `x` and `y` are the world's point at the upper left of the plot, `kx` and `ky` pixels per
// unit. Three ways to scale: `free` (both axes alike), `time` (only along x), `stretch` (from a plot that fills the
// canvas, both by the same factor).

class Camera {
  constructor(host, { mode = 'free', bounds, draw, click, hover, inset = [0, 0, 0, 0], label, largest = 6 }) {
    Object.assign(this, { mode, bounds, paint: draw, inset, largest });
    Object.assign(this, { x: 0, y: 0, kx: 1, ky: 1, width: 0, height: 0, motion: null, pending: false, touched: false });
    this.canvas = make('canvas', { tabindex: '0', role: 'application', 'aria-label': label });
    host.append(this.canvas);
    this.context = this.canvas.getContext('2d');
    this.listen(click, hover);
    new ResizeObserver(() => this.resize()).observe(this.canvas);
  }

  // Width and height of the plot, without axes.
  plot() {
    const [top, right, bottom, left] = this.inset;
    return [Math.max(1, this.width - left - right), Math.max(1, this.height - top - bottom)];
  }

  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width || !height) return;
    const first = !this.width, ratio = devicePixelRatio || 1;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    // Until somebody moves it, the picture follows the window.
    if (first || !this.touched) this.begin();
    this.draw(true);
  }

  fitScale() {
    const { w, h } = this.bounds(), [width, height] = this.plot(), room = this.mode === 'free' ? 28 : 0;
    const x = (width - room) / Math.max(w, 1e-9), y = (height - room) / Math.max(h, 1e-9);
    if (this.mode === 'free') { const k = Math.min(x, y); return [k, k]; }
    return [x, this.mode === 'time' ? 1 : y];
  }

  // All of it, or for a large picture its beginning at a size that can be read.
  begin() {
    this.fit(false);
    this.touched = false;
    const least = 0.75;
    if (this.mode !== 'free' || this.kx >= 0.55) return;
    const { x, y, w, h } = this.bounds(), [width, height] = this.plot();
    if (this.start) {
      this.kx = this.ky = least;
      const focus = this.start();
      this.x = w * least <= width ? x + w / 2 - width / 2 / least : clamp(focus.x - width / 2 / least, x - 14 / least, x + w + 14 / least - width / least);
      this.y = h * least <= height ? y + h / 2 - height / 2 / least : y - 14 / least;
    }
    this.draw();
  }

  fit(smooth = true) {
    const { x, y, w, h } = this.bounds(), [width, height] = this.plot(), [fx, fy] = this.fitScale();
    const kx = this.mode === 'free' ? Math.min(fx, 1.4) : fx, ky = this.mode === 'free' ? kx : fy;
    this.touched = true;
    this.move({
      x: this.mode === 'free' ? x + w / 2 - width / 2 / kx : x,
      y: this.mode === 'free' ? y + h / 2 - height / 2 / ky : y,
      kx, ky,
    }, smooth);
  }

  limit(k) {
    const [fit] = this.fitScale();
    return this.mode === 'free'
      ? clamp(k, Math.min(fit, 1) * 0.6, Math.max(this.largest, fit))
      : clamp(k, fit, Math.max(fit, fit * 1e7));
  }

  // Zooms by a factor around a point of the plot.
  zoom(factor, px, py, smooth = true) {
    const [width, height] = this.plot();
    px ??= width / 2;
    py ??= height / 2;
    this.touched = true;
    const kx = this.limit((this.motion?.to.kx ?? this.kx) * factor), ky = this.mode === 'time' ? 1 : this.ky * (kx / this.kx);
    const wx = this.x + px / this.kx, wy = this.y + py / this.ky;
    this.move({ x: wx - px / kx, y: this.mode === 'time' ? this.y : wy - py / ky, kx, ky }, smooth, [wx, wy, px, py]);
  }

  // To a view, over a short time; with an anchor, that point stays where it is on the screen.
  move(to, smooth = true, anchor = null) {
    if (!smooth || still.matches || !this.width) {
      this.motion = null;
      Object.assign(this, to);
      this.draw();
      return;
    }
    this.motion = { from: { x: this.x, y: this.y, kx: this.kx, ky: this.ky }, to, anchor, began: null };
    this.draw();
  }

  step(now) {
    const { from, to, anchor } = this.motion;
    this.motion.began ??= now;
    const t = clamp((now - this.motion.began) / 160, 0, 1), ease = 1 - (1 - t) ** 3;
    const between = axis => from[axis] * (to[axis] / from[axis]) ** ease;
    this.kx = between('kx');
    this.ky = between('ky');
    if (anchor) {
      const [wx, wy, px, py] = anchor;
      this.x = wx - px / this.kx;
      this.y = this.mode === 'time' ? to.y : wy - py / this.ky;
    } else {
      const [width, height] = this.plot();
      for (const [axis, size, k] of [['x', width, 'kx'], ['y', height, 'ky']]) {
        const start = from[axis] + size / 2 / from[k], end = to[axis] + size / 2 / to[k];
        this[axis] = start + (end - start) * ease - size / 2 / this[k];
      }
    }
    if (t >= 1) { Object.assign(this, to); this.motion = null; }
  }

  // Some of the picture always stays in sight.
  hold() {
    const { x, y, w, h } = this.bounds(), [width, height] = this.plot();
    const axis = (at, from, size, room, free) => free
      ? clamp(at, from - room * 0.8, from + size - room * 0.2)
      : clamp(at, from, Math.max(from, from + size - room));
    this.x = axis(this.x, x, w, width / this.kx, this.mode === 'free');
    this.y = axis(this.y, y, h, height / this.ky, this.mode === 'free');
  }

  draw(now = false) {
    if (now === true) { this.frame(performance.now()); return; }
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(time => { this.pending = false; this.frame(time); });
  }

  frame(time) {
    if (!this.width) return;
    if (this.motion) this.step(time);
    this.hold();
    const ratio = devicePixelRatio || 1, c = this.context;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    this.paint(c);
    if (this.motion) this.draw();
  }

  // World units into the coordinate system of the context, for pictures whose text scales.
  enter(c) {
    const ratio = devicePixelRatio || 1;
    c.setTransform(ratio * this.kx, 0, 0, ratio * this.ky, ratio * (this.inset[3] - this.x * this.kx), ratio * (this.inset[0] - this.y * this.ky));
  }

  // Where one is, and back there.
  view() { const { x, y, kx, ky, touched } = this; return { x, y, kx, ky, touched }; }

  restore(view) {
    Object.assign(this, view, { motion: null });
    this.draw();
  }

  toScreen(wx, wy) { return [this.inset[3] + (wx - this.x) * this.kx, this.inset[0] + (wy - this.y) * this.ky]; }
  toWorld(px, py) { return [this.x + (px - this.inset[3]) / this.kx, this.y + (py - this.inset[0]) / this.ky]; }

  // Brings a rectangle into sight: what is just outside by as little as it takes, what is far into the middle.
  reveal(x, y, w, h, least = 0.6) {
    const [width, height] = this.plot(), at = this.motion?.to ?? this, margin = 48;
    let { kx, ky } = at;
    if (this.mode === 'free' && kx < least) kx = ky = least;
    const scaled = kx !== at.kx, off = (from, size, room, now, k) => Math.max(now - from - size, from - now - room / k) > room / k / 2;
    const far = scaled || off(x, w, width, at.x, kx) || off(y, h, height, at.y, ky);
    const axis = (from, size, room, now, k) => {
      const low = from - margin / k, high = from + size + margin / k;
      if (far || high - low > room / k) return from + size / 2 - room / 2 / k;
      return low < now ? low : high > now + room / k ? high - room / k : now;
    };
    const to = { x: axis(x, w, width, at.x, kx), y: axis(y, h, height, at.y, ky), kx, ky };
    if (to.x === at.x && to.y === at.y && !scaled) return;
    this.touched = true;
    this.move(to);
  }

  pan(dx, dy) {
    this.touched = true;
    const at = this.motion?.to ?? this;
    this.move({ x: at.x + dx / at.kx, y: at.y + dy / at.ky, kx: at.kx, ky: at.ky });
  }

  listen(click, hover) {
    const { canvas } = this;
    const at = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      const [px, py] = at(event), lines = event.deltaMode ? 16 : 1, x = event.deltaX * lines, y = event.deltaY * lines;
      showTip(event, '');
      // Sideways it moves; a pinch on a touch pad comes as a wheel with Ctrl.
      if (!event.ctrlKey && (event.shiftKey || Math.abs(x) > Math.abs(y))) {
        this.touched = true;
        this.move({ x: this.x + (x + (event.shiftKey ? y : 0)) / this.kx, y: this.y, kx: this.kx, ky: this.ky }, false);
        return;
      }
      // Wheels jump, touch pads glide: only jumps need smoothing.
      this.zoom(Math.exp(-clamp(y, -240, 240) * (event.ctrlKey ? 0.01 : 0.0024)), px - this.inset[3], py - this.inset[0], Math.abs(y) > 40);
    }, { passive: false });
    // Fingers on the picture, or the mouse: one drags, two zoom.
    const points = new Map();
    let drag = null, pinch = null;
    const begin = (point, moved) => {
      const grip = moved ? null : this.grab?.(...point);
      drag = { point, x: this.x, y: this.y, moved: moved || Boolean(grip), grip };
    };
    const spread = () => {
      const [[ax, ay], [bx, by]] = [...points.values()];
      return { middle: [(ax + bx) / 2, (ay + by) / 2], apart: Math.max(Math.hypot(bx - ax, by - ay), 1) };
    };
    canvas.addEventListener('pointerdown', event => {
      if (event.button !== 0) return;
      canvas.focus({ preventScroll: true });
      this.motion = null;
      points.set(event.pointerId, at(event));
      canvas.setPointerCapture(event.pointerId);
      if (points.size === 1) begin(at(event), false);
      if (points.size === 2) { drag = null; pinch = spread(); showTip(event, ''); }
    });
    canvas.addEventListener('pointermove', event => {
      const [px, py] = at(event);
      if (!points.size) { if (event.pointerType !== 'touch') showTip(event, hover?.(px, py) ?? ''); return; }
      if (!points.has(event.pointerId)) return;
      points.set(event.pointerId, [px, py]);
      if (pinch && points.size === 2) {
        const now = spread(), [mx, my] = now.middle, [ox, oy] = pinch.middle;
        this.x -= (mx - ox) / this.kx;
        if (this.mode !== 'time' || this.bounds().h > this.plot()[1]) this.y -= (my - oy) / this.ky;
        this.zoom(now.apart / pinch.apart, mx - this.inset[3], my - this.inset[0], false);
        pinch = now;
        return;
      }
      if (!drag) return;
      if (drag.grip) { drag.grip(px, py); return; }
      const dx = px - drag.point[0], dy = py - drag.point[1];
      // Fingers are less steady than mice.
      if (!drag.moved && Math.hypot(dx, dy) < (event.pointerType === 'touch' ? 9 : 4)) return;
      if (!drag.moved) { drag.moved = true; canvas.classList.add('drag'); showTip(event, ''); }
      this.touched = true;
      this.x = drag.x - dx / this.kx;
      this.y = drag.y - dy / this.ky;
      this.draw();
    });
    const drop = event => {
      if (!points.delete(event.pointerId)) return;
      if (drag && !drag.moved && event.type === 'pointerup') click?.(...at(event));
      drag = pinch = null;
      canvas.classList.remove('drag');
      // After a pinch the finger that stays drags on.
      if (points.size === 1) begin([...points.values()][0], true);
    };
    canvas.addEventListener('dblclick', () => this.double?.());
    canvas.addEventListener('pointerup', drop);
    canvas.addEventListener('pointercancel', drop);
    canvas.addEventListener('pointerleave', event => { if (!points.size) { hover?.(); showTip(event, ''); } });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key === '+' || event.key === '=') this.zoom(1.4);
    else if (event.key === '-') this.zoom(1 / 1.4);
    else if (event.key === '0') this.fit();
    else if (event.shiftKey && event.key.startsWith('Arrow')) {
      const step = 120;
      this.pan(step * ((event.key === 'ArrowRight') - (event.key === 'ArrowLeft')), step * ((event.key === 'ArrowDown') - (event.key === 'ArrowUp')));
    } else return false;
    return true;
  }
}
