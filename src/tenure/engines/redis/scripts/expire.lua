-- End pending jobs of any queue that may no longer start, the first ones first.
-- include: numbers base signals rows limits merge
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {limit}. Answers a list of ids.
-- What is written is said by tenure.core.rules.expired_values. Safe to repeat.

local limit = cmsgpack.unpack(ARGV[2])[1]
local now = clock()
local now_text = text(now)
local sources, found, freed, woken = {}, {}, {}, {}
for _, queue in ipairs(call("SMEMBERS", PREFIX .. "queues")) do
  sources[#sources + 1] = by_place(PREFIX .. "overdue:" .. queue, now_text)
end
if limit > 0 then
  merge(sources, math.min(limit, 1000), function(member)
    found[#found + 1] = string.sub(member, 9)
    return #found == limit and "stop"
  end)
end
for i, id in ipairs(found) do
  if i == 1 then
    begin_writing()
  end
  expire_row(id, load(id), now_text, freed)
end
pass_on(freed, woken)
wake_all(woken, now)
tell("done", found)
return cmsgpack.pack(found)
