-- 2 KB chat requests for wrk: random words, many sessions, and the figures as a line of JSON.

local bodies, at = {}, 0

local function words(bytes)
  local parts, size = {}, 0
  while size < bytes do
    local letters = {}
    for i = 1, math.random(3, 8) do letters[i] = string.char(math.random(97, 122)) end
    parts[#parts + 1] = table.concat(letters)
    size = size + #letters + 1
  end
  return table.concat(parts, " ")
end

local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  math.randomseed(number)
  for i = 1, 256 do
    bodies[i] = string.format(
      '{"model":"bench-json","stream":false,"messages":[{"role":"system","content":"%s"},{"role":"user","content":"%s"}]}',
      words(400), words(1400))
  end
  wrk.method = "POST"
  wrk.headers["content-type"] = "application/json"
  wrk.headers["authorization"] = "Bearer sk-bench"
end

function request()
  at = at + 1
  wrk.headers["x-deadstop-session"] = "wrk-" .. number .. "-" .. (math.floor(at / 20) % 500)
  return wrk.format(nil, nil, nil, bodies[at % #bodies + 1])
end

function done(summary, latency)
  local errors = summary.errors
  local failures = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('{"requests":%d,"seconds":%.3f,"failures":%d,"p50":%d,"p99":%d}\n',
    summary.requests, summary.duration / 1e6, failures, latency:percentile(50), latency:percentile(99)))
end
