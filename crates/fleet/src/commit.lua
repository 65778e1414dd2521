-- Applies one commit: all of it or nothing. `model.rs` is the same in Rust, and `packed.rs` has the
-- layout of counters and of their changes.
--
-- KEYS: records, then counters, then the epoch (when Redis began to remember this project), then
-- the index of recently used scopes. A record is its version (16 hex digits) followed by its bytes.
-- Numbers are doubles: exact up to 2^53, which is nine million dollars in billionths.
local call, pack, unpacked = redis.call, struct.pack, struct.unpack
local max, floor, sub = math.max, math.floor, string.sub
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local items, sums, at = tonumber(ARGV[1]), tonumber(ARGV[2]), 2
local function take()
  at = at + 1
  return ARGV[at]
end

-- An item is the version that the record must have. If the record is to be written, milliseconds to
-- keep it follow, and its new bytes are the next argument.
local NONE = '0000000000000000'
local moved, writes = {}, {}
for i = 1, items do
  local item = take()
  local expect = sub(item, 1, 16)
  local there = call('GETRANGE', KEYS[i], 0, 15)
  if there == '' then
    there = NONE
  end
  if #item > 16 then
    writes[#writes + 1] = {KEYS[i], take(), sub(item, 17)}
  end
  if there ~= expect then
    moved[#moved + 1] = i - 1
    moved[#moved + 1] = call('GET', KEYS[i]) or ''
  end
end

-- Counters: form, born, changes, period, cost of the period, nine counters, intervals that follow.
local HEAD, PACE, HELD = '<Bi8i8i8i8i8i8i8i8i8i8i8i8i8B', '<i8i8i8', '<I2c0i8i8i8i8'
local BORN, CHANGES, PERIOD, SPENT, COUNTS = 2, 3, 4, 5, 5
local STEPS, MODELS, INPUT, OUTPUT, COST = 7, 8, 9, 10, 12
local ONE_PACE, PACE_KEPT = 24, 12
-- Changes: born, nine additions, period, its addition, changes seen, interval with its cost and
-- tokens, first interval of the minute, numbers of bounds, of dead nodes and of nodes with changed reservations. -1 stands for none.
-- Then bounds, nodes, and last the floors: of the period's cost and of the counters.
local CHANGE = '<i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8i8BI2I2'
local FLOORS, FLOORS_LONG = '<i8i8i8i8i8i8i8i8i8i8', 80
local MORE = 1
local counted, within = {}, true

-- Adds to an interval of five seconds. The bytes of all intervals, the earliest first.
local function add_pace(bytes, bucket, cost, tokens)
  local last = #bytes - ONE_PACE
  if last >= 0 then
    local b, c, t = unpacked(PACE, bytes, last + 1)
    if b == bucket then
      return sub(bytes, 1, last) .. pack(PACE, b, c + cost, t + tokens)
    end
  end
  local all, there = {}, false
  for from = 1, #bytes, ONE_PACE do
    local b, c, t = unpacked(PACE, bytes, from)
    if b % PACE_KEPT == bucket % PACE_KEPT then
      there = true
      if b == bucket then
        c, t = c + cost, t + tokens
      elseif b < bucket then
        b, c, t = bucket, cost, tokens
      end
    end
    all[#all + 1] = {b, c, t}
  end
  if not there then
    all[#all + 1] = {bucket, cost, tokens}
  end
  table.sort(all, function(one, other) return one[1] < other[1] end)
  for i, one in ipairs(all) do
    all[i] = pack(PACE, one[1], one[2], one[3])
  end
  return table.concat(all)
end

-- Cost and tokens since an interval, of the newest twelve intervals.
local function since(bytes, oldest)
  local cost, tokens = 0, 0
  for from = #bytes - ONE_PACE + 1, 1, -ONE_PACE do
    local b, c, t = unpacked(PACE, bytes, from)
    oldest = max(oldest, b - PACE_KEPT + 1)
    if b < oldest then
      break
    end
    cost, tokens = cost + c, tokens + t
  end
  return cost, tokens
end

for i = 1, sums do
  local key = KEYS[items + i]
  local old = call('GET', key) or ''
  local n, pace, nodes, names = nil, '', {}, {}
  if old == '' then
    n = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  else
    if string.byte(old) ~= 1 then
      return redis.error_reply('NEWER the counters were written by a newer version of Deadstop; upgrade this node')
    end
    n = {unpacked(HEAD, old)}
    local from = n[16]
    local till = from + n[15] * ONE_PACE
    pace = sub(old, from, till - 1)
    while till <= #old do
      local node, input, output, cost, calls
      node, input, output, cost, calls, till = unpacked(HELD, old, till)
      names[#names + 1] = node
      nodes[node] = {input, output, cost, calls}
    end
  end
  local change = take()
  local c = {unpacked(CHANGE, change)}
  local rest = c[21]
  local lost = n[BORN] == 0 or (c[1] ~= 0 and c[1] ~= n[BORN])
  if n[BORN] == 0 then
    n[BORN] = now
  end
  local floors = lost and {unpacked(FLOORS, change, #change - FLOORS_LONG + 1)}
  for j = 1, lost and 9 or 0 do
    n[COUNTS + j] = max(n[COUNTS + j], floors[1 + j])
  end
  -- Counters are clamped at zero; reservations may be negative.
  for j = 1, 9 do
    if c[MORE + j] ~= 0 then
      n[COUNTS + j] = max(n[COUNTS + j] + c[MORE + j], 0)
    end
  end
  local period, before = c[11], n[PERIOD]
  local late = period < before and floor(before / 1e9) == floor(period / 1e9)
  if before ~= period and not late then
    n[PERIOD], n[SPENT] = period, 0
  end
  if lost then
    n[SPENT] = max(n[SPENT], floors[1])
  end
  n[SPENT] = max(n[SPENT] + c[12], 0)
  local bounds = {}
  for j = 1, c[18] do
    bounds[2 * j - 1], bounds[2 * j], rest = unpacked('<Bi8', change, rest)
  end
  for _ = 1, c[19] do
    local node
    node, rest = unpacked('<I2c0', change, rest)
    local held = nodes[node]
    if held then
      n[INPUT] = max(n[INPUT] + held[1], 0)
      n[OUTPUT] = max(n[OUTPUT] + held[2], 0)
      n[COST] = max(n[COST] + held[3], 0)
      n[SPENT] = max(n[SPENT] + held[3], 0)
      nodes[node] = nil
    end
  end
  for _ = 1, c[20] do
    local node, input, output, cost, calls
    node, input, output, cost, calls, rest = unpacked(HELD, change, rest)
    local held = nodes[node]
    if held then
      input, output, cost, calls = held[1] + input, held[2] + output, held[3] + cost, held[4] + calls
    end
    if node == '' then
      -- Reservations under the empty name belong to no node, so no node would correct a negative
      -- one: clamp at zero.
      input, output, cost, calls = max(input, 0), max(output, 0), max(cost, 0), max(calls, 0)
    end
    if not held then
      names[#names + 1] = node
    end
    nodes[node] = {input, output, cost, calls}
  end
  local tail, input, output, cost, tokens = {}, 0, 0, 0, 0
  for _, node in ipairs(names) do
    local held = nodes[node]
    if held and (held[1] ~= 0 or held[2] ~= 0 or held[3] ~= 0 or held[4] ~= 0) then
      tail[#tail + 1] = pack(HELD, #node, node, held[1], held[2], held[3], held[4])
      input, output, cost = input + held[1], output + held[2], cost + held[3]
      tokens = tokens + held[1] + held[2]
      -- A node that was buried and has reserved again is listed twice.
      nodes[node] = nil
    end
  end
  local seen, bucket = c[13], c[14]
  if bucket >= 0 then
    pace = add_pace(pace, bucket, c[15], c[16])
  end
  if #bounds > 0 then
    input, output = max(n[INPUT] + input, 0), max(n[OUTPUT] + output, 0)
    local amounts = {n[STEPS], n[MODELS], input, output, input + output, n[SPENT] + cost}
    if bounds[#bounds - 1] > #amounts then
      local paid, used = since(pace, c[17])
      amounts[7], amounts[8] = paid + cost, used + tokens
    end
    for j = 1, #bounds, 2 do
      within = within and amounts[bounds[j]] <= bounds[j + 1]
    end
  end
  if late or (seen >= 0 and seen ~= n[CHANGES]) then
    within = false
  end
  n[CHANGES] = n[CHANGES] + 1
  local head = pack(HEAD, 1, n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], n[12], n[13], n[14],
    #pace / ONE_PACE)
  counted[i] = {key, old, head .. pace .. table.concat(tail)}
end

-- The era: the epoch and the server's replication id. Without the replication id a failover goes
-- unnoticed.
local known, era = take(), ''
if known ~= '' then
  local key = KEYS[items + sums + 1]
  local epoch = call('GET', key)
  if not epoch then
    epoch = string.format('%.0f', now)
    call('SET', key, epoch)
  end
  local said = redis.pcall('INFO', 'replication')
  local line = type(said) == 'string' and string.match(said, 'master_replid:(%x+)') or ''
  era = epoch .. ':' .. sub(line, 1, 16)
  within = within and era == known
end

local shown = {}
if #moved > 0 or not within then
  for i = 1, sums do
    shown[i] = counted[i][2]
  end
  return {0, now, moved, shown, era}
end
for _, write in ipairs(writes) do
  call('SET', write[1], write[2], 'PX', write[3])
end
for i = 1, sums do
  shown[i] = counted[i][3]
  call('SET', counted[i][1], shown[i], 'PX', 2592000000)
end
local touched = {}
for i = at + 1, #ARGV do
  touched[#touched + 1] = now
  touched[#touched + 1] = ARGV[i]
end
-- In pieces: Lua's `unpack` takes only a few thousand values at once.
for first = 1, #touched, 1000 do
  call('ZADD', KEYS[#KEYS], unpack(touched, first, math.min(first + 999, #touched)))
end
if #touched > 0 and now % 256 == 0 then
  call('ZREMRANGEBYSCORE', KEYS[#KEYS], '-inf', now - 86400000)
end
return {1, now, moved, shown, era}
