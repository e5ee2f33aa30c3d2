// y[n, g, o, z, y, x] = bias + sum over i, taps of w[g, o, i, tap] * x[n, g, i, pixel
// of the tap], without barriers; zeros surround x. A tile belongs to LANES lanes:
// each holds four neighbouring pixels of DOWN output rows for ROWS filters in
// registers, loads its own pixels, and shares the weights with the other lanes.
// Supplied: ROWS, DOWN, LANES, UY, UX (taps per step), WG; lane_of, tile_of; step (UY x UX
// taps of one channel, unrolled because registers have no index) and store_quad
// (bias and put_y of four pixels).
// p: tiles, pixel_tiles, blocks (of filters, per group), quads (of pixels, in all),
// quads_x, rows_y, out_z, channels (per group), filters (per group), kernel z/y/x,
// stride, pad, dilation and size of z, y, x; x_n, x_c, x_z, x_y, x_x, x_offset
// (strides of x); w_step, w_block (elements per step and per block of filters).
alias Tile = array<vec4<f32>, ROWS * DOWN>;

struct Place { image: i32, z: i32, y: i32, x: i32 }

fn place_of(quad: i32) -> Place {
  let row = quad / p.quads_x;
  let plane = row / p.rows_y;
  let image = plane / p.out_z;
  return Place(image, plane - image * p.out_z, (row - plane * p.rows_y) * DOWN,
               (quad - row * p.quads_x) * 4);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let lane = lane_of(local);
  let tile = tile_of(i32(group.x + group.y * groups.x), local);
  if (tile >= p.tiles) { return; }
  let block = tile / p.pixel_tiles;
  let quad = (tile - block * p.pixel_tiles) * LANES + lane;
  let at = place_of(min(quad, p.quads - 1));
  let part = block / p.blocks;
  var plane = p.x_offset + at.image * p.x_n + part * p.channels * p.x_c;
  let z0 = at.z * p.stride_z - p.pad_z;
  let y0 = at.y * p.stride_y - p.pad_y;
  let x0 = at.x * p.stride_x - p.pad_x;
  var w_at = block * p.w_block;
  var c: Tile;
  for (var i = 0; i < p.channels; i++) {
    for (var kz = 0; kz < p.kernel_z; kz++) {
      let z = z0 + kz * p.dilation_z;
      let inside = z >= 0 && z < p.size_z;
      let slice = plane + clamp(z, 0, p.size_z - 1) * p.x_z;
      for (var ky = 0; ky < p.kernel_y; ky += UY) {
        for (var kx = 0; kx < p.kernel_x; kx += UX) {
          step(slice, inside, y0 + ky * p.dilation_y, x0 + kx * p.dilation_x,
               w_at, lane, &c);
          w_at += p.w_step;
        }
      }
    }
    plane += p.x_c;
  }
  if (quad < p.quads) {
    // Another variable, because registers have no index and this loop needs one.
    var results = c;
    let first = (block - part * p.blocks) * ROWS;
    for (var i = 0; i < ROWS * DOWN; i++) {
      store_quad(at, part, first + i % ROWS, i / ROWS, results[i]);
    }
  }
}
