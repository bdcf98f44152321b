// Packages that only some views need, fetched when the first of these is shown.

const loading = new Map();

function script(name) {
  if (!loading.has(name)) {
    loading.set(name, new Promise((resolve, reject) => {
      const element = document.createElement("script");
      element.src = name;
      element.onload = resolve;
      element.onerror = () => { loading.delete(name); reject(new Error(`${name} could not be read: is \`sandmesh console\` still running?`)); };
      document.head.append(element);
    }));
  }
  return loading.get(name);
}

export async function terminals() {
  await Promise.all([script("xterm.js"), script("xterm-fit.js")]);
  return { Terminal: window.Terminal, FitAddon: window.FitAddon.FitAddon };
}

export async function plots() {
  await script("uplot.js");
  return window.uPlot;
}
