-- Remove those of the first events that were kept before an instant; no others are looked at.
-- include: numbers base
--
-- KEYS[1]: see base. ARGV[2]: {before, limit}. Answers how many were removed. Safe to repeat.

local before, limit = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local stream = PREFIX .. "events"
local removed = 0
for _, entry in ipairs(call("XRANGE", stream, "-", "+", "COUNT", limit)) do
  local place, fields = entry[1], entry[2]
  if is_less(fields[2], before) then
    call("XDEL", stream, place)
    if fields[6] then
      call("LREM", PREFIX .. "events:of:" .. fields[6], 1, (string.sub(place, 1, -3)))
    end
    removed = removed + 1
  end
end
if call("XLEN", stream) == 0 then
  call("DEL", stream)
end
return removed
