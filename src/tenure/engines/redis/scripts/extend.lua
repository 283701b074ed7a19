-- Prolong leases, each if its token and owner are those of a running job whose lease still runs.
-- include: numbers base rows
--
-- KEYS[1], ARGV[1]: see base.
-- ARGV[2]: a list of {id, token, owner, length, progress}: `length` in microseconds, `progress` JSON
--   or false.
-- Answers a list: "kept", "stop" (kept, and a cancel was requested), "gone", "taken", "settled",
--   "lapsed".
--
-- Safe to repeat: it says again how long the lease runs from now.

local now = clock()
local answers, wrote = {}, false

local function extended(id, token, owner, length, progress)
  local state, lane, has_token, has_owner, stop, lease =
    unpack(call("HMGET", job_key(id), "state", "lane", "token", "owner", "stop", "lease"), 1, 6)
  if not state then
    return "gone"
  end
  if (has_token or "0") ~= token or (has_owner or "") ~= owner then
    return "taken"
  end
  if state ~= "running" then
    return "settled"
  end
  if tonumber(lease) <= now then
    return "lapsed"
  end
  if not wrote then
    begin_writing()
    wrote = true
  end
  local lease_until = text(now + length)
  call("ZADD", PREFIX .. "leases:" .. lane, lease_until, id)
  if progress then
    call("HSET", job_key(id), "lease", lease_until, "prog", progress)
  else
    call("HSET", job_key(id), "lease", lease_until)
  end
  return stop and "stop" or "kept"
end

for i, beat in ipairs(cmsgpack.unpack(ARGV[2])) do
  answers[i] = extended(unpack(beat, 1, 5))
end
return cmsgpack.pack(answers)
