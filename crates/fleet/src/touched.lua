-- The scopes that were touched since a time, the newest first. What was not for a day is forgotten.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 86400000)
local flat = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local found = {}
for i = 1, #flat, 2 do
  found[#found + 1] = {flat[i], flat[i + 1]}
end
return {now, found}
