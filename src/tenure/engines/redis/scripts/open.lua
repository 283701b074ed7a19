-- Make the store, or read what it says of itself.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {version, min_library} of a store that is made now; or {}.
-- Answers {now, version, min_library}; the last two false if there is no store. Safe to repeat.

local given = cmsgpack.unpack(ARGV[2])
if given[1] then
  call("HSETNX", PREFIX .. "meta", "version", given[1])
  call("HSETNX", PREFIX .. "meta", "min_library", given[2])
end
local kept = call("HMGET", PREFIX .. "meta", "version", "min_library")
return {text(clock()), kept[1], kept[2]}
