"use strict";
{
  const root = document.documentElement;
  root.dataset.script = "on";

  // Tables: the first press sorts, the second turns the order round, the third restores it.
  const turned = { ascending: "descending", descending: "ascending" };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const said = table.parentElement.querySelector(":scope > .said");
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      const first = head.dataset.first || "ascending";
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const next = now === null ? first : now === first ? turned[first] : null;
        for (const other of heads) other.removeAttribute("aria-sort");
        if (next) head.setAttribute("aria-sort", next);
        body.append(...(next ? sorted(rows, column, next) : rows));
        if (said) said.textContent = next ? `Sorted by ${button.textContent.trim()}, ${next}` : "Ranked order";
      });
    });
  }

  // What has no value stands last whichever way the others go; equal rows keep their order.
  function sorted(rows, column, order) {
    const sign = order === "ascending" ? 1 : -1;
    const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const numbers = rows.every(row => "value" in row.cells[column].dataset);
    return [...rows].sort((one, two) => {
      const a = key(one), b = key(two);
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * (numbers ? Number(a) - Number(b) : a.localeCompare(b, "en", { numeric: true }));
    });
  }

  // Paper cannot be clicked: what is folded is printed open, and folded again afterwards. Of harder
  // conditions only what the reader opened is printed: verdict and ranking say what counts.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")].filter(one => !one.closest(".harder"));
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
    folded = [];
  });

  // A jump to something folded opens it.
  const unfold = () => {
    // Names of our own are plain: nothing is decoded, and a damaged address does no harm.
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
}
