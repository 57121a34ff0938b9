// How marks and lines are drawn by WebGL. What fades is a uniform, so that to point at something costs what is around it.
import type Sigma from "sigma";
import { EdgeProgram, NodeProgram, type ProgramInfo } from "sigma/rendering";
import type { EdgeDisplayData, NodeDisplayData, RenderParams } from "sigma/types";
import { floatColor } from "sigma/utils";
import type { Shape } from "./picture.ts";

export type Inks = { ground: string; ring: string; accent: string };
// Look is what all marks and lines share: how much is left of those that are not in focus, and colours.
export type Look = { faded: number; inks: Inks };

export const shapes: Record<Shape, number> = { circle: 0, square: 1, hexagon: 2, diamond: 3, ring: 4, dashed: 5 };

// Focus of an item: 0 fades when anything has the focus, 1 has it, 2 is chosen.
export type MarkData = { shape: number; ingress: number; egress: number; inside: number; focus: number };
export type LineData = { width: number; dashed: number; focus: number };

const { FLOAT, UNSIGNED_BYTE, TRIANGLES, TRIANGLE_STRIP } = WebGL2RenderingContext;

// parse returns r, g, b of rgb() or rgba() as they are for WebGL.
function parse(colour: string): [number, number, number] {
  const [r = 0, g = 0, b = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return colour.startsWith("color(srgb") ? [r, g, b] : [r / 255, g / 255, b / 255];
}

const markVertex = /*glsl*/ `
precision highp float;
attribute vec2 a_position;
attribute vec4 a_color;
attribute float a_size;
attribute vec4 a_kind; // shape, share of ingress, share of egress, inside
attribute float a_focus;
attribute vec2 a_corner;
uniform mat3 u_matrix;
uniform vec2 u_view;
uniform float u_sizeRatio;
varying vec4 v_color;
varying vec4 v_kind;
varying vec2 v_at;
varying float v_radius;
varying float v_focus;
void main() {
  float radius = max(a_size / u_sizeRatio, 1.5);
  float box = radius * 1.45 + 4.0;
  vec2 at = (u_matrix * vec3(a_position, 1.0)).xy;
  gl_Position = vec4(at + a_corner * box * 2.0 / u_view, 0.0, 1.0);
  v_at = a_corner * box;
  v_radius = radius;
  v_kind = a_kind;
  v_focus = a_focus;
  v_color = a_color;
  v_color.a *= 255.0 / 254.0;
}`;

const markFragment = /*glsl*/ `
precision highp float;
varying vec4 v_color;
varying vec4 v_kind;
varying vec2 v_at;
varying float v_radius;
varying float v_focus;
uniform float u_faded;
uniform float u_pixelRatio;
uniform vec3 u_ground;
uniform vec3 u_ring;
uniform vec3 u_accent;

// distance_ is how far outside of the shape a point is, in pixels.
float distance_(float shape, vec2 p, float r) {
  vec2 q = abs(p);
  if (shape > 0.5 && shape < 1.5) return max(q.x, q.y) - r * 0.89;
  if (shape > 1.5 && shape < 2.5) return max(q.x * 0.866 + q.y * 0.5, q.y) - r * 0.95;
  if (shape > 2.5 && shape < 3.5) return (q.x + q.y - r * 1.25) * 0.7071;
  return length(p) - r;
}

void main() {
  float shape = v_kind.x;
  float d = distance_(shape, v_at, v_radius);
  float band = clamp(v_radius * 0.17, 1.5, 5.0);
  float space = clamp(v_radius * 0.08, 1.0, 2.5);
  float soft = 0.75 / u_pixelRatio;
  vec3 c = v_color.rgb;
  float a = 1.0 - smoothstep(-soft, soft, d);
  if (shape > 3.5) {
    // What is not one of the groups is hollow.
    float line = max(1.5, band * 0.6);
    a *= smoothstep(-line - soft, -line + soft, d);
    if (shape > 4.5) a *= step(0.35, fract(atan(v_at.y, v_at.x) * 14.0 / 6.2831853));
    float fill = (1.0 - smoothstep(-soft, soft, d)) * (1.0 - a);
    c = mix(u_ground, c, a);
    a = max(a, fill);
  } else {
    // A hole says that its workloads reach each other.
    float hole = v_kind.w * (1.0 - smoothstep(-soft, soft, length(v_at) - v_radius * 0.26));
    c = mix(c, u_ground, hole * step(5.0, v_radius));
    if (d > 0.0) {
      // The ring: its left half fills with the share that is isolated for ingress, its right half for egress.
      float high = (v_at.y / (v_radius + space + band) + 1.0) * 0.5;
      float share = v_at.x < 0.0 ? v_kind.y : v_kind.z;
      float isIn = smoothstep(space - soft, space + soft, d) * (1.0 - smoothstep(space + band - soft, space + band + soft, d));
      float filled = share > 0.0 && high <= share * 1.04 ? 1.0 : 0.0;
      float split = smoothstep(0.0, 1.0, abs(v_at.x) - 0.3);
      float ring = isIn * filled * split;
      c = mix(c, u_ring, ring);
      a = max(a, ring);
    }
  }
  if (v_focus > 1.5) {
    float from = space + band + 2.0;
    float mark = smoothstep(from - 1.0 - soft, from - 1.0 + soft, d) * (1.0 - smoothstep(from + 1.0 - soft, from + 1.0 + soft, d));
    c = mix(c, u_accent, mark);
    a = max(a, mark);
  }
  a *= v_focus > 0.5 ? 1.0 : u_faded;
  if (a < 0.004) discard;
  gl_FragColor = vec4(c * a, a);
}`;

const markUniforms = ["u_matrix", "u_view", "u_sizeRatio", "u_faded", "u_pixelRatio", "u_ground", "u_ring", "u_accent"] as const;

export function markProgram(look: Look) {
  return class extends NodeProgram<(typeof markUniforms)[number]> {
    constructor(gl: WebGLRenderingContext, _picking: WebGLFramebuffer | null, renderer: Sigma) {
      super(gl, null, renderer); // pick.ts says what is where
    }

    getDefinition() {
      return {
        VERTICES: 4,
        VERTEX_SHADER_SOURCE: markVertex,
        FRAGMENT_SHADER_SOURCE: markFragment,
        METHOD: TRIANGLE_STRIP,
        UNIFORMS: markUniforms,
        ATTRIBUTES: [
          { name: "a_position", size: 2, type: FLOAT },
          { name: "a_size", size: 1, type: FLOAT },
          { name: "a_kind", size: 4, type: FLOAT },
          { name: "a_focus", size: 1, type: FLOAT },
          { name: "a_color", size: 4, type: UNSIGNED_BYTE, normalized: true },
        ],
        CONSTANT_ATTRIBUTES: [{ name: "a_corner", size: 2, type: FLOAT }],
        CONSTANT_DATA: [[-1, -1], [1, -1], [-1, 1], [1, 1]],
      };
    }

    processVisibleItem(_id: number, i: number, data: NodeDisplayData) {
      const d = data as NodeDisplayData & MarkData;
      const to = this.array;
      to[i++] = d.x;
      to[i++] = d.y;
      to[i++] = d.size;
      to[i++] = d.shape;
      to[i++] = d.ingress;
      to[i++] = d.egress;
      to[i++] = d.inside;
      to[i++] = d.focus;
      to[i++] = floatColor(d.color);
    }

    setUniforms(params: RenderParams, { gl, uniformLocations: at }: ProgramInfo) {
      gl.uniformMatrix3fv(at["u_matrix"]!, false, params.matrix);
      gl.uniform2f(at["u_view"]!, params.width, params.height);
      gl.uniform1f(at["u_sizeRatio"]!, params.sizeRatio);
      gl.uniform1f(at["u_faded"]!, look.faded);
      gl.uniform1f(at["u_pixelRatio"]!, params.pixelRatio);
      gl.uniform3f(at["u_ground"]!, ...parse(look.inks.ground));
      gl.uniform3f(at["u_ring"]!, ...parse(look.inks.ring));
      gl.uniform3f(at["u_accent"]!, ...parse(look.inks.accent));
    }
  };
}

const lineVertex = /*glsl*/ `
precision highp float;
attribute vec2 a_from;
attribute vec2 a_to;
attribute vec4 a_color;
attribute vec4 a_form; // radius of either end, width, dashed
attribute float a_focus;
attribute vec3 a_corner; // along, across, of the head
uniform mat3 u_matrix;
uniform vec2 u_view;
uniform float u_sizeRatio;
varying vec4 v_color;
varying vec2 v_at;
varying vec4 v_form; // length, width, dashed, head
varying float v_focus;
void main() {
  vec2 from = (u_matrix * vec3(a_from, 1.0)).xy * u_view * 0.5;
  vec2 to = (u_matrix * vec3(a_to, 1.0)).xy * u_view * 0.5;
  vec2 way = to - from;
  float far = length(way);
  vec2 along = far > 0.0 ? way / far : vec2(1.0, 0.0);
  vec2 across = vec2(-along.y, along.x);
  float start = max(a_form.x / u_sizeRatio, 1.5) + 4.0;
  float end = max(a_form.y / u_sizeRatio, 1.5) + 4.0;
  float len = max(far - start - end, 0.0);
  float head = min(5.0 + a_form.z * 1.6, len * 0.6);
  // Few pixels are asked for: a thin body, and a head of its own.
  vec2 body = vec2(a_corner.x * (len - head), a_corner.y * (a_form.z * 0.5 + 1.0));
  vec2 tip = vec2(len - head + a_corner.x * (head + 1.0), a_corner.y * (3.2 + a_form.z * 0.9));
  vec2 at = a_corner.z > 0.5 ? tip : body;
  // Those of each direction have a lane of their own.
  float lane = -min(a_form.z + 1.0, 3.0);
  vec2 p = from + along * (start + at.x) + across * (lane + at.y);
  gl_Position = vec4(p * 2.0 / u_view, 0.0, 1.0);
  v_at = at;
  v_form = vec4(len, a_form.z, a_form.w, head);
  v_focus = a_focus;
  v_color = a_color;
  v_color.a *= 255.0 / 254.0;
}`;

const lineFragment = /*glsl*/ `
precision highp float;
varying vec4 v_color;
varying vec2 v_at;
varying vec4 v_form;
varying float v_focus;
uniform float u_faded;
uniform float u_strength;
uniform float u_pixelRatio;
void main() {
  float soft = 0.7 / u_pixelRatio;
  float head = v_form.w;
  float left = v_form.x - v_at.x;
  float aside = abs(v_at.y);
  float wide = left <= head ? left / max(head, 0.01) * (2.2 + v_form.y * 0.9) : v_form.y * 0.5;
  float a = 1.0 - smoothstep(wide - soft, wide + soft, aside);
  if (v_form.z > 0.5 && left >= head && fract(v_at.x / 9.0) > 0.55) a = 0.0;
  a *= v_color.a * (v_focus > 0.5 ? 1.0 : min(u_faded, 1.0) * u_strength);
  if (a < 0.004) discard;
  gl_FragColor = vec4(v_color.rgb * a, a);
}`;

const lineUniforms = ["u_matrix", "u_view", "u_sizeRatio", "u_faded", "u_strength", "u_pixelRatio"] as const;

export function lineProgram(look: Look & { strength: number }) {
  return class extends EdgeProgram<(typeof lineUniforms)[number]> {
    constructor(gl: WebGLRenderingContext, _picking: WebGLFramebuffer | null, renderer: Sigma) {
      super(gl, null, renderer);
    }

    getDefinition() {
      return {
        VERTICES: 9,
        VERTEX_SHADER_SOURCE: lineVertex,
        FRAGMENT_SHADER_SOURCE: lineFragment,
        METHOD: TRIANGLES,
        UNIFORMS: lineUniforms,
        ATTRIBUTES: [
          { name: "a_from", size: 2, type: FLOAT },
          { name: "a_to", size: 2, type: FLOAT },
          { name: "a_form", size: 4, type: FLOAT },
          { name: "a_focus", size: 1, type: FLOAT },
          { name: "a_color", size: 4, type: UNSIGNED_BYTE, normalized: true },
        ],
        CONSTANT_ATTRIBUTES: [{ name: "a_corner", size: 3, type: FLOAT }],
        CONSTANT_DATA: [[0, -1, 0], [1, -1, 0], [0, 1, 0], [0, 1, 0], [1, -1, 0], [1, 1, 0], [0, -1, 1], [0, 1, 1], [1, 0, 1]],
      };
    }

    processVisibleItem(_id: number, i: number, from: NodeDisplayData, to: NodeDisplayData, data: EdgeDisplayData) {
      const d = data as EdgeDisplayData & LineData;
      const out = this.array;
      out[i++] = from.x;
      out[i++] = from.y;
      out[i++] = to.x;
      out[i++] = to.y;
      out[i++] = from.size;
      out[i++] = to.size;
      out[i++] = d.width;
      out[i++] = d.dashed;
      out[i++] = d.focus;
      out[i++] = floatColor(d.color);
    }

    setUniforms(params: RenderParams, { gl, uniformLocations: at }: ProgramInfo) {
      gl.uniformMatrix3fv(at["u_matrix"]!, false, params.matrix);
      gl.uniform2f(at["u_view"]!, params.width, params.height);
      gl.uniform1f(at["u_sizeRatio"]!, params.sizeRatio);
      gl.uniform1f(at["u_faded"]!, look.faded);
      gl.uniform1f(at["u_strength"]!, look.strength);
      gl.uniform1f(at["u_pixelRatio"]!, params.pixelRatio);
    }
  };
}
