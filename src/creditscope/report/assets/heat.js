// --- layer by epoch ------------------------------------------------------------------------------------------
const STOPS = {
  signed: [[-1, [33, 102, 172]], [-0.5, [146, 197, 222]], [0, [247, 247, 247]], [0.5, [244, 165, 130]], [1, [178, 24, 43]]],
  rising: [[0, [68, 1, 84]], [0.25, [59, 82, 139]], [0.5, [33, 145, 140]], [0.75, [94, 201, 98]], [1, [253, 231, 37]]],
};
function mix(stops, t) {
  const at = Math.max(stops[0][0], Math.min(stops.at(-1)[0], t));
  const next = Math.max(1, stops.findIndex(([place]) => place >= at));
  const [from, a] = stops[next - 1], [to, b] = stops[next], share = (at - from) / (to - from);
  return `rgb(${a.map((value, index) => Math.round(value + (b[index] - value) * share)).join(",")})`;
}
const heat = {
  chosen: null,
  host: document.getElementById("heat"),
  kinds: data.heatmaps,

  // The mean over the chosen seeds at each layer and epoch: of logarithms, where the axis is logarithmic.
  grid(index, name) {
    const log = data.quantities[name].log === true;
    const runs = data.runs.filter((run) => run.cell === index && shown.seeds.has(run.seed) && name in run.values);
    const depth = Math.max(0, ...runs.map((run) => run.values[name].length));
    const epochs = unique(runs.flatMap((run) => run.epochs)).sort((a, b) => a - b);
    const rows = [...Array(depth).keys()].map((layer) => epochs.map((epoch) => {
      const known = runs.map((run) => run.values[name][layer]?.[position(run.epochs, epoch)]).filter((value) => value !== null && value !== undefined && (!log || value > 0)).map((value) => (log ? Math.log10(value) : value));
      return known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    }));
    return { index, name, log, epochs, rows };
  },
  // Cosines run from -1 to 1, growth is measured from 1 (its logarithm from 0), gain from its least to its largest.
  scale(name, grids) {
    const known = grids.flatMap((grid) => grid.rows.flat()).filter((value) => value !== null);
    if (data.quantities[name].angle) return { low: -1, high: 1, stops: STOPS.signed, turn: (value) => value };
    if (name === "growth") { const most = Math.max(0.1, ...known.map(Math.abs)); return { low: -most, high: most, stops: STOPS.signed, turn: (value) => value / most }; }
    const low = Math.min(...known), high = Math.max(...known);
    return { low, high, stops: STOPS.rising, turn: (value) => (value - low) / (high - low || 1) };
  },
  text(grid, value) { return value === null ? "–" : format(grid.log ? 10 ** value : value); },

  draw(host = this.host, group = drawnGroup()) {
    if (!this.kinds.length) { host.replaceChildren(make("p", { class: "empty" }, "No log holds these quantities.")); return; }
    const cells = [...data.cells.keys()].filter((index) => data.cells[index].group === group && data.cells[index].claim && fits(index));
    host.replaceChildren();
    host.style.setProperty("--kinds", String(this.kinds.length));
    const all = this.kinds.map((name) => cells.map((index) => this.grid(index, name)));
    const epochs = unique(all.flat(2).flatMap((grid) => grid.epochs)).sort((a, b) => a - b);
    if (!epochs.length) { host.append(make("p", { class: "empty" }, "Nothing chosen: choose a method and a seed above.")); return; }
    const at = epochs.includes(this.chosen) ? this.chosen : epochs.at(-1);
    const scales = this.kinds.map((name, kind) => this.scale(name, all[kind]));
    host.append(make("span", { class: "corner" }));
    this.kinds.forEach((name, kind) => host.append(this.legend(name, scales[kind])));
    this.parts = [];
    cells.forEach((index, row) => {
      host.append(make("b", {}, data.cells[index].label));
      this.kinds.forEach((name, kind) => host.append(this.picture(all[kind][row], scales[kind], at)));
    });
    if (host === this.host) { this.epochs = epochs; this.at = at; this.grids = all.flat(); this.buildBar(); this.label(group); }
  },
  label(group) { document.getElementById("heat-which").textContent = groupText(group); },
  legend(name, scale) {
    const canvas = make("canvas", { class: "scale", width: 256, height: 10, "aria-hidden": "true" }), ctx = canvas.getContext("2d");
    for (let x = 0; x < 256; x++) { const value = scale.low + ((scale.high - scale.low) * x) / 255; ctx.fillStyle = mix(scale.stops, scale.turn(value)); ctx.fillRect(x, 0, 1, 10); }
    const log = data.quantities[name].log === true, end = (value) => format(log ? 10 ** value : value);
    return make("div", { class: "kind" }, make("b", {}, data.quantities[name].label + (log ? ", logarithmic" : "")), canvas, make("div", { class: "ends" }, make("span", {}, end(scale.low)), make("span", {}, end(scale.high))));
  },
  picture(grid, scale, at) {
    const cell = make("div", {}), ratio = devicePixelRatio || 1, tall = 13, wide = 300;
    if (!grid.rows.length) { cell.append(make("p", { class: "values" }, "not measured")); return cell; }
    const canvas = make("canvas", { width: wide * ratio, height: grid.rows.length * tall * ratio, "aria-hidden": "true" }), ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const step = wide / grid.epochs.length, top = (layer) => (grid.rows.length - 1 - layer) * tall;
    grid.rows.forEach((row, layer) => row.forEach((value, index) => {
      if (value === null) return;
      ctx.fillStyle = mix(scale.stops, scale.turn(value));
      ctx.fillRect(index * step, top(layer), step + 0.5, tall - 1);
    }));
    const index = position(grid.epochs, at);
    if (index !== undefined) { ctx.strokeStyle = css("--ink"); ctx.lineWidth = 1.5; ctx.strokeRect(index * step, 0.75, Math.max(step, 2), grid.rows.length * tall - 1.5); }
    const mark = data.quantities[grid.name].place === "block" ? "block " : "h";
    const values = grid.rows.map((row, layer) => `${mark}${layer} ${this.text(grid, index === undefined ? null : row[index])}`);
    cell.append(canvas, make("p", { class: "values" }, `epoch ${at}: ${values.join(" · ")}`));
    this.parts.push({ text: `${data.cells[grid.index].label}: ${data.quantities[grid.name].label}`, canvas });
    return cell;
  },
  buildBar() {
    const bar = document.getElementById("heat-bar"), said = document.getElementById("heat-said");
    if (!this.range) {
      this.range = make("input", { type: "range", min: "0", "data-key": "heat-epoch", "aria-label": "Epoch" });
      this.range.addEventListener("input", () => this.choose(Number(this.range.value)));
      this.out = make("span", {});
      bar.append(make("label", {}, this.range, this.out));
      bar.append(button("CSV", "csv", () => saveCsv("layer-by-epoch.csv", this.csv())), button("PNG", "png", () => savePng("layer-by-epoch.png", this.parts)), button("Link", "link", () => copyLink("layers", said)));
      this.host.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        event.preventDefault();
        this.choose(Math.max(0, Math.min(this.epochs.length - 1, Number(this.range.value) + step)));
        said.textContent = "epoch " + this.at;
      });
    }
    this.range.max = String(this.epochs.length - 1);
    this.range.value = String(this.epochs.indexOf(this.at));
    this.out.textContent = "epoch " + this.at;
    this.range.setAttribute("aria-valuetext", this.out.textContent);
  },
  choose(index) { this.chosen = this.epochs[index]; this.draw(); keepView(); },
  csv() {
    const rows = [["experiment", "method", "quantity", "layer", "epoch", "mean over seeds"]];
    this.grids.forEach((grid) => grid.rows.forEach((row, layer) => row.forEach((value, index) => {
      const cell = data.cells[grid.index];
      if (value !== null) rows.push([data.groups[cell.group], cell.label, grid.name, layer, grid.epochs[index], grid.log ? 10 ** value : value]);
    })));
    return rows;
  },
};

