// A matrix product tiled through workgroup memory: ROWS x COLUMNS results per
// workgroup, HIGH x WIDE per invocation, from slices of DEPTH k that a workgroup loads
// together. While one slice is multiplied, the next is on its way into registers.
// Whatever the operands' layouts, a slice of A is kept as [row][k / 4] and one of B as
// [k][column / 4]: an invocation multiplies four k of HIGH rows and WIDE columns with
// HIGH + WIDE reads.
// Supplied: E (f32 or i32); find, fetch, keep, accumulate and store_sums, which are
// unrolled because registers have no index; a_matrix, b_matrix (where a batch's operands
// start); ROWS, COLUMNS, HIGH, WIDE, DEPTH (multiples of 4), A_DEEP, B_DEEP (whether
// neighbouring invocations load along k; for B also that a load has four k of a column,
// not four columns of a k), WG = (ROWS / HIGH) * (COLUMNS / WIDE); p: k, tiles_m,
// tiles_n.
// Limit: 16 * (ROWS * (DEPTH / 4 + 1) + DEPTH * (COLUMNS / 4 + 1)) bytes of workgroup
// memory; WG divides ROWS * DEPTH / 4 and COLUMNS * DEPTH / 4.
const DEEP = DEPTH / 4;
const QUADS = COLUMNS / 4;
const HIGHS = ROWS / HIGH;
const LOWS = COLUMNS / WIDE;
const ACROSS = WIDE / 4;
// A vec4 of padding, so that neighbours across the rows are in different banks.
const A_PITCH = DEEP + 1;
const B_PITCH = QUADS + 1;
alias Sums = array<vec4<E>, HIGH * ACROSS>;
// What one invocation loads of a slice.
struct Share {
  a: array<vec4<E>, ROWS * DEEP / WG>,
  b: array<vec4<E>, DEPTH * QUADS / WG>,
}
// Arrays of arrays, because compilers confine every index: here an invocation's row and
// column are two, found once, while the k of a read is a constant.
var<workgroup> a_slice: array<array<vec4<E>, A_PITCH>, ROWS>;
var<workgroup> b_slice: array<array<vec4<E>, B_PITCH>, DEPTH>;

// Row, and k in the slice, of the i-th vector of A.
fn a_row(i: i32) -> i32 { return select(i % ROWS, i / DEEP, A_DEEP); }
fn a_k(i: i32) -> i32 { return 4 * select(i / ROWS, i % DEEP, A_DEEP); }
// Column, and k in the slice, of the i-th vector of B.
fn b_column(i: i32) -> i32 { return select(i % QUADS * 4, i / DEEP, B_DEEP); }
fn b_k(i: i32) -> i32 { return select(i / QUADS, i % DEEP * 4, B_DEEP); }

fn keep_a(i: i32, v: vec4<E>) { a_slice[a_row(i)][a_k(i) / 4] = v; }
fn keep_b(i: i32, v: vec4<E>) {
  let k = b_k(i);
  let quad = b_column(i) / 4;
  if (B_DEEP) {
    let column = b_column(i) % 4;
    b_slice[k][quad][column] = v.x;
    b_slice[k + 1][quad][column] = v.y;
    b_slice[k + 2][quad][column] = v.z;
    b_slice[k + 3][quad][column] = v.w;
  } else {
    b_slice[k][quad] = v;
  }
}

fn group_invocation(group: i32, id: i32) {
  let rest = group / p.tiles_n;
  let column = (group - rest * p.tiles_n) * COLUMNS;
  let batch = rest / p.tiles_m;
  let row = (rest - batch * p.tiles_m) * ROWS;
  let low = id % LOWS;
  let high = id / LOWS;
  var places = find(a_matrix(batch), b_matrix(batch), row, column, id);
  var next = fetch(&places, id, 0);
  var sums: Sums;
  for (var k = 0; k < p.k; k += DEPTH) {
    keep(&next, id);
    workgroupBarrier();
    next = fetch(&places, id, k + DEPTH);
    for (var i = 0; i < DEEP; i++) { accumulate(i, high, low, &sums); }
    workgroupBarrier();
  }
  store_sums(batch, row + high, column + low * 4, &sums);
}
