"use strict";
// Draws what the page carries in #data. Colours are names of the style sheet ("@c0"), so that a figure serves both themes.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null; // the theme that the button was asked for; without one the system's
  let printing = false;

  const theme = () => (printing ? "light" : chosen || (dark.matches ? "dark" : "light"));
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const SCALES = {
    light: {
      both: [[0, "#8a3b00"], [0.25, "#e08a3c"], [0.5, "#f7f7f7"], [0.75, "#5b9bd0"], [1, "#0b3f78"]],
      one: [[0, "#f4f6f8"], [0.35, "#a9cbe6"], [0.7, "#3d86c0"], [1, "#0b3f78"]],
    },
    dark: {
      both: [[0, "#ffc38a"], [0.25, "#b3651f"], [0.5, "#1c2128"], [0.75, "#2b73ad"], [1, "#a9d7ff"]],
      one: [[0, "#1c2128"], [0.35, "#1f4f78"], [0.7, "#4b9bd8"], [1, "#c9e6ff"]],
    },
  };

  function coloured(value, key) {
    if (Array.isArray(value)) return value.map((v) => coloured(v));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, k)]));
    }
    if (typeof value !== "string" || value[0] !== "@") return value;
    if (key === "colorscale") return SCALES[theme()][value.slice(1)] || value;
    return (/color$/.test(key || "") && colour(value.slice(1))) || value;
  }

  function template() {
    const line = colour("line");
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: colour("muted"), automargin: true };
    const palette = [0, 1, 2, 3, 4, 5, 6, 7].map((i) => colour("c" + i));
    return {
      layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("ink") },
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        colorway: palette,
        xaxis: axis,
        yaxis: axis,
        hoverlabel: { bgcolor: colour("raised"), bordercolor: line, font: { color: colour("ink") } },
      },
    };
  }

  function draw(div, figure) {
    div.figure = figure;
    const { data: traces, layout } = coloured(figure);
    layout.template = template();
    if (printing) layout.width = Math.min(div.clientWidth || 680, 680);
    layout.dragmode = false;
    // a box with every curve would cover a narrow figure
    if (layout.hovermode === "x unified" && div.clientWidth < 600) layout.hovermode = "closest";
    const options = { responsive: !printing, displayModeBar: false, scrollZoom: false, showTips: false };
    return Plotly.react(div, traces, layout, options);
  }

  function figures(box, list) { // a grid of captioned figures, in place of what was there
    box.querySelectorAll(".figure").forEach((div) => Plotly.purge(div));
    box.replaceChildren(...list.map(({ title }) => {
      const frame = document.createElement("figure");
      const caption = document.createElement("figcaption");
      const div = document.createElement("div");
      div.className = "figure";
      caption.textContent = title;
      frame.append(caption, div);
      return frame;
    }));
    box.querySelectorAll(".figure").forEach((div, i) => draw(div, list[i].figure));
  }

  // --- the runs of a graph
  const runs = byId("runs-choice");
  const showRuns = () => draw(byId("runs"), data.runs[runs.value]);

  // --- inside a model
  const model = byId("model-choice"), layer = byId("layer-choice"), which = byId("response-choice");
  const current = () => data.models[model.value].layers[layer.value];
  const showResponse = () => draw(byId("response"), current()[which.value]);
  function showLayer() {
    byId("layer-note").textContent = current().shown && "Output channels: " + current().shown + ".";
    showResponse();
    figures(byId("coefficients"), current().W);
    figures(byId("factors"), current().factors);
  }
  function showModel() {
    const { layers, training, matrix } = data.models[model.value];
    layer.replaceChildren(...layers.map(({ title }, i) => new Option(i + 1 + ": " + title, i)));
    layer.parentElement.hidden = layers.length < 2;
    byId("matrix").textContent = matrix;
    showLayer();
    draw(byId("training"), training);
  }

  // --- studies
  const study = byId("study-choice");
  const showStudy = () => {
    const parts = data.studies[study.value];
    figures(byId("study"), parts.filter((part) => part.figure));
    byId("study-note").textContent = parts.map((part) => part.note || "").join(" ").trim();
  };

  function on(select, show) {
    if (select === null) return;
    select.selectedIndex = 0; // a browser that comes back to the page would keep another
    select.addEventListener("change", show);
    show();
  }

  // --- tables: a click on a header sorts by that column, the next one the other way round
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0];
    const value = (row, i) => row.cells[i].dataset.value;
    table.querySelectorAll("thead th").forEach((head, i) => {
      head.querySelector("button").addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const numeric = i > 0;
        const up = before === null ? !numeric : before === "descending";
        table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...body.rows].sort((a, b) => {
          const x = value(a, i), y = value(b, i);
          if (x === undefined || y === undefined) return (x === undefined) - (y === undefined); // empty cells last
          const order = numeric ? x - y : x.localeCompare(y);
          return up ? order : -order;
        });
        body.append(...rows);
      });
    });
  });

  // --- light and dark, screen and paper
  const button = byId("theme");
  function apply() {
    root.dataset.theme = theme();
    button.querySelector("span").textContent = theme() === "dark" ? "light" : "dark";
    document.querySelectorAll(".js-plotly-plot").forEach((div) => draw(div, div.figure));
  }
  button.addEventListener("click", () => {
    chosen = theme() === "dark" ? "light" : "dark";
    apply();
  });
  dark.addEventListener("change", apply);
  const print = (now) => {
    if (printing === now) return;
    printing = now;
    apply();
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  window.matchMedia("print").addEventListener("change", (event) => print(event.matches));

  root.dataset.theme = theme();
  apply();
  on(runs, showRuns);
  if (model !== null) {
    layer.addEventListener("change", showLayer);
    which.selectedIndex = 0;
    which.addEventListener("change", showResponse);
  }
  on(model, showModel);
  on(study, showStudy);
})();
