-- Heartbeat: renews the lease of one node, publishes a tick, and returns all nodes of the last
-- hour.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], now + tonumber(ARGV[2]))
local all, nodes = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local till = tonumber(all[i + 1])
  if till < now - 3600000 then
    redis.call('HDEL', KEYS[1], all[i])
  else
    nodes[#nodes + 1] = {all[i], till}
  end
end
redis.call('PUBLISH', ARGV[3], ARGV[4])
return {now, nodes}
