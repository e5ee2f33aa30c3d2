// Convolution as a matrix product that never stores its patches: 64 filters x 64
// pixels per workgroup of 16 x 16 invocations, 4 x 4 each, through workgroup memory,
// 16 taps (of any channel) at a time.
// Supplied: bias_of; p: tiles, pixel_tiles, blocks, parts, filters, channels (per
// group), depth (channels * taps), pixels (of all images); out, size, kernel,
// stride, pad and dilation of z, y, x; w_g, w_o, w_i, w_z, w_y, w_x, w_offset and
// x_n, x_c, x_z, x_y, x_x, x_offset (strides).
// Limit: 8 KiB of workgroup memory, 256 invocations.
const DEPTH = 16;
const QUADS = 16;
var<workgroup> w_slice: array<vec4<f32>, 256>;  // [k][filter / 4]
var<workgroup> x_slice: array<vec4<f32>, 256>;  // [k][pixel / 4]

struct Tap { channel: i32, z: i32, y: i32, x: i32 }

fn tap_of(k: i32) -> Tap {
  let a = k / p.kernel_x;
  let b = a / p.kernel_y;
  let c = b / p.kernel_z;
  return Tap(c, b - c * p.kernel_z, a - b * p.kernel_y, k - a * p.kernel_x);
}
fn pixel(at: i32, part: i32, tap: Tap) -> f32 {
  let a = at / p.out_x;
  let b = a / p.out_y;
  let image = b / p.out_z;
  let x = (at - a * p.out_x) * p.stride_x - p.pad_x + tap.x * p.dilation_x;
  let y = (a - b * p.out_y) * p.stride_y - p.pad_y + tap.y * p.dilation_y;
  let z = (b - image * p.out_z) * p.stride_z - p.pad_z + tap.z * p.dilation_z;
  if (x < 0 || x >= p.size_x || y < 0 || y >= p.size_y || z < 0 || z >= p.size_z) {
    return 0.0;
  }
  return get_x(p.x_offset + image * p.x_n + (part * p.channels + tap.channel) * p.x_c
               + z * p.x_z + y * p.x_y + x * p.x_x);
}
fn store_quad(part: i32, filter_: i32, at: i32, v: vec4<f32>) {
  if (filter_ >= p.filters) { return; }
  let volume = p.out_x * p.out_y * p.out_z;
  let channel = part * p.filters + filter_;
  for (var i = 0; i < 4; i++) {
    if (at + i < p.pixels) {
      let image = (at + i) / volume;
      put_y((image * p.parts * p.filters + channel) * volume + at + i - image * volume,
            v[i] + bias_of(channel));
    }
  }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  // The last workgroups of a folded grid repeat the last tile's sums unseen.
  let wanted = i32(group.x + group.y * groups.x);
  let tile = min(wanted, p.tiles - 1);
  let block = tile / p.pixel_tiles;
  let part = block / p.blocks;
  let filter_ = (block - part * p.blocks) * 64;
  let first = (tile - block * p.pixel_tiles) * 64;
  let id = i32(local);
  let low = id % QUADS;
  let high = id / QUADS;
  var c0: vec4<f32>;
  var c1: vec4<f32>;
  var c2: vec4<f32>;
  var c3: vec4<f32>;
  for (var k = 0; k < p.depth; k += DEPTH) {
    var w = vec4<f32>();
    let w_tap = tap_of(k + low);
    let w_at = p.w_offset + part * p.w_g + w_tap.channel * p.w_i + w_tap.z * p.w_z
               + w_tap.y * p.w_y + w_tap.x * p.w_x;
    var x = vec4<f32>();
    let x_tap = tap_of(k + high);
    for (var i = 0; i < 4; i++) {
      let f = filter_ + high * 4 + i;
      if (k + low < p.depth && f < p.filters) { w[i] = get_w(w_at + f * p.w_o); }
      let at = first + low * 4 + i;
      if (k + high < p.depth && at < p.pixels) { x[i] = pixel(at, part, x_tap); }
    }
    w_slice[low * QUADS + high] = w;
    x_slice[high * QUADS + low] = x;
    workgroupBarrier();
    for (var i = 0; i < DEPTH; i++) {
      let a = w_slice[i * QUADS + high];
      let b = x_slice[i * QUADS + low];
      c0 += a.x * b;
      c1 += a.y * b;
      c2 += a.z * b;
      c3 += a.w * b;
    }
    workgroupBarrier();
  }
  if (wanted < p.tiles) {
    let f = filter_ + high * 4;
    let at = first + low * 4;
    store_quad(part, f, at, c0);
    store_quad(part, f + 1, at, c1);
    store_quad(part, f + 2, at, c2);
    store_quad(part, f + 3, at, c3);
  }
}
