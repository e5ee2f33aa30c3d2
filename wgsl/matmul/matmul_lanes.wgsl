// y[b, m, n] = finish(sum over k of a[b, m, k] * b[b, k, n]), without barriers.
// A subgroup of LANES lanes computes a tile of ROWS x (4 * LANES) results: each lane
// holds four columns of every row in registers. Per k, a lane loads its share of A's
// rows, which all lanes use, and a vec4 of B for its own columns.
// Supplied: ROWS, LANES, A_LOADS, UNROLL; lane_of, tile_of; begin (where a lane's loads
// start), columns_of, store_row (finishes and stores four columns); and, unrolled
// because registers have no index, multiply_add (adds the products of UNROLL k).
// p: m, n, k (a multiple of UNROLL), tiles, tiles_m, tiles_n, a_stride and b_stride
// (along k).
// Limit: all indices fit 31 bits.
alias Tile = array<vec4<f32>, ROWS>;
alias RowStarts = array<i32, A_LOADS>;
alias ColumnStarts = vec4<i32>;

fn group_invocation(group: i32, id: i32) {
  let lane = lane_of(id);
  let tile = tile_of(group, id);
  if (tile >= p.tiles) { return; }
  let rest = tile / p.tiles_n;
  let tile_n = tile - rest * p.tiles_n;
  let batch = rest / p.tiles_m;
  let tile_m = rest - batch * p.tiles_m;
  var a_start: RowStarts;
  var b_start: ColumnStarts;
  begin(batch, tile_m, tile_n, lane, &a_start, &b_start);
  var c: Tile;
  var a_at = 0;
  var b_at = 0;
  // Before the loop, because drivers load a parameter again in each iteration.
  let a_stride = p.a_stride;
  let b_stride = p.b_stride;
  for (var left = p.k / UNROLL; left > 0; left--) {
    multiply_add(&a_start, &b_start, a_at, b_at, a_stride, b_stride, &c);
    a_at += a_stride * UNROLL;
    b_at += b_stride * UNROLL;
  }
  // A copy, because an array that is indexed by a variable is not kept in registers.
  var results = c;
  let columns = columns_of(tile_n, lane);
  for (var i = 0; i < ROWS; i++) {
    let row = tile_m * ROWS + i;
    if (row < p.m) {
      store_row(batch, row, columns, results[i]);
    }
  }
}
