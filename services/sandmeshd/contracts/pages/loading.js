// A page of which a part did not arrive would stay empty: it is loaded again, a few times, and says so then.
{
  const [key, most, milliseconds] = ["loads", 3, 1000];
  const stored = (use) => { try { return use(sessionStorage); } catch { return null; } };
  let broken = false;
  addEventListener("error", ({ target }) => {
    if (broken || !["SCRIPT", "LINK"].includes(target.tagName) || target.rel === "modulepreload") return;
    broken = true;
    const times = stored((all) => Number(all.getItem(key) ?? 0)) ?? most;
    if (times < most) {
      stored((all) => all.setItem(key, times + 1));
      setTimeout(() => location.reload(), milliseconds * (times + 1));
    } else {
      document.querySelector("#status, .loading").textContent = "A part of this page did not arrive. Reload it to try again.";
    }
  }, true);
  addEventListener("load", () => { if (!broken) stored((all) => all.removeItem(key)); });
}
