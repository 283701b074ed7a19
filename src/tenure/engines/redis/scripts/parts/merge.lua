-- The first of several sorted sets, in their common order. Needs base, numbers.

-- What is still to come of a sorted set. `read(offset, count)` gives members in order; `places`:
-- the order is by a number first, so that members and numbers take turns.
local function source(read, places)
  return {read = read, width = places and 2 or 1, offset = 0, at = 1, list = {}}
end

local function advance(one, chunk)
  one.at = one.at + one.width
  if one.at > #one.list then
    if one.ended then
      one.head = nil
      return
    end
    one.list = one.read(one.offset, chunk)
    one.offset = one.offset + chunk
    one.ended = #one.list < chunk * one.width
    one.at = 1
  end
  one.head = one.list[one.at]
  one.number = one.width == 2 and one.head and tonumber(one.list[one.at + 1])
end

local function comes_first(one, other)
  if one.number and one.number ~= other.number then
    return one.number < other.number
  end
  return is_before(one.head, other.head)
end

-- Calls visit(member, source) for one after the other, until it returns "stop" or nothing is left;
-- "leave" leaves the rest of its source out. The sources are kept as a heap.
local function merge(sources, chunk, visit)
  local heap = {}
  local function sink(i)
    while true do
      local least, left = i, 2 * i
      if left <= #heap and comes_first(heap[left], heap[least]) then
        least = left
      end
      if left < #heap and comes_first(heap[left + 1], heap[least]) then
        least = left + 1
      end
      if least == i then
        return
      end
      heap[i], heap[least] = heap[least], heap[i]
      i = least
    end
  end
  for i = 1, #sources do
    advance(sources[i], chunk)
    if sources[i].head then
      heap[#heap + 1] = sources[i]
    end
  end
  for i = math.floor(#heap / 2), 1, -1 do
    sink(i)
  end
  while #heap > 0 do
    local first = heap[1]
    local word = visit(first.head, first)
    if word == "stop" then
      return
    end
    if word == "leave" then
      first.head = nil
    else
      advance(first, chunk)
    end
    if not first.head then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    sink(1)
  end
end

-- Members of a set kept in the order of their bytes, up to a number (as text).
local function by_place(key, last)
  local most = last and "(" .. place(sum(last, "1")) or "+"
  return source(function(offset, count)
    return call("ZRANGEBYLEX", key, "-", most, "LIMIT", offset, count)
  end)
end

-- Members of a set kept in the order of their scores, up to a number.
local function by_score(key, last)
  return source(function(offset, count)
    return call("ZRANGEBYSCORE", key, "-inf", last, "WITHSCORES", "LIMIT", offset, count)
  end, true)
end
