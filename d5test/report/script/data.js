"use strict";
// The data in the page, and elements made of them: a text is a text node, whatever it holds.

async function unpacked(text) {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) found[k] = text.charCodeAt(k);
  return found;
}

// Seconds of some rounds, in order.
function rounds(packed) {
  return new Float32Array(bytes(packed).buffer);
}

const byName = new WeakMap();

// The entries of a benchmark: one of each run of a side that has it, with the run's number.
function entriesOf(data, side, name) {
  return data[side].flatMap((run, k) => {
    if (!byName.has(run)) byName.set(run, new Map(run.entries.map((entry) => [entry.name, entry])));
    const entry = byName.get(run).get(name);
    return entry ? [{ side, run: k + 1, entry }] : [];
  });
}

// The values of a metric in an entry; none where it has none.
function valuesOf(data, entry, metric) {
  const found = entry.samples.find(([which]) => data.metrics[which].name === metric);
  return found ? found.slice(1) : [];
}

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
