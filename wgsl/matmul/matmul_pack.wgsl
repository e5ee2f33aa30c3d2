// y[block, k, lane, 0..3] = rows lane, lane + LANES, ... of a block of 4 * LANES rows of
// a[m, k], as matmul_lanes loads them. An invocation takes four k of its four rows, so
// that it uses more of each cache line that it reads.
// Supplied: get_a4, put_y4, LANES; p: quads (k / 4), row and offset (of a's store).
fn invocation(i: i32) {
  let rest = i / LANES;
  let lane = i - rest * LANES;
  let block = rest / p.quads;
  let quad = rest - block * p.quads;
  let first = p.offset + (block * 4 * LANES + lane) * p.row + quad * 4;
  let next = LANES * p.row;
  let columns = transpose(mat4x4<f32>(
    get_a4(first >> 2u), get_a4((first + next) >> 2u),
    get_a4((first + 2 * next) >> 2u), get_a4((first + 3 * next) >> 2u)));
  let to = rest * 4 * LANES + lane;
  put_y4(to, columns[0]);
  put_y4(to + LANES, columns[1]);
  put_y4(to + 2 * LANES, columns[2]);
  put_y4(to + 3 * LANES, columns[3]);
}
