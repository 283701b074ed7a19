-- Say that somebody listens to some queues, or no longer does.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {ear, queues, listens}. Safe to repeat.

local ear, queues, listens = unpack(cmsgpack.unpack(ARGV[2]), 1, 3)
for _, queue in ipairs(queues) do
  if listens then
    call("ZADD", PREFIX .. "ears:" .. queue, "NX", text(clock()), ear)
  else
    call("ZREM", PREFIX .. "ears:" .. queue, ear)
  end
end
return 1
