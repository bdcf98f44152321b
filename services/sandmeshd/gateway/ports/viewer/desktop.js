// The page of a desktop: the picture by noVNC.
import RFB from "./novnc/core/rfb.js";
import { address, connected, control, reconnect } from "./control.js";

const [text, clipboard] = ["text", "clipboard"].map((id) => document.getElementById(id));
let rfb = null;

// noVNC leaves a clipboard in its buffer, and reads it as the next message, while it only shows.
class Viewer extends RFB {
  _handleServerCutText() {
    const viewOnly = this._viewOnly;
    this._viewOnly = false;
    try {
      return super._handleServerCutText();
    } finally {
      this._viewOnly = viewOnly;
    }
  }
}

function connect() {
  rfb = new Viewer(document.getElementById("screen"), address(), { shared: true, wsProtocols: ["binary"] });
  rfb.scaleViewport = true;
  rfb.viewOnly = true;
  rfb.background = "transparent";
  rfb.addEventListener("connect", () => {
    connected();
    show();
  });
  rfb.addEventListener("clipboard", (event) => { if (rfb && !rfb.viewOnly) text.value = event.detail.text; });
  rfb.addEventListener("disconnect", () => {
    rfb = null;
    clipboard.hidden = true;
    reconnect(connect);
  });
}

const show = control("desktop", () => rfb !== null, (mine, action) => {
  rfb.viewOnly = !mine;
  clipboard.hidden = !mine;
  if (action === "take" && mine) rfb.focus();
});
text.addEventListener("change", () => { if (rfb && !rfb.viewOnly) rfb.clipboardPasteFrom(text.value); });
connect();
