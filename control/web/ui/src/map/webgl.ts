let known: boolean | undefined;

// hasWebGL says whether the browser can draw by WebGL 2. It asks once.
export function hasWebGL(): boolean {
  if (known === undefined) {
    const gl = typeof WebGL2RenderingContext === "undefined" ? null : document.createElement("canvas").getContext("webgl2");
    known = gl !== null;
    gl?.getExtension("WEBGL_lose_context")?.loseContext(); // browsers allow few
  }
  return known;
}
