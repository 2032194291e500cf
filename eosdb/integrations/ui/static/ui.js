// Live pages: when the server says that something changed, the page is fetched again and its main part is
// put in the place of the old one. Nothing is swapped while somebody types or has text selected.
"use strict";
(() => {
  const state = document.getElementById("state");

  const remember = () => {
    const found = /^#token=(.+)$/.exec(location.hash);
    if (found) {
      sessionStorage.setItem("token", found[1]);
      history.replaceState(null, "", location.pathname + location.search);
    }
  };

  const fillTokens = () => {
    const token = sessionStorage.getItem("token");
    if (!token) return;
    for (const label of document.querySelectorAll(".token")) {
      label.querySelector("input").value = token;
      label.hidden = true;
    }
  };

  const busy = () => {
    const active = document.activeElement;
    const typing = active && ["INPUT", "SELECT", "TEXTAREA"].includes(active.tagName);
    return typing || String(getSelection()) !== "";
  };

  let fetching = false;
  let again = false;

  const refresh = async () => {
    if (document.hidden || busy() || fetching) {
      again = true;
      return;
    }
    fetching = true;
    again = false;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const text = await answer.text();
      if (busy()) {
        again = true;
        return;
      }
      const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
      const old = document.getElementById("main");
      const active = old.contains(document.activeElement) ? document.activeElement : null;
      const href = active && active.getAttribute("href");
      const focused = active && (active.id ? `#${CSS.escape(active.id)}` : href && `#main a[href="${CSS.escape(href)}"]`);
      const open = [...old.querySelectorAll("details")].map((one) => one.open);
      const scrolled = [...old.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
      old.replaceWith(document.importNode(fresh, true));
      document.querySelectorAll("#main .scroll").forEach((one, i) => {
        one.scrollLeft = scrolled[i] || 0;
      });
      document.querySelectorAll("#main details").forEach((one, i) => {
        one.open = open[i] || false;
      });
      const same = focused && document.querySelector(focused);
      if (same) same.focus({ preventScroll: true });
      fillTokens();
    } catch {
      again = true;
    } finally {
      fetching = false;
    }
  };

  remember();
  fillTokens();
  // The page of a change, before it and after, must stay.
  if (!/^\/(replay|abort)$/.test(location.pathname)) {
    const live = new EventSource("/live");
    let first = true;
    live.addEventListener("change", () => {
      if (first) first = false;
      else refresh();
    });
    live.onopen = () => {
      state.textContent = "live";
      state.className = "state on";
    };
    live.onerror = () => {
      state.textContent = "not connected";
      state.className = "state off";
      first = false;
    };
    setInterval(() => {
      if (again) refresh();
    }, 1000);
  }
})();
