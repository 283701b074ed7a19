-- Remove the first events that were kept before an instant.
-- include: numbers base
--
-- KEYS[1]: see base. ARGV[2]: {before, limit}. Answers how many were removed. Safe to repeat.

local before, limit = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local times, stream = PREFIX .. "events:at", PREFIX .. "events"
local count = call("ZCOUNT", times, "-inf", "(" .. before)
local numbers = {}
if count <= limit then
  numbers = call("ZRANGEBYSCORE", times, "-inf", "(" .. before)
else
  -- By number, not by time: only where the clock went back are younger ones in between.
  local first = "-"
  while #numbers < limit do
    local entries = call("XRANGE", stream, first, "+", "COUNT", 1000)
    for _, entry in ipairs(entries) do
      local number = string.sub(entry[1], 1, -3)
      if #numbers < limit and is_less(entry[2][2], before) then
        numbers[#numbers + 1] = number
      end
      first = text(tonumber(number) + 1) .. "-0"
    end
  end
end
for _, number in ipairs(numbers) do
  local entry = call("XRANGE", stream, number .. "-0", number .. "-0")[1]
  call("XDEL", stream, number .. "-0")
  call("ZREM", times, number)
  local job = entry and entry[2][6]
  if job then
    call("LREM", PREFIX .. "events:of:" .. job, 1, number)
  end
end
if call("XLEN", stream) == 0 then
  call("DEL", stream)
end
return #numbers
