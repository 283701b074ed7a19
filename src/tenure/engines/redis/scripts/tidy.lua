-- Forget rates that say nothing any more: see tenure.core.limits.is_over.
-- include: numbers base rows limits
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {count}, of each queue.
-- Answers the queues whose blocked jobs are still to be made ready: see unblock. Safe to repeat.

local count = cmsgpack.unpack(ARGV[2])[1]
local past = "(" .. place(sum(text(clock()), "1"))
for _, queue in ipairs(call("SMEMBERS", PREFIX .. "paced")) do
  local spent, rates = PREFIX .. "spent:" .. queue, PREFIX .. "rates:" .. queue
  local members = call("ZRANGEBYLEX", spent, "-", past, "LIMIT", 0, count)
  local keys = {}
  for i, member in ipairs(members) do
    keys[i] = string.sub(member, 9)
  end
  in_chunks("ZREM", spent, members)
  in_chunks("HDEL", rates, keys)
  if call("EXISTS", rates) == 0 then
    call("SREM", PREFIX .. "paced", queue)
  end
end
return call("HKEYS", PREFIX .. "freeing")
