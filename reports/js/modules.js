// Joins the separate UMD modules of Debian's libjs-vega into one `vega` object, without a module loader: every module is
// a function that is called with its own `exports` the first time something requires it.
const kvcastModules = (function () {
  'use strict';
  const bodies = new Map();
  const loaded = new Map();

  function define(name, body) { bodies.set(name, body); }

  function require(name) {
    if (loaded.has(name)) return loaded.get(name);
    if (!bodies.has(name)) throw new Error('module ' + name + ' is not part of this page');
    const module = { exports: {} };
    loaded.set(name, module.exports);
    bodies.get(name)(module.exports, module, require);
    return module.exports;
  }

  // As Vega's own bundle: the exports of `api` under one name, and the transforms of all parts in one list.
  function join(api, transforms) {
    const vega = {};
    for (const name of api) Object.assign(vega, require(name));
    for (const name of transforms) Object.assign(require('vega-dataflow').transforms, require(name));
    return vega;
  }

  return { define, join };
})();
