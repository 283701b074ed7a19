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
  local row = call("HMGET", job_key(id), unpack(FIELDS))
  if not row[STATE] then
    return "gone"
  end
  if (row[TOKEN] or "0") ~= token or (row[OWNER] or "") ~= owner then
    return "taken"
  end
  if row[STATE] ~= "running" then
    return "settled"
  end
  if tonumber(row[LEASE]) <= now then
    return "lapsed"
  end
  if not wrote then
    begin_writing()
    wrote = true
  end
  local lease_until = text(now + length)
  call("ZADD", PREFIX .. "leases:" .. row[LANE], lease_until, id)
  if progress then
    call("HSET", job_key(id), "lease", lease_until, "prog", progress)
  else
    call("HSET", job_key(id), "lease", lease_until)
  end
  return row[STOP] and "stop" or "kept"
end

for i, beat in ipairs(cmsgpack.unpack(ARGV[2])) do
  answers[i] = extended(unpack(beat, 1, 5))
end
return cmsgpack.pack(answers)
