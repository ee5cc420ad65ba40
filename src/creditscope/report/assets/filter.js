// --- what is shown: one choice for cards, tables, plots and heatmaps -----------------------------------------
const unique = (list) => [...new Set(list)];
const VERDICTS = unique(data.cells.map((cell) => cell.verdict).filter(Boolean));
const SEEDS = unique(data.runs.map((run) => run.seed));
const shown = { group: null, cells: new Set(data.cells.keys()), seeds: new Set(SEEDS), verdicts: new Set(VERDICTS), mean: false };
const fits = (index) => {
  const cell = data.cells[index];
  return shown.cells.has(index) && (cell.verdict === null || shown.verdicts.has(cell.verdict));
};
const isShown = (index) => fits(index) && (shown.group === null || data.cells[index].group === shown.group);
// Lines of several experiments do not belong in one plot: of all, the first that has something to show is drawn.
const drawnGroup = () => {
  if (shown.group !== null) return shown.group;
  const first = data.cells.findIndex((cell, index) => cell.claim && fits(index));
  return first < 0 ? 0 : data.cells[first].group;
};
const groupText = (group) => (data.groups.length > 1 ? "Experiment " : "") + data.groups[group];

function applyFilter() {
  document.querySelectorAll("[data-cell]:not(.swatch)").forEach((node) => { node.hidden = !isShown(Number(node.dataset.cell)); });
  document.querySelectorAll("[data-group]").forEach((node) => { node.hidden = ![...node.parentNode.querySelectorAll("[data-cell]")].some((row) => !row.hidden); });
  document.querySelectorAll("[data-heads]").forEach((node) => { node.hidden = ![...node.nextElementSibling.querySelectorAll("[data-cell]")].some((card) => !card.hidden); });
  const claims = data.cells.map((cell, index) => index).filter((index) => data.cells[index].claim);
  const count = document.querySelector("#choose .count");
  count.textContent = `${claims.filter(isShown).length} of ${claims.length} claims shown`;
}
function changed() {
  applyFilter();
  drawAll(true);
  keepView();
}
function buildChooser() {
  const form = document.getElementById("choose");
  form.replaceChildren();
  form.addEventListener("submit", (event) => event.preventDefault());
  if (data.groups.length > 1) {
    const select = make("select", { "data-key": "group", "aria-label": "Experiment" });
    select.append(make("option", { value: "all", selected: shown.group === null }, "All experiments"));
    data.groups.forEach((name, index) => select.append(make("option", { value: String(index), selected: index === shown.group }, name)));
    select.addEventListener("change", () => { shown.group = select.value === "all" ? null : Number(select.value); changed(); });
    form.append(select);
  }
  const flip = (set, item) => (on) => { if (on) set.add(item); else set.delete(item); changed(); };
  const details = make("details", {}, make("summary", {}, "Choose methods, verdicts and seeds"));
  data.groups.forEach((name, group) => {
    const members = [...data.cells.entries()].filter(([, cell]) => cell.group === group);
    const methods = make("fieldset", {}, make("legend", {}, data.groups.length > 1 ? name.split(":")[0] : "Methods"));
    members.forEach(([index, cell]) => methods.append(tick(cell.label, shown.cells.has(index), flip(shown.cells, index), "cell:" + index, swatch(index))));
    details.append(make("div", { class: "row" }, methods));
  });
  const verdicts = make("fieldset", {}, make("legend", {}, "Verdicts"));
  VERDICTS.forEach((verdict) => verdicts.append(tick(verdict, shown.verdicts.has(verdict), flip(shown.verdicts, verdict), "verdict:" + verdict)));
  const seeds = make("fieldset", {}, make("legend", {}, "Seeds"));
  SEEDS.forEach((seed) => seeds.append(tick(seed, shown.seeds.has(seed), flip(shown.seeds, seed), "seed:" + seed)));
  seeds.append(tick("mean over seeds", shown.mean, (on) => { shown.mean = on; changed(); }, "mean"));
  details.append(make("div", { class: "row" }, verdicts), make("div", { class: "row" }, seeds));
  form.append(details, make("span", { class: "count", role: "status" }));
  paintSwatches();
}

// --- the view stands in the address: #place?what=is chosen ---------------------------------------------------
const listed = (set, all) => (all.every((item) => set.has(item)) ? null : all.filter((item) => set.has(item)).join("."));
function viewText() {
  const view = new URLSearchParams();
  const put = (key, value) => { if (value !== null && value !== undefined) view.set(key, value); };
  put("experiment", shown.group);
  put("methods", listed(shown.cells, [...data.cells.keys()]));
  put("verdicts", listed(shown.verdicts, VERDICTS));
  put("seeds", listed(shown.seeds, SEEDS));
  put("mean", shown.mean ? 1 : null);
  put("epoch", heat.chosen);
  plots.forEach((plot) => put(plot.spec.id, plot.stateText()));
  return view.toString();
}
const place = () => decodeURIComponent(location.hash.slice(1).split("?")[0]);
function address(anchor) {
  const view = viewText(), where = encodeURIComponent(anchor ?? place());
  return where || view ? "#" + where + (view ? "?" + view : "") : location.pathname;
}
let waitingForView = 0;
function keepView() {
  clearTimeout(waitingForView);
  waitingForView = setTimeout(() => history.replaceState(null, "", address()), 150);
}
function readView() {
  const view = new URLSearchParams(location.hash.split("?").slice(1).join("?"));
  const choose = (key, set, all) => { if (view.has(key)) { const wanted = view.get(key).split("."); set.clear(); all.filter((item) => wanted.includes(String(item))).forEach((item) => set.add(item)); } };
  const group = Number(view.get("experiment"));
  shown.group = view.has("experiment") && group in data.groups ? group : null;
  choose("methods", shown.cells, [...data.cells.keys()]);
  choose("verdicts", shown.verdicts, VERDICTS);
  choose("seeds", shown.seeds, SEEDS);
  shown.mean = view.get("mean") === "1";
  return view;
}
async function copyLink(anchor, said) {
  history.replaceState(null, "", address(anchor));
  try {
    await navigator.clipboard.writeText(location.href);
    said.textContent = "The link to this view was copied.";
  } catch {
    said.textContent = "The link to this view stands in the address bar.";
  }
}

