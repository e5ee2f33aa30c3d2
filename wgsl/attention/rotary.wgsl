// Rotates pairs of elements of two tensors, q and k, by the angles of a position:
//   y[d] = x[d] * cos + sign * x[other] * sin, sign = -1 for the first of a pair.
// INTERLEAVED: pairs are (2i, 2i + 1), otherwise (i, i + R / 2). SHARED: there is one
// angle for each pair, otherwise one for each element. Elements from R on are copied.
// One element per invocation: those of q, then those of k. Tensors have four
// dimensions, the sequence being dimension SEQ (1 or 2); q, k, cos and sin are
// read through strides (batch, 1, 2, last), the results are row-major.
// Supplied: get_q, get_k, get_c, get_s, put_yq, put_yk, position(s) (the row of the
// angles); p.count (elements of q), lists q_n, k_n (extents), q_s, k_s, c_s, s_s
// (offset, strides); p.rotated (R); INTERLEAVED, SHARED, SEQ.
fn angle(coord: vec4<i32>, column: i32) -> vec2<f32> {
  let row = position(coord[SEQ]);
  let head = coord[3 - SEQ];
  let c = c_s_at(0) + coord[0] * c_s_at(1) + row * c_s_at(2) + head * c_s_at(3);
  let s = s_s_at(0) + coord[0] * s_s_at(1) + row * s_s_at(2) + head * s_s_at(3);
  return vec2<f32>(get_c(c + column * c_s_at(4)), get_s(s + column * s_s_at(4)));
}

fn invocation(t: i32) {
  let first = t < p.count;
  let i = select(t - p.count, t, first);
  let n1 = select(k_n_at(1), q_n_at(1), first);
  let n2 = select(k_n_at(2), q_n_at(2), first);
  let n3 = q_n_at(3);
  let d = i % n3;
  let rest = i / n3;
  let coord = vec4<i32>(rest / (n2 * n1), (rest / n2) % n1, rest % n2, d);
  var other = d ^ 1;
  var pair = d >> 1u;
  var negative = (d & 1) == 0;
  if (!INTERLEAVED) {
    let half = p.rotated / 2;
    negative = d < half;
    other = select(d - half, d + half, negative);
    pair = min(d, other);
  }
  let turned = d < p.rotated;
  other = select(d, other, turned);
  var x = 0.0;
  var z = 0.0;
  if (first) {
    let at = q_s_at(0) + coord.x * q_s_at(1) + coord.y * q_s_at(2) + coord.z * q_s_at(3);
    x = get_q(at + d * q_s_at(4));
    z = get_q(at + other * q_s_at(4));
  } else {
    let at = k_s_at(0) + coord.x * k_s_at(1) + coord.y * k_s_at(2) + coord.z * k_s_at(3);
    x = get_k(at + d * k_s_at(4));
    z = get_k(at + other * k_s_at(4));
  }
  var y = x;
  if (turned) {
    let turn = angle(coord, select(d, pair, SHARED));
    y = x * turn.x + select(z, -z, negative) * turn.y;
  }
  if (first) { put_yq(i, y); } else { put_yk(i, y); }
}
