"use strict";
// Draws the events of the server. All texts are set as text: nothing of a run is ever parsed as HTML.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  let sort = { column: "busy", down: true };
  let shown = null;
  let events = null;

  // Elements.
  const make = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const draw = (name, attributes = {}, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.map((child) => (child instanceof Node ? child : String(child ?? ""))));
    return element;
  }
  function table(element, caption, head, rows) {
    element.replaceChildren(
      make("caption", {}, caption),
      make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows.map(([first, ...rest]) =>
        make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, cell))))));
    return element;
  }

  // Numbers.
  function scaled(number, units) {
    let index = 0;
    while (number >= 999.5 && index < units.length - 1) { number /= 1000; index += 1; }
    return number.toFixed(index === 0 || number >= 99.95 ? 0 : 1) + units[index];
  }
  const count = (number) => (number == null ? "-" : scaled(number, ["", "K", "M", "G", "T"]));
  const size = (number) => (number == null ? "-" : scaled(number, [" B", " kB", " MB", " GB", " TB"]));
  const percent = (share) => (share == null ? "N/A" : `${Math.round(100 * share)} %`);
  const seconds = (ms) => (ms == null ? "-" : `${(ms / 1000).toFixed(1)} s`);
  // Tasks report it at their end.
  const peak = (one) => size(one.peak_bytes || null);
  const resident = (one) => size(one.peak_resident_bytes || null);
  const short = (name) => (name.length > 16 ? `${name.slice(0, 15)}\u2026` : name);
  const rate = (slot, name) => slot[name] / (slot.seconds || 1);
  const clock = (at) => (at ? new Date(1000 * at).toLocaleTimeString() : "");

  // The list of runs.
  function drawRuns(runs, key) {
    byId("no-runs").hidden = runs.length > 0;
    const items = runs.map((run) => {
      const link = make("a", { href: `#${encodeURIComponent(run.key)}` }, `${run.mode === "kept" ? run.name.slice(0, 4) : run.name}/${run.number} `,
        make("span", {}, run.error ? `${run.state} ${run.error}` : run.state), make("br"),
        make("small", {}, `${clock(run.started_at)}  ${Number(run.seconds).toFixed(1)} s  ${count(run.rows)} rows`));
      if (run.key === key) link.setAttribute("aria-current", "page");
      return make("li", {}, link);
    });
    const focused = document.activeElement?.getAttribute("href");
    byId("runs").replaceChildren(...items);
    for (const item of items) if (focused && item.firstChild.getAttribute("href") === focused) item.firstChild.focus();
  }

  // One run.
  function drawRun(run) {
    byId("run").hidden = !run;
    if (!run) return;
    byId("run-title").textContent = `${run.title[0].toUpperCase()}${run.title.slice(1)}, ${run.mode}: ${run.state}`;
    byId("error").hidden = !run.error;
    byId("error").textContent = run.error ? `[${run.error}] ${run.error_summary}` : "";
    byId("verdict").textContent = run.verdict ? `Slowest: ${run.verdict.text}. May help: ${run.verdict.advice}.`
      : "No stage is clearly the slowest.";
    byId("causes").replaceChildren(...run.causes.map((cause) => make("li", {}, cause)));
    const last = run.history.length > 1 ? run.history[run.history.length - 1] : null;
    const numbers = {
      time: `${Number(run.seconds).toFixed(1)} s`, rows: count(run.rows), bytes: size(run.bytes),
      "rows/s now": run.is_running && last ? count(rate(last, "rows")) : "-",
      "bytes/s now": run.is_running && last ? size(rate(last, "bytes")) : "-",
      ...(run.mode === "stream" ? { restarts: run.restarts, workers: run.workers.length }
        : { "producers done": run.producers, consumers: run.consumers, "pool peak": peak(run) }),
      ...(run.peak_resident_bytes ? { "process peak": resident(run) } : {}),
      ...(run.file_bytes ? { "in files": size(run.file_bytes) } : {}),
      ...(run.splits_done ? { splits: run.splits_done } : {}),
      ...(run.failed_attempts ? { "failed attempts": run.failed_attempts } : {}),
      ...(run.made_again ? { "ran again": run.made_again } : {}),
    };
    byId("numbers").replaceChildren(...Object.entries(numbers).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    drawGraph(run.boxes, run.links);
    drawCalls(run.calls);
    drawHistory(run);
    drawTasks(run);
    byId("of-exchange").hidden = run.mode === "stream";
    drawMatrix(run.matrix);
    drawCheckpoints(run.checkpoints);
    table(byId("options"), "Options in force", ["option", "value", "from"],
      Object.entries(run.options).map(([name, one]) => [name, JSON.stringify(one.value) ?? "", one.source])).classList.add("words");
    table(byId("versions"), "Versions", ["package", "version"], Object.entries(run.versions).map(([name, one]) => [name, String(one)])).classList.add("words");
  }

  // The graph: Flink's colours, mixed by the shares of time.
  const COLOURS = { idle: [74, 158, 237], busy: [217, 54, 62], back_pressured: [17, 17, 17] };
  function mixed(box) {
    if (box.busy == null) return [160, 170, 180];
    return [0, 1, 2].map((i) => Math.round(Object.entries(COLOURS).reduce((sum, [name, rgb]) => sum + box[name] * rgb[i], 0)));
  }
  function drawGraph(boxes, links) {
    const graph = byId("graph");
    graph.setAttribute("viewBox", `-20 0 ${216 * Math.max(5, boxes.length) - 40} 150`);
    const parts = [];
    boxes.forEach((box, i) => {
      const x = 10 + i * 216, rgb = mixed(box);
      const tone = 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2] > 140 ? "on-light" : "on-dark";
      const words = [[short(box.name), "name"], [`busy ${percent(box.busy)}`, ""], [`pressed ${percent(box.back_pressured)}`, ""], [`idle ${percent(box.idle)}`, ""]];
      parts.push(draw("rect", { class: "box", x, y: 20, width: 112, height: 92, rx: 6, fill: `rgb(${rgb.join(",")})` }));
      words.forEach(([text, kind], line) => parts.push(draw("text", { x: x + 56, y: 42 + 20 * line, class: `${tone} ${kind}` }, text)));
      const busiest = box.busiest == null || box.tasks < 2 ? "" : `busiest: task ${box.busiest}, ${percent(box.busiest_share)}`;
      parts.push(draw("text", { x: x + 56, y: 132 }, busiest || `${box.tasks} task${box.tasks === 1 ? "" : "s"}`));
    });
    links.forEach((link) => {
      const i = boxes.findIndex((box) => box.name === link.from);
      if (boxes[i + 1]?.name !== link.to) return;  // the list below has it
      const x = 122 + i * 216;
      const waits = link.kind === "pressed" ? `${short(link.from)} waits` : link.kind === "starved" ? `${short(link.to)} waits` : link.kind === "flows" ? "nobody waits" : "";
      parts.push(draw("path", { class: `edge ${link.kind}`, d: `M${x + 4} 66H${x + 90}` }),
        draw("path", { class: `head ${link.kind}`, d: `M${x + 87} 58l13 8l-13 8z` }),
        draw("text", { x: x + 52, y: 52, class: "small" }, waits), draw("text", { x: x + 52, y: 86, class: "small" }, link.share == null ? "" : `${percent(link.share)} ${link.level}`));
    });
    graph.replaceChildren(...parts);
    byId("links").replaceChildren(...links.filter((link) => link.share != null && link.level !== "OK").map((link) =>
      make("li", {}, `${link.text}: ${percent(link.share)} of the time, ${link.level}`)));
  }

  // The calls of operators: a row for each, and a sentence about what limits it.
  const few = (number) => (number == null ? "-" : number < 10 ? String(Number(number.toFixed(1))) : count(Math.round(number)));
  const milliseconds = (ms) => (ms == null ? "-" : `${Math.round(ms)} ms`);
  function drawCalls(calls) {
    byId("calls").hidden = calls.length === 0;
    table(byId("call-table"), "Mean numbers of the last second while the run goes on, of all its time after it; errors of all attempts",
      ["operator", "waits for", "under way", "of", "for the rate", "for a pause", "for the next attempt", "we work", "calls/s", "rate", "p50", "p99", "errors"],
      calls.map((one) => [one.operator, one.waits_for, few(one.under_way), one.most, few(one.for_rate), few(one.for_breaker), few(one.for_retries),
        percent(one.busy), few(one.per_second), one.rate == null ? "-" : `${few(one.rate)} of ${few(one.rate_asked)}/s`,
        milliseconds(one.p50_ms), milliseconds(one.p99_ms),
        Object.entries(one.errors).map(([name, number]) => `${name} ${count(number)}`).join(", ") || "-"]));
    byId("call-waits").replaceChildren(...calls.map((one) => make("li", {}, one.advice ? `${one.text}. May help: ${one.advice}` : one.text)));
  }

  // The history: a line for rows and bytes, a column of shares for each stage and second.
  const SLOTS = 60;
  function drawHistory(run) {
    const slots = run.history;
    const end = slots.length ? slots[slots.length - 1].at : 0;
    const place = (slot) => SLOTS - 1 - Math.min(SLOTS - 1, Math.round(end - slot.at));
    const figures = [["rows", count], ["bytes", size]].map(([name, words]) => {
      const most = Math.max(1, ...slots.map((slot) => rate(slot, name)));
      const points = slots.map((slot) => `${place(slot)},${(40 - 36 * rate(slot, name) / most).toFixed(1)}`).join(" ");
      return figure(`${name}/s, at most ${slots.length ? words(most) : "-"}`, [draw("polyline", { class: "spark", points })]);
    });
    for (const box of run.boxes) {
      const bars = [];
      for (const slot of slots) {
        const one = slot.stages?.[box.name];
        const total = one ? one.idle + one.busy + one.back_pressured : 0;
        if (!total) continue;
        let y = 42;
        for (const [name, kind] of [["back_pressured", "pressed"], ["busy", "busy"], ["idle", "idle"]]) {
          const height = 40 * one[name] / total;
          y -= height;
          if (height > 0) bars.push(draw("rect", { class: kind, x: place(slot), y, width: 1, height }));
        }
      }
      figures.push(figure(`${box.name}: busy ${percent(box.busy)}, back-pressured ${percent(box.back_pressured)}`, bars));
    }
    byId("history").replaceChildren(...figures);
  }
  function figure(words, parts) {
    const picture = draw("svg", { viewBox: `0 0 ${SLOTS} 44`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...parts);
    return make("figure", {}, make("figcaption", { class: "quiet" }, words), picture);
  }

  // The tasks: a header of buttons that stays, rows that are drawn anew.
  // First those that have told nothing yet: what a kept exchange does now.
  const busy = (task) => task.busy ?? (task.state === "running" ? 2 : -1);
  const COLUMNS = [
    ["task", (task) => `${task.role} ${task.task}`, (task) => [task.role, task.task]],
    ["host", (task) => task.host ?? "-", (task) => task.host ?? ""],
    ["attempt", (task) => task.attempt ?? "-", (task) => task.attempt ?? -1],
    ["state", (task) => task.state, (task) => task.state],
    ["busy", (task) => percent(task.busy), busy],
    ["back-pressured", (task) => percent(task.back_pressured), (task) => task.back_pressured ?? -1],
    ["idle", (task) => percent(task.idle), (task) => task.idle ?? -1],
    ["time", (task) => seconds(task.wall_ms), (task) => task.wall_ms ?? -1],
    ["rows", (task) => count(task.rows), (task) => task.rows ?? -1],
    ["bytes", (task) => size(task.bytes), (task) => task.bytes ?? -1],
    ["pool peak", peak, (task) => task.peak_bytes],
    ["process peak", resident, (task) => task.peak_resident_bytes],
  ];
  const worded = (name) => (["host", "state"].includes(name) ? { class: "words" } : {});
  function makeHead() {
    byId("tasks").tHead.rows[0].replaceChildren(...COLUMNS.map(([name]) => {
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        sort = { column: name, down: sort.column === name ? !sort.down : true };
        if (shown?.run) drawTasks(shown.run);
      });
      return make("th", { scope: "col", "data-column": name, ...worded(name) }, button);
    }));
  }
  const compare = (a, b) => Array.isArray(a) ? compare(a[0], b[0]) || compare(a[1], b[1]) : a < b ? -1 : a > b ? 1 : 0;
  function drawTasks(run) {
    for (const cell of byId("tasks").tHead.rows[0].cells) {
      if (cell.dataset.column === sort.column) cell.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const value = COLUMNS.find(([name]) => name === sort.column)[2];
    const tasks = [...run.tasks].sort((a, b) => (sort.down ? compare(value(b), value(a)) : compare(value(a), value(b))));
    const left = run.tasks_left_out ? `, and ${run.tasks_left_out} with less work and waiting that are not shown` : "";
    byId("tasks-caption").textContent = `${tasks.length} tasks${left}. A header sorts by its column.`;
    byId("tasks").tBodies[0].replaceChildren(...tasks.map((task) => make("tr", {}, ...COLUMNS.map(([name, words]) =>
      make("td", worded(name), words(task))))));
  }

  function drawMatrix(matrix) {
    const place = byId("matrix");
    if (!matrix) { place.replaceChildren(make("p", { class: "quiet" }, "Not known yet: tasks report it at their end.")); return; }
    const most = Math.max(1, ...matrix.bytes.flat());
    const grid = table(make("table"), "Rows are producers, columns consumers; a darker cell has more bytes.",
      ["", ...matrix.consumers], matrix.bytes.map((row, i) => [matrix.producers[i], ...row.map(size)]));
    [...grid.tBodies[0].rows].forEach((row, i) => [...row.cells].slice(1).forEach((cell, j) => {
      cell.className = "heat";
      cell.style.background = `rgba(var(--heat), ${(0.75 * matrix.bytes[i][j] / most).toFixed(3)})`;
    }));
    place.replaceChildren(grid);
  }

  function drawCheckpoints(checkpoints) {
    byId("checkpoints").hidden = checkpoints.length === 0;
    table(byId("checkpoint-table"), "The newest first",
      ["id", "status", "at", "duration", "bytes", "alignment", "stood still", "in flight", "reason"],
      [...checkpoints].reverse().map((one) => [one.checkpoint, one.status, clock(one.triggered / 1000), seconds(one.duration),
        size(one.bytes), seconds(one.alignment), seconds(one.sync), size(one.in_flight), one.reason]));
  }

  function drawAll() {
    drawRuns(shown.runs, shown.run?.key);
    drawRun(shown.run);
  }

  // Events. A hidden page closes its stream, so that it costs the driver nothing.
  function open() {
    events?.close();
    events = null;
    if (document.hidden || byId("pause").checked) return;
    const key = decodeURIComponent(location.hash.slice(1));
    events = new EventSource(`events?run=${encodeURIComponent(key)}`);
    events.onopen = () => { byId("connection").textContent = "live"; };
    events.onerror = () => { byId("connection").textContent = "no connection: the driver may have ended"; };
    events.onmessage = (event) => { shown = JSON.parse(event.data); drawAll(); };
  }
  makeHead();
  byId("pause").addEventListener("change", () => { byId("connection").textContent = "paused"; open(); });
  window.addEventListener("hashchange", open);
  document.addEventListener("visibilitychange", open);
  open();
})();
