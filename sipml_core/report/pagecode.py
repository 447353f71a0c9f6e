"""Style and script of the page: light and dark, from 360 px up, sortable tables, hints."""

STYLE = """
:root { color-scheme: light dark;
  --back: #ffffff; --text: #1a1a1a; --soft: #5c5c5c; --line: #d5d5d5; --panel: #f6f6f6; --mark: #0057a3;
  --c0: #0072b2; --c1: #e69f00; --c2: #1a1a1a; --c3: #d3d3d3; --k0: #56b4e9; --k1: #009e73; --k2: #cc79a7;
  --k3: #d55e00; --k4: #e69f00; --p0: #0072b2; --p1: #d55e00; --p2: #cc79a7; --p3: #8a8a8a; }
@media (prefers-color-scheme: dark) { :root {
  --back: #16181b; --text: #ececec; --soft: #a9adb2; --line: #3a3f45; --panel: #202328; --mark: #7cc0ff;
  --c0: #4aa8e0; --c2: #f5f5f5; --c3: #555b62; --p0: #7b8cff; --p3: #9a9a9a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0.5rem 0; } h2 { font-size: 1.25rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1.05rem; margin: 1.25rem 0 0.25rem; }
.answer { font-size: 1.15rem; border-left: 4px solid var(--mark); padding: 0.25rem 0.75rem;
  margin: 0.75rem 0; }
.soft, figcaption { color: var(--soft); font-size: 0.9rem; }
.wide { overflow-x: auto; } .wide:focus-visible { outline: 2px solid var(--mark); }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th.text, td.text { text-align: left; }
th button { all: unset; cursor: pointer; font-weight: 600; padding: 0.1rem; }
th button:focus-visible, [tabindex]:focus-visible, summary:focus-visible, a:focus-visible {
  outline: 2px solid var(--mark); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tr.best td { font-weight: 600; }
figure { margin: 0.5rem 0 1rem; } svg { max-width: 100%; height: auto; display: block; }
svg text { fill: var(--text); font: 11px system-ui, sans-serif; }
svg .soft { fill: var(--soft); font-size: 11px; }
svg .axis { stroke: var(--line); fill: none; } svg [data-hint]:hover, svg [data-hint]:focus { opacity: 0.7; }
details { margin: 0.5rem 0; } summary { cursor: pointer; }
pre { background: var(--panel); padding: 0.75rem; overflow-x: auto; font-size: 0.85rem; }
.key { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; padding: 0; margin: 0.25rem 0; list-style: none;
  font-size: 0.9rem; }
.key span { display: inline-block; width: 0.9rem; height: 0.9rem; margin-right: 0.35rem; }
#hint { position: fixed; pointer-events: none; background: var(--text); color: var(--back);
  padding: 0.2rem 0.5rem; border-radius: 4px; font-size: 0.85rem; max-width: 18rem; z-index: 9; }
@media (max-width: 30rem) { body { padding: 0.6rem; } th, td { padding: 0.2rem 0.4rem; } }
@media print { body { max-width: none; } }
"""

SCRIPT = """
"use strict";
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const place = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => {
      const text = row.cells[place].dataset.value;
      return text === "" ? null : isNaN(text) ? text : Number(text);
    };
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === null || y === null) return (x === null) - (y === null);
      return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
    });
    body.append(...rows);
  });
}
const hint = document.createElement("div");
hint.id = "hint"; hint.hidden = true; hint.setAttribute("role", "status");
document.body.append(hint);
function show(target, x, y) {
  hint.textContent = target.dataset.hint;
  hint.hidden = false;
  hint.style.left = Math.max(0, Math.min(x + 12, innerWidth - hint.offsetWidth - 8)) + "px";
  hint.style.top = Math.max(0, Math.min(y + 12, innerHeight - hint.offsetHeight - 8)) + "px";
}
for (const target of document.querySelectorAll("[data-hint]")) {
  target.addEventListener("pointermove", event => show(target, event.clientX, event.clientY));
  target.addEventListener("pointerleave", () => { hint.hidden = true; });
  target.addEventListener("focus", () => {
    const box = target.getBoundingClientRect();
    show(target, box.left, box.bottom);
  });
  target.addEventListener("blur", () => { hint.hidden = true; });
}
document.addEventListener("keydown", event => { if (event.key === "Escape") hint.hidden = true; });
"""
