// Convolution as an implicit matrix product, whose im2col is never stored: the loads
// and stores of tile.wgsl. The batch is the groups, rows are filters, columns pixels of
// all images, and k the taps of all channels.
// Supplied: get_x, get_w, bias_of, put_y; p: groups, filters and channels (per group),
// k (channels * taps), pixels (of all images); out_, size_, kernel_, stride_, pad_ and
// dilation_ of z, y, x; w_g, w_o, w_i, w_z, w_y, w_x, w_offset and x_n, x_c, x_z, x_y,
// x_x, x_offset (strides).
struct Tap { channel: i32, z: i32, y: i32, x: i32 }

fn tap_of(k: i32) -> Tap {
  let a = k / p.kernel_x;
  let b = a / p.kernel_y;
  let c = b / p.kernel_z;
  return Tap(c, b - c * p.kernel_z, a - b * p.kernel_y, k - a * p.kernel_x);
}
fn pixel(base: i32, at: i32, tap: Tap) -> f32 {
  let a = at / p.out_x;
  let b = a / p.out_y;
  let image = b / p.out_z;
  let x = (at - a * p.out_x) * p.stride_x - p.pad_x + tap.x * p.dilation_x;
  let y = (a - b * p.out_y) * p.stride_y - p.pad_y + tap.y * p.dilation_y;
  let z = (b - image * p.out_z) * p.stride_z - p.pad_z + tap.z * p.dilation_z;
  if (x < 0 || x >= p.size_x || y < 0 || y >= p.size_y || z < 0 || z >= p.size_z) {
    return 0.0;
  }
  return get_x(base + image * p.x_n + tap.channel * p.x_c
               + z * p.x_z + y * p.x_y + x * p.x_x);
}

fn a_matrix(group: i32) -> i32 { return p.w_offset + group * p.w_g; }
fn b_matrix(group: i32) -> i32 { return p.x_offset + group * p.channels * p.x_c; }
fn a_quad(base: i32, filter_: i32, k: i32) -> vec4<f32> {
  let tap = tap_of(k);
  let at = base + tap.channel * p.w_i + tap.z * p.w_z + tap.y * p.w_y + tap.x * p.w_x;
  var v = vec4<f32>();
  for (var i = 0; i < 4; i++) {
    if (k < p.k && filter_ + i < p.filters) { v[i] = get_w(at + (filter_ + i) * p.w_o); }
  }
  return v;
}
fn b_quad(base: i32, k: i32, at: i32) -> vec4<f32> {
  let tap = tap_of(k);
  var v = vec4<f32>();
  for (var i = 0; i < 4; i++) {
    if (k < p.k && at + i < p.pixels) { v[i] = pixel(base, at + i, tap); }
  }
  return v;
}
fn store_quad(group: i32, filter_: i32, at: i32, v: vec4<f32>) {
  if (filter_ >= p.filters) { return; }
  let volume = p.out_x * p.out_y * p.out_z;
  let channel = group * p.filters + filter_;
  for (var i = 0; i < 4; i++) {
    if (at + i < p.pixels) {
      let image = (at + i) / volume;
      put_y((image * p.groups * p.filters + channel) * volume + at + i - image * volume,
            v[i] + bias_of(channel));
    }
  }
}
