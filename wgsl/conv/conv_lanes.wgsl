// y[n, g, o, z, y, x] = bias + sum over taps, i of w[g, o, i, tap] * x[n, g, i, pixel
// of the tap], without barriers; x is padded with zeros. A subgroup of LANES lanes
// computes a tile: each lane holds four neighbouring pixels of ROWS filters in
// registers, loads its own pixels, and shares the weights with the other lanes.
// Supplied: ROWS, LANES; lane_of, tile_of; W_STARTS, begin (where a lane's weights
// start), W_STEP (from a channel's weight to the next's), next_tap (from behind the last
// channel's to the next tap's), tap (one tap of one channel, unrolled because registers
// have no index), bias_of, put_pixels(line, x, v) (stores four pixels of an output line);
// p: tiles, groups, pixel_tiles, blocks (of filters, per group),
// quads (of pixels, in all), quads_x, made_z and made_y (output slices and rows),
// channels and filters (per group), kernel_, stride_, pad_, dilation_ and size_ of z, y,
// x; whole_ (output size), first_ and every_ (first and stride of the output pixels that
// are computed) of z, y, x; x_n, x_c, x_z, x_y, x_x, x_offset (strides of x).
alias Tile = array<vec4<f32>, ROWS>;
alias WeightStarts = array<i32, W_STARTS>;

// Four neighbouring pixels, by the first.
struct Pixels { image: i32, z: i32, y: i32, x: i32 }

fn pixels_of(quad: i32) -> Pixels {
  let row = quad / p.quads_x;
  let plane = row / p.made_y;
  let image = plane / p.made_z;
  return Pixels(image, plane - image * p.made_z, row - plane * p.made_y,
                (quad - row * p.quads_x) * 4);
}

fn store_quad(at: Pixels, conv_group: i32, filter_: i32, v: vec4<f32>) {
  if (filter_ >= p.filters) { return; }
  let channel = conv_group * p.filters + filter_;
  let z = at.z * p.every_z + p.first_z;
  let y = at.y * p.every_y + p.first_y;
  let plane = (at.image * p.groups * p.filters + channel) * p.whole_z + z;
  put_pixels((plane * p.whole_y + y) * p.whole_x, at.x, v + bias_of(channel));
}

fn group_invocation(group: i32, id: i32) {
  let lane = lane_of(id);
  let tile = tile_of(group, id);
  if (tile >= p.tiles) { return; }
  let block = tile / p.pixel_tiles;
  let quad = (tile - block * p.pixel_tiles) * LANES + lane;
  let at = pixels_of(min(quad, p.quads - 1));
  let conv_group = block / p.blocks;
  let first = p.x_offset + at.image * p.x_n + conv_group * p.channels * p.x_c;
  let x0 = (vec4<i32>(0, 1, 2, 3) + at.x) * p.stride_x - p.pad_x;
  // Before the loop, because drivers load a parameter again in each iteration.
  let channels = p.channels;
  let x_c = p.x_c;
  var w_start: WeightStarts;
  begin(block, conv_group, lane, &w_start);
  var w_at = 0;
  var c: Tile;
  for (var kz = 0; kz < p.kernel_z; kz++) {
    let z = at.z * p.stride_z - p.pad_z + kz * p.dilation_z;
    let slice = first + clamp(z, 0, p.size_z - 1) * p.x_z;
    for (var ky = 0; ky < p.kernel_y; ky++) {
      let y = at.y * p.stride_y - p.pad_y + ky * p.dilation_y;
      let line = slice + clamp(y, 0, p.size_y - 1) * p.x_y;
      let on = z >= 0 && z < p.size_z && y >= 0 && y < p.size_y;
      for (var kx = 0; kx < p.kernel_x; kx++) {
        let x = x0 + kx * p.dilation_x;
        let last = vec4<i32>(p.size_x - 1);
        let inside = vec4<bool>(on) & (x >= vec4<i32>()) & (x <= last);
        var pixels = line + clamp(x, vec4<i32>(), last) * p.x_x;
        for (var i = channels; i > 0; i--) {
          tap(pixels, inside, &w_start, w_at, &c);
          pixels += x_c;
          w_at += W_STEP;
        }
        w_at = next_tap(w_at);
      }
    }
  }
  if (quad < p.quads) {
    // A copy, because an array that is indexed by a variable is not kept in registers.
    var results = c;
    let filter_ = (block - conv_group * p.blocks) * ROWS;
    for (var i = 0; i < ROWS; i++) {
      store_quad(at, conv_group, filter_ + i, results[i]);
    }
  }
}
