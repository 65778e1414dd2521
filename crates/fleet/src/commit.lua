-- Applies one commit: all of it or nothing. `model.rs` is the same in Rust.
--
-- KEYS: records, then counters, then the epoch (when Redis began to remember this project), then
-- the index of recently used scopes. A record is its version (16 hex digits) followed by its bytes.
-- Numbers are doubles: exact up to 2^53, which is nine million dollars in billionths.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end
local function number()
  return tonumber(take())
end
local function text(n)
  return string.format('%.0f', n)
end

local items, sums = number(), number()
local moved, writes = {}, {}
for i = 1, items do
  local expect, version, keep, value = take(), take(), take(), take()
  local there = redis.call('GETRANGE', KEYS[i], 0, 15)
  if there == '' then
    there = '0000000000000000'
  end
  if there == expect then
    if version ~= '' then
      writes[#writes + 1] = {KEYS[i], version .. value, keep}
    end
  else
    moved[#moved + 1] = i - 1
    moved[#moved + 1] = redis.call('GET', KEYS[i]) or ''
  end
end

local COUNTERS = {'calls', 'steps', 'models', 'input', 'output', 'cached', 'cost', 'loops', 'incidents'}
local BETWEEN = '\31'
local HELD = {'i', 'o', 'c', 'n'}
local counted, within = {}, true
for i = 1, sums do
  local key = KEYS[items + i]
  local flat = redis.call('HGETALL', key)
  -- Fields to change; `false` deletes a field.
  local old, new = {}, {}
  for j = 1, #flat, 2 do
    old[flat[j]] = flat[j + 1]
  end
  local function get(field)
    local there = new[field]
    if there == nil then
      there = old[field]
    end
    return tonumber(there or 0)
  end
  local function add(field, n)
    if n ~= 0 then
      new[field] = text(get(field) + n)
    end
  end
  -- Counters are clamped at zero; reservations may be negative.
  local function count(field, n)
    if n ~= 0 then
      new[field] = text(math.max(get(field) + n, 0))
    end
  end
  local born, known, floors = get('born'), number(), take()
  local lost = born == 0 or (known ~= 0 and known ~= born)
  if born == 0 then
    new['born'] = text(now)
  end
  if lost then
    local at = 0
    for floor in string.gmatch(floors, '%d+') do
      at = at + 1
      local field = COUNTERS[at]
      new[field] = text(math.max(get(field), tonumber(floor)))
    end
  end
  for _ = 1, number() do
    local field = COUNTERS[number()]
    count(field, number())
  end
  local period, floor, more = number(), number(), number()
  local before = get('period')
  local late = math.floor(before / 1e9) == math.floor(period / 1e9) and period < before
  if before ~= period and not late then
    new['period'] = text(period)
    new['spent'] = '0'
  end
  if lost then
    new['spent'] = text(math.max(get('spent'), floor))
  end
  count('spent', more)
  for _ = 1, number() do
    local held = 'h:' .. take() .. ':'
    count('input', get(held .. 'i'))
    count('output', get(held .. 'o'))
    count('cost', get(held .. 'c'))
    count('spent', get(held .. 'c'))
    for _, what in ipairs(HELD) do
      new[held .. what] = false
    end
  end
  for _ = 1, number() do
    local held = 'h:' .. take() .. ':'
    for _, what in ipairs(HELD) do
      -- Reservations under the empty name belong to no node, so no node would correct a negative
      -- one: clamp at zero.
      local change = held == 'h::' and count or add
      change(held .. what, number())
      if new[held .. what] == '0' or new[held .. what] == '-0' then
        new[held .. what] = false
      end
    end
  end
  local bounds = number()
  if bounds > 0 then
    local all = {i = 0, o = 0, c = 0, n = 0}
    local function hold(field, value)
      if value and string.sub(field, 1, 2) == 'h:' then
        local what = string.sub(field, -1)
        all[what] = all[what] + tonumber(value)
      end
    end
    for field, value in pairs(new) do
      hold(field, value)
    end
    for field, value in pairs(old) do
      if new[field] == nil then
        hold(field, value)
      end
    end
    local input = math.max(get('input') + all.i, 0)
    local output = math.max(get('output') + all.o, 0)
    local amounts = {get('steps'), get('models'), input, output, input + output, get('spent') + all.c}
    for _ = 1, bounds do
      local amount = amounts[number()]
      if amount > number() then
        within = false
      end
    end
  end
  local seen = take()
  if late or (seen ~= '' and tonumber(seen) ~= tonumber(old['changes'] or 0)) then
    within = false
  end
  local bucket, cost, tokens = take(), number(), number()
  if bucket ~= '' then
    local field = 'p:' .. (tonumber(bucket) % 12)
    local b, c, t = string.match(old[field] or '', '^(%d+) (%d+) (%d+)$')
    if b == bucket then
      new[field] = bucket .. ' ' .. text(tonumber(c) + cost) .. ' ' .. text(tonumber(t) + tokens)
    elseif not b or tonumber(b) < tonumber(bucket) then
      new[field] = bucket .. ' ' .. text(cost) .. ' ' .. text(tokens)
    end
  end
  add('changes', 1)
  counted[i] = {key, old, new, flat}
end

-- The era: the epoch and the server's replication id. Without the replication id a failover goes
-- unnoticed.
local known, era = take(), ''
if known ~= '' then
  local key = KEYS[items + sums + 1]
  local epoch = redis.call('GET', key)
  if not epoch then
    epoch = text(now)
    redis.call('SET', key, epoch)
  end
  local said = redis.pcall('INFO', 'replication')
  local line = type(said) == 'string' and string.match(said, 'master_replid:(%x+)') or ''
  era = epoch .. ':' .. string.sub(line, 1, 16)
  within = within and era == known
end

local touched = {}
for _ = 1, number() do
  touched[#touched + 1] = now
  touched[#touched + 1] = take()
end

local shown = {}
if #moved > 0 or not within then
  for i = 1, sums do
    shown[i] = table.concat(counted[i][4], BETWEEN)
  end
  return {0, now, moved, shown, era}
end
for _, write in ipairs(writes) do
  redis.call('SET', write[1], write[2], 'PX', write[3])
end
for i = 1, sums do
  local key, old, new = counted[i][1], counted[i][2], counted[i][3]
  local set, gone, flat = {}, {}, {}
  for field, value in pairs(new) do
    if not value then
      if old[field] then
        gone[#gone + 1] = field
      end
    else
      if old[field] ~= value then
        set[#set + 1] = field
        set[#set + 1] = value
      end
      flat[#flat + 1] = field
      flat[#flat + 1] = value
    end
  end
  for field, value in pairs(old) do
    if new[field] == nil then
      flat[#flat + 1] = field
      flat[#flat + 1] = value
    end
  end
  redis.call('HSET', key, unpack(set))
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
  redis.call('PEXPIRE', key, 2592000000)
  shown[i] = table.concat(flat, BETWEEN)
end
-- In pieces: Lua's `unpack` takes only a few thousand values at once.
for first = 1, #touched, 1000 do
  redis.call('ZADD', KEYS[#KEYS], unpack(touched, first, math.min(first + 999, #touched)))
end
if #touched > 0 and now % 256 == 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[#KEYS], '-inf', now - 86400000)
end
return {1, now, moved, shown, era}
