// The blocks of an image under a sliding kernel, as columns: y[n, (c, ky, kx),
// (oy, ox)] = x[n, c, oy * stride - padding + ky * dilation, ...], 0 outside.
// One element per invocation.
// Supplied: get_x, put_y, T, size_at (h, w), kernel_at, blocks_at (counts), stride_at,
// padding_at, dilation_at.
fn invocation(i: i32) {
  var rest = i;
  let ox = rest % blocks_at(1);
  rest = rest / blocks_at(1);
  let oy = rest % blocks_at(0);
  rest = rest / blocks_at(0);
  let kx = rest % kernel_at(1);
  rest = rest / kernel_at(1);
  let ky = rest % kernel_at(0);
  let plane = rest / kernel_at(0);
  let y = oy * stride_at(0) - padding_at(0) + ky * dilation_at(0);
  let x = ox * stride_at(1) - padding_at(1) + kx * dilation_at(1);
  var v = T(0);
  if (y >= 0 && y < size_at(0) && x >= 0 && x < size_at(1)) {
    v = get_x((plane * size_at(0) + y) * size_at(1) + x);
  }
  put_y(i, v);
}
