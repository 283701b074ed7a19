-- Free a key that is reserved for ever, if this job holds it.
-- include: base
--
-- KEYS[1]: see base. ARGV[2]: {key, owner}: `owner` false for whomever. Answers 1 if it was freed.

local key, owner = unpack(cmsgpack.unpack(ARGV[2]), 1, 2)
local kept = call("HGET", PREFIX .. "forever", key)
if not kept then
  return 0
end
if owner and string.sub(kept, string.find(kept, ":", 1, true) + 1) ~= owner then
  return 0
end
return call("HDEL", PREFIX .. "forever", key)
