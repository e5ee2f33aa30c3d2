// A matrix product tiled through workgroup memory: ROWS x COLUMNS results per
// workgroup, HIGH x WIDE per invocation, from slices of DEPTH k that a workgroup loads
// together, four rows or columns at a time.
// Supplied: E (f32 or i32); accumulate (one k of a slice); a_matrix, b_matrix (where a
// batch's operands start), a_quad(base, row, k), b_quad(base, k, column) (zeros beyond
// the edges), store_quad(batch, row, column, v); ROWS, COLUMNS, HIGH, WIDE (multiples
// of 4), DEPTH, A_DEEP, B_DEEP (whether neighbouring invocations load along k), WG =
// (ROWS / HIGH) * (COLUMNS / WIDE); p: k, tiles_m, tiles_n.
// Limit: 16 * DEPTH * (ROWS / 4 + COLUMNS / 4 + 2) bytes of workgroup memory.
const A_QUADS = ROWS / 4;
const B_QUADS = COLUMNS / 4;
const HIGHS = ROWS / HIGH;
const LOWS = COLUMNS / WIDE;
const ACROSS = WIDE / 4;
// One vec4 of padding, so that neighbours along k are in different memory banks.
const A_PITCH = A_QUADS + 1;
const B_PITCH = B_QUADS + 1;
alias Block = array<vec4<E>, HIGH * ACROSS>;
var<workgroup> a_slice: array<vec4<E>, DEPTH * A_PITCH>;  // [k][row / 4]
var<workgroup> b_slice: array<vec4<E>, DEPTH * B_PITCH>;  // [k][column / 4]

// (k, row / 4 or column / 4) of the i-th of `quads` * DEPTH vectors of a slice.
fn vector_of(i: i32, quads: i32, deep: bool) -> vec2<i32> {
  if (deep) { return vec2<i32>(i % DEPTH, i / DEPTH); }
  return vec2<i32>(i / quads, i % quads);
}

fn group_invocation(group: i32, id: i32) {
  let rest = group / p.tiles_n;
  let column = (group - rest * p.tiles_n) * COLUMNS;
  let batch = rest / p.tiles_m;
  let row = (rest - batch * p.tiles_m) * ROWS;
  let a_base = a_matrix(batch);
  let b_base = b_matrix(batch);
  let low = id % LOWS;
  let high = id / LOWS;
  var c: Block;
  for (var k = 0; k < p.k; k += DEPTH) {
    for (var i = id; i < DEPTH * A_QUADS; i += WG) {
      let at = vector_of(i, A_QUADS, A_DEEP);
      a_slice[at.x * A_PITCH + at.y] = a_quad(a_base, row + at.y * 4, k + at.x);
    }
    for (var i = id; i < DEPTH * B_QUADS; i += WG) {
      let at = vector_of(i, B_QUADS, B_DEEP);
      b_slice[at.x * B_PITCH + at.y] = b_quad(b_base, k + at.x, column + at.y * 4);
    }
    workgroupBarrier();
    for (var i = 0; i < DEPTH; i++) { accumulate(i, high, low, &c); }
    workgroupBarrier();
  }
  // A copy, because an array that is indexed by a variable is not kept in registers.
  var results = c;
  for (var i = 0; i < HIGH; i++) {
    let r = row + (high + (i / 4) * HIGHS) * 4 + i % 4;
    for (var j = 0; j < ACROSS; j++) {
      store_quad(batch, r, column + (low + j * LOWS) * 4, results[i * ACROSS + j]);
    }
  }
}
