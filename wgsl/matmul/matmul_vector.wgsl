// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) for m <= 4: every
// element of B is used at most four times, so operands are not shared.
// ALONG invocations split a column's k and add up in workgroup memory.
// Neighbouring invocations take neighbouring columns if BY_COLUMN, else neighbouring k.
// Of four columns, the first invocation of the first one stores the results.
// Supplied: get_a, get_b, ALONG, BY_COLUMN, a_matrix, b_matrix, put_quad (finishes and
// stores the sums of four columns); p: m, n, k, tiles_n, a_row, a_col, b_row, b_col
// (strides).
// Limit: WG is a multiple of 4 * ALONG.
const COLUMNS = WG / ALONG;
var<workgroup> partial: array<vec4<f32>, WG>;

fn group_invocation(group: i32, id: i32) {
  let batch = group / p.tiles_n;
  let share = select(id % ALONG, id / COLUMNS, BY_COLUMN);
  let within = select(id / ALONG, id % COLUMNS, BY_COLUMN);
  let column = (group - batch * p.tiles_n) * COLUMNS + within;
  let a_base = a_matrix(batch);
  let b_base = b_matrix(batch) + min(column, p.n - 1) * p.b_col;
  var sum = vec4<f32>();
  for (var k = share; k < p.k; k += ALONG) {
    let b = get_b(b_base + k * p.b_row);
    let at = a_base + k * p.a_col;
    // A row past the last repeats it; its sum is not stored.
    sum += b * vec4<f32>(get_a(at), get_a(at + min(1, p.m - 1) * p.a_row),
                         get_a(at + min(2, p.m - 1) * p.a_row),
                         get_a(at + min(3, p.m - 1) * p.a_row));
  }
  partial[id] = sum;
  for (var half = ALONG / 2; half > 0; half /= 2) {
    workgroupBarrier();
    let other = id + half * select(1, COLUMNS, BY_COLUMN);
    if (share < half) { partial[id] += partial[other]; }
  }
  workgroupBarrier();
  if (share == 0 && within % 4 == 0 && column < p.n) {
    let next = select(ALONG, 1, BY_COLUMN);
    for (var row = 0; row < p.m; row++) {
      let sums = vec4<f32>(partial[id][row], partial[id + next][row],
                           partial[id + 2 * next][row], partial[id + 3 * next][row]);
      put_quad(batch, row, column, sums);
    }
  }
}
