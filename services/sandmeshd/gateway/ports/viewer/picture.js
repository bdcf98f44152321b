// Images one after another, and what a person in control does: the connection of the pages that draw on a canvas.
import { address, connected, reconnect } from "./control.js";

const chunk = 8192;
const letters = { image: 102, state: 115 };

// Draw on `canvas` from now on; `opened()` is called with each connection, `describe(state)` with each state.
export function pictures(canvas, opened, describe) {
  const picture = canvas.getContext("2d");
  let socket = null;
  let received = new Uint8Array(0);
  let handled = Promise.resolve();

  function connect() {
    socket = new WebSocket(address(), ["binary"]);
    socket.binaryType = "arraybuffer";
    received = new Uint8Array(0);
    socket.addEventListener("open", () => {
      connected();
      opened();
    });
    socket.addEventListener("message", (event) => take(new Uint8Array(event.data)));
    socket.addEventListener("close", () => {
      socket = null;
      reconnect(connect);
    });
  }

  // A message is its length in four bytes, a letter and a body; they come cut as the network likes.
  function take(data) {
    const all = new Uint8Array(received.length + data.length);
    all.set(received);
    all.set(data, received.length);
    let start = 0;
    while (all.length - start >= 4) {
      const end = start + 4 + new DataView(all.buffer, start).getUint32(0);
      if (end > all.length) break;
      const [letter, body] = [all[start + 4], all.slice(start + 5, end)];
      // What a person has to know of does not wait until all pictures before it are drawn.
      if (letter === letters.state) describe(JSON.parse(new TextDecoder().decode(body)));
      else if (letter === letters.image) handled = handled.then(() => draw(body)).catch(console.error);
      start = end;
    }
    received = all.slice(start);
  }

  async function draw(body) {
    const image = new Image();
    image.src = `data:image/${body[0] === 0x89 ? "png" : "jpeg"};base64,${base64(body)}`;
    const [width, height] = await new Promise((done) => {
      image.onload = () => done([image.naturalWidth, image.naturalHeight]);
      image.onerror = () => done([0, 0]);
    });
    if (width) {
      if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
      picture.drawImage(image, 0, 0);
    }
    send("a", "");
  }

  const isOpen = () => socket !== null && socket.readyState === WebSocket.OPEN;

  function send(letter, text) {
    if (!isOpen()) return;
    const body = new TextEncoder().encode(letter + text);
    const data = new Uint8Array(4 + body.length);
    new DataView(data.buffer).setUint32(0, body.length);
    data.set(body, 4);
    socket.send(data);
  }

  return { connect, isOpen, act: (input) => send("i", JSON.stringify(input)) };
}

function base64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += chunk) {
    text += String.fromCharCode(...bytes.subarray(start, start + chunk));
  }
  return btoa(text);
}
