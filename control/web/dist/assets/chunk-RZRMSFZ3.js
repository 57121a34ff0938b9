function d(n,e){return Object.hasOwn(n,e)?n[e]:void 0}export{d as a};
