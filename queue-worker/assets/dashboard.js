"use strict";
// Sends operations as JSON, shows the message of the response, and reloads the live part of the page. All pages are readable without this file.
(() => {
  const base = document.body.dataset.base;
  const notice = document.getElementById("notice");

  const showMessage = (text, failed) => {
    const line = document.createElement("p");
    line.textContent = text;
    if (failed) line.className = "failed";
    notice.replaceChildren(line);
    setTimeout(() => line.remove(), failed ? 15000 : 6000);
  };

  // Reloads only the live part, which preserves input and collapsed elements elsewhere.
  const reloadLive = () => {
    const live = document.getElementById("live");
    if (!live) return Promise.resolve();
    return htmx.ajax("GET", location.href, { target: "#live", select: "#live", swap: "outerHTML" });
  };

  const send = async (address, body) => {
    const answer = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      credentials: "same-origin",
      redirect: "error",
    });
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(found.error || `request failed (${answer.status})`);
    return found;
  };

  const fields = (form) => {
    const body = {};
    for (const field of form.elements) {
      if (!field.name || (field.type === "checkbox" && !field.checked)) continue;
      if ("path" in field.dataset) continue;
      let value = field.value;
      if (field.type === "number") value = value === "" ? null : Number(value);
      if (field.dataset.type === "bool") value = value === "true";
      if (field.dataset.type === "number") value = Number(value);
      if (value === "" && field.dataset.type !== "text") continue;
      const path = field.name.split(".");
      const last = path.pop();
      path.reduce((place, key) => (place[key] ??= {}), body)[last] = value;
    }
    return body;
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.act) return;
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    try {
      const body = fields(form);
      let question = form.dataset.confirm;
      if (form.dataset.count) {
        const { jobs, text } = await send(form.dataset.count, body);
        if (jobs === 0) return showMessage(text);
        body.at_most = jobs;
        question = `${text}. Continue?`;
      }
      if (question && !confirm(question)) return;
      const part = form.querySelector("[data-path]");
      const address = part ? form.dataset.act.replace(`{${part.name}}`, encodeURIComponent(part.value)) : form.dataset.act;
      const { text } = await send(address, body);
      document.activeElement?.blur();
      showMessage(text);
      await reloadLive();
    } catch (error) {
      showMessage(error.message, true);
    } finally {
      button.disabled = false;
    }
  });

  // Live updates arrive as server-sent events. They are paused while the tab is hidden, and skipped while the live part has focus or a request runs.
  const part = document.querySelector("#live[data-live]");
  let source = null;
  const startUpdates = () => {
    if (source || document.hidden) return;
    source = new EventSource(`${base}/live${part.dataset.live}`);
    source.addEventListener("part", (event) => {
      const live = document.getElementById("live");
      if (!live || live.contains(document.activeElement) || document.querySelector("button:disabled")) return;
      htmx.swap(live, event.data, { swapStyle: "innerHTML" });
    });
  };
  const stopUpdates = () => {
    source?.close();
    source = null;
  };
  if (part) {
    startUpdates();
    document.addEventListener("visibilitychange", () => (document.hidden ? stopUpdates() : startUpdates()));
    addEventListener("pagehide", stopUpdates);
    addEventListener("pageshow", startUpdates);
  }

  // Moves the row selection with j and k.
  const move = (by) => {
    const rows = [...document.querySelectorAll("table.rows tbody tr")];
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.classList.contains("at"));
    const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))];
    rows.forEach((row) => row.classList.toggle("at", row === next));
    next.querySelector("a")?.focus();
    next.scrollIntoView({ block: "nearest" });
  };

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    const keys = {
      "/": () => document.getElementById("find")?.select(),
      j: () => (before === "g" && document.getElementById("find") ? location.assign(`${base}/jobs`) : move(1)),
      k: () => move(-1),
      h: () => before === "g" && location.assign(base || "/"),
      r: () => reloadLive(),
      "?": () => document.getElementById("keys")?.showModal(),
    };
    const act = keys[event.key];
    if (act) {
      event.preventDefault();
      act();
    }
    before = event.key;
  });
})();
