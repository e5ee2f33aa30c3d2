// A matrix product tiled through workgroup memory: ROWS x COLUMNS results per
// workgroup, HIGH x WIDE per invocation, from slices of DEPTH k that a workgroup loads
// together. While one slice is multiplied, the next is on its way into registers.
// An invocation multiplies four k of HIGH rows and WIDE columns with HIGH + WIDE reads.
// The k of a slice are split among SPLIT invocations, whose sums are added in the end.
// Supplied: E (what slices hold: f32, f16 or i32), S (what sums are: f32 or i32); find,
// fetch, trim, keep, multiply, add_splits and store_sums, which are unrolled because
// registers have no index; a_matrix, b_matrix (where a batch's operands start); ROWS,
// COLUMNS, HIGH, WIDE, DEPTH (multiples of 4), SPLIT, IS_SHORT (p.k < DEPTH), IS_WHOLE
// (p.k is a multiple of DEPTH), A_DEEP, B_DEEP (whether neighbouring invocations load
// along k; for B also that a load has four k of a column, not four columns of a k),
// WG = (ROWS / HIGH) * (COLUMNS / WIDE) * SPLIT;
// p: k, rows_first (1: neighbouring workgroups have neighbouring rows), tiles_first and
// tiles_last (tiles in a row or column of the results, and such rows or columns).
// Limit: gpu_tiles.py counts the bytes of workgroup memory; WG divides ROWS * DEPTH / 4
// and COLUMNS * DEPTH / 4.
const DEEP = DEPTH / 4;
const QUADS = COLUMNS / 4;
const HIGHS = ROWS / HIGH;
const LOWS = COLUMNS / WIDE;
const ACROSS = WIDE / 4;
const SPLIT_DEEP = DEEP / SPLIT;
// A vec4 of padding, so that neighbours across the rows are in different banks.
const PITCH = SPLIT_DEEP + 1;
alias Sums = array<vec4<S>, HIGH * ACROSS>;
// What one invocation loads of a slice.
struct Share {
  a: array<vec4<E>, ROWS * DEEP / WG>,
  b: array<vec4<E>, DEPTH * QUADS / WG>,
}
// By an invocation's HIGH rows, then by invocation: of the indices of a read, only
// `split` and `high` are no constants. B likewise if it is loaded along k, else by k and
// quads of columns.
var<workgroup> a_slice: array<array<array<array<vec4<E>, PITCH>, HIGHS>, HIGH>, SPLIT>;
var<workgroup> b_slice: BSlice;

// Row, and k / 4 in the slice, of the i-th vector of A.
fn a_row(i: i32) -> i32 { return select(i % ROWS, i / DEEP, A_DEEP); }
fn a_four(i: i32) -> i32 { return select(i / ROWS, i % DEEP, A_DEEP); }
fn a_k(i: i32) -> i32 { return 4 * a_four(i); }
// Column, and k in the slice, of the i-th vector of B.
fn b_column(i: i32) -> i32 { return select(i % QUADS * 4, i / DEEP, B_DEEP); }
fn b_k(i: i32) -> i32 { return select(i / QUADS, i % DEEP * 4, B_DEEP); }

fn keep_a(i: i32, v: vec4<E>) {
  let row = a_row(i);
  let four = a_four(i);
  a_slice[four / SPLIT_DEEP][row / HIGHS][row % HIGHS][four % SPLIT_DEEP] = v;
}

fn group_invocation(group: i32, id: i32) {
  let rest = group / p.tiles_first;
  let first = group - rest * p.tiles_first;
  let batch = rest / p.tiles_last;
  let last = rest - batch * p.tiles_last;
  let row = select(last, first, p.rows_first == 1) * ROWS;
  let column = select(first, last, p.rows_first == 1) * COLUMNS;
  // Compilers confine every index of a slice. What is confined here is so for good.
  let low = min(u32(id) % u32(LOWS), u32(LOWS - 1));
  let high = min(u32(id) / u32(LOWS) % u32(HIGHS), u32(HIGHS - 1));
  let split = min(u32(id) / u32(LOWS * HIGHS), u32(SPLIT - 1));
  var places = find(a_matrix(batch), b_matrix(batch), row, column, id);
  var share = fetch(&places, id, 0);
  keep(&share, id);
  var sums: Sums;
  for (var k = 0; k < p.k; k += DEPTH) {
    workgroupBarrier();
    // The last slice ends where k does. It has zeros instead of what others had before;
    // what is loaded behind it is not used.
    let next = k + DEPTH;
    let last = p.k - DEPTH;
    share = fetch(&places, id, select(min(next, last), next, IS_SHORT));
    multiply(split, high, low, &sums);
    workgroupBarrier();
    if (!IS_SHORT && !IS_WHOLE && next > last) { trim(&share, id, next - last); }
    keep(&share, id);
  }
  add_splits(id, &sums);
  if (split == 0u) {
    store_sums(batch, row + i32(high), column + i32(low) * 4, &sums);
  }
}
