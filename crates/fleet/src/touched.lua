-- The scopes used since a time, the most recent first. Scopes not used for a day leave the index.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 86400000)
local flat = redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local found = {}
for i = 1, #flat, 2 do
  found[#found + 1] = {flat[i], flat[i + 1]}
end
return {now, found}
