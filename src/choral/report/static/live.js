// The page's only script: puts each piece that the server sends in its place, and answers the slider.
"use strict";
const at = (id) => document.getElementById(id);
const slider = at("colluders");
let touched = false;

function showColluders() {
  const rows = at("colluder-table").querySelectorAll("tbody tr");
  const table = at("colluder-table").querySelector("table");
  slider.disabled = rows.length === 0;
  if (rows.length === 0) { at("colluders-out").textContent = at("colluder-table").textContent; return; }
  slider.max = rows.length - 1;
  if (!touched) slider.value = table.dataset.planned;
  const row = rows[Number(slider.value)];
  const number = row.cells[0].textContent;
  at("colluders-n").textContent = number;
  slider.setAttribute("aria-valuetext", number + (number === "1" ? " colluder" : " colluders"));
  at("colluders-out").textContent = row.cells[1].textContent;
}

slider.addEventListener("input", () => { touched = true; showColluders(); });

const source = new EventSource("events");
source.addEventListener("open", () => { at("link").textContent = "following the run"; });
source.addEventListener("place", (event) => {
  const { place, markup } = JSON.parse(event.data);
  at(place).innerHTML = markup;  // made and escaped by the server; the policy lets no script run from it
  if (place === "title") document.title = at(place).textContent + " · choral, live";
  if (place === "colluder-table") showColluders();
});
source.addEventListener("end", () => { source.close(); at("link").textContent = "the run has ended"; });
source.addEventListener("fault", (event) => { source.close(); at("link").textContent = JSON.parse(event.data); });
source.addEventListener("error", () => {
  if (source.readyState !== EventSource.CLOSED) at("link").textContent = "connection lost, trying again…";
});
