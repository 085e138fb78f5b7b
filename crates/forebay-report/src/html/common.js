"use strict";
// Everything that the page shows beyond its tables is drawn from one block of JSON. Text goes into the page as text
// (textContent), never as markup.
const data = JSON.parse(document.getElementById("data").textContent);

const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A blank at which no line breaks: between a number and its unit.
const NO_BREAK = "\u00a0";

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let step = 0;
  while (n >= 1023.95 && step + 1 < units.length) { n /= 1024; step += 1; }
  return (step > 0 && n < 99.95 ? n.toFixed(1) : Math.round(n).toString()) + NO_BREAK + units[step];
}

function seconds(s) {
  return clock(s).replaceAll(" ", NO_BREAK);
}

function clock(s) {
  if (s <= 0) return "0 s";
  if (s < 0.0009995) return Math.round(s * 1e6) + " us";
  if (s < 0.00995) return (s * 1e3).toFixed(1) + " ms";
  if (s < 0.9995) return Math.round(s * 1e3) + " ms";
  if (s < 59.95) return s.toFixed(1) + " s";
  const whole = Math.round(s), minutes = Math.round(s / 60);
  const two = (n) => String(n).padStart(2, "0");
  return whole < 3600 ? Math.floor(whole / 60) + " min " + two(whole % 60) + " s"
    : Math.floor(minutes / 60) + " h " + two(minutes % 60) + " min";
}

const number = (n) => n.toLocaleString("en-US");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function channels(text) {
  const hex = text.replace("#", "");
  const full = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
  return [0, 2, 4].map((at) => parseInt(full.slice(at, at + 2), 16));
}

// About `count` ticks at steps that people count in: 1, 2, 5 of a power of ten, or of minutes and hours.
function ticks(end, count) {
  const raw = end / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw > 0 ? raw : 1));
  const steps = end >= 120 ? [30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 604800]
    : [1, 2, 5, 10].map((n) => n * power);
  const step = steps.find((n) => n >= raw) || 10 * power;
  const all = [];
  for (let at = 0; at <= end * 1.0001 && all.length < 50; at += step) all.push(at);
  return all;
}

function tickLabel(s, end) {
  if (end >= 7200) return (s / 3600).toFixed(1).replace(".0", "") + " h";
  if (end >= 120) return (s / 60).toFixed(1).replace(".0", "") + " min";
  if (end >= 10) return Math.round(s) + " s";
  if (end >= 1) return s.toFixed(1) + " s";
  return Math.round(s * 1e6) / 1e3 + " ms";
}

// A canvas in device pixels, drawn in CSS pixels.
function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(320, canvas.parentElement.clientWidth - 2);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height };
}

// What a process of a job is called by its number; a step beside the ranks has the name of its program.
function rankName(rank, job) {
  return job.steps[rank] || job.who + " " + rank;
}

function timeAxis(context, left, plotWidth, y, end, width, before = "") {
  context.fillStyle = colour("--soft");
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const at of ticks(end, plotWidth / 110)) {
    const x = left + (at / end) * plotWidth;
    context.fillRect(x, y, 1, 4);
    const label = before + tickLabel(at, end);
    const half = context.measureText(label).width / 2;
    context.fillText(label, Math.max(half, Math.min(x, width - half)), y + 6);
  }
}

// Draws again when the window or the colours change, and in the colours of paper before printing.
const drawings = [];
function redraw() { for (const draw of drawings) draw(); }
let pending = 0;
window.addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(redraw); });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
window.matchMedia("print").addEventListener("change", redraw);
// Paper can't be opened: what is closed is open while the page is printed.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const one of closed) one.open = true;
});
window.addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
  closed = [];
});
