// Ticks of a logarithmic axis, whatever is zoomed into: powers of ten, else 1, 2 and 5, else even steps.
function logTicks(u, axis, min, max) {
  const low = Math.log10(min), high = Math.log10(max), found = [];
  if (high - low >= 1.5) {
    const step = Math.ceil((high - low) / 8);
    for (let exponent = Math.ceil(low - 1e-9); exponent <= high + 1e-9; exponent += step) found.push(10 ** exponent);
    return found;
  }
  for (let exponent = Math.floor(low); exponent <= high; exponent++) for (const digit of [1, 2, 5]) found.push(digit * 10 ** exponent);
  const inside = found.filter((value) => value >= min && value <= max);
  if (inside.length > 2) return inside;
  const rough = (max - min) / 4, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * unit).find((size) => size >= rough);
  return Array.from({ length: Math.floor(max / step) - Math.ceil(min / step) + 1 }, (_, index) => Number(((Math.ceil(min / step) + index) * step).toPrecision(12)));
}
const isPower = (value) => value > 0 && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6;
// Where an epoch stands in a run's list; found once for each list.
const positions = new WeakMap();
function position(times, epoch) {
  if (!positions.has(times)) positions.set(times, new Map(times.map((time, index) => [time, index])));
  return positions.get(times).get(epoch);
}

// --- one plot ----------------------------------------------------------------------------------------------
class Plot {
  constructor(spec) {
    this.spec = spec;
    this.host = document.getElementById(spec.id);
    this.bar = document.getElementById(spec.id + "-bar");
    this.said = document.getElementById(spec.id + "-said");
    this.legend = document.getElementById(spec.id + "-legend");
    this.which = document.getElementById(spec.id + "-which");
    this.zoomed = false;
    this.state = { quantity: spec.quantities[0], view: spec.view, layers: null, epoch: null, log: null, logx: false, degrees: false, band: true };
    this.host.addEventListener("keydown", (event) => this.key(event));
    this.host.addEventListener("blur", () => this.hide());
    // Before uPlot hears it: a double click shows everything again.
    this.host.addEventListener("dblclick", () => this.zoom(false), true);
    this.reset();
  }
  get quantity() { return data.quantities[this.state.quantity]; }
  runs(all) {
    return data.runs.filter((run) => {
      const cell = data.cells[run.cell];
      if (cell.group !== this.group || !(this.state.quantity in run.values)) return false;
      if (!cell.claim && !this.spec.baselines) return false;
      return all || (fits(run.cell) && shown.seeds.has(run.seed));
    });
  }
  times(run) { return this.quantity.when === "epoch" ? run.epochs : run.probes; }
  // The quantity and all else that was chosen, as one word of the address; null for what stands there at first.
  word() {
    const { quantity, view, epoch, log, logx, degrees, band, layers } = this.state;
    return [quantity, view, epoch, [log, logx, degrees, band].map(Number).join(""), [...layers].sort((a, b) => a - b).join("-")].join(".");
  }
  stateText() { return this.spec.quantities.length && this.word() !== this.fresh ? this.word() : null; }
  readState(text) {
    const [quantity, view, epoch, flags, layers] = text.split(".");
    if (!this.spec.quantities.includes(quantity)) return;
    this.state.quantity = quantity;
    this.reset();
    const state = this.state;
    if (this.quantity.place !== "one" && ["layers", "epochs"].includes(view)) state.view = view;
    if (Number(epoch) in this.epochs) state.epoch = Number(epoch);
    [state.log, state.logx, state.degrees, state.band] = [...(flags || "")].map((flag) => flag === "1");
    state.layers = new Set((layers || "").split("-").filter(Boolean).map(Number).filter((layer) => layer < this.depth));
    this.buildBar();
    this.draw();
  }
  refresh() { if (this.group === drawnGroup()) this.draw(); else this.reset(); }
  zoom(on) { this.zoomed = on; const node = this.bar.querySelector("[data-key=reset]"); if (node) node.hidden = !on; }
  reset(group = drawnGroup()) {
    this.group = group;
    if (!this.spec.quantities.length) { this.host.replaceChildren(make("p", { class: "empty" }, "Not measured in these logs.")); return; }
    const state = this.state, quantity = this.quantity;
    const runs = this.runs(true);
    this.depth = Math.max(0, ...runs.map((run) => run.values[state.quantity].length));
    this.epochs = unique(runs.flatMap((run) => this.times(run))).sort((a, b) => a - b);
    state.layers = new Set(this.depth ? [this.depth - 1] : []);
    if (quantity.place === "block") state.layers = new Set([...Array(this.depth).keys()]);
    state.epoch = this.epochs.length - 1;
    state.log = quantity.log === true;
    state.degrees = state.degrees && quantity.angle;
    if (quantity.place === "one") state.view = "epochs";
    if (state.quantity === this.spec.quantities[0]) this.fresh = this.word();
    this.buildBar();
    this.draw();
  }
  buildBar() {
    const { state, quantity, bar, spec } = this;
    bar.replaceChildren();
    const again = (focus) => { this.buildBar(); this.draw(); const node = bar.querySelector(`[data-key="${focus}"]`); if (node) node.focus(); };
    if (spec.quantities.length > 1) {
      const select = make("select", { "data-key": "quantity", "aria-label": "Quantity" });
      spec.quantities.forEach((name) => select.append(make("option", { value: name, selected: name === state.quantity }, data.quantities[name].label)));
      select.addEventListener("change", () => { state.quantity = select.value; state.view = data.quantities[select.value].place === "one" ? "epochs" : spec.view; this.reset(); bar.querySelector("select").focus(); });
      bar.append(select);
    }
    if (quantity.place !== "one") {
      const view = make("select", { "data-key": "view", "aria-label": "Against" });
      [["layers", quantity.place === "block" ? "by block" : "by state"], ["epochs", "over epochs"]].forEach(([value, text]) => view.append(make("option", { value, selected: value === state.view }, text)));
      view.addEventListener("change", () => { state.view = view.value; again("view"); });
      bar.append(view);
      if (state.view === "layers" && this.epochs.length > 1) {
        const out = make("span", {}, "epoch " + this.epochs[state.epoch]);
        const range = make("input", { type: "range", min: "0", max: String(this.epochs.length - 1), value: String(state.epoch), "data-key": "epoch", "aria-label": "Epoch", "aria-valuetext": "epoch " + this.epochs[state.epoch] });
        range.addEventListener("input", () => { state.epoch = Number(range.value); out.textContent = "epoch " + this.epochs[state.epoch]; range.setAttribute("aria-valuetext", out.textContent); this.draw(); });
        bar.append(make("label", {}, range, out));
      }
      if (state.view === "epochs" && this.depth > 1) {
        const layers = make("fieldset", {}, make("legend", {}, quantity.place === "block" ? "Blocks" : "States"));
        for (let layer = 0; layer < this.depth; layer++) {
          layers.append(tick(quantity.place === "block" ? String(layer) : "h" + layer, state.layers.has(layer), (on) => { if (on) state.layers.add(layer); else state.layers.delete(layer); this.draw(); }, "layer:" + layer));
        }
        bar.append(layers);
      }
    }
    if (quantity.log !== null) bar.append(tick("log axis", state.log, (on) => { state.log = on; this.draw(); }, "log"));
    if (state.view === "epochs") bar.append(tick("log epochs", state.logx, (on) => { state.logx = on; this.draw(); }, "logx"));
    if (quantity.angle) bar.append(tick("degrees", state.degrees, (on) => { state.degrees = on; this.draw(); }, "degrees"));
    if (data.runs.some((run) => state.quantity in run.nulls)) bar.append(tick("null band", state.band, (on) => { state.band = on; this.draw(); }, "band"));
    bar.append(button("Reset zoom", "reset", () => this.draw()));
    const name = () => `${spec.id}-${state.quantity}`;
    bar.append(button("CSV", "csv", () => saveCsv(name() + ".csv", this.csv())));
    bar.append(button("PNG", "png", () => { if (this.chart) savePng(name() + ".png", [{ text: this.caption(), canvas: this.chart.ctx.canvas }]); }));
    bar.append(button("Link", "link", () => copyLink(this.host.closest("section[id]").id, this.said)));
    this.zoom(false);
  }

  // Series: one per run and layer, or the mean over the seeds shown.
  collect() {
    const { state, quantity } = this;
    const layersView = state.view === "layers";
    let xs = layersView ? [...Array(this.depth).keys()] : this.epochs;
    if (!layersView && state.logx) xs = xs.filter((x) => x > 0);
    const turn = (value) => (value === null || value === undefined ? null : state.degrees ? degrees(value) : value);
    let dropped = 0;
    const keep = (value) => { if (state.log && value !== null && value <= 0) { dropped += 1; return null; } return value; };
    const read = (run, table, layer, times, epoch) => { const at = position(times, epoch); return at === undefined || !table[layer] ? null : turn(table[layer][at]); };
    const list = [];
    for (const run of this.runs(false)) {
      const times = this.times(run), table = run.values[state.quantity], band = run.nulls[state.quantity];
      const along = (values, at) => (layersView ? xs.map((layer) => read(run, values, layer, at, this.epochs[state.epoch])) : null);
      if (layersView) {
        list.push({ run, layer: null, y: along(table, times).map(keep), low: band && along(band.low, run.probes), high: band && along(band.high, run.probes) });
      } else {
        for (const layer of [...state.layers].sort((a, b) => a - b)) {
          if (!table[layer]) continue;
          const over = (values, at) => xs.map((epoch) => read(run, values, layer, at, epoch));
          list.push({ run, layer: table.length > 1 ? layer : null, y: over(table, times).map(keep), low: band && over(band.low, run.probes), high: band && over(band.high, run.probes) });
        }
      }
    }
    const usable = list.filter((item) => item.y.some((value) => value !== null));
    return { xs, list: shown.mean ? this.average(usable) : usable, dropped };
  }
  average(list) {
    const groups = new Map();
    for (const item of list) {
      const key = item.run.cell + ":" + item.layer;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(item);
    }
    const mean = (rows) => rows[0].map((_, index) => { const known = rows.map((row) => row[index]).filter((v) => v !== null); return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null; });
    return [...groups.values()].map((items) => ({
      run: { ...items[0].run, seed: "mean of " + items.length, fires: {} }, layer: items[0].layer, y: mean(items.map((item) => item.y)),
      low: items[0].low && mean(items.map((item) => item.low)), high: items[0].high && mean(items.map((item) => item.high)),
    }));
  }
  // One null band per method and layer: the widest over its seeds, so that bands do not pile up.
  envelopes(list) {
    const groups = new Map();
    for (const item of list) {
      if (!item.low) continue;
      const key = item.run.cell + ":" + item.layer, held = groups.get(key);
      const pick = (a, b, choose) => a.map((v, i) => (v === null ? b[i] : b[i] === null ? v : choose(v, b[i])));
      const [low, high] = this.state.degrees ? [item.high, item.low] : [item.low, item.high];
      groups.set(key, held ? { run: item.run, low: pick(held.low, low, Math.min), high: pick(held.high, high, Math.max) } : { run: item.run, low, high });
    }
    return [...groups.values()];
  }
  name(item) {
    const layer = item.layer === null ? "" : this.quantity.place === "block" ? ", block " + item.layer : ", h" + item.layer;
    return data.cells[item.run.cell].label + layer;
  }

  caption() {
    const at = this.state.view === "layers" ? `, epoch ${this.epochs[this.state.epoch]}` : "";
    return `${groupText(this.group)}: ${this.quantity.label}${at}`;
  }
  // What is drawn, a value a row.
  csv() {
    const layers = this.state.view === "layers", place = this.quantity.place === "block" ? "block" : "state";
    const rows = [["experiment", "method", "verdict", "seed", "log", place, "epoch", this.state.degrees ? "degrees" : this.state.quantity]];
    this.list.forEach((item) => item.y.forEach((value, index) => {
      const cell = data.cells[item.run.cell], x = this.xs[index];
      if (value !== null) rows.push([data.groups[this.group], cell.label, cell.verdict ?? "baseline", item.run.seed, item.run.log ?? "", layers ? x : item.layer, layers ? this.epochs[this.state.epoch] : x, value]);
    }));
    return rows;
  }

  draw() {
    if (!this.spec.quantities.length) return;
    this.zoom(false);
    this.which.replaceChildren(groupText(this.group), ...(shown.group === null && data.groups.length > 1 ? [make("span", { class: "screen" }, " (choose another above)")] : []));
    if (this.chart) { this.chart.destroy(); this.chart = null; }
    this.host.replaceChildren();
    const { xs, list, dropped } = this.collect();
    this.list = list; this.xs = xs;
    this.legend.replaceChildren();
    this.host.dataset.series = String(list.length);
    this.host.dataset.log = String(Boolean(this.state.log));
    this.host.dataset.first = list.length ? JSON.stringify(list[0].y) : "[]";
    const note = dropped ? `${dropped} values at or below 0 cannot stand on a log axis. ` : "";
    this.said.textContent = note;
    if (!list.length || !xs.length) {
      this.host.append(make("p", { class: "empty" }, this.runs(true).length ? "Nothing chosen: tick a method, a seed and a layer." : "Not measured in these runs."));
      return;
    }
    const { state, quantity } = this;
    const width = Math.max(240, this.host.clientWidth - 14);
    const layersView = state.view === "layers";
    const lines = (this.spec.lines[state.quantity] || []).map((line) => ({ value: state.degrees ? degrees(line.value) : line.value, label: line.label })).filter((line) => !state.log || line.value > 0);
    const banded = state.band ? this.envelopes(list) : [];
    const values = [xs, ...list.map((item) => item.y)];
    const series = [{}, ...list.map((item) => {
      const cell = data.cells[item.run.cell];
      return { label: this.name(item), stroke: colour(cell), width: shown.mean ? 2.5 : 1.6, dash: DASHES[cell.dash], spanGaps: true, points: { show: layersView || xs.length < 12, size: 5, fill: colour(cell) } };
    })];
    const bands = [];
    banded.forEach((item) => {
      const high = values.push(item.high) - 1, low = values.push(item.low) - 1;
      const hidden = { stroke: "transparent", width: 0, points: { show: false }, spanGaps: true };
      series.push({ ...hidden, label: "" }, { ...hidden, label: "" });
      bands.push({ series: [high, low], fill: colour(data.cells[item.run.cell]) + "2b" });
    });
    const labelled = width > 560;
    if (!labelled) unique(list.map((item) => item.run.cell)).forEach((cell) => this.legend.append(make("span", { class: "item" }, swatch(cell), document.createTextNode(data.cells[cell].label))));
    const ink = css("--soft"), grid = css("--grid");
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const longest = labelled ? Math.min(210, 24 + 7 * Math.max(...list.map((item) => this.name(item).length))) : 12;
    const extent = (min, max) => {
      const all = [min, max, ...lines.map((line) => line.value)].filter((v) => v !== null && Number.isFinite(v));
      let low = Math.min(...all), high = Math.max(...all);
      if (state.log) { const pad = Math.max(1.25, (high / low) ** 0.06); return [low / pad, high * pad]; }
      const pad = (high - low || Math.abs(high) || 1) * 0.07;
      return [low - pad, high + pad];
    };
    const place = quantity.place === "block" ? "block" : "state";
    this.chart = new uPlot({
      width, height: width < 520 ? 260 : this.host.closest(".pair") ? 280 : 340,
      legend: { show: false },
      padding: [14, longest, 0, 0],
      focus: { alpha: 0.25 },
      cursor: { focus: { prox: 20 }, drag: { x: true, y: true, uni: 30 }, points: { size: 7 } },
      scales: {
        x: { time: false, distr: !layersView && state.logx ? 3 : 1, range: (_, min, max) => (this.zoomed || !layersView ? [min, max] : [-0.15, Math.max(this.depth - 1, 0.5) + 0.15]) },
        y: { distr: state.log ? 3 : 1, range: (_, min, max) => (this.zoomed && min < max ? [min, max] : extent(min, max)) },
      },
      axes: [
        { ...axis, label: layersView ? `${place} (epoch ${this.epochs[state.epoch]})` : "epoch", labelSize: 18, size: 34, splits: layersView ? () => xs : state.logx ? logTicks : undefined, filter: (_, splits) => splits, values: layersView ? (_, splits) => splits.map((v) => (place === "state" ? "h" + v : String(v))) : (_, splits) => splits.map((v) => (v === null || v % 1 ? "" : String(v))) },
        { ...axis, label: state.degrees ? "angle in degrees" : quantity.label, labelSize: 20, size: 58, splits: state.log ? logTicks : undefined, filter: (_, splits) => splits, values: (_, splits) => splits.map((v) => (v === null ? "" : isPower(v) && state.log ? power(v) : format(v))) },
      ],
      series, bands,
      hooks: {
        draw: [(u) => this.decorate(u, lines, list, labelled)],
        setCursor: [(u) => this.hover(u)],
        setSelect: [(u) => { if (u.select.width || u.select.height) this.zoom(true); }],
      },
    }, values, this.host);
    this.tip = make("div", { class: "tip", hidden: true });
    this.host.append(this.tip);
    this.host.querySelector("canvas").setAttribute("aria-hidden", "true");
    paintSwatches(this.legend);
  }

  // Thresholds, firing epochs and the names of the lines, drawn on the canvas.
  decorate(u, lines, list, labelled) {
    const { ctx, bbox } = u, ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    for (const line of lines) {
      const y = Math.round(u.valToPos(line.value, "y", true));
      if (y < bbox.top || y > bbox.top + bbox.height) continue;
      ctx.strokeStyle = css(line.label ? "--ink" : "--soft");
      ctx.lineWidth = ratio;
      ctx.setLineDash(line.label ? [6 * ratio, 4 * ratio] : [1 * ratio, 3 * ratio]);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      if (line.label) {
        // On the right: checks fire early, so that the left is where the marks stand.
        ctx.textAlign = "right";
        this.write(ctx, line.label, bbox.left + bbox.width - 6 * ratio, y - 9 * ratio, css("--ink"), ratio);
      }
    }
    ctx.setLineDash([]);
    if (this.state.view === "epochs") this.marks(u, ctx, list, ratio);
    if (labelled) this.endLabels(u, ctx, list, ratio);
    ctx.restore();
  }
  // Text with a rim in the colour of the paper, so that it stays readable on lines.
  write(ctx, text, x, y, fill, ratio) {
    ctx.setLineDash([]);
    ctx.lineJoin = "round"; ctx.lineWidth = 4 * ratio; ctx.strokeStyle = css("--card");
    ctx.strokeText(text, x, y);
    ctx.fillStyle = fill;
    ctx.fillText(text, x, y);
  }
  marks(u, ctx, list, ratio) {
    const written = new Set(), taken = [];
    const names = [];
    for (const item of list) {
      for (const check of this.spec.marks) {
        const fired = item.run.fires[check];
        if (fired === undefined) continue;
        const at = this.xs.indexOf(fired);
        if (at < 0 || item.y[at] === null) continue;
        const x = u.valToPos(fired, "x", true), y = u.valToPos(item.y[at], "y", true), size = 5 * ratio;
        ctx.fillStyle = colour(data.cells[item.run.cell]);
        ctx.strokeStyle = css("--card"); ctx.lineWidth = ratio;
        ctx.beginPath(); ctx.moveTo(x, y - 2 * ratio); ctx.lineTo(x - size, y - size * 2.2); ctx.lineTo(x + size, y - size * 2.2); ctx.closePath(); ctx.fill(); ctx.stroke();
        const key = item.run.cell + check;
        if (!written.has(key) && this.spec.marks.length > 1) { written.add(key); names.push({ check, x, y: y - size * 2.2 - 8 * ratio, fill: ctx.fillStyle }); }
      }
    }
    // A name that would cover another moves up; at the top edge it stays away.
    ctx.textAlign = "center";
    for (const name of names) {
      const half = ctx.measureText(name.check).width / 2 + 2 * ratio, tall = 13 * ratio;
      const covers = () => taken.some((box) => Math.abs(box.x - name.x) < box.half + half && Math.abs(box.y - name.y) < tall);
      while (covers() && name.y > u.bbox.top) name.y -= tall / 2;
      if (covers() || name.y < u.bbox.top - 4 * ratio) continue;
      const x = Math.max(u.bbox.left + half, Math.min(name.x, u.bbox.left + u.bbox.width - half));
      taken.push({ x, y: name.y, half });
      this.write(ctx, name.check, x, name.y, name.fill, ratio);
    }
  }
  endLabels(u, ctx, list, ratio) {
    const ends = new Map();
    for (const item of list) {
      let at = item.y.length - 1;
      while (at >= 0 && item.y[at] === null) at--;
      const key = this.name(item);
      if (!ends.has(key)) ends.set(key, { text: key, cell: item.run.cell, ys: [] });
      ends.get(key).ys.push(u.valToPos(item.y[at], "y", true));
    }
    const labels = [...ends.values()].map((end) => ({ ...end, y: end.ys.reduce((a, b) => a + b, 0) / end.ys.length })).sort((a, b) => a.y - b.y);
    const step = 14 * ratio, bottom = u.bbox.top + u.bbox.height;
    if (labels.length * step > u.bbox.height + step) return;
    labels.forEach((label, index) => { if (index && label.y < labels[index - 1].y + step) label.y = labels[index - 1].y + step; });
    for (let index = labels.length - 1, limit = bottom; index >= 0; index--, limit -= step) if (labels[index].y > limit) labels[index].y = limit;
    ctx.textAlign = "left";
    for (const label of labels) {
      ctx.fillStyle = colour(data.cells[label.cell]);
      let text = label.text;
      const room = u.over.parentNode.parentNode.clientWidth * ratio - (u.bbox.left + u.bbox.width) - 10 * ratio;
      while (text.length > 4 && ctx.measureText(text).width > room) text = text.slice(0, -2).trimEnd() + "…";
      ctx.fillText(text, u.bbox.left + u.bbox.width + 8 * ratio, label.y);
    }
  }

  // Values under the cursor: in a box for the eye, in a live region for the ear.
  rows(index) {
    const groups = new Map();
    this.list.forEach((item) => {
      if (item.y[index] === null || item.y[index] === undefined) return;
      const key = this.name(item);
      if (!groups.has(key)) groups.set(key, { cell: item.run.cell, text: key, parts: [] });
      groups.get(key).parts.push([item.run.seed, item.y[index]]);
    });
    return [...groups.values()];
  }
  heading(index) {
    const x = this.xs[index];
    if (this.state.view === "epochs") return "epoch " + x;
    return (this.quantity.place === "block" ? "block " + x : "state h" + x) + ", epoch " + this.epochs[this.state.epoch];
  }
  hover(u) {
    const index = u.cursor.idx;
    if (index === null || index === undefined || u.cursor.left < 0) { this.hide(); return; }
    const unit = this.state.degrees ? "°" : "";
    const rows = this.rows(index).sort((a, b) => b.parts[0][1] - a.parts[0][1]).slice(0, 14);
    this.tip.replaceChildren(make("b", {}, this.heading(index)));
    for (const row of rows) {
      const values = make("span", { class: "values" });
      row.parts.forEach(([seed, value]) => values.append(make("small", {}, (shown.mean ? seed : "seed " + seed) + " "), `${format(value)}${unit} `));
      this.tip.append(make("div", {}, swatch(row.cell), make("span", { class: "label" }, row.text), values));
    }
    this.tip.hidden = !rows.length;
    paintSwatches(this.tip);
    const box = this.host.getBoundingClientRect(), over = u.over.getBoundingClientRect();
    const x = over.left - box.left + u.cursor.left, right = x > box.width / 2;
    this.tip.style.left = right ? Math.max(4, x - this.tip.offsetWidth - 14) + "px" : x + 14 + "px";
    this.tip.style.top = Math.max(4, Math.min(over.top - box.top + u.cursor.top - 20, box.height - this.tip.offsetHeight - 6)) + "px";
  }
  hide() { if (this.tip) this.tip.hidden = true; }
  key(event) {
    if (event.target !== this.host || !this.chart) return;
    const last = this.xs.length - 1;
    const moves = { ArrowLeft: (i) => Math.max(0, i - 1), ArrowRight: (i) => Math.min(last, i + 1), Home: () => 0, End: () => last };
    if (event.key === "Escape") { this.hide(); return; }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const now = this.at === undefined ? (event.key === "ArrowLeft" ? last + 1 : -1) : this.at;
    this.at = moves[event.key](Math.min(now, last + 1));
    const known = this.list.map((item) => item.y[this.at]).find((value) => value !== null && value !== undefined);
    this.chart.setCursor({ left: this.chart.valToPos(this.xs[this.at], "x"), top: known === undefined ? 10 : this.chart.valToPos(known, "y") });
    const unit = this.state.degrees ? " degrees" : "";
    this.said.textContent = this.heading(this.at) + ": " + (this.rows(this.at).map((row) => row.text + " " + row.parts.map(([seed, value]) => `${format(value)}${unit} (seed ${seed})`).join(", ")).join("; ") || "no value");
  }
}

