// Attention by online softmax. For each query row: the sum over keys j of exp(s[j] - m)
// * v[j], with s = q k^T * scale + mask and m the running maximum of s; the sum so far
// is rescaled where m grows, so that no score is stored.
// A workgroup takes ROWS rows of one key head and one split of the keys, WG keys in
// each iteration. An invocation first scores one key for all rows: its k comes through
// workgroup memory, so that neighbours load neighbours, and q, which is the same for
// all of them, as scalars. Then it takes four columns of v, of every GROUPS-th key, for
// all rows. So each element of k and v is loaded once, and used ROWS times from a
// register. Several loads are in flight: the next slice of k while one is in use, and
// AHEAD of v.
// Supplied: get_q4, get_k4, get_v4; ROWS (a multiple of 4), WG, FOURS (of q), SLICE
// (fours of k that are in workgroup memory at a time), WIDE (fours of v), AHEAD; reach
// (keys that query i sees), masked (a score with the mask applied); begin_rows,
// raise_rows, add_up_rows, base and kept, of which each row has one (running_workgroup,
// running_subgroups); finish (finish_rows, finish_parts); p: slices (of k), splits,
// split_keys (keys of a split), blocks (of rows in a head), heads (of keys), rows,
// queries, sharing (query heads per key head), scale; q_s, k_s, v_s: offset and strides
// of batch, head and token, in fours.
const QUADS = ROWS / 4;
const GROUPS = WG / WIDE;
const TURNS = (WG + GROUPS * AHEAD - 1) / (GROUPS * AHEAD);

// The last four of a key pad it, so that lanes read from different banks.
var<workgroup> k_tile: array<array<vec4<f32>, SLICE + 1>, WG>;
// Of a key, for all rows: scores, then weights.
var<workgroup> weights: array<array<vec4<f32>, QUADS>, TURNS * AHEAD * GROUPS>;
// Of each row, in the end: the maximum score and the total of the weights.
var<workgroup> most: array<f32, ROWS>;
var<workgroup> total: array<f32, ROWS>;

alias Quads = array<vec4<f32>, QUADS>;

// This invocation's fours of a slice of k, for the keys from `start` on.
fn load_k(base: i32, start: i32, last: i32, slice: i32,
          id: i32) -> array<vec4<f32>, SLICE> {
  var loaded: array<vec4<f32>, SLICE>;
  for (var n = 0; n < SLICE; n++) {
    let i = n * WG + id;
    let e = slice * SLICE + i % SLICE;
    let at = base + min(start + i / SLICE, last) * k_s_at(3) + min(e, FOURS - 1);
    loaded[n] = get_k4(at);
    if (FOURS % SLICE != 0 && e >= FOURS) { loaded[n] = vec4<f32>(); }
  }
  return loaded;
}

// Four columns of AHEAD keys, GROUPS apart.
fn load_v(base: i32, start: i32, last: i32) -> array<vec4<f32>, AHEAD> {
  var loaded: array<vec4<f32>, AHEAD>;
  for (var n = 0; n < AHEAD; n++) {
    let key = start + n * GROUPS;
    let v = get_v4(base + min(key, last) * v_s_at(3));
    loaded[n] = select(vec4<f32>(), v, key <= last);
  }
  return loaded;
}

fn group_invocation(group: i32, id: i32) {
  let split = group % p.splits;
  let tile = group / p.splits;
  let head = tile / p.blocks;
  let first = (tile % p.blocks) * ROWS;
  let b = head / p.heads;
  let h = head % p.heads;

  // Rows beyond the last one repeat it.
  var q_at: array<i32, ROWS>;
  var head_of: array<i32, ROWS>;
  var query_of: array<i32, ROWS>;
  var end_of: array<i32, ROWS>;
  var end = 0;
  let begin = split * p.split_keys;
  var query = first % p.queries;
  var of_all = h * p.sharing + first / p.queries;
  for (var r = 0; r < ROWS; r++) {
    q_at[r] = q_s_at(0) + b * q_s_at(1) + of_all * q_s_at(2) + query * q_s_at(3);
    head_of[r] = of_all;
    query_of[r] = query;
    end_of[r] = min(reach(query), begin + p.split_keys);
    end = max(end, end_of[r]);
    let is_last = query + 1 == p.queries;
    let has_more = first + r + 1 < p.rows;
    of_all = select(of_all, of_all + 1, has_more && is_last);
    query = select(query, select(query + 1, 0, is_last), has_more);
  }
  let last = max(end, 1) - 1;
  let slices = p.slices;  // not read in the loop, which Tint then sees to end
  let k_base = k_s_at(0) + b * k_s_at(1) + h * k_s_at(2);
  let v_base = v_s_at(0) + b * v_s_at(1) + h * v_s_at(2) + id % WIDE;
  let v_group = min(id / WIDE, GROUPS - 1);

  var sums: array<vec4<f32>, ROWS>;
  var totals = Quads();
  begin_rows(id);
  if (id < TURNS * AHEAD * GROUPS - WG) { weights[WG + id] = Quads(); }

  var k_ahead = load_k(k_base, begin, last, 0, id);
  for (var start = begin; start < end; start += WG) {
    var s = Quads();
    for (var slice = 0; slice < slices; slice++) {
      workgroupBarrier();
      for (var n = 0; n < SLICE; n++) {
        let i = n * WG + id;
        k_tile[i / SLICE][i % SLICE] = k_ahead[n];
      }
      workgroupBarrier();
      let is_last = slice == slices - 1;
      let next = select(slice + 1, 0, is_last);
      k_ahead = load_k(k_base, select(start, start + WG, is_last), last, next, id);
      for (var e = 0; e < SLICE; e++) {
        let k = k_tile[id][e];
        var four = slice * SLICE + e;
        if (FOURS % SLICE != 0) { four = min(four, FOURS - 1); }
        for (var q = 0; q < QUADS; q++) {
          let q0 = get_q4(q_at[q * 4] + four);
          let q1 = get_q4(q_at[q * 4 + 1] + four);
          let q2 = get_q4(q_at[q * 4 + 2] + four);
          let q3 = get_q4(q_at[q * 4 + 3] + four);
          s[q] += k.x * vec4<f32>(q0.x, q1.x, q2.x, q3.x);
          s[q] += k.y * vec4<f32>(q0.y, q1.y, q2.y, q3.y);
          s[q] += k.z * vec4<f32>(q0.z, q1.z, q2.z, q3.z);
          s[q] += k.w * vec4<f32>(q0.w, q1.w, q2.w, q3.w);
        }
      }
    }
    let j = start + id;
    for (var q = 0; q < QUADS; q++) {
      for (var i = 0; i < 4; i++) {
        let r = q * 4 + i;
        let score = masked(s[q][i] * p.scale, b, head_of[r], query_of[r], min(j, last));
        s[q][i] = select(-inf(), score, j < end_of[r]);
      }
    }
    raise_rows(id, s);
    for (var q = 0; q < QUADS; q++) {
      let r = q * 4;
      s[q] = exp(s[q] - vec4<f32>(base[r], base[r + 1], base[r + 2], base[r + 3]));
      totals[q] *= vec4<f32>(kept[r], kept[r + 1], kept[r + 2], kept[r + 3]);
      totals[q] += s[q];
    }
    weights[id] = s;
    workgroupBarrier();
    for (var r = 0; r < ROWS; r++) { sums[r] *= kept[r]; }
    let turns = min(TURNS, (end - start + GROUPS * AHEAD - 1) / (GROUPS * AHEAD));
    for (var turn = 0; turn < turns; turn++) {
      let v = load_v(v_base, start + turn * AHEAD * GROUPS + v_group, last);
      for (var n = 0; n < AHEAD; n++) {
        let key = (turn * AHEAD + n) * GROUPS + v_group;
        for (var q = 0; q < QUADS; q++) {
          let w = weights[key][q];
          sums[q * 4] += w.x * v[n];
          sums[q * 4 + 1] += w.y * v[n];
          sums[q * 4 + 2] += w.z * v[n];
          sums[q * 4 + 3] += w.w * v[n];
        }
      }
    }
  }

  add_up_rows(id, totals);
  // Groups have summed different keys: their sums are added up, four rows at a time.
  for (var q = 0; q < QUADS; q++) {
    workgroupBarrier();
    if (id < GROUPS * WIDE) {
      for (var i = 0; i < 4; i++) {
        let at = (v_group * 4 + i) * WIDE + id % WIDE;
        k_tile[at / SLICE][at % SLICE] = sums[i];
      }
    }
    for (var r = 4; r < ROWS; r++) { sums[r - 4] = sums[r]; }
    workgroupBarrier();
    for (var i = id; i < 4 * WIDE; i += WG) {
      var sum = vec4<f32>();
      for (var at = i; at < 4 * GROUPS * WIDE; at += 4 * WIDE) {
        sum += k_tile[at / SLICE][at % SLICE];
      }
      let r = q * 4 + i / WIDE;
      if (first + r < p.rows) {
        finish(split, head, first + r, i % WIDE, sum, most[r], total[r]);
      }
    }
  }
}
