// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) through workgroup
// memory. A workgroup of 16 x 16 invocations makes 64 x 64 results, 4 x 4 each, from
// slices of 16 k that it loads together.
// Supplied: E (f32 or i32), a_matrix, b_matrix (where a batch's matrices start),
// put_quad (stores what four columns' sums give); p: m, n, k, tiles, tiles_m, tiles_n,
// a_row, a_col, b_row, b_col (strides).
// Limit: 8 KiB of workgroup memory, 256 invocations.
const DEPTH = 16;
const QUADS = 16;
var<workgroup> a_slice: array<vec4<E>, 256>;  // [k][row / 4]
var<workgroup> b_slice: array<vec4<E>, 256>;  // [k][column / 4]

fn a_quad(base: i32, row: i32, k: i32) -> vec4<E> {
  var v = vec4<E>();
  for (var i = 0; i < 4; i++) {
    if (row + i < p.m && k < p.k) {
      v[i] = get_a(base + (row + i) * p.a_row + k * p.a_col);
    }
  }
  return v;
}
fn b_quad(base: i32, k: i32, column: i32) -> vec4<E> {
  var v = vec4<E>();
  for (var i = 0; i < 4; i++) {
    if (column + i < p.n && k < p.k) {
      v[i] = get_b(base + k * p.b_row + (column + i) * p.b_col);
    }
  }
  return v;
}
fn store_quad(batch: i32, row: i32, column: i32, v: vec4<E>) {
  if (row < p.m) { put_quad(batch, row, column, v); }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  // The last workgroups of a folded grid repeat the last tile's sums unseen.
  let wanted = i32(group.x + group.y * groups.x);
  let tile = min(wanted, p.tiles - 1);
  let rest = tile / p.tiles_n;
  let column = (tile - rest * p.tiles_n) * 64;
  let batch = rest / p.tiles_m;
  let row = (rest - batch * p.tiles_m) * 64;
  let a_base = a_matrix(batch);
  let b_base = b_matrix(batch);
  let id = i32(local);
  let low = id % QUADS;
  let high = id / QUADS;
  var c0: vec4<E>;
  var c1: vec4<E>;
  var c2: vec4<E>;
  var c3: vec4<E>;
  for (var k = 0; k < p.k; k += DEPTH) {
    a_slice[low * QUADS + high] = a_quad(a_base, row + high * 4, k + low);
    b_slice[high * QUADS + low] = b_quad(b_base, k + high, column + low * 4);
    workgroupBarrier();
    for (var i = 0; i < DEPTH; i++) {
      let a = a_slice[i * QUADS + high];
      let b = b_slice[i * QUADS + low];
      c0 += a.x * b;
      c1 += a.y * b;
      c2 += a.z * b;
      c3 += a.w * b;
    }
    workgroupBarrier();
  }
  if (wanted < p.tiles) {
    let r = row + high * 4;
    let c = column + low * 4;
    store_quad(batch, r, c, c0);
    store_quad(batch, r + 1, c, c1);
    store_quad(batch, r + 2, c, c2);
    store_quad(batch, r + 3, c, c3);
  }
}
