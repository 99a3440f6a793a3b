// Draws the report from the JSON in the page. Sections are independent; each says so when it has nothing to show.
//
// Whatever is in the JSON may come from somebody else's run. It becomes text nodes and the values of attributes that `make` and d3 set, and
// nothing else: no markup is ever put together from it. The drawing, which is markup, is copied element by element by `copied`.
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const runs = data.runs;
  const byId = id => document.getElementById(id);
  const colour = i => `var(--run${i % 5})`;
  const whole = d3.format(",.0f"), short = d3.format(".3~g"), percent = x => d3.format(".2f")(100 * x) + " %";
  const modeOf = run => run.info.options.ranks > 1 ? `${run.info.options.ranks} ranks` : run.info.options.mode;
  const results = run => run.info.results || {};

  // --- helpers ---------------------------------------------------------------------------------------------------------
  const tip = byId("tip");
  // An element with children: texts and other elements. The attribute `colour` is that of its background.
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "colour") element.style.background = value;
      else element.setAttribute(name, value);
    }
    element.append(...children.map(child => child instanceof Node ? child : String(child)));
    return element;
  }
  const dot = colour_ => make("i", { class: "dot", colour: colour_ });
  const lines = parts => parts.flatMap((part, i) => i ? [make("br", {}), part].flat() : part);

  function showTip(parts, x, y) {
    tip.replaceChildren(...parts);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = Math.max(4, y - box.height - 12) + "px";
  }
  const hideTip = () => { tip.hidden = true; };
  const absent = (element, text) => element.replaceChildren(make("p", { class: "absent" }, text));

  // Calls draw(svg, width) now and whenever the width of the element changes.
  function responsive(element, height, draw) {
    let width = 0;
    const redraw = () => {
      width = Math.max(220, Math.round(element.clientWidth));
      element.replaceChildren();
      draw(d3.select(element).append("svg").attr("viewBox", `0 0 ${width} ${height()}`).attr("height", height()), width);
    };
    new ResizeObserver(() => { if (Math.abs(element.clientWidth - width) > 1) redraw(); }).observe(element);
    redraw();
    return redraw;
  }

  function axes(svg, x, y, box, names, yTicks) {
    const few = Math.max(3, Math.round((box.right - box.left) / 90));
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${box.bottom})`).call(d3.axisBottom(x).ticks(few, "~s").tickSize(4));
    const left = svg.append("g").attr("class", "axis").attr("transform", `translate(${box.left},0)`).call((yTicks || (a => a.ticks(5)))(d3.axisLeft(y)).tickSize(-(box.right - box.left)));
    left.selectAll(".tick line").attr("stroke", "var(--line)");
    svg.append("text").attr("class", "axis-name").attr("x", box.right).attr("y", box.bottom + 34).attr("text-anchor", "end").text(names.x);
  }

  function choices(element, name, labels, change) {
    element.setAttribute("role", "radiogroup");
    labels.forEach((label, i) => {
      const box = make("label", {}, make("input", { type: "radio", name, ...(i ? {} : { checked: "" }) }), label);
      box.firstChild.addEventListener("change", () => change(i));
      element.append(box);
    });
    element.hidden = labels.length < 2;
  }

  // --- summary ---------------------------------------------------------------------------------------------------------
  function summary() {
    const best = runs.filter(r => results(r).accuracy !== undefined);
    const info = runs[0].info;
    byId("title").textContent = `${info.options.model.toUpperCase()} on ${info.data.source}`;
    byId("subtitle").textContent = `${whole(info.model.parameters)} parameters, ${whole(info.data.train)} ${info.data.unit} to train on, ` +
      `hooks: ${info.options.hooks.join(", ")}` + (info.data.generated ? " (generated data)" : "");
    const cards = [];
    if (best.length) cards.push([percent(d3.max(best, r => results(r).accuracy)), "best test accuracy"]);
    const fastest = runs.filter(r => results(r).speed).sort((a, b) => results(b).speed - results(a).speed)[0];
    if (fastest) cards.push([whole(results(fastest).speed) + "/s", `${info.data.unit} trained, ${modeOf(fastest)}`]);
    const compiled = runs.find(r => results(r).compile);
    if (compiled) {
      const c = results(compiled).compile;
      cards.push([`${whole(c.fused_ops)} → ${whole(c.kernels)}`, `ops fused into kernels, ${c.graphs} graphs`]);
      cards.push([c.breaks, "graph breaks"]);
    } else {
      cards.push([whole(info.steps), "steps"]);
    }
    byId("cards").replaceChildren(...cards.map(([value, label]) => make("div", { class: "card" }, make("b", {}, value), make("span", {}, label))));
    const first = results(runs[0]).weights;
    const heading = (text, kind) => make("th", kind ? { class: kind } : {}, text);
    const show = (value, format) => make("td", {}, value === undefined || value === null ? "–" : format(value));
    const rows = runs.map((run, i) => {
      const r = results(run);
      return make("tr", {}, make("td", {}, dot(colour(i)), run.name + (run.info.status === "done" ? "" : ` (${run.info.status})`)),
        make("td", { class: "text" }, `${modeOf(run)}, ${run.info.options.precision}`), show(r.accuracy, percent), show(r.speed, whole),
        show(r.seconds, s => d3.format(".1f")(s) + " s"), show(r.loss, d3.format(".4f")),
        make("td", { class: "text" }, make("code", {}, r.weights || "–"), i && r.weights && r.weights === first ? " same" : ""));
    });
    byId("runs").replaceChildren(
      make("thead", {}, make("tr", {}, heading("run"), heading("mode", "text"), heading("accuracy"), heading(info.data.unit + "/s"), heading("time"),
        heading("last loss"), heading("bits of the weights", "text"))),
      make("tbody", {}, ...rows));
    const eager = runs.find(r => modeOf(r) === "eager" && results(r).weights), other = runs.find(r => modeOf(r) === "compiled" && results(r).weights);
    if (eager && other) {
      const same = results(eager).weights === results(other).weights && JSON.stringify(eager.curve.loss) === JSON.stringify(other.curve.loss);
      const verdict = byId("verdict");
      verdict.hidden = false;
      verdict.classList.toggle("bad", !same);
      verdict.textContent = same ? "✓ Eager and compiled training agree bit for bit: every loss, every weight." : "✗ Eager and compiled training differ.";
    }
    byId("footer").textContent = `Made by grapnel ${info.grapnel} from ${runs.map(r => r.name).join(", ")}. Charts: D3 ${d3.version}.`;
  }

  // --- curves ----------------------------------------------------------------------------------------------------------
  const hidden = new Set();
  function smooth(values) {
    const width = Math.max(1, Math.round(values.length / 60));
    let sum = 0;
    return values.map((v, i) => {
      sum += v - (i >= width ? values[i - width] : 0);
      return sum / Math.min(i + 1, width);
    });
  }
  // Runs that agree to the bit lie on top of each other: later ones are drawn thinner and dashed, so that all are seen.
  const strokes = i => ({ width: [4.5, 2, 2, 2, 2][i % 5], dash: ["", "5 4", "", "2 3", ""][i % 5], opacity: i ? 1 : .55 });

  // 1, 2 and 5 times the powers of ten; d3 labels every digit or none.
  function niceLogTicks(low, high) {
    const all = d3.merge(d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1).map(e => [1, 2, 5].map(m => +(m * Math.pow(10, e)).toPrecision(1))));
    return all.filter(v => v >= low && v <= high);
  }

  function lossChart(svg, width) {
    const height = 320, box = { left: 40, right: width - 12, top: 10, bottom: height - 42 };
    const shown = runs.map((run, i) => ({ run, i })).filter(({ run, i }) => !hidden.has(i) && run.curve.step.length);
    if (!shown.length) return;
    const smoothed = shown.map(({ run }) => smooth(run.curve.loss));
    const x = d3.scaleLinear().domain([0, d3.max(shown, s => d3.max(s.run.curve.step))]).range([box.left, box.right]);
    const top = d3.max(smoothed, s => d3.max(s)), low = d3.min(smoothed, s => d3.min(s));
    const y = (low > 0 ? d3.scaleLog() : d3.scaleLinear()).domain([low > 0 ? low * .8 : low, top * 1.1]).range([box.bottom, box.top]).clamp(true);
    axes(svg, x, y, box, { x: "step" }, low > 0 ? a => a.tickValues(niceLogTicks(low * .8, top * 1.1)).tickFormat(d3.format("~g")) : undefined);
    shown.forEach(({ run, i }, k) => {
      const line = values => d3.line().x((_, j) => x(run.curve.step[j])).y(v => y(v))(values);
      svg.append("path").attr("d", line(run.curve.loss)).attr("fill", "none").attr("stroke", colour(i)).attr("opacity", .13);
      const s = strokes(i);
      svg.append("path").attr("class", "curve").attr("d", line(smoothed[k])).attr("fill", "none").attr("stroke", colour(i))
        .attr("stroke-width", s.width).attr("stroke-dasharray", s.dash).attr("stroke-opacity", s.opacity).attr("stroke-linejoin", "round");
    });
    const rule = svg.append("line").attr("y1", box.top).attr("y2", box.bottom).attr("stroke", "var(--soft)").attr("visibility", "hidden");
    svg.append("rect").attr("x", box.left).attr("y", box.top).attr("width", box.right - box.left).attr("height", box.bottom - box.top).attr("fill", "transparent")
      .on("mousemove touchmove", function () {
        const at = x.invert(d3.mouse(this)[0]);
        rule.attr("x1", x(at)).attr("x2", x(at)).attr("visibility", "visible");
        showTip(lines([[`step ${whole(at)}`], ...shown.map(({ run, i }, k) => {
          const j = Math.min(d3.bisectLeft(run.curve.step, at), run.curve.step.length - 1);
          return [dot(colour(i)), `${run.name} ${smoothed[k][j].toFixed(4)}`];
        })]), d3.event.clientX, d3.event.clientY);
      }).on("mouseleave touchend", () => { rule.attr("visibility", "hidden"); hideTip(); });
  }

  function accuracyChart(svg, width) {
    const height = 320, box = { left: 46, right: width - 16, top: 10, bottom: height - 42 };
    const shown = runs.map((run, i) => ({ run, i })).filter(({ run, i }) => !hidden.has(i) && run.accuracy.length);
    if (!shown.length) return;
    const all = d3.merge(shown.map(s => s.run.accuracy.map(a => a.accuracy)));
    const span = Math.max(.01, d3.max(all) - d3.min(all));
    const x = d3.scaleLinear().domain([0, d3.max(shown, s => d3.max(s.run.accuracy, a => a.step)) * 1.04]).range([box.left, box.right]);
    const y = d3.scaleLinear().domain([Math.max(0, d3.min(all) - span), Math.min(1, d3.max(all) + span / 2)]).nice().range([box.bottom, box.top]);
    axes(svg, x, y, box, { x: "step" }, a => a.ticks(5, ".0%"));
    shown.forEach(({ run, i }) => {
      const s = strokes(i);
      svg.append("path").attr("class", "curve").attr("d", d3.line().x(a => x(a.step)).y(a => y(a.accuracy))(run.accuracy)).attr("fill", "none").attr("stroke", colour(i))
        .attr("stroke-width", s.width).attr("stroke-dasharray", s.dash).attr("stroke-opacity", s.opacity);
      svg.selectAll(null).data(run.accuracy).enter().append("circle").attr("cx", a => x(a.step)).attr("cy", a => y(a.accuracy)).attr("r", i ? 4 : 6).attr("fill", colour(i))
        .attr("fill-opacity", s.opacity)
        .on("mouseenter", a => showTip(lines([[`${run.name}, step ${whole(a.step)}`], [make("b", {}, percent(a.accuracy))]]), d3.event.clientX, d3.event.clientY)).on("mouseleave", hideTip);
    });
  }

  function curves() {
    const loss = byId("loss"), accuracy = byId("accuracy");
    if (!runs.some(r => r.curve.step.length)) return absent(loss, "No step was finished.");
    const redraw = [responsive(loss, () => 320, lossChart)];
    if (runs.some(r => r.accuracy.length)) redraw.push(responsive(accuracy, () => 320, accuracyChart));
    else absent(accuracy, "No epoch was finished.");
    byId("legend").hidden = runs.length < 2;
    runs.forEach((run, i) => {
      const label = make("label", {}, make("input", { type: "checkbox", checked: "" }), dot(colour(i)), run.name);
      label.firstChild.addEventListener("change", event => {
        if (event.target.checked) hidden.delete(i); else hidden.add(i);
        redraw.forEach(f => f());
      });
      byId("legend").append(label);
    });
  }

  // --- gradients -------------------------------------------------------------------------------------------------------
  const normOf = (series, i) => series.norm[i] === null ? "not finite" : short(series.norm[i]);

  function ridge(element, series) {
    const most = 18, every = Math.max(1, Math.ceil(series.step.length / most));
    const picked = d3.range(0, series.step.length).filter(i => i % every === 0 || i === series.step.length - 1);
    responsive(element, () => 210, (svg, width) => {
      const box = { left: 8, right: width - 8, top: 52, bottom: 178 };
      const bins = series.counts[0].length - 2, size = (series.high - series.low) / bins;
      const inside = picked.map(i => series.counts[i].slice(1, -1).map(c => c / Math.max(1, d3.sum(series.counts[i]))));
      const used = d3.range(bins).filter(b => inside.some(h => h[b] > .002));
      const from = series.low + Math.max(0, d3.min(used) - 1) * size, to = series.low + Math.min(bins, d3.max(used) + 2) * size;
      const x = d3.scaleLinear().domain([from, to]).range([box.left, box.right]);
      const base = d3.scaleLinear().domain([0, Math.max(1, picked.length - 1)]).range([box.top, box.bottom]);
      const tall = d3.scaleLinear().domain([0, d3.max(inside, h => d3.max(h))]).range([0, 44]);
      const shade = d3.scaleLinear().domain([0, Math.max(1, picked.length - 1)]).range(["#c7d2fe", "#4338ca"]).interpolate(d3.interpolateLab);
      svg.append("g").attr("class", "axis").attr("transform", `translate(0,${box.bottom + 4})`)
        .call(d3.axisBottom(x).tickValues(d3.range(Math.ceil(from), Math.floor(to) + 1, to - from > 6 ? 2 : 1)).tickSize(4).tickFormat(d => `1e${d}`));
      picked.forEach((i, k) => {
        const area = d3.area().x((_, b) => x(series.low + (b + .5) * size)).y0(base(k)).y1(v => base(k) - tall(v)).curve(d3.curveMonotoneX)
          .defined((_, b) => x(series.low + (b + .5) * size) >= box.left - 1 && x(series.low + (b + .5) * size) <= box.right + 1);
        svg.append("path").attr("class", "ridge").attr("d", area(inside[k])).attr("fill", shade(k)).attr("stroke", "var(--card)").attr("stroke-width", 1)
          .on("mousemove", () => showTip(lines([[`step ${whole(series.step[i])}`], [`norm ${normOf(series, i)}`]]), d3.event.clientX, d3.event.clientY))
          .on("mouseleave", hideTip);
      });
    });
  }

  function gradients() {
    const box = byId("ridges"), with_some = runs.filter(r => r.gradients.length);
    if (!with_some.length) return absent(box, "No histograms: train with --hooks histogram.");
    const show = k => {
      box.replaceChildren();
      with_some[k].gradients.forEach(series => {
        const chart = make("div", { class: "chart", role: "img", "aria-label": `Histograms of the gradient of ${series.name} over ${series.step.length} steps` });
        box.append(make("figure", { class: "card" },
          make("figcaption", {}, series.name, make("span", { class: "hint" }, `norm ${normOf(series, series.norm.length - 1)}`)), chart));
        ridge(chart, series);
      });
    };
    choices(byId("gradient-runs"), "gradient-run", with_some.map(r => r.name), show);
    show(0);
  }

  // --- graph -----------------------------------------------------------------------------------------------------------
  function zoomTools(element, by, fit) {
    element.parentElement.querySelectorAll("[data-zoom]").forEach(button =>
      button.addEventListener("click", () => +button.dataset.zoom ? by(+button.dataset.zoom) : fit()));
  }

  // A copy of what Graphviz has drawn: shapes, texts and how they look, no links, ids, styles or scripts. What it was asked to draw may have
  // any of these.
  const svgSpace = "http://www.w3.org/2000/svg", deepest = 40;
  const elements = new Set(["svg", "g", "title", "polygon", "polyline", "path", "ellipse", "circle", "rect", "text", "tspan"]);
  const looks = new Set(["viewBox", "transform", "d", "points", "x", "y", "width", "height", "cx", "cy", "r", "rx", "ry", "fill", "fill-opacity", "stroke",
    "stroke-width", "stroke-opacity", "stroke-dasharray", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration"]);
  const kinds = new Set(["graph", "cluster", "node", "edge", "hook"]);

  function copied(node, depth) {
    if (node.nodeType === Node.TEXT_NODE) return [document.createTextNode(node.data)];
    if (node.nodeType !== Node.ELEMENT_NODE || node.namespaceURI !== svgSpace || depth > deepest) return [];
    const isLink = node.localName === "a";
    if (!isLink && !elements.has(node.localName)) return [];
    const copy = document.createElementNS(svgSpace, isLink ? "g" : node.localName);
    for (const { name, value } of node.attributes)
      if (looks.has(name) && !/url\s*\(/i.test(value)) copy.setAttribute(name, value);
    const known = (node.getAttribute("class") || "").split(/\s+/).filter(kind => kinds.has(kind));
    if (known.length) copy.setAttribute("class", known.join(" "));
    // Graphviz writes what is shown on pointing at something as a link without a destination.
    const hint = isLink && node.getAttribute("xlink:title");
    if (hint) copy.append(Object.assign(document.createElementNS(svgSpace, "title"), { textContent: hint }));
    for (const child of node.childNodes) copy.append(...copied(child, depth + 1));
    return [copy];
  }

  function graph() {
    const box = byId("drawing");
    if (data.drawing) {
      const root = new DOMParser().parseFromString(data.drawing, "image/svg+xml").documentElement;
      if (root.localName === "svg") box.replaceChildren(...copied(root, 0));
    }
    const svg = d3.select(box).select("svg");
    if (svg.empty() || !svg.attr("viewBox") || svg.select("g").empty()) {
      box.closest(".view").querySelector(".tools").hidden = true;
      box.style.height = "auto";
      absent(box, data.drawing_problem || "No graph: train with --mode compiled.");
      return;
    }
    if (runs.length > 1) byId("graph-lead").textContent += ` From the run ${data.graph}.`;
    const [, , width, height] = svg.attr("viewBox").split(" ").map(Number);
    svg.attr("width", null).attr("height", null).attr("viewBox", null).attr("aria-hidden", "true");
    const inner = svg.select("g"), outer = svg.insert("g", "g");
    outer.node().append(inner.node());
    const zoom = d3.zoom().scaleExtent([.05, 4]).on("zoom", () => outer.attr("transform", d3.event.transform))
      .filter(() => d3.event.type !== "wheel" || d3.event.ctrlKey || document.activeElement === box);
    svg.call(zoom).on("dblclick.zoom", null);
    const whole_ = () => {
      const k = Math.min(box.clientWidth / width, box.clientHeight / height) * .97;
      svg.call(zoom.transform, d3.zoomIdentity.translate((box.clientWidth - width * k) / 2, (box.clientHeight - height * k) / 2).scale(k));
    };
    // At first everything, unless that would be too small to read: then the top of it.
    const start = () => {
      if (Math.min(box.clientWidth / width, box.clientHeight / height) > .4) return whole_();
      const k = Math.min(.55, box.clientWidth / width * 3);
      svg.call(zoom.transform, d3.zoomIdentity.translate((box.clientWidth - width * k) / 2, 12).scale(k));
    };
    zoomTools(box, factor => svg.call(zoom.scaleBy, factor), whole_);
    box.addEventListener("keydown", event => {
      const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      const k = d3.zoomTransform(svg.node()).k;
      if (move) svg.call(zoom.translateBy, move[0] / k, move[1] / k);
      else if (event.key === "+" || event.key === "=") svg.call(zoom.scaleBy, 1.4);
      else if (event.key === "-") svg.call(zoom.scaleBy, 1 / 1.4);
      else if (event.key === "0") whole_();
      else return;
      event.preventDefault();
    });
    new ResizeObserver(start).observe(box);
    start();
  }

  // --- timeline --------------------------------------------------------------------------------------------------------
  const lanes = ["phase", "kernel", "op", "hook", "communication"];
  const laneNames = { phase: "phase", kernel: "kernels", op: "ops", hook: "hooks", communication: "communication" };

  function rowsOf(run) {
    const looked = run.timelines.filter(t => t.spans.length);
    // The middle one of the steps that were looked at; the first has everything cold.
    const steps = Array.from(new Set(d3.merge(looked.map(t => t.spans.map(s => s.step))))).sort(d3.ascending);
    const step = steps[Math.floor(steps.length / 2)];
    const rows = [];
    looked.forEach(t => lanes.forEach(lane => {
      const spans = t.spans.filter(s => s.step === step && s.lane === lane).sort((a, b) => a.begin - b.begin);
      if (spans.length) rows.push({ rank: t.rank, lane, spans, name: (looked.length > 1 ? `rank ${t.rank} ` : "") + laneNames[lane] });
    }));
    const start = d3.min(rows, r => r.spans[0].begin), end = d3.max(rows, r => d3.max(r.spans, s => s.end));
    return { rows, step, start, length: end - start };
  }

  function hotTable(shown) {
    const sums = {};
    shown.rows.forEach(row => row.lane === "phase" || row.spans.forEach(s => {
      const name = row.lane === "hook" ? s.name.replace(/ of .*/, "") : s.name.replace(/^bucket.*/, "buckets");
      const entry = sums[row.lane + name] = sums[row.lane + name] || { lane: row.lane, name, count: 0, time: 0 };
      entry.count++;
      entry.time += s.end - s.begin;
    }));
    const top = Object.values(sums).sort((a, b) => b.time - a.time).slice(0, 10);
    const heading = (text, kind) => make("th", kind ? { class: kind } : {}, text);
    byId("hot").replaceChildren(
      make("thead", {}, make("tr", {}, heading("where the time went"), heading("kind", "text"), heading("calls"), heading("µs"))),
      make("tbody", {}, ...top.map(e => make("tr", {},
        make("td", { title: e.name }, dot(`var(--${e.lane})`), e.name.length > 58 ? e.name.slice(0, 56) + "…" : e.name),
        make("td", { class: "text" }, e.lane), make("td", {}, e.count), make("td", {}, whole(e.time))))));
  }

  function timeline() {
    const box = byId("spans"), with_some = runs.filter(r => r.timelines.some(t => t.spans.length));
    if (!with_some.length) {
      box.closest(".view").querySelector(".tools").hidden = true;
      byId("span-text").hidden = true;
      return absent(box, "No step was looked at closely: the run was too short.");
    }
    let shown = rowsOf(with_some[0]), at = { row: 0, span: 0 }, transform = d3.zoomIdentity, redraw, svgNode, zoom;
    const text = byId("span-text");
    const describe = (row, span) => lines([[make("b", {}, span.name)],
      [`${row.name}, ${whole(span.end - span.begin)} µs, from ${whole(span.begin - shown.start)} µs on`]]);
    const choose = (r, k, focus) => {
      at = { row: r, span: k };
      text.replaceChildren(...describe(shown.rows[r], shown.rows[r].spans[k]));
      d3.select(box).selectAll(".span").classed("chosen", d => d.row === r && d.k === k);
      if (!focus) return;
      const s = shown.rows[r].spans[k];
      const view = transform.rescaleX(d3.scaleLinear().domain([0, shown.length]).range([scale.left, scale.right]));
      const middle = view((s.begin + s.end) / 2 - shown.start);
      if (middle < scale.left || middle > scale.right) d3.select(svgNode).call(zoom.translateBy, ((scale.left + scale.right) / 2 - middle) / transform.k, 0);
    };
    const scale = { left: 0, right: 0 };
    const height = () => shown.rows.length * 40 + 34;
    const draw = (svg, width) => {
      const narrow = width < 560;
      scale.left = narrow ? 6 : 132, scale.right = width - 10;
      const rowHeight = 40, bottom = shown.rows.length * rowHeight;
      const x0 = d3.scaleLinear().domain([0, shown.length]).range([scale.left, scale.right]);
      const clip = svg.append("clipPath").attr("id", "window").append("rect");
      clip.attr("x", scale.left).attr("width", scale.right - scale.left).attr("height", bottom);
      const axis = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${bottom + 4})`);
      shown.rows.forEach((row, r) => {
        svg.append("line").attr("x1", 0).attr("x2", width).attr("y1", (r + 1) * rowHeight).attr("y2", (r + 1) * rowHeight).attr("stroke", "var(--line)");
        svg.append("text").attr("class", "lane-name").attr("x", 4).attr("y", r * rowHeight + (narrow ? 11 : 24)).text(row.name);
      });
      const items = d3.merge(shown.rows.map((row, r) => row.spans.map((s, k) => ({ row: r, k, s, lane: row.lane }))));
      const top = narrow ? 15 : 7, tall = narrow ? 20 : 26;
      const bars = svg.append("g").attr("clip-path", "url(#window)").selectAll("rect").data(items).enter().append("rect").attr("class", "span")
        .attr("y", d => d.row * rowHeight + top).attr("height", tall).attr("rx", 2).attr("fill", d => `var(--${d.lane})`)
        .on("mouseenter", d => { choose(d.row, d.k); showTip(describe(shown.rows[d.row], d.s), d3.event.clientX, d3.event.clientY); })
        .on("mouseleave", hideTip).on("click", d => choose(d.row, d.k));
      const labels = svg.append("g").attr("clip-path", "url(#window)").attr("pointer-events", "none").selectAll("text").data(items.filter(d => d.lane === "phase")).enter().append("text")
        .attr("y", d => d.row * rowHeight + top + tall / 2 + 4).attr("font-size", 12).attr("fill", "#0f172a").text(d => d.s.name);
      const place = () => {
        const x = transform.rescaleX(x0);
        bars.attr("x", d => x(d.s.begin - shown.start)).attr("width", d => Math.max(1.2, x(d.s.end - shown.start) - x(d.s.begin - shown.start)));
        labels.attr("x", d => x(d.s.begin - shown.start) + 5).attr("visibility", d => x(d.s.end) - x(d.s.begin) > d.s.name.length * 7 + 8 ? "visible" : "hidden");
        axis.call(d3.axisBottom(x).ticks(Math.max(3, width / 110)).tickSize(4).tickFormat(v => x.domain()[1] - x.domain()[0] > 5000 ? `${v / 1000} ms` : `${v} µs`));
      };
      zoom = d3.zoom().scaleExtent([1, 400]).extent([[scale.left, 0], [scale.right, bottom]]).translateExtent([[scale.left, 0], [scale.right, bottom]])
        .filter(() => d3.event.type !== "wheel" || d3.event.ctrlKey || document.activeElement === box)
        .on("zoom", () => { transform = d3.event.transform; place(); });
      svgNode = svg.node();
      svg.call(zoom).on("dblclick.zoom", null).call(zoom.transform, transform);
    };
    redraw = responsive(box, height, draw);
    zoomTools(box, factor => d3.select(svgNode).call(zoom.scaleBy, factor), () => d3.select(svgNode).call(zoom.transform, d3.zoomIdentity));
    box.addEventListener("keydown", event => {
      const row = shown.rows[at.row];
      if (event.key === "ArrowRight") choose(at.row, Math.min(at.span + 1, row.spans.length - 1), true);
      else if (event.key === "ArrowLeft") choose(at.row, Math.max(at.span - 1, 0), true);
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const next = Math.max(0, Math.min(shown.rows.length - 1, at.row + (event.key === "ArrowDown" ? 1 : -1)));
        choose(next, Math.min(at.span, shown.rows[next].spans.length - 1), true);
      } else if (event.key === "+" || event.key === "=") d3.select(svgNode).call(zoom.scaleBy, 1.6);
      else if (event.key === "-") d3.select(svgNode).call(zoom.scaleBy, 1 / 1.6);
      else if (event.key === "0") d3.select(svgNode).call(zoom.transform, d3.zoomIdentity);
      else return;
      event.preventDefault();
    });
    choices(byId("timeline-runs"), "timeline-run", with_some.map(r => r.name), k => {
      shown = rowsOf(with_some[k]);
      transform = d3.zoomIdentity;
      redraw();
      choose(0, 0);
      hotTable(shown);
    });
    hotTable(shown);
  }

  summary();
  curves();
  gradients();
  graph();
  timeline();
  document.body.dataset.ready = "yes";
})();
