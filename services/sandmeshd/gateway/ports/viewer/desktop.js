// The page of a desktop: the picture by noVNC.
import RFB from "./novnc/core/rfb.js";
import { address, control, reconnect } from "./control.js";

const text = document.getElementById("text");
let rfb = null;

function connect() {
  rfb = new RFB(document.getElementById("screen"), address(), { shared: true, wsProtocols: ["binary"] });
  rfb.scaleViewport = true;
  rfb.viewOnly = true;
  rfb.addEventListener("connect", () => show());
  rfb.addEventListener("clipboard", (event) => { text.value = event.detail.text; });
  rfb.addEventListener("disconnect", () => {
    rfb = null;
    reconnect(connect);
  });
}

const show = control("desktop", () => rfb !== null, (mine, action) => {
  rfb.viewOnly = !mine;
  if (action === "take" && mine) rfb.focus();
});
text.addEventListener("change", () => { if (rfb && !rfb.viewOnly) rfb.clipboardPasteFrom(text.value); });
connect();
