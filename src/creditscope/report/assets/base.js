const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const PALETTE = {
  light: ["#1f5fbf", "#d9730d", "#9b1c1c", "#1a7f5a", "#7b3fa0", "#0f7f93", "#b0378c", "#6b6b1f"],
  dark: ["#7fb0ff", "#ffab5e", "#ff8a80", "#6fd6a8", "#cf9cf2", "#6fd3e6", "#ff93d2", "#d3d36b"],
};
const DASHES = [[], [9, 4], [2, 4]];
const CSS_DASHES = ["solid", "dashed", "dotted"];
let printing = false;

// --- theme -------------------------------------------------------------------------------------------------
const dark = matchMedia("(prefers-color-scheme: dark)");
let wish = "auto";
const theme = () => (printing ? "light" : wish === "auto" ? (dark.matches ? "dark" : "light") : wish);
const themeButton = document.getElementById("theme");
function applyTheme() {
  root.dataset.theme = theme();
  themeButton.textContent = "Theme: " + wish;
  paintSwatches();
  drawAll();
}
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const colour = (cell) => { const list = PALETTE[theme()]; return list[cell.colour % list.length]; };

// --- small helpers -----------------------------------------------------------------------------------------
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key in node && typeof value !== "string") node[key] = value; else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
function format(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e5)) return String(Number(value.toPrecision(4))).replace("-", "−");
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return Number(mantissa).toString().replace("-", "−") + "e" + Number(exponent);
}
function power(value) {
  const exponent = Math.log10(value), whole = Math.round(exponent);
  if (Math.abs(exponent - whole) > 1e-6) return "";
  if (Math.abs(whole) < 4) return format(value);
  return "10" + String(whole).replace(/./g, (digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]));
}
const degrees = (cosine) => (Math.acos(Math.max(-1, Math.min(1, cosine))) * 180) / Math.PI;
function swatch(index) {
  return make("span", { class: "swatch", "data-cell": String(index), "aria-hidden": "true" });
}
function paintSwatches(within) {
  (within || document).querySelectorAll(".swatch").forEach((node) => {
    const cell = data.cells[Number(node.dataset.cell)];
    node.style.borderTopColor = colour(cell);
    node.style.borderTopStyle = CSS_DASHES[cell.dash];
  });
}
function tick(label, checked, onChange, key, ...before) {
  const input = make("input", { type: "checkbox", checked: Boolean(checked), "data-key": key });
  input.addEventListener("change", () => onChange(input.checked));
  return make("label", {}, input, ...before, document.createTextNode(label));
}


// A file made here, for whoever clicked: nothing is asked of any server.
function save(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const csvCell = (value) => (value === null || value === undefined ? "" : /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
const saveCsv = (name, rows) => save(name, new Blob([rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n"], { type: "text/csv" }));
// Canvases under each other with a line of text above each, on the colour of the paper.
function savePng(name, parts) {
  const ratio = devicePixelRatio || 1, head = 26 * ratio;
  const canvas = make("canvas", { width: Math.max(...parts.map((part) => part.canvas.width)), height: parts.reduce((sum, part) => sum + part.canvas.height + head, 0) });
  const ctx = canvas.getContext("2d");
  ctx.fillStyle = css("--card"); ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.font = `${13 * ratio}px system-ui, sans-serif`; ctx.textBaseline = "middle";
  let top = 0;
  for (const { text, canvas: part } of parts) {
    ctx.fillStyle = css("--ink"); ctx.fillText(text, 10 * ratio, top + head / 2);
    ctx.drawImage(part, 0, top + head);
    top += part.height + head;
  }
  canvas.toBlob((blob) => save(name, blob), "image/png");
}
function button(text, key, onClick) {
  const node = make("button", { type: "button", "data-key": key }, text);
  node.addEventListener("click", onClick);
  return node;
}
