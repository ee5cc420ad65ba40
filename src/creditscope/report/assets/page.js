// --- tables that sort ----------------------------------------------------------------------------------------
function sortKey(cell) {
  const text = (cell?.textContent ?? "").trim();
  const number = text.replace("−", "-").match(/^[-+]?\d+(\.\d+)?(e[-+]?\d+)?/i);
  return number ? [0, Number(number[0]), ""] : [text === "" || text === "–" ? 2 : 1, 0, text.toLowerCase()];
}
function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const sort = make("button", { type: "button", class: "sort" });
    sort.append(...head.childNodes);
    head.append(sort);
    sort.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      for (const body of table.tBodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("group")).map((row) => ({ row, key: sortKey(row.cells[column]) }));
        rows.sort(({ key: a }, { key: b }) => { const by = a[0] - b[0] || a[1] - b[1] || a[2].localeCompare(b[2]); return up ? by : -by; });
        rows.forEach(({ row }) => body.append(row));
      }
    });
  });
}

// --- the evidence behind one sign ----------------------------------------------------------------------------
const dialog = document.getElementById("evidence");
function openEvidence(cell, check) {
  const reading = document.getElementById(`ev-${cell}-${check}`), section = document.getElementById("check-" + check);
  if (!reading || !section) return false;
  document.getElementById("evidence-title").textContent = `${reading.querySelector("b").textContent}: ${section.querySelector("h3").firstChild.textContent.trim()}`;
  const body = document.getElementById("evidence-body");
  body.replaceChildren();
  const question = section.querySelector(".question");
  if (question) body.append(make("p", { class: "small" }, question.textContent));
  const said = make("p", {});
  said.append(...[...reading.cloneNode(true).childNodes].slice(1));
  body.append(said);
  const table = section.querySelector("table"), row = table?.querySelector(`tr[data-cell="${cell}"]`);
  if (row) {
    const facts = make("dl", {});
    [...table.tHead.rows[0].cells].forEach((head, column) => { const text = row.cells[column].textContent.trim(); if (column && text) facts.append(make("dt", {}, head.textContent), make("dd", {}, text)); });
    body.append(facts);
  }
  const advice = section.querySelector(".advice");
  if (advice && reading.querySelector(".bad")) body.append(make("p", { class: "small" }, advice.textContent));
  document.getElementById("evidence-plot").onclick = () => { dialog.close(); goTo("check-" + check); };
  if (!dialog.open) dialog.showModal();
  return true;
}
document.getElementById("evidence-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
document.addEventListener("click", (event) => {
  const sign = event.target.closest("[data-evidence]");
  if (!sign) return;
  event.preventDefault();
  const [cell, check] = sign.dataset.evidence.split(" ");
  openEvidence(cell, check);
});
function goTo(id) {
  const node = document.getElementById(id);
  if (!node) return;
  for (let box = node.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  node.scrollIntoView();
  history.replaceState(null, "", address(id));
}
function goToPlace() {
  const id = place(), evidence = id.match(/^ev-(\d+)-(.+)$/);
  if (!id || (evidence && openEvidence(evidence[1], evidence[2]))) return;
  goTo(id);
}

// --- begin ---------------------------------------------------------------------------------------------------
const plots = [];
const later = window.requestIdleCallback || ((work) => setTimeout(work, 1));
let queued = [];
function drawAll(refilter) {
  heat.draw();
  plots.forEach((plot) => (refilter ? plot.refresh() : plot.draw()));
}
const view = readView();
root.dataset.theme = theme();
themeButton.textContent = "Theme: " + wish;
buildChooser();
applyFilter();
// A few at a time, so that the verdict can be read at once.
queued = data.plots.filter((spec) => document.getElementById(spec.id));
function drawNext() {
  const spec = queued.shift();
  if (!spec) { if (view.has("epoch")) heat.chosen = Number(view.get("epoch")); heat.draw(); root.dataset.drawn = "all"; goToPlace(); return; }
  const plot = new Plot(spec);
  plots.push(plot);
  if (view.has(spec.id)) plot.readState(view.get(spec.id));
  later(drawNext);
}
later(drawNext);
paintSwatches();
document.querySelectorAll("table.sortable").forEach(makeSortable);
themeButton.addEventListener("click", () => { wish = { auto: "light", light: "dark", dark: "auto" }[wish]; applyTheme(); });
dark.addEventListener("change", applyTheme);
addEventListener("hashchange", () => { goToPlace(); keepView(); });
// What was changed in a plot's bar stands in the address too.
document.addEventListener("change", (event) => { if (event.target.closest(".bar")) keepView(); });
let waiting = 0, width = innerWidth;
addEventListener("resize", () => { if (innerWidth === width) return; width = innerWidth; clearTimeout(waiting); waiting = setTimeout(() => drawAll(), 120); });

// --- on paper: everything open, and every experiment, each under its name -------------------------------------
let closed = [];
// uPlot paints in a microtask, and paper waits for all of them: each plot is copied after it was painted.
async function copies() {
  const now = drawnGroup(), others = [...data.groups.keys()].filter((group) => shown.group === null && group !== now);
  const after = new Map();
  const add = (node, copy) => { (after.get(node) ?? node).after(copy); after.set(node, copy); };
  for (const plot of plots.filter((one) => one.spec.quantities.length)) {
    const kept = plot.word();
    for (const group of others) {
      plot.reset(group);
      if (!plot.chart) continue;
      await null;
      const canvas = plot.chart.ctx.canvas, copy = make("canvas", { width: canvas.width, height: canvas.height });
      copy.getContext("2d").drawImage(canvas, 0, 0);
      const legend = plot.legend.cloneNode(true);
      legend.removeAttribute("id");
      add(plot.host.closest("figure"), make("figure", { class: "print-copy" }, make("figcaption", { class: "which small" }, plot.caption()), copy, legend));
    }
    plot.reset(now);
    plot.readState(kept);
  }
  const parts = heat.parts;
  for (const group of others) {
    const host = make("div", { class: "heat" });
    heat.draw(host, group);
    add(heat.host, make("div", { class: "print-copy" }, make("p", { class: "which small" }, groupText(group)), host));
  }
  heat.parts = parts;
}
addEventListener("beforeprint", () => {
  printing = true;
  closed = [...document.querySelectorAll("main details:not([open])")];
  closed.forEach((node) => { node.open = true; });
  applyTheme();
  copies();
});
addEventListener("afterprint", () => {
  printing = false;
  closed.forEach((node) => { node.open = false; });
  document.querySelectorAll(".print-copy").forEach((node) => node.remove());
  applyTheme();
});
