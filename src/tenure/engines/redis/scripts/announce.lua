-- Say that a worker is there until some time, or that it left.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {worker, ttl, info}: `ttl` in microseconds.
-- Words that no longer hold are forgotten. Safe to repeat.

local worker, ttl, info = unpack(cmsgpack.unpack(ARGV[2]), 1, 3)
local now = clock()
local gone = call("ZRANGEBYSCORE", PREFIX .. "workers:until", "-inf", text(now))
gone[#gone + 1] = worker
in_chunks("ZREM", PREFIX .. "workers:until", gone)
in_chunks("HDEL", PREFIX .. "workers", gone)
if ttl > 0 then
  call("HSET", PREFIX .. "workers", worker, text(now) .. " " .. info)
  call("ZADD", PREFIX .. "workers:until", text(now + ttl), worker)
end
return 1
