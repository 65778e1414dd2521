-- Which session an unnamed request belongs to. `Conversations` in the protocol crate is the same in
-- Rust, and a test holds the two against each other.
--
-- KEYS: a new and an old generation of each map: answers, requests, callers, owners.
-- ARGV: the bounds of the index, what to do, and its arguments. Sessions and keys are 16 hex digits.
--   answers   key of an answer  -> its sessions: '1' if a request has gone on there, else '0', and the session
--   requests  key of a request  -> its last session (or dashes), then the sessions in which it failed
--   callers   a caller          -> singles, in flight, answered, seen, batch
--   owners    key of a name     -> a credential
local generation, twins, batch_of = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local pause, lost, keep = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local what = ARGV[7]
local NONE = '----------------'
local ANSWERS, REQUESTS, CALLERS, OWNERS = 1, 3, 5, 7

local function put(map, key, value)
  local new, old = KEYS[map], KEYS[map + 1]
  redis.call('HDEL', old, key)
  if redis.call('HLEN', new) >= generation and redis.call('HEXISTS', new, key) == 0 then
    redis.call('UNLINK', old)
    redis.call('RENAME', new, old)
  end
  redis.call('HSET', new, key, value)
  redis.call('PEXPIRE', new, keep)
end

local function get(map, key)
  local value = redis.call('HGET', KEYS[map], key)
  if not value then
    value = redis.call('HGET', KEYS[map + 1], key)
    if value then
      put(map, key, value)
    end
  end
  return value
end

local function caller_of(key)
  local caller = {singles = 0, in_flight = 0, answered = 0, seen = 0, batch = NONE}
  local value = get(CALLERS, key)
  if value then
    local singles, in_flight, answered, seen, batch = value:match('^(%d+) (%d+) (%d+) (%d+) (%S+)$')
    caller = {singles = tonumber(singles), in_flight = tonumber(in_flight), answered = tonumber(answered),
      seen = tonumber(seen), batch = batch}
  end
  return caller
end

local function put_caller(key, caller)
  put(CALLERS, key, string.format('%.0f %.0f %.0f %.0f %s', caller.singles, caller.in_flight,
    caller.answered, caller.seen, caller.batch))
end

local function since(now, past)
  return math.max(now - past, 0)
end

-- A request has ended.
local function ended(key, now)
  local caller = caller_of(key)
  caller.in_flight = math.max(caller.in_flight - 1, 0)
  caller.answered, caller.seen = now, now
  put_caller(key, caller)
end

-- A request without history.
local function opened(caller, fresh, now)
  local soon = since(now, caller.answered) <= pause and caller.answered > 0
  if caller.in_flight == 0 and (soon or caller.singles == 0) then
    caller.singles = caller.singles + 1
  else
    caller.singles = 1
  end
  if caller.singles <= batch_of then
    caller.batch = NONE
    return fresh, 'new'
  end
  if caller.batch == NONE then
    caller.batch = fresh
  end
  return caller.batch, 'single'
end

-- The seat to take: from the last answer one where no request has gone on yet; else that of the same
-- request, one that has gone on, or the last.
local function seat(seats, back, last)
  local free, same, gone_on
  for at = 1, #seats, 17 do
    local taken, session = seats:sub(at, at) == '1', seats:sub(at + 1, at + 16)
    if not taken and back == 1 and not free then
      free = at
    end
    if session == last then
      same = at
    end
    if taken then
      gone_on = at
    end
  end
  return free or same or gone_on or #seats - 16
end

-- A request that repeats answers.
local function continued(caller, answers, last, fresh)
  caller.singles = 0
  for back, key in ipairs(answers) do
    local seats = get(ANSWERS, key)
    if seats then
      local at = seat(seats, back, last)
      local session, known = seats:sub(at + 1, at + 16), 'continued'
      if session == caller.batch then
        -- One of many single prompts turns out to be a conversation: it has its own session.
        session, known = fresh, 'new'
      end
      put(ANSWERS, key, seats:sub(1, at - 1) .. '1' .. session .. seats:sub(at + 17))
      return session, known
    end
  end
  return fresh, 'new'
end

if what == 'find' then
  local key, request, again, fresh, now = ARGV[8], ARGV[9], ARGV[10] == '1', ARGV[11], tonumber(ARGV[12])
  local answers = {}
  for at = 13, #ARGV do
    answers[#answers + 1] = ARGV[at]
  end
  local sent = get(REQUESTS, request) or NONE
  local last, failed = sent:sub(1, 16), sent:sub(17)
  local caller = caller_of(key)
  if since(now, caller.seen) > lost then
    caller.in_flight = 0
  end
  local session, known
  if #failed > 0 then
    session, known = failed:sub(-16), 'again'
    failed = failed:sub(1, -17)
  elseif again and last ~= NONE then
    session, known = last, 'again'
  elseif #answers == 0 then
    session, known = opened(caller, fresh, now)
  else
    session, known = continued(caller, answers, last, fresh)
  end
  put(REQUESTS, request, session .. failed)
  caller.in_flight, caller.seen = caller.in_flight + 1, now
  put_caller(key, caller)
  return {session, known}
elseif what == 'answered' then
  local key, session, now = ARGV[8], ARGV[9], tonumber(ARGV[10])
  ended(key, now)
  for at = 11, #ARGV do
    local seats = get(ANSWERS, ARGV[at]) or ''
    local there = false
    for seat_at = 1, #seats, 17 do
      there = there or seats:sub(seat_at + 1, seat_at + 16) == session
    end
    if not there then
      if #seats >= twins * 17 then
        seats = seats:sub(18)
      end
      put(ANSWERS, ARGV[at], seats .. '0' .. session)
    end
  end
  return {}
elseif what == 'failed' then
  local key, request, session, now = ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11])
  ended(key, now)
  local sent = get(REQUESTS, request) or NONE
  local last, failed = sent:sub(1, 16), sent:sub(17)
  if #failed >= twins * 16 then
    failed = failed:sub(17)
  end
  put(REQUESTS, request, last .. failed .. session)
  return {}
elseif what == 'answer' then
  local seats = get(ANSWERS, ARGV[8])
  return {seats and seats:sub(-16) or NONE}
else
  -- The owner of a name: the first credential that used it. Written again, so that it does not expire.
  local owner = get(OWNERS, ARGV[8]) or ARGV[9]
  put(OWNERS, ARGV[8], owner)
  return {owner}
end
