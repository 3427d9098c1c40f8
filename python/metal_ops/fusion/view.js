// The fusion view: two layered graphs, before and after, linked by the fusions. No library, no network.
"use strict";

const WIDTH = 156, HEIGHT = 54, GAP_X = 22, GAP_Y = 22, SWEEPS = 12, LONGEST_ROUTED = 14, COLOURS = 8;
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = tag.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// ---- layout: rank by longest path, order by barycentre, place as near to the neighbours as the order allows ---------

// Edges that close a cycle (old-style loops) would have no rank: a depth-first search finds them.
function withoutCycles(nodes, outgoing) {
  const state = new Map(), back = new Set();
  for (const root of nodes) {
    if (state.has(root)) continue;
    const stack = [[root, 0]];
    state.set(root, 1);
    while (stack.length) {
      const top = stack[stack.length - 1], targets = outgoing.get(top[0]);
      if (top[1] === targets.length) { state.set(top[0], 2); stack.pop(); continue; }
      const edge = targets[top[1]++];
      if (!state.has(edge.to)) { state.set(edge.to, 1); stack.push([edge.to, 0]); } else if (state.get(edge.to) === 1) back.add(edge);
    }
  }
  return back;
}

// Weighted least squares: positions as near as possible to each item's wish, in order and `room` apart. Routed
// edges and weights give way to nodes.
function placeInOrder(items, wanted, room) {
  const blocks = [], at = [0];
  items.forEach((item, i) => {
    if (i) at.push(at[i - 1] + room(items[i - 1], item));
    const weight = item.dummy || item.weight ? 0.02 : 1;
    let block = { sum: weight * (wanted[i] - at[i]), weight, first: i };
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].weight > block.sum / block.weight) {
      const previous = blocks.pop();
      block = { sum: previous.sum + block.sum, weight: previous.weight + block.weight, first: previous.first };
    }
    blocks.push(block);
  });
  blocks.forEach((block, b) => {
    const end = b + 1 < blocks.length ? blocks[b + 1].first : items.length;
    for (let i = block.first; i < end; i++) items[i].x = block.sum / block.weight + at[i];
  });
}

function layOut(graph, showWeights) {
  const shown = graph.nodes.filter((node) => showWeights || !node.weight);
  const isShown = new Set(shown), outgoing = new Map(shown.map((node) => [node, []])), edges = [];
  for (const node of shown) {
    node.dummy = false;
    for (const input of node.from) {
      if (!isShown.has(input.node)) continue;
      const edge = { from: input.node, to: node, control: input.control, via: [] };
      edges.push(edge);
      outgoing.get(input.node).push(edge);
    }
  }
  const back = withoutCycles(shown, outgoing);
  const forward = edges.filter((edge) => !back.has(edge));
  const waiting = new Map(shown.map((node) => [node, 0]));
  for (const edge of forward) waiting.set(edge.to, waiting.get(edge.to) + 1);
  const order = shown.filter((node) => !waiting.get(node));
  for (const node of order) node.rank = 0;
  for (let i = 0; i < order.length; i++) for (const edge of outgoing.get(order[i])) {
    if (back.has(edge)) continue;
    edge.to.rank = Math.max(edge.to.rank ?? 0, order[i].rank + 1);
    const left = waiting.get(edge.to) - 1;
    waiting.set(edge.to, left);
    if (!left) order.push(edge.to);
  }
  // Weights stand just above their first reader, not all in the first row.
  const free = new Set();
  for (const node of order) if (node.weight || !node.from.some((input) => isShown.has(input.node))) free.add(node);
  for (const node of [...order].reverse()) {
    const readers = outgoing.get(node).filter((edge) => !back.has(edge));
    if (free.has(node) && readers.length) node.rank = Math.max(node.rank, Math.min(...readers.map((edge) => edge.to.rank)) - 1);
  }
  const ranks = [];
  for (const node of shown) { node.up = []; node.down = []; (ranks[node.rank] ??= []).push(node); }
  for (let r = 0; r < ranks.length; r++) ranks[r] ??= [];
  for (const edge of forward) {
    let last = edge.from;
    const span = edge.to.rank - edge.from.rank;
    if (span > 1 && span <= LONGEST_ROUTED) for (let r = edge.from.rank + 1; r < edge.to.rank; r++) {
      const dummy = { dummy: true, rank: r, up: [last], down: [] };
      last.down.push(dummy);
      ranks[r].push(dummy);
      edge.via.push(dummy);
      last = dummy;
    }
    if (span <= LONGEST_ROUTED) { last.down.push(edge.to); edge.to.up.push(last); }
  }
  // Fused chains are kept straight; weights and routed edges give way.
  const pull = (a, b) => a.f !== undefined && a.f === b.f ? 60 : a.weight || b.weight || a.dummy || b.dummy ? 0.02 : 1;
  const middle = (node, side) => {
    let sum = 0, weight = 0;
    for (const other of node[side]) { const w = pull(node, other); sum += w * other.x; weight += w; }
    return weight ? sum / weight : node.x;
  };
  const room = (a, b) => a.dummy && b.dummy ? 26 : a.dummy || b.dummy ? WIDTH / 2 + 26 : WIDTH + GAP_X;
  for (const rank of ranks) rank.forEach((node, i) => { node.x = i; });
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const rank of down ? ranks : [...ranks].reverse()) {
      const key = new Map(rank.map((node) => [node, middle(node, down ? "up" : "down")]));
      rank.sort((a, b) => key.get(a) - key.get(b));
      rank.forEach((node, i) => { node.x = i - rank.length / 2; });
    }
  }
  for (const rank of ranks) { let x = 0; rank.forEach((node, i) => { if (i) x += room(rank[i - 1], node); node.x = x; }); const centre = x / 2; for (const node of rank) node.x -= centre; }
  for (let sweep = 0; sweep < 2 * SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const rank of down ? ranks : [...ranks].reverse())
      placeInOrder(rank, rank.map((node) => middle(node, node.up.length && (down || !node.down.length) ? "up" : "down")), room);
  }
  for (const rank of ranks) for (const node of rank) node.y = node.rank * (HEIGHT + GAP_Y);
  const xs = shown.map((node) => node.x), ys = shown.map((node) => node.y);
  const box = shown.length ? { left: Math.min(...xs) - WIDTH / 2, right: Math.max(...xs) + WIDTH / 2, top: -HEIGHT / 2, bottom: Math.max(...ys) + HEIGHT / 2 } : { left: 0, right: 1, top: 0, bottom: 1 };
  return { nodes: shown, edges, back, box };
}

function path(edge) {
  const points = [[edge.from.x, edge.from.y + HEIGHT / 2], ...edge.via.map((dummy) => [dummy.x, dummy.y]), [edge.to.x, edge.to.y - HEIGHT / 2]];
  let text = `M${points[0][0].toFixed(1)},${points[0][1].toFixed(1)}`;
  for (let i = 1; i < points.length; i++) {
    const [x0, y0] = points[i - 1], [x1, y1] = points[i], bend = Math.min(Math.abs(y1 - y0) / 2, 60);
    text += `C${x0.toFixed(1)},${(y0 + bend).toFixed(1)} ${x1.toFixed(1)},${(y1 - bend).toFixed(1)} ${x1.toFixed(1)},${y1.toFixed(1)}`;
  }
  return text;
}

// ---- the graphs -----------------------------------------------------------------------------------------------------

function readGraph(side) {
  const nodes = data[side].map((node) => ({ ...node, side, from: [], to: [] }));
  const byName = new Map(nodes.map((node) => [node.name, node]));
  for (const node of nodes) for (const input of node.inputs) {
    const control = input.startsWith("^"), source = byName.get(input.replace(/^\^/, "").replace(/:\d+$/, ""));
    if (!source) continue;
    if (!node.from.some((other) => other.node === source && other.control === control)) { node.from.push({ node: source, control }); source.to.push(node); }
  }
  return { nodes, byName };
}

const graphs = { before: readGraph("before"), after: readGraph("after") };
data.fused.forEach((fusion, f) => {
  for (const name of fusion.removed) { const node = graphs.before.byName.get(name); if (node) node.f = f; }
  const node = graphs.after.byName.get(fusion.node);
  if (node) { node.f = f; node.fusedOps = fusion.fused_ops; }
});
data.missed.forEach((miss, m) => { const node = graphs.before.byName.get(miss.root); if (node) (node.missed ??= []).push(m); });
// The node that stands for a node on the other side.
function partner(node) {
  const other = node.side === "before" ? "after" : "before";
  if (node.f !== undefined) { const fusion = data.fused[node.f]; return graphs[other].byName.get(other === "after" ? fusion.node : fusion.removed[fusion.removed.length - 1]); }
  return graphs[other].byName.get(node.name);
}
const colour = (f) => `--f: var(--f${f % COLOURS})`;
// A name in lines of a box, broken behind a slash or a space where there is one; only one of more than three keeps its end alone.
function lines3(text) {
  const most = 28, lines = [];
  for (const part of text.split(/(?<=[/ ])/)) {
    if (lines.length && lines[lines.length - 1].length + part.length <= most) { lines[lines.length - 1] += part; continue; }
    for (let at = 0; at < part.length; at += most) lines.push(part.slice(at, at + most));
  }
  return lines.length > 3 ? [`…${lines[lines.length - 3].slice(1)}`, ...lines.slice(-2)] : lines;
}

// ---- a pane: one graph that can be moved and zoomed -----------------------------------------------------------------

class Pane {
  constructor(side, title) {
    this.side = side;
    this.root = $(side);
    this.svg = element("svg:svg", { class: side, role: "img", "aria-label": title });
    this.scene = element("svg:g");
    this.svg.append(this.scene);
    this.heading = element("h2");
    this.overview = element("canvas", { class: "overview", title: "The whole graph: click or drag to go there" });
    const button = (text, title, action) => { const made = element("button", { title }, text); made.onclick = action; return made; };
    this.root.append(this.svg, this.heading, this.overview, element("div", { class: "tools" },
      button("+", "Zoom in", () => this.zoom(1.4)), button("−", "Zoom out", () => this.zoom(1 / 1.4)), button("fit", "Show the whole graph (f)", () => this.fit())));
    this.count = element("span");
    this.heading.append(`${title} `, this.count);
    this.view = { x: 0, y: 0, k: 1 };
    this.listen();
  }

  draw(showWeights) {
    this.layout = layOut(graphs[this.side], showWeights);
    const bands = element("svg:g"), lines = element("svg:g"), boxes = element("svg:g");
    for (const edge of this.layout.edges) {
      if (edge.from.f !== undefined && edge.from.f === edge.to.f && !edge.control)
        bands.append(element("svg:path", { class: edge.via.length ? "band thin" : "band", d: path(edge), style: colour(edge.from.f), "data-f": edge.from.f }));
      edge.line = element("svg:path", { class: `edge${edge.control ? " control" : ""}${Math.abs(edge.to.rank - edge.from.rank) > LONGEST_ROUTED ? " long" : ""}`, d: path(edge) });
      lines.append(edge.line);
    }
    for (const node of this.layout.nodes) {
      const sub = node.fusedOps ? node.fusedOps.join(" · ") : node.name;
      const inRegion = node.f !== undefined;
      node.box = element("svg:g", { class: `node${node.missed ? " miss" : ""}${node.weight ? " weight" : ""}`, transform: `translate(${node.x.toFixed(1)},${node.y.toFixed(1)})`, "data-name": node.name, "data-f": inRegion ? node.f : undefined, style: inRegion ? colour(node.f) : undefined },
        element("svg:title", {}, `${node.op}\n${node.name}`),
        element("svg:rect", { x: -WIDTH / 2, y: -HEIGHT / 2, width: WIDTH, height: HEIGHT }),
        element("svg:text", { y: -12, style: node.op.length > 20 ? `font-size: ${(12.5 * 20 / node.op.length).toFixed(1)}px` : undefined }, node.op),
        ...lines3(sub).map((line, i) => element("svg:text", { class: "sub", y: 1 + 11 * i }, line)));
      node.box.__node = node;
      boxes.append(node.box);
      if (inRegion) bands.append(element("svg:rect", { class: "band node-band", x: node.x - WIDTH / 2 - 8, y: node.y - HEIGHT / 2 - 7, width: WIDTH + 16, height: HEIGHT + 14, rx: 10, style: colour(node.f), "data-f": node.f }));
    }
    const [shown, every] = [this.layout.nodes.length, data[this.side].length];
    this.count.textContent = shown === every ? `${every} nodes` : `${shown} nodes, ${every - shown} of weights not shown`;
    this.scene.replaceChildren(bands, lines, boxes);
  }

  // Screen = k * graph + (x, y).
  apply(own = true) {
    const { x, y, k } = this.view;
    this.scene.setAttribute("transform", `translate(${x},${y}) scale(${k})`);
    this.svg.classList.toggle("far", k < 0.55);
    this.svg.classList.toggle("farther", k < 0.2);
    this.drawOverview();
    if (own && $("together").checked) follow(this);
  }

  get size() { return { width: this.root.clientWidth, height: this.root.clientHeight }; }

  fit() {
    const { width, height } = this.size, { left, right, top, bottom } = this.layout.box;
    const k = Math.min((width - 110) / (right - left), (height - 80) / (bottom - top), 1.2);
    this.view = { k, x: (width - 70) / 2 - k * (left + right) / 2, y: height / 2 - k * (top + bottom) / 2 };
    this.apply(false);
  }

  // The first sight: from the top, readable.
  home() {
    const { width } = this.size, { left, right } = this.layout.box;
    const k = Math.max(0.6, Math.min(1, (width - 130) / (right - left))), first = this.layout.nodes.find((node) => node.rank === 0);
    const middle = (width - 70) / 2, fits = k * (right - left) <= width - 130;
    // Wider than the pane: around the first node, but no empty space beside the graph.
    const x = fits ? middle - k * (left + right) / 2 : Math.max(width - 100 - k * right, Math.min(30 - k * left, middle - k * (first ? first.x : 0)));
    this.view = { k, x, y: 62 + k * HEIGHT / 2 };
    this.apply(false);
  }

  zoom(factor, at) {
    const { width, height } = this.size, [px, py] = at ?? [width / 2, height / 2], { x, y, k } = this.view;
    const next = Math.min(4, Math.max(0.02, k * factor));
    this.view = { k: next, x: px - (px - x) * next / k, y: py - (py - y) * next / k };
    this.apply();
  }

  moveBy(dx, dy) { this.view.x += dx; this.view.y += dy; this.apply(); }

  // Brings a node to the middle, unless it is well in sight already.
  show(node, always = false) {
    if (!node || !node.box) return;
    const { width, height } = this.size, k = Math.max(this.view.k, 0.6);
    const px = this.view.x + this.view.k * node.x, py = this.view.y + this.view.k * node.y;
    if (!always && this.view.k >= 0.5 && px > 110 && px < width - 170 && py > 90 && py < height - 90) return;
    this.view = { k, x: (width - 70) / 2 - k * node.x, y: height / 2 - k * node.y };
    this.apply(false);
  }

  drawOverview() {
    const canvas = this.overview, ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const context = canvas.getContext("2d"), { left, right, top, bottom } = this.layout.box, style = getComputedStyle(document.documentElement);
    const sx = (width - 10) / (right - left), sy = Math.min((height - 10) / (bottom - top), sx * 4);
    this.scale = { sx, sy, ox: 5 - sx * left, oy: 5 - sy * top };
    context.scale(ratio, ratio);
    for (const node of this.layout.nodes) {
      const fused = node.f !== undefined;
      context.fillStyle = style.getPropertyValue(node.missed ? "--warn" : fused ? `--f${node.f % COLOURS}` : "--edge");
      context.fillRect(this.scale.ox + sx * (node.x - WIDTH / 2), this.scale.oy + sy * (node.y - HEIGHT / 2), Math.max(2, sx * WIDTH), Math.max(1, sy * HEIGHT));
    }
    const { x, y, k } = this.view, size = this.size;
    context.strokeStyle = style.getPropertyValue("--accent"); context.lineWidth = 1.5;
    const l = Math.max(1, this.scale.ox + sx * (-x / k)), t = Math.max(1, this.scale.oy + sy * (-y / k));
    const r = Math.min(width - 1, this.scale.ox + sx * ((size.width - x) / k)), b = Math.min(height - 1, this.scale.oy + sy * ((size.height - y) / k));
    if (r > l && b > t) context.strokeRect(l, t, r - l, b - t);
  }

  listen() {
    const svg = this.svg, pointers = new Map();
    let travelled = 0;
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 18 : 1, box = svg.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY * unit * 0.0022), [event.clientX - box.left, event.clientY - box.top]);
      else if (event.shiftKey && !event.deltaX) this.moveBy(-event.deltaY * unit, 0);
      else this.moveBy(-event.deltaX * unit, -event.deltaY * unit);
    }, { passive: false });
    svg.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event); travelled = 0; });
    svg.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
      travelled += Math.abs(dx) + Math.abs(dy);
      if (travelled > 4 && !svg.classList.contains("moving")) { svg.setPointerCapture(event.pointerId); svg.classList.add("moving"); }
      if (pointers.size === 1) { if (travelled > 4) this.moveBy(dx, dy); } else {
        const [a, b] = [...pointers.values()], box = svg.getBoundingClientRect(), other = a.pointerId === event.pointerId ? b : a;
        const far = Math.hypot(event.clientX - other.clientX, event.clientY - other.clientY), near = Math.hypot(before.clientX - other.clientX, before.clientY - other.clientY);
        if (near > 0) this.zoom(far / near, [(event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top]);
      }
      pointers.set(event.pointerId, event);
    });
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, (event) => { pointers.delete(event.pointerId); svg.classList.remove("moving"); });
    svg.addEventListener("click", (event) => {
      if (travelled > 4) return;
      const box = event.target.closest(".node");
      if (box) select(box.__node); else release();
    });
    svg.addEventListener("dblclick", (event) => { const box = svg.getBoundingClientRect(); this.zoom(1.6, [event.clientX - box.left, event.clientY - box.top]); });
    svg.addEventListener("pointerover", (event) => heat(event.target.closest?.("[data-f]")?.dataset.f));
    svg.addEventListener("pointerleave", () => heat(undefined));
    const go = (event) => {
      if (!(event.buttons & 1)) return;
      const box = this.overview.getBoundingClientRect(), size = this.size, { sx, sy, ox, oy } = this.scale;
      this.view.x = size.width / 2 - this.view.k * (event.clientX - box.left - ox) / sx;
      this.view.y = size.height / 2 - this.view.k * (event.clientY - box.top - oy) / sy;
      this.apply();
    };
    this.overview.addEventListener("pointerdown", go);
    this.overview.addEventListener("pointermove", go);
  }
}

const panes = { before: new Pane("before", "Before"), after: new Pane("after", "After") };

// Heights that correspond: where the nodes of a row on one side stand on the other, made monotone.
let track = { before: [], after: [] };
function measureTrack() {
  const rows = new Map();
  for (const node of panes.before.layout.nodes) {
    const other = partner(node);
    if (!other || other.y === undefined || !other.box?.isConnected) continue;
    if (!rows.has(node.y)) rows.set(node.y, []);
    rows.get(node.y).push(other.y);
  }
  let last = -Infinity;
  const pairs = [...rows].sort((a, b) => a[0] - b[0]).map(([y, ys]) => { last = Math.max(last, ys.reduce((sum, one) => sum + one, 0) / ys.length); return [y, last]; });
  track = { before: pairs, after: pairs.map(([a, b]) => [b, a]) };
}
function interpolate(pairs, y) {
  if (!pairs.length) return y;
  if (y <= pairs[0][0]) return pairs[0][1] + y - pairs[0][0];
  for (let i = 1; i < pairs.length; i++) if (y <= pairs[i][0]) {
    const [a, b] = [pairs[i - 1], pairs[i]], width = b[0] - a[0];
    return width ? a[1] + (b[1] - a[1]) * (y - a[0]) / width : b[1];
  }
  const last = pairs[pairs.length - 1];
  return last[1] + y - last[0];
}
function follow(pane) {
  const other = panes[pane.side === "before" ? "after" : "before"], { height } = pane.size;
  const y = (height / 2 - pane.view.y) / pane.view.k, there = interpolate(track[pane.side], y), ratio = pane.view.k / other.view.k;
  const centre = (other.size.width - 70) / 2;
  other.view = { k: pane.view.k, x: centre - (centre - other.view.x) * ratio, y: other.size.height / 2 - pane.view.k * there };
  other.apply(false);
}

// ---- selection, details, lists, search ------------------------------------------------------------------------------

const all = (selector) => [...document.querySelectorAll(selector)];
function heat(f) {
  for (const one of all(".hot")) one.classList.remove("hot");
  if (f !== undefined) for (const one of all(`[data-f="${f}"]`)) one.classList.add("hot");
}

let chosen;
function release() {
  chosen = undefined;
  for (const one of all(".selected")) one.classList.remove("selected");
  for (const one of all(".edge.near")) one.classList.remove("near");
  $("details").replaceChildren();
}

function table(rows) {
  const body = element("tbody");
  for (const [name, value] of rows) if (value !== "" && value !== undefined && value !== null) body.append(element("tr", {}, element("td", {}, name), element("td", {}, value)));
  return element("table", {}, body);
}
function links(title, nodes) {
  if (!nodes.length) return "";
  const most = 12, list = element("ul", { class: "links" });
  for (const node of nodes.slice(0, most)) {
    const link = element("a", { tabindex: 0 }, node.name);
    link.onclick = () => select(node, true);
    list.append(element("li", {}, element("span", { class: "op" }, `${node.op} `), link));
  }
  if (nodes.length > most) list.append(element("li", { class: "name" }, `and ${nodes.length - most} more`));
  return element("div", {}, element("h3", {}, title), list);
}

// Picks a node: its details, its edges, its region on both sides.
function select(node, bring = false) {
  release();
  chosen = node;
  if (node.weight && !$("weights").checked) { $("weights").checked = true; redraw(); }
  const pane = panes[node.side], other = panes[node.side === "before" ? "after" : "before"], twin = partner(node);
  if (node.f !== undefined) {
    for (const one of all(`.list li[data-f="${node.f}"]`)) { one.classList.add("selected"); one.scrollIntoView({ block: "nearest" }); }
    for (const name of data.fused[node.f].removed) graphs.before.byName.get(name)?.box?.classList.add("selected");
    graphs.after.byName.get(data.fused[node.f].node)?.box?.classList.add("selected");
  } else { node.box.classList.add("selected"); twin?.box?.classList.add("selected"); }
  for (const m of node.missed ?? []) all(`#missed li[data-m="${m}"]`)[0]?.classList.add("selected");
  for (const edge of pane.layout.edges) if (edge.from === node || edge.to === node) edge.line.classList.add("near");
  if (bring) pane.show(node, true);
  other.show(twin, bring);
  const details = $("details");
  details.replaceChildren(element("h2", {}, node.op), element("p", { class: "name" }, node.name),
    table([["shape", node.shape], ["dtype", node.dtype], ["device", node.device]]));
  if (node.f !== undefined) {
    const fusion = data.fused[node.f];
    const text = node.side === "before" ? "Became part of" : "Made of";
    const list = node.side === "before" ? [graphs.after.byName.get(fusion.node)] : fusion.removed.map((name) => graphs.before.byName.get(name));
    details.append(element("p", {}, element("b", {}, fusion.fused_ops.join(" · "))), element("p", { class: "name" }, fusion.pattern), links(text, list.filter(Boolean)));
    if (fusion.reason) details.append(element("h3", {}, "The chain ends here because"), element("p", {}, fusion.reason));
  }
  for (const m of node.missed ?? []) details.append(element("h3", {}, "Not fused"), element("p", {}, element("span", { class: "condition" }, data.missed[m].condition), ` ${data.missed[m].reason}`));
  details.append(links("Inputs", node.from.map((input) => input.node)), links("Read by", node.to));
  const attributes = Object.entries(node.attrs);
  if (attributes.length) details.append(element("h3", {}, "Attributes"), table(attributes));
  details.scrollTop = 0;
}

function fillLists() {
  data.fused.forEach((fusion, f) => {
    const item = element("li", { "data-f": f, style: colour(f), tabindex: 0 },
      element("div", {}, element("span", { class: "op" }, fusion.fused_op.replace(/^Metal/, "")), " ", element("span", { class: "chain" }, fusion.fused_ops.join(" · "))), element("div", { class: "name" }, fusion.node), element("div", { class: "chain" }, fusion.reason));
    item.onclick = () => { const node = graphs.before.byName.get(fusion.root); if (node) select(node, true); };
    item.onmouseenter = () => heat(f);
    item.onmouseleave = () => heat(undefined);
    $("fused").append(item);
  });
  data.missed.forEach((miss, m) => {
    const item = element("li", { "data-m": m, tabindex: 0 }, element("div", {}, element("span", { class: "op" }, miss.op), " ", element("span", { class: "condition" }, miss.condition)),
      element("div", {}, miss.reason), element("div", { class: "name" }, miss.root));
    item.onclick = () => { const node = graphs.before.byName.get(miss.root); if (node) select(node, true); };
    $("missed").append(item);
  });
  if (!data.fused.length) $("fused").append(element("li", { class: "empty" }, "Nothing was fused."));
  if (!data.missed.length) $("missed").append(element("li", { class: "empty" }, "Every candidate was fused."));
  $("tab-fused").textContent = `Fused ${data.fused.length}`;
  $("tab-missed").textContent = `Not fused ${data.missed.length}`;
  for (const item of all(".list li[tabindex]")) item.onkeydown = (event) => { if (event.key === "Enter") item.click(); };
  const tab = (name) => { for (const one of ["fused", "missed"]) { $(one).hidden = one !== name; $(`tab-${one}`).setAttribute("aria-selected", one === name); } };
  $("tab-fused").onclick = () => tab("fused");
  $("tab-missed").onclick = () => tab("missed");
  tab(data.fused.length || !data.missed.length ? "fused" : "missed");
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`, kinds = new Map();
  for (const fusion of data.fused) kinds.set(fusion.fused_op, (kinds.get(fusion.fused_op) ?? 0) + 1);
  const each = [...kinds].sort((a, b) => b[1] - a[1]).map(([op, n]) => `${n} ${op}`).join(", ");
  const gone = new Set(data.fused.flatMap((fusion) => fusion.removed)).size;
  const became = data.fused.length ? `: ${plural(gone, "node")} became ${each}` : "";
  $("summary").textContent = `${plural(data.fused.length, "fusion")}, ${plural(data.missed.length, "candidate")} not fused${became}`;
  $("summary").title = $("summary").textContent;
}

let found = [], at = 0;
function search(text) {
  for (const one of all(".match")) one.classList.remove("match");
  const words = text.toLowerCase().split(/\s+/).filter(Boolean), list = $("found");
  list.hidden = !words.length;
  if (!words.length) { found = []; return; }
  const hits = (node) => words.every((word) => node.op.toLowerCase().includes(word) || node.name.toLowerCase().includes(word));
  const inBefore = graphs.before.nodes.filter(hits), inAfter = graphs.after.nodes.filter(hits);
  for (const node of [...inBefore, ...inAfter]) node.box?.classList.add("match");
  found = [...inBefore, ...inAfter.filter((node) => !graphs.before.byName.has(node.name) || node.f !== undefined)];
  found.sort((a, b) => (a.weight ? 1 : 0) - (b.weight ? 1 : 0));
  at = 0;
  list.replaceChildren(...found.slice(0, 60).map((node, i) => {
    const item = element("li", {}, element("div", {}, element("span", { class: "op" }, node.op), node.side === "after" ? element("span", { class: "chain" }, " after") : ""), element("div", { class: "name" }, node.name));
    item.onclick = () => pick(i);
    return item;
  }));
  if (!found.length) list.append(element("li", { class: "none" }, "No node has that name or op."));
  else if (found.length > 60) list.append(element("li", { class: "none" }, `and ${found.length - 60} more`));
  mark();
}
function mark() { [...$("found").children].forEach((item, i) => { item.classList.toggle("at", i === at && found.length > 0); if (i === at) item.scrollIntoView({ block: "nearest" }); }); }
function pick(i) { if (!found[i]) return; $("found").hidden = true; $("search").blur(); select(found[i], true); }

$("search").addEventListener("input", (event) => search(event.target.value));
$("search").addEventListener("focus", (event) => { if (event.target.value) $("found").hidden = false; });
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") pick(at);
  else if (event.key === "ArrowDown" || event.key === "ArrowUp") { at = Math.max(0, Math.min(Math.min(found.length, 60) - 1, at + (event.key === "ArrowDown" ? 1 : -1))); mark(); event.preventDefault(); }
});
document.addEventListener("pointerdown", (event) => { if (!event.target.closest("#found, #search")) $("found").hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { $("search").value = ""; search(""); release(); $("search").blur(); return; }
  if (event.target.tagName === "INPUT" && event.target.type === "search" || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = { "/": () => $("search").focus(), f: () => { panes.before.fit(); panes.after.fit(); }, "+": () => panes.before.zoom(1.4), "=": () => panes.before.zoom(1.4), "-": () => panes.before.zoom(1 / 1.4) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

// ---- start ----------------------------------------------------------------------------------------------------------

function redraw() {
  for (const graph of Object.values(graphs)) for (const node of graph.nodes) node.box = undefined;
  for (const pane of Object.values(panes)) pane.draw($("weights").checked);
  measureTrack();
  for (const pane of Object.values(panes)) pane.apply(false);
}
$("weights").onchange = () => { const node = chosen; redraw(); for (const pane of Object.values(panes)) pane.home(); if (node?.box) select(node, true); search($("search").value); $("found").hidden = true; };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) { document.documentElement.dataset.theme = name; for (const pane of Object.values(panes)) if (pane.layout) pane.drawOverview(); }
setTheme(dark.matches ? "dark" : "light");
dark.onchange = () => setTheme(dark.matches ? "dark" : "light");
$("theme").onclick = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
fillLists();
redraw();
for (const pane of Object.values(panes)) pane.home();
window.addEventListener("resize", () => { for (const pane of Object.values(panes)) pane.apply(false); });
