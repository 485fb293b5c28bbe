// Drawings: small forest plots by hand, one for each row; all else by Observable Plot.

const percent = d3.format("+.3~p");
const STEPS = [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]];

// A time as the table says it.
function seconds(t) {
  const [size, unit] = STEPS.find(([least]) => Math.abs(t) >= least) ?? STEPS.at(-1);
  return `${Number((t / size).toPrecision(4))} ${unit}`;
}

// The shared axis of all forest plots: linear around zero, as far as half of the effect that was to
// be found, logarithmic beyond, up to the largest change or to ten times.
function forestAxis(rows, effect) {
  const sizes = rows.map((row) => Math.abs(Math.log1p(row.change))).filter(Number.isFinite);
  const most = Math.min(Math.max(1.1 * (d3.max(sizes) ?? 0), Math.log(1.1)), Math.log(10));
  return d3.scaleSymlog([-most, most], [EDGE, WIDE - EDGE]).constant(Math.log1p(effect) / 2).clamp(true);
}

const WIDE = 160, HIGH = 22, EDGE = 6;

// A change with the noise around it: what lies right of zero is more, whiskers that reach zero are
// no difference. A change beyond the axis is an arrow at its end.
function forest(row, scale, effect) {
  if (!Number.isFinite(row.change) || row.change <= -1) return "";
  const size = Math.log1p(row.change), noise = row.noise, middle = HIGH / 2;
  const half = Math.log1p(effect) / 2, x = scale(size);
  const label = `${percent(row.change)}, ${noise ? `noise to ${percent(Math.expm1(noise))}` : "no noise"}`;
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label });
  svg.append(
    makeSvg("rect", { class: "effect", x: scale(-half), width: scale(half) - scale(-half), y: 0, height: HIGH }),
    makeSvg("line", { class: "zero", x1: scale(0), x2: scale(0), y1: 0, y2: HIGH }),
  );
  const mark = makeSvg("g", { class: row.verdict });
  if (noise > 0) {
    mark.append(makeSvg("line", { x1: scale(size - noise), x2: scale(size + noise), y1: middle, y2: middle }));
  }
  if (Math.abs(size) <= scale.domain()[1]) mark.append(makeSvg("circle", { cx: x, cy: middle, r: 3.5 }));
  else {
    const way = Math.sign(size) * EDGE;
    mark.append(makeSvg("path", { d: `M${x + way},${middle}l${-way},-5v10z` }));
  }
  svg.append(mark);
  return svg;
}

// The ends of the axis, in percent.
function forestTicks(scale) {
  const axis = scale.domain()[1];
  const svg = makeSvg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true" });
  const at = [[-axis, EDGE, "start"], [0, WIDE / 2, "middle"], [axis, WIDE - EDGE, "end"]];
  for (const [size, x, anchor] of at) {
    const text = d3.format("+.0%")(Math.expm1(size));
    svg.append(makeSvg("text", { x, y: HIGH - 4, "text-anchor": anchor }, size ? text : "0"));
  }
  return svg;
}

// A drawing under its caption. Plot's own style element would be against the page's policy; its
// rules stand in page.css.
function figure(caption, options, ...captionMore) {
  const drawn = Plot.plot({ height: 240, marginLeft: 56, className: "drawn", ...options });
  drawn.querySelector("style")?.remove();
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", caption);
  return make("figure", {}, make("figcaption", {}, caption, ...captionMore), drawn);
}

// Which colour is which version; nothing where there is one alone.
function keyOf(points) {
  const sides = [...new Set(points.map((d) => d.side))];
  return sides.length > 1 ? sides.map((side) => make("span", { className: `of-${side}` }, side)) : [];
}

const size = (points) => (points.length > 200 ? 1.8 : 3);
const COLOURS = { old: "var(--old)", new: "var(--new)" };

// Rounds in the order of measurement; a line is a run's fastest round. Logarithmic where a linear
// axis would squeeze them.
function drawRounds(points, fastest, width) {
  const symbols = { old: "circle", new: "square" };
  const [low, high] = d3.extent(points, (d) => d.t);
  return figure(`Rounds by the clock, in order; lines: the fastest of each run`, {
    width,
    x: { label: "round" },
    y: { label: "time a call", type: high > 4 * low ? "log" : "linear", tickFormat: seconds, ticks: 5, grid: true },
    marks: [
      Plot.dot(points, { x: "round", y: "t", r: size(points), fill: (d) => COLOURS[d.side], fillOpacity: 0.55, symbol: (d) => symbols[d.side] }),
      Plot.ruleY(fastest, { y: "t", stroke: (d) => COLOURS[d.side], strokeWidth: 1.2 }),
    ],
  }, ...keyOf(points));
}

// Distributions of both versions on one axis, up to the larger 99% quantile; lines are medians.
function drawDistributions(points, width) {
  const sides = d3.group(points, (d) => d.side);
  const ends = [...sides.values()].map((found) => d3.quantile(found, 0.99, (d) => d.t));
  const domain = [d3.min(points, (d) => d.t), d3.max(ends)];
  const beyond = points.filter((d) => d.t > domain[1]).length;
  const marks = [...sides].flatMap(([side, found]) => [
    Plot.areaY(found.filter((d) => d.t <= domain[1]), Plot.binX(
      { y: (bin) => bin.length / found.length, filter: null },  // null: empty bins are zero
      { x: "t", fill: COLOURS[side], fillOpacity: 0.3, stroke: COLOURS[side], curve: "step", thresholds: d3.ticks(...domain, 40), domain },
    )),
    Plot.ruleX([d3.median(found, (d) => d.t)], { stroke: COLOURS[side], strokeWidth: 1.5, strokeDasharray: "4 2" }),
  ]);
  const tail = beyond ? `; slower rounds, beyond the edge: ${beyond}` : "";
  return figure(`Distribution by the clock; dashed: medians${tail}`, {
    width,
    x: { label: "time a call", tickFormat: seconds, ticks: 5, domain },
    y: { label: "share of rounds", tickFormat: "%", grid: true, ticks: 4 },
    marks: [...marks, Plot.ruleY([0])],
  }, ...keyOf(points));
}

// Quotients of rounds that were measured in turn: what both shared is gone from them.
function drawPaired(old, now, width) {
  const found = Array.from(now, (t, k) => ({ round: k, change: t / old[k] - 1 }));
  const middle = d3.median(found, (d) => d.change);
  const most = d3.quantile(found, 0.98, (d) => Math.abs(d.change)) || 0.01;
  return figure(`Paired rounds, new over old; line: the median, ${percent(middle)}`, {
    width,
    x: { label: "pair" },
    y: { label: "change", tickFormat: percent, ticks: 5, grid: true, domain: [-most, most], clamp: true },
    marks: [
      Plot.ruleY([0]),
      Plot.dot(found, { x: "round", y: "change", r: size(found), fill: "currentColor", fillOpacity: 0.5 }),
      Plot.ruleY([middle], { stroke: "var(--new)", strokeWidth: 1.5 }),
    ],
  });
}

// Error / bar of every judged benchmark, by backend and dtype; right of the line is wrong. What would
// lie on the same hundredth of a decade is one tick.
function drawRatios(every, width) {
  const found = [...new Map(every.map((d) => [`${d.place} ${Math.round(100 * Math.log10(d.ratio))}`, d])).values()];
  const places = d3.groupSort(found, (v) => v[0].place, (d) => d.place);
  const left = Math.min(width / 2, 20 + 6.5 * d3.max(places, (place) => place.length));
  return figure("Error / bar of each judged benchmark; the line is the bar", {
    width,
    height: 60 + 26 * places.length,
    marginLeft: left,
    x: { label: "error / bar", type: "log", domain: [Math.min(1e-2, d3.min(found, (d) => d.ratio)), Math.max(2, d3.max(found, (d) => d.ratio))], tickFormat: "~g", clamp: true, grid: true },
    y: { label: null, domain: places },
    marks: [
      Plot.tickX(found, { x: "ratio", y: "place", strokeOpacity: 0.6 }),
      Plot.ruleX([1], { stroke: "var(--worse)", strokeWidth: 1.5 }),
    ],
  });
}

// Steps of distributed optimizers, one panel for each mode; the old version is faint. Dashed: as many
// times the base case as there are ranks.
function drawSteps(steps, width) {
  const bases = d3.groups(steps.filter((d) => d.base), (d) => d.mode, (d) => d.base).flatMap(([mode, found]) =>
    found.flatMap(([base, own]) => [1, d3.max(own, (d) => d.ranks)].map((ranks) => ({ mode, base, ranks, rate: base * ranks }))));
  const names = [...new Set(steps.map((d) => d.name))];
  const colour = d3.scaleOrdinal(names, d3.schemeTableau10);
  const place = { fx: "mode", x: "ranks", y: "rate", stroke: (d) => colour(d.name), strokeOpacity: faint };
  const drawn = figure("Samples a second; dashed: ideal, from the base case; faint: the old version", {
    width: Math.min(width, 960),
    height: 320,
    fx: { label: "scaling" },
    x: { type: "log", base: 2, label: "ranks", ticks: [...new Set(steps.map((d) => d.ranks))], tickFormat: "d" },
    y: { type: "log", label: "samples/s", tickFormat: "~s", grid: true, ticks: 5 },
    marks: [
      Plot.line(bases, { fx: "mode", x: "ranks", y: "rate", z: "base", strokeOpacity: 0.5, strokeDasharray: "4 3" }),
      Plot.line(steps, { ...place, z: "series", sort: "ranks" }),
      Plot.dot(steps, { ...place, fill: (d) => colour(d.name), fillOpacity: faint, r: 3 }),
    ],
  });
  const key = names.map((name) => {
    const sample = makeSvg("svg", { width: 10, height: 10 }, makeSvg("rect", { width: 10, height: 10, fill: colour(name) }));
    return make("span", {}, sample, ` ${name}`);
  });
  drawn.append(make("p", { className: "note key-of-lines" }, ...key));
  return drawn;
}

const faint = (d) => (d.side === "old" ? 0.35 : 1);
