// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]) for m <= 4: every
// element of B is used at most four times, so nothing is shared but the sum.
// ALONG invocations divide a column's k among them and add up in workgroup memory;
// ALONG is 1 where neighbouring columns are neighbours in memory. The first of four
// columns' invocations stores what the four give.
// Supplied: ALONG, a_matrix, b_matrix, put_quad (stores what four columns' sums
// give); p: m, n, k, tiles, tiles_n, a_row, a_col, b_row, b_col (strides).
// Limit: WG is a multiple of 4 * ALONG.
const COLUMNS = WG / ALONG;
var<workgroup> partial: array<vec4<f32>, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let wanted = i32(group.x + group.y * groups.x);
  let tile = min(wanted, p.tiles - 1);
  let batch = tile / p.tiles_n;
  let id = i32(local);
  let column = (tile - batch * p.tiles_n) * COLUMNS + id / ALONG;
  let a_base = a_matrix(batch);
  let b_base = b_matrix(batch) + min(column, p.n - 1) * p.b_col;
  var sum = vec4<f32>();
  for (var k = id % ALONG; k < p.k; k += ALONG) {
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
    if (id % ALONG < half) { partial[id] += partial[id + half]; }
  }
  workgroupBarrier();
  if (wanted < p.tiles && id % (4 * ALONG) == 0 && column < p.n) {
    for (var row = 0; row < p.m; row++) {
      let sums = vec4<f32>(partial[id][row], partial[id + ALONG][row],
                           partial[id + 2 * ALONG][row], partial[id + 3 * ALONG][row]);
      put_quad(batch, row, column, sums);
    }
  }
}
