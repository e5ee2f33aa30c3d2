// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) where loading B is what
// costs: a vector of B is loaded once for ROWS rows, whose sums are in registers.
// A workgroup computes COLUMNS columns. Its invocations are UNITS side by side, for each
// of which SHARES split k: they take a slice of k each in turn. Neighbours have
// neighbouring columns if an invocation has four of them (ACROSS), or else neighbouring
// slices. The sums of all shares are added up in workgroup memory.
// Supplied: a_matrix, b_matrix (where a batch's operands start), put_quad (finishes and
// stores the sums of four columns); p: m, n, slices (of all k), tiles_m, tiles_n; and,
// unrolled because registers have no index, find (where an invocation's loads start),
// multiply_add (AHEAD slices, of which all must exist if HAS_REST), multiply_rest (of
// which some may), add_up (for OUTPUTS quads of columns at once).
// Limit: 16 * SHARES * OUTPUTS bytes of workgroup memory.
var<workgroup> partial: array<vec4<f32>, SHARES * OUTPUTS>;

// Each product is added to the sum of those before it: four instructions.
fn plus_dot(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
  return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

fn store(batch: i32, row: i32, column: i32, id: i32) {
  if (id < OUTPUTS && row < p.m && column < p.n) {
    put_quad(batch, row, column, partial[id]);
  }
}

fn group_invocation(group: i32, id: i32) {
  let rest = group / p.tiles_n;
  let column = (group - rest * p.tiles_n) * COLUMNS;
  let batch = rest / p.tiles_m;
  let row = (rest - batch * p.tiles_m) * ROWS;
  let share = select(id % SHARES, id / UNITS, ACROSS);
  let unit = select(id / SHARES, id % UNITS, ACROSS);
  let first = column + unit * select(1, 4, ACROSS);
  var places = find(a_matrix(batch), b_matrix(batch), row, first);
  var sums: Sums;
  var slice = share;
  let end = p.slices - select(0, (AHEAD - 1) * SHARES, HAS_REST);
  for (; slice < end; slice += AHEAD * SHARES) { multiply_add(&places, slice, &sums); }
  if (HAS_REST && slice < p.slices) { multiply_rest(&places, slice, &sums); }
  add_up(batch, row, column, id, share, unit, &sums);
}
