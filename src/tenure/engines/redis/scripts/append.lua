-- Keep events, in order.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: a list of {job, data}: `data` msgpack, `job` an id or false.
-- Not to be repeated when the answer was lost.

local now_text = text(clock())
for _, event in ipairs(cmsgpack.unpack(ARGV[2])) do
  local number = call("HINCRBY", PREFIX .. "meta", "events", 1)
  local fields = {"at", now_text, "data", event[2]}
  if event[1] then
    fields[5], fields[6] = "job", event[1]
  end
  call("XADD", PREFIX .. "events", number .. "-0", unpack(fields))
  if event[1] then
    call("RPUSH", PREFIX .. "events:of:" .. event[1], number)
  end
end
return 1
