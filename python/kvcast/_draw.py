"""Charts as SVG, drawn by Vega in Node.js."""

import json
import shutil
import subprocess

_SCRIPT = """
globalThis.window = globalThis;
const chunks = [];
process.stdin.on('data', chunk => chunks.push(chunk)).on('end', () => {
  const { vega, canvas, spec } = JSON.parse(Buffer.concat(chunks));
  const widthOf = (text, font) => 0.55 * text.length * Number((/([\\d.]+)px/.exec(font) || [0, 11])[1]);
  new Function('window', 'document', vega)(window, require(canvas).makeDocument(widthOf));
  const view = new window.vega.View(window.vega.parse(spec), { renderer: 'none' });
  view.runAsync().then(() => view.toSVG()).then(svg => process.stdout.write(svg));
});
"""


def draw(spec, parts):
    """The drawing of a specification; None without Node.js.

    parts: returns Vega as a script that sets window.vega, and the module that stands in for a browser's canvas.
    """
    node = shutil.which('node')
    if node is None:
        return None
    vega, canvas = parts()
    done = subprocess.run([node, '-e', _SCRIPT], input=json.dumps({'vega': vega, 'canvas': canvas, 'spec': spec}), capture_output=True,
                          text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f'Vega cannot draw the chart: {done.stderr.strip()[-500:]}')
    return done.stdout
