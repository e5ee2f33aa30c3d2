// The sum of linear_packed.wgsl for one row of x, without a barrier. One invocation:
// two columns of 4 outputs, p.column_stride columns apart, so that what it loads of x
// serves eight outputs.
// Supplied: as for linear_packed.wgsl.
fn products(word: vec4<u32>, f: i32, x: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(dot(codes(word.x, f), x), dot(codes(word.y, f), x),
                   dot(codes(word.z, f), x), dot(codes(word.w, f), x));
}

fn invocation(column: i32) {
  let other = min(column + p.column_stride, p.columns - 1);
  var acc0 = vec4<f32>();
  var acc1 = vec4<f32>();
  var at = 0;
  for (var g = 0; g < p.groups; g++) {
    var dots0 = vec4<f32>(0.0);
    var dots1 = vec4<f32>(0.0);
    var sum = 0.0;
    var k = 0;
    for (var i = 0; i < p.words; i++) {
      let word0 = bitcast<vec4<u32>>(get_w4(at + column));
      let word1 = bitcast<vec4<u32>>(get_w4(at + other));
      at += p.columns;
      for (var f = 0; f < FOURS; f++) {
        let x = x_at(0, g * p.group + k, p.group - k);
        dots0 += products(word0, f, x);
        dots1 += products(word1, f, x);
        if (SUMS) { sum += x.x + x.y + x.z + x.w; }
        k += 4;
      }
    }
    let scale0 = get_s4(g * p.columns + column);
    let scale1 = get_s4(g * p.columns + other);
    acc0 += scale0 * dots0;
    acc1 += scale1 * dots1;
    if (SUMS) {
      acc0 += offset4(g * p.columns + column, scale0) * sum;
      acc1 += offset4(g * p.columns + other, scale1) * sum;
    }
  }
  put_quad(0, 0, column * 4, acc0);
  if (column + p.column_stride < p.columns) { put_quad(0, 0, other * 4, acc1); }
}
