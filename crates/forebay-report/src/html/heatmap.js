// The heat map: ranks over time, sums at the top and at the right, and a bar that tells the shades below.
function heatMap(root, lines, job) {
  const canvas = root.querySelector("canvas");
  const pickLine = root.querySelector("select.line");
  const pickWay = root.querySelector("select.way");
  const pickScale = root.querySelector("select.scale");
  const readout = root.querySelector("output");
  const source = root.querySelector(".source");
  const left = 62, right = 96, top = 46, bottom = 26, legend = 48;
  const who = job.who;
  let cursor = null;

  lines.forEach((line, at) => pickLine.append(element("option", { value: at }, line.interface)));
  let busiest = 0;
  const volume = (line) => sum(line.read) + sum(line.written);
  function sum(cells) { let total = 0; for (const n of cells.v) total += n; return total; }
  // Cells are stored without the empty ones.
  const dense = lines.map((line) => {
    const fill = (cells) => {
      const all = new Float64Array(line.rows * line.bins);
      let at = 0;
      cells.s.forEach((skip, i) => { at += skip; all[at] = cells.v[i]; at += 1; });
      return all;
    };
    return { read: fill(line.read), written: fill(line.written) };
  });
  lines.forEach((line, at) => { if (line.preferred) busiest = at; });
  if (!lines.some((line) => line.preferred)) {
    lines.forEach((line, at) => { if (volume(line) > volume(lines[busiest])) busiest = at; });
  }
  pickLine.value = String(busiest);

  function values() {
    const line = lines[Number(pickLine.value)];
    const { read, written } = dense[Number(pickLine.value)];
    const way = pickWay.value;
    const cells = new Float64Array(read.length);
    for (let i = 0; i < cells.length; i += 1) {
      cells[i] = (way === "write" ? 0 : read[i]) + (way === "read" ? 0 : written[i]);
    }
    const columns = new Float64Array(line.bins), rows = new Float64Array(line.rows);
    let most = 0;
    cells.forEach((n, i) => {
      columns[i % line.bins] += n;
      rows[Math.floor(i / line.bins)] += n;
      if (n > most) most = n;
    });
    return { line, cells, columns, rows, most };
  }

  const rankText = (line, row) => {
    const first = row * line.ranks_per_row;
    const last = Math.min(first + line.ranks_per_row, job.ranks) - 1;
    return last > first ? rankName(first, job) + " to " + rankName(last, job) : rankName(first, job);
  };

  function draw() {
    const { line, cells, columns, rows, most } = values();
    const tall = Math.max(64, Math.min(300, line.rows * 16));
    const { context, width, height } = prepare(canvas, top + tall + bottom + legend);
    const plot = width - left - right;
    const end = line.bins * line.bin_seconds;
    const cellWidth = plot / line.bins, cellHeight = tall / line.rows;
    const isLinear = pickScale.value === "linear";
    const shade = isLinear ? (n) => n / most : (n) => Math.log1p(n) / Math.log1p(most);
    const from = channels(colour("--heat-0")), to = channels(colour("--heat-1"));
    // What is not nothing must be seen: the ramp begins at 12 %.
    const ramp = (part) => "rgb(" + from.map((c, i) => Math.round(c + (to[i] - c) * (0.12 + 0.88 * part))).join(",") + ")";
    context.fillStyle = colour("--heat-0");
    context.fillRect(left, top, plot, tall);
    for (let row = 0; row < line.rows; row += 1) {
      for (let bin = 0; bin < line.bins; bin += 1) {
        const n = cells[row * line.bins + bin];
        if (n <= 0) continue;
        context.fillStyle = ramp(shade(n));
        // On whole pixels, so that neighbours leave no seam.
        const x = Math.round(left + bin * cellWidth), y = Math.round(top + row * cellHeight);
        const toX = Math.round(left + (bin + 1) * cellWidth), toY = Math.round(top + (row + 1) * cellHeight);
        context.fillRect(x, y, Math.max(toX - x, 1), Math.max(toY - y, 1));
      }
    }
    context.strokeStyle = colour("--soft");
    context.strokeRect(left - 0.5, top - 0.5, plot + 1, tall + 1);

    const columnMost = Math.max(...columns, 1), rowMost = Math.max(...rows, 1);
    context.fillStyle = colour("--bar-mid");
    columns.forEach((n, bin) => {
      const h = (n / columnMost) * (top - 16);
      context.fillRect(left + bin * cellWidth, top - 3 - h, Math.max(cellWidth - 0.3, 0.7), h);
    });
    rows.forEach((n, row) => {
      const w = (n / rowMost) * (right - 40);
      context.fillRect(left + plot + 4, top + row * cellHeight, w, Math.max(cellHeight - 0.5, 0.7));
    });
    context.fillStyle = colour("--soft");
    context.textBaseline = "top";
    context.textAlign = "left";
    context.fillText("sum, most " + bytes(columnMost) + " in " + seconds(line.bin_seconds), left, 1);
    context.textBaseline = "bottom";
    context.fillText("most " + bytes(rowMost), left + plot + 4, top - 4);
    context.textAlign = "right";
    context.textBaseline = "middle";
    const labels = Math.max(1, Math.min(line.rows, Math.floor(tall / 18)));
    const every = Math.ceil(line.rows / labels);
    for (let row = 0; row < line.rows; row += every) {
      context.fillText((line.rows === 1 ? who + " " : "") + row * line.ranks_per_row, left - 5, top + (row + 0.5) * cellHeight);
    }
    if (line.rows > 1) { context.textBaseline = "bottom"; context.fillText(who, left - 5, top - 4); }
    timeAxis(context, left, plot, top + tall, end, width);
    if (most > 0) {
      const at = cursor ? cells[Math.min(cursor.row, line.rows - 1) * line.bins + Math.min(cursor.bin, line.bins - 1)] : null;
      shadeBar(context, { y: top + tall + bottom + 16, width, most, isLinear, shade, ramp, at });
    }
    if (cursor) {
      cursor.row = Math.min(cursor.row, line.rows - 1);
      cursor.bin = Math.min(cursor.bin, line.bins - 1);
      context.strokeStyle = colour("--cursor");
      context.lineWidth = 2;
      context.strokeRect(left + cursor.bin * cellWidth - 1, top + cursor.row * cellHeight - 1, cellWidth + 2, cellHeight + 2);
      context.lineWidth = 1;
    }
    source.textContent = line.source + (line.ranks_per_row > 1 ? "; " + line.ranks_per_row + " " + job.many + " per row" : "") +
      "; columns of " + seconds(line.bin_seconds) + "; most in a cell " + bytes(most) +
      "; shades " + (isLinear ? "linear" : "logarithmic");
    geometry = { left, top, plot, tall, line, cells };
  }

  // What the shades stand for: nothing, then the ramp with its values; a mark at the value of the chosen cell.
  function shadeBar(context, { y, width, most, isLinear, shade, ramp, at }) {
    const none = 12, start = left + none + 12, long = Math.min(360, width - start - right / 2), tall = 12;
    context.fillStyle = colour("--soft");
    context.textAlign = "left";
    context.textBaseline = "bottom";
    context.fillText("bytes in a cell", left, y - 3);
    for (let x = 0; x < long; x += 1) {
      context.fillStyle = ramp(x / (long - 1));
      context.fillRect(start + x, y, 1, tall);
    }
    context.fillStyle = colour("--heat-0");
    context.fillRect(left, y, none, tall);
    context.strokeStyle = colour("--soft");
    context.strokeRect(left + 0.5, y + 0.5, none - 1, tall - 1);
    context.strokeRect(start + 0.5, y + 0.5, long - 1, tall - 1);
    context.fillStyle = colour("--soft");
    context.textBaseline = "top";
    context.textAlign = "center";
    context.fillText("0", left + none / 2, y + tall + 5);
    // The largest value first: it always has its place. Others stand where they touch no other label.
    let free = Infinity;
    for (const n of shadeTicks(most, isLinear).reverse()) {
      const x = start + shade(n) * (long - 1), label = bytes(n), half = context.measureText(label).width / 2;
      if (x + half + 8 > free || x - half < left + none + 4) continue;
      context.fillRect(Math.round(x), y + tall, 1, 4);
      context.fillText(label, x, y + tall + 5);
      free = x - half;
    }
    if (at !== null) {
      const x = at > 0 ? start + shade(at) * (long - 1) : left + none / 2;
      context.fillStyle = colour("--cursor");
      context.beginPath();
      context.moveTo(x, y + 1);
      context.lineTo(x - 5, y - 7);
      context.lineTo(x + 5, y - 7);
      context.fill();
    }
  }

  // Values of the bar of shades, ascending, the largest among them.
  function shadeTicks(most, isLinear) {
    const all = [];
    if (isLinear) {
      const unit = 1024 ** Math.max(0, Math.floor(Math.log(most) / Math.log(1024)));
      const raw = most / unit / 4, power = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) * unit;
      for (let n = step; n < most; n += step) all.push(n);
    } else {
      for (let n = 1; n < most; n *= 1024) all.push(n);
    }
    return [...all, most];
  }

  let geometry = null;
  function tell() {
    const { line, cells } = geometry;
    const n = cells[cursor.row * line.bins + cursor.bin];
    const start = cursor.bin * line.bin_seconds;
    readout.textContent = rankText(line, cursor.row) + ", " + seconds(start) + " to " +
      seconds(start + line.bin_seconds) + ": " + (n > 0 ? bytes(n) : "nothing");
  }
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const { line, plot, tall } = geometry;
    const bin = Math.floor(((event.clientX - box.left - left) / plot) * line.bins);
    const row = Math.floor(((event.clientY - box.top - top) / tall) * line.rows);
    if (bin < 0 || row < 0 || bin >= line.bins || row >= line.rows) return;
    cursor = { bin, row };
    draw();
    tell();
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const { line } = geometry;
    cursor = cursor || { bin: 0, row: 0 };
    cursor = {
      bin: Math.max(0, Math.min(line.bins - 1, cursor.bin + step[0])),
      row: Math.max(0, Math.min(line.rows - 1, cursor.row + step[1])),
    };
    draw();
    tell();
  });
  for (const control of [pickLine, pickWay, pickScale]) {
    control.addEventListener("change", () => { cursor = null; readout.textContent = ""; draw(); });
  }
  drawings.push(draw);
  draw();
}

for (const root of document.querySelectorAll("[data-heatmap]")) {
  const at = root.getAttribute("data-heatmap");
  heatMap(root, data.timelines[at], data.jobs[at]);
}
