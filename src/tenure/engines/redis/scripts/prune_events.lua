-- Remove events that were kept before an instant, of the first ones only.
-- include: numbers base
--
-- KEYS[1]: see base. ARGV[2]: {before, limit}: so many events are looked at. Answers how many were
--   removed. Safe to repeat.

local before, limit = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local stream, removed = PREFIX .. "events", 0
for _, entry in ipairs(call("XRANGE", stream, "-", "+", "COUNT", limit)) do
  local id, at, job = entry[1], entry[2][2], entry[2][6]
  if is_less(at, before) then
    call("XDEL", stream, id)
    if job then
      call("LREM", PREFIX .. "events:of:" .. job, 1, string.sub(id, 1, -3))
    end
    removed = removed + 1
  end
end
if call("XLEN", stream) == 0 then
  call("DEL", stream)
end
return removed
