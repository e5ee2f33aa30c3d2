// Convolution of any stride, dilation and groups, one output per invocation; with
// TRANSPOSED, the transposed one, as a gather: a tap counts if it hits a pixel.
// Supplied: get_x, get_w, bias_of, put_y, TRANSPOSED; p: groups, filters and channels
// (per group), out_, size_, kernel_, stride_, pad_ and dilation_ of z, y, x; w_g, w_o,
// w_i, w_z, w_y, w_x, w_offset and x_n, x_c, x_z, x_y, x_x, x_offset (strides of weights
// and input).

// The input index of tap k of output o, in one dimension; -1 where there is none.
fn source(o: i32, k: i32, stride: i32, pad: i32, dilation: i32, size: i32) -> i32 {
  var at = o * stride - pad + k * dilation;
  if (TRANSPOSED) {
    let reach = o + pad - k * dilation;
    at = reach / stride;
    if (reach < 0 || at * stride != reach) { return -1; }
  }
  return select(-1, at, at >= 0 && at < size);
}

fn invocation(index: i32) {
  var rest = index / p.out_x;
  let ox = index - rest * p.out_x;
  let oy = rest % p.out_y;
  rest /= p.out_y;
  let oz = rest % p.out_z;
  rest /= p.out_z;
  let o = rest % p.filters;
  rest /= p.filters;
  let group = rest % p.groups;
  let image = rest / p.groups;
  let x_base = p.x_offset + image * p.x_n + group * p.channels * p.x_c;
  let w_base = p.w_offset + group * p.w_g + o * p.w_o;
  var sum = 0.0;
  for (var kz = 0; kz < p.kernel_z; kz++) {
    let z = source(oz, kz, p.stride_z, p.pad_z, p.dilation_z, p.size_z);
    if (z < 0) { continue; }
    for (var ky = 0; ky < p.kernel_y; ky++) {
      let y = source(oy, ky, p.stride_y, p.pad_y, p.dilation_y, p.size_y);
      if (y < 0) { continue; }
      for (var kx = 0; kx < p.kernel_x; kx++) {
        let x = source(ox, kx, p.stride_x, p.pad_x, p.dilation_x, p.size_x);
        if (x < 0) { continue; }
        var x_at = x_base + z * p.x_z + y * p.x_y + x * p.x_x;
        var w_at = w_base + kz * p.w_z + ky * p.w_y + kx * p.w_x;
        for (var i = 0; i < p.channels; i++) {
          sum += get_x(x_at) * get_w(w_at);
          x_at += p.x_c;
          w_at += p.w_i;
        }
      }
    }
  }
  put_y(index, sum + bias_of(group * p.filters + o));
}
